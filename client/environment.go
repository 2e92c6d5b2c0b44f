package client

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// serviceAccountNamespace is where a pod finds the namespace it runs in.
const serviceAccountNamespace = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// NewFromEnvironment makes a client for where the program runs: in a pod with a service account, that account and the namespace of the
// pod; elsewhere the current context of the kubeconfig that kubectl would use (KUBECONFIG, or ~/.kube/config), and its namespace. A
// service account that is there and cannot be read is an error: nobody acts as somebody else by mistake.
func NewFromEnvironment() (*Client, error) {
	config, err := rest.InClusterConfig()
	switch {
	case err == nil:
		namespace, err := os.ReadFile(serviceAccountNamespace)
		if err != nil {
			return nil, fmt.Errorf("the namespace of this pod: %w", err)
		}
		return New(config, strings.TrimSpace(string(namespace)))
	case !errors.Is(err, rest.ErrNotInCluster) && !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("the service account of this pod: %w", err)
	}
	kubeconfig := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
	config, err = kubeconfig.ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("neither a service account nor a kubeconfig: %w", err)
	}
	namespace, _, err := kubeconfig.Namespace()
	if err != nil {
		return nil, fmt.Errorf("the namespace of the kubeconfig: %w", err)
	}
	return New(config, namespace)
}
