package cli

import (
	"context"
	"errors"
	"fmt"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/records"
)

// session is a connection: to which cluster, as whom, in which namespace.
type session struct {
	*client.Client
	kube    kube.WithWatch
	user    authenticationv1.UserInfo
	cluster string // for people: the context and the address
}

// connect finds the cluster the way kubectl does, and asks it who we are.
func (a *app) connect(ctx context.Context) (*session, error) {
	config, err := a.config.ToRESTConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, exit.Errorf(exit.Failure, "no cluster is configured: set KUBECONFIG, or give --kubeconfig or --context")
	}
	if err != nil {
		return nil, err
	}
	namespace, _, err := a.config.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, err
	}
	config.UserAgent = "kubectl-ctrlrun/" + a.version
	// A command reads a handful of objects; client-side throttling would only make a person wait.
	config.QPS, config.Burst = 100, 200
	config.WarningHandler = rest.NewWarningWriter(a.streams.ErrOut, rest.WarningWriterOptions{Deduplicate: true})
	c, err := client.New(config, namespace)
	if err != nil {
		return nil, err
	}
	s := &session{Client: c, kube: c.Kube(), cluster: a.clusterName(config.Host)}
	if s.user, err = c.Whoami(ctx); err != nil {
		return nil, explain(err)
	}
	return s, nil
}

func (a *app) clusterName(host string) string {
	raw, err := a.config.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return host
	}
	name := raw.CurrentContext
	if a.config.Context != nil && *a.config.Context != "" {
		name = *a.config.Context
	}
	if name == "" {
		return host
	}
	return fmt.Sprintf("%s (%s)", name, host)
}

// explain adds to an error what to do about it. It keeps the error's type, so that the exit code stays the same.
func explain(err error) error {
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	switch {
	case meta.IsNoMatchError(err), missingKind(err):
		return fmt.Errorf("%w\nctrlrun is not installed in this cluster: ask a cluster-admin to install it: see the README (make install)", err)
	case apierrors.IsUnauthorized(err):
		return exit.With(exit.Refused, fmt.Errorf("%w\nthe cluster does not know these credentials: log in again, or choose another --context", err))
	case apierrors.IsForbidden(err):
		return exit.With(exit.Refused, fmt.Errorf("%w\nask whoever administers the namespace for the matching ctrlrun role; kubectl ctrlrun whoami shows what you have", err))
	case client.Refused(err):
		return exit.With(exit.Refused, err)
	case !errors.As(err, &status) && client.Unreachable(err):
		return fmt.Errorf("%w\nthe cluster does not answer: check --context and the network, then try again", err)
	}
	return err
}

// missingKind tells "there is no such kind" from "there is no such object": both are 404.
func missingKind(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details == nil || details.Name == ""
}

// key names an object in the session's namespace.
func (s *session) key(name string) kube.ObjectKey {
	return kube.ObjectKey{Namespace: s.Namespace(), Name: name}
}

// namespaceThere is an error if the namespace does not exist: in it every list is empty, and looks like good news. Somebody who
// may not read namespaces is not stopped.
func (s *session) namespaceThere(ctx context.Context) error {
	err := s.kube.Get(ctx, kube.ObjectKey{Name: s.Namespace()}, &corev1.Namespace{})
	if apierrors.IsNotFound(err) {
		return exit.Errorf(exit.Failure, "there is no namespace %q in this cluster: check -n and --context", s.Namespace())
	}
	return nil
}

// action reads one Action.
func (s *session) action(ctx context.Context, name string) (*v1alpha1.Action, error) {
	object := &v1alpha1.Action{}
	err := s.kube.Get(ctx, s.key(name), object)
	if apierrors.IsNotFound(err) && !missingKind(err) {
		return nil, exit.Errorf(exit.Failure, "there is no action %q in namespace %s: finished actions are deleted after a time; see kubectl ctrlrun actions, or inspect --key KEY", name, s.Namespace())
	}
	return object, explain(err)
}

// eachPage is records.EachPage with errors for people.
func (s *session) eachPage(ctx context.Context, list kube.ObjectList, page func() error, opts ...kube.ListOption) error {
	var stopped error
	err := records.EachPage(ctx, s.kube, list, func() error {
		stopped = page()
		return stopped
	}, opts...)
	if stopped != nil {
		return stopped
	}
	return explain(err)
}
