package pool

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"ctrlrun.dev/operator/api/v1alpha1"
)

const (
	// tokenTime is how long a token of a ServiceAccount is asked for. When half of it is over, another one is taken.
	tokenTime = time.Hour
	// tokenRetry is how long after a token could not be taken it is tried again, while there is one that is good.
	tokenRetry = 30 * time.Second
	// readTime bounds each request that is made before anything is executed.
	readTime = 10 * time.Second
)

// identity is a ServiceAccount that the operator acts as, for one execution.
type identity struct {
	name, namespace string
	config          *rest.Config
	kube            kubernetes.Interface
}

// identities takes tokens of ServiceAccounts, for each execution its own. None is kept for another execution: whoever takes the right to
// them from the operator, or makes the ServiceAccount anew, is heeded by the next one.
type identities struct {
	config *rest.Config // without the operator's credentials
	kube   kubernetes.Interface
}

func newIdentities(config *rest.Config) (*identities, error) {
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client for the tokens of ServiceAccounts: %w", err)
	}
	return &identities{config: rest.AnonymousClientConfig(config), kube: kube}, nil
}

// of is the ServiceAccount of an Executor.
func (s *identities) of(ctx context.Context, o *v1alpha1.Executor) (*identity, error) {
	namespace, name := o.Namespace, o.Spec.ServiceAccountName
	b := &bearer{take: func(ctx context.Context) (string, time.Time, error) {
		ctx, cancel := context.WithTimeout(ctx, readTime)
		defer cancel()
		seconds := int64(tokenTime / time.Second)
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
		token, err := s.kube.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, name, request, metav1.CreateOptions{})
		if err != nil {
			return "", time.Time{}, fmt.Errorf("the operator cannot act as ServiceAccount %s: %w; it needs the verb create on its serviceaccounts/token (ClusterRole ctrlrun-operator-executors)", name, err)
		}
		return token.Status.Token, token.Status.ExpirationTimestamp.Time, nil
	}}
	if _, err := b.token(ctx); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(s.config)
	config.Wrap(b.wrap)
	config.UserAgent = "ctrlrun-operator/executor"
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client of ServiceAccount %s: %w", name, err)
	}
	return &identity{name: name, namespace: namespace, config: config, kube: kube}, nil
}

// bearer gives each request a token that is good when it is sent: an execution can last for a day, and a token does not.
type bearer struct {
	// take gets a new token, and says until when it is good.
	take func(context.Context) (string, time.Time, error)

	mu          sync.Mutex
	known       string
	good, renew time.Time
}

func (b *bearer) token(ctx context.Context) (string, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if b.known != "" && now.Before(b.renew) {
		return b.known, nil
	}
	token, until, err := b.take(ctx)
	switch {
	case err == nil:
		b.known, b.good, b.renew = token, until, now.Add(until.Sub(now)/2)
	case b.known != "" && now.Before(b.good):
		b.renew = now.Add(min(tokenRetry, b.good.Sub(now)))
	default:
		return "", err
	}
	return b.known, nil
}

// wrap lets no request through without a token. It sends each once.
func (b *bearer) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		token, err := b.token(r.Context())
		if err != nil {
			if r.Body != nil {
				_ = r.Body.Close()
			}
			return nil, err
		}
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+token)
		return next.RoundTrip(r)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

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
