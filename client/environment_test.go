package client

import (
	"os"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// outside makes the environment one of no pod, with a kubeconfig of these contexts, each with a namespace of its name.
func outside(t *testing.T, current string, contexts ...string) {
	t.Helper()
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBERNETES_SERVICE_PORT", "")
	t.Setenv("HOME", t.TempDir())
	config := clientcmdapi.NewConfig()
	config.CurrentContext = current
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "http://127.0.0.1:1"}
	for _, name := range contexts {
		config.Contexts[name] = &clientcmdapi.Context{Cluster: "c", Namespace: name}
	}
	path := filepath.Join(t.TempDir(), "config")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", path)
}

func TestOutsideOfAPodTheKubeconfigSays(t *testing.T) {
	outside(t, "payments", "payments", "other")
	c, err := NewFromEnvironment()
	if err != nil || c.Namespace() != "payments" {
		t.Fatalf("got %v, %v", c, err)
	}
}

func TestAContextWithoutANamespaceIsDefault(t *testing.T) {
	outside(t, "", "")
	if c, err := NewFromEnvironment(); err != nil || c.Namespace() != "default" {
		t.Fatalf("got %v, %v", c, err)
	}
}

func TestWithoutAnyIdentityThereIsNoClient(t *testing.T) {
	outside(t, "payments")
	if c, err := NewFromEnvironment(); err == nil {
		t.Fatalf("it acts in %s", c.Namespace())
	}
	if err := os.WriteFile(os.Getenv("KUBECONFIG"), []byte("neither: [yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if c, err := NewFromEnvironment(); err == nil {
		t.Fatalf("it acts in %s", c.Namespace())
	}
}
