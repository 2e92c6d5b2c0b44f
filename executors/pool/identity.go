package pool

import (
	"context"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ctrlrun.dev/operator/api/v1alpha1"
)

const (
	// tokenTime is how long a token of a ServiceAccount is asked for at least, and tokenRest how much longer it is good at least than
	// what is begun with it may take.
	tokenTime = time.Hour
	tokenRest = 30 * time.Minute
	// readTime bounds each request that is made before anything is executed.
	readTime = 10 * time.Second
)

// identity is a ServiceAccount that the operator acts as.
type identity struct {
	name, namespace string
	config          *rest.Config
	kube            kubernetes.Interface
	expires         time.Time
}

// identities takes tokens of ServiceAccounts, and keeps them for a while. A token gives no right: what its ServiceAccount may do is
// asked with every request.
type identities struct {
	config *rest.Config // without the operator's credentials
	kube   kubernetes.Interface

	mu    sync.Mutex
	known map[types.NamespacedName]*identity
}

func newIdentities(config *rest.Config) (*identities, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for the tokens of ServiceAccounts: %w", err)
	}
	return &identities{config: rest.AnonymousClientConfig(config), kube: kube, known: map[types.NamespacedName]*identity{}}, nil
}

// of is the ServiceAccount of an Executor.
func (s *identities) of(ctx context.Context, o *v1alpha1.Executor) (*identity, error) {
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ServiceAccountName}
	s.mu.Lock()
	known := s.known[key]
	s.mu.Unlock()
	takes := longest(o) + tokenRest
	if known != nil && time.Until(known.expires) > takes {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	seconds := int64(max(tokenTime, 2*takes) / time.Second)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
	token, err := s.kube.CoreV1().ServiceAccounts(key.Namespace).CreateToken(ctx, key.Name, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("the operator cannot act as ServiceAccount %s: %w; it needs the verb create on its serviceaccounts/token (ClusterRole ctrlrun-operator-executors)", key.Name, err)
	}
	config := rest.CopyConfig(s.config)
	config.BearerToken = token.Status.Token
	config.UserAgent = "ctrlrun-operator/executor"
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of ServiceAccount %s: %w", key.Name, err)
	}
	made := &identity{name: key.Name, namespace: key.Namespace, config: config, kube: kube, expires: token.Status.ExpirationTimestamp.Time}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, other := range s.known {
		if !time.Now().Before(other.expires) {
			delete(s.known, k)
		}
	}
	s.known[key] = made
	return made, nil
}

// longest is how long an execution may take.
func longest(o *v1alpha1.Executor) time.Duration {
	var seconds int32
	switch spec := o.Spec; {
	case spec.HTTP != nil:
		seconds = spec.HTTP.TimeoutSeconds
	case spec.Job != nil:
		seconds = spec.Job.TimeoutSeconds
	case spec.Kubernetes != nil:
		seconds = spec.Kubernetes.TimeoutSeconds
	}
	return time.Duration(seconds) * time.Second
}

// value reads a key of a Secret or a ConfigMap.
func (i *identity) value(ctx context.Context, secret bool, name, key string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	kind, data := "ConfigMap", map[string][]byte{}
	if secret {
		kind = "Secret"
		o, err := i.kube.CoreV1().Secrets(i.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("ServiceAccount %s cannot read Secret %s: %w", i.name, name, err)
		}
		data = o.Data
	} else {
		o, err := i.kube.CoreV1().ConfigMaps(i.namespace).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return nil, fmt.Errorf("ServiceAccount %s cannot read ConfigMap %s: %w", i.name, name, err)
		}
		for k, v := range o.Data {
			data[k] = []byte(v)
		}
		for k, v := range o.BinaryData {
			data[k] = v
		}
	}
	value, ok := data[key]
	if !ok {
		return nil, fmt.Errorf("%s %s has no key %s", kind, name, key)
	}
	return value, nil
}
