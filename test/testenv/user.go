package testenv

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// User is somebody the apiserver authenticates by a client certificate: no impersonation, so what RBAC and admission
// policies see is what they would see in a cluster. The apiserver adds system:authenticated.
type User struct {
	Name   string
	Groups []string
}

// ServiceAccountUser is a User with the name and the groups of a ServiceAccount. The ServiceAccount need not exist; for a
// token of one that does, see TokenConfig.
func ServiceAccountUser(namespace, name string) User {
	return User{
		Name:   "system:serviceaccount:" + namespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace},
	}
}

// OperatorUser is who the operator is: the ServiceAccount that config/rbac gives its role to.
func OperatorUser() User { return ServiceAccountUser(SystemNamespace, "ctrlrun-operator") }

// account is a User that has a certificate.
type account struct {
	config     *rest.Config
	client     client.WithWatch
	kubeconfig map[string]string // by default namespace
}

// Client returns a client that acts as the user; the same one for the same user. A failure to make one is a broken
// environment and no behaviour under test, so it panics.
func (e *Environment) Client(u User) client.WithWatch { return e.account(u).client }

// Config returns a connection as the user, a copy that the caller may change.
func (e *Environment) Config(u User) *rest.Config { return rest.CopyConfig(e.account(u).config) }

// Kubeconfig returns the path of a kubeconfig for the user, with default as the current namespace.
func (e *Environment) Kubeconfig(u User) string { return e.KubeconfigIn(u, metav1.NamespaceDefault) }

// KubeconfigIn is Kubeconfig with the given current namespace.
func (e *Environment) KubeconfigIn(u User, namespace string) string {
	a := e.account(u)
	e.mu.Lock()
	defer e.mu.Unlock()
	if path, ok := a.kubeconfig[namespace]; ok {
		return path
	}
	sum := sha256.Sum256([]byte(u.key() + "\x00" + namespace))
	path := filepath.Join(e.Dir, "users", hex.EncodeToString(sum[:8])+".kubeconfig")
	if err := WriteKubeconfig(path, a.config, u.Name, namespace); err != nil {
		panic(fmt.Sprintf("testenv: kubeconfig of %s: %v", u.Name, err))
	}
	a.kubeconfig[namespace] = path
	return path
}

// WriteKubeconfig writes a connection as a kubeconfig that only its owner can read.
func WriteKubeconfig(path string, cfg *rest.Config, user, namespace string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	const cluster = "ctrlrun"
	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters[cluster] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	kubeconfig.AuthInfos[user] = &clientcmdapi.AuthInfo{
		ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken,
	}
	kubeconfig.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user, Namespace: namespace}
	kubeconfig.CurrentContext = cluster
	return clientcmd.WriteToFile(*kubeconfig, path)
}

// TokenConfig returns a connection with a real token of a ServiceAccount, which must exist. A token can be bound to a pod:
// then the apiserver knows the pod's name and uid as well.
func (e *Environment) TokenConfig(ctx context.Context, namespace, name string, bound *authenticationv1.BoundObjectReference) (*rest.Config, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{BoundObjectRef: bound}}
	if err := e.admin.SubResource("token").Create(ctx, account, request); err != nil {
		return nil, fmt.Errorf("requesting a token of %s/%s: %w", namespace, name, err)
	}
	cfg := rest.AnonymousClientConfig(e.envtest.Config)
	cfg.BearerToken = request.Status.Token
	cfg.QPS, cfg.Burst = e.envtest.Config.QPS, e.envtest.Config.Burst
	return cfg, nil
}

func (u User) key() string { return u.Name + "\x00" + strings.Join(u.Groups, "\x00") }

func (e *Environment) account(u User) *account {
	e.mu.Lock()
	defer e.mu.Unlock()
	if a, ok := e.users[u.key()]; ok {
		return a
	}
	// No client-side throttling: a test that waits for its own client proves nothing about the product.
	added, err := e.envtest.AddUser(envtest.User{Name: u.Name, Groups: u.Groups}, &rest.Config{QPS: -1})
	if err != nil {
		panic(fmt.Sprintf("testenv: certificate of %s: %v", u.Name, err))
	}
	a := &account{config: added.Config(), kubeconfig: map[string]string{}}
	a.client, err = client.NewWithWatch(a.config, client.Options{Scheme: e.Scheme})
	if err != nil {
		panic(fmt.Sprintf("testenv: client of %s: %v", u.Name, err))
	}
	e.users[u.key()] = a
	return a
}
