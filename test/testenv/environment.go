// Package testenv runs a real Kubernetes API with this product installed on it: etcd and kube-apiserver on loopback, the
// CRDs, roles and admission policies of config/, and users with client certificates.
//
// It serves the integration tests, the demo and `make up` alike, so it needs no *testing.T. There is no fake client and no
// mocked apiserver: create-conflicts, resourceVersions, RBAC and admission policies are what the product's promises rest
// on, and they exist nowhere else. What is missing compared with a cluster are the controllers around it: nothing
// garbage-collects, no namespace finishes terminating, no Deployment gets pods, unless Options.Workloads says so.
package testenv

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv/assets"
)

// SystemNamespace is the namespace that config/ installs into and the operator runs in.
const SystemNamespace = "ctrlrun-system"

// Options say what to start. The zero value is what tests want.
type Options struct {
	// Manifests is the kustomize directory that is applied, relative to the root of the repository.
	// Default: config/local, everything but the Deployment.
	Manifests string
	// Dir takes kubeconfigs, logs, certificates and etcd's data. It is created if needed and left behind.
	// Default: a temporary directory, removed by Stop.
	Dir string
	// APIServerFlags are added to the kube-apiserver's, without dashes.
	APIServerFlags map[string]string
	// Workloads, if set, lets pods run.
	Workloads *Workloads
}

// Environment is a running control plane.
type Environment struct {
	// Root is the directory of the repository.
	Root string
	// Dir holds kubeconfigs and logs.
	Dir string
	// Assets is the directory of the binaries; kubectl is one of them.
	Assets string
	// Scheme knows the kinds of Kubernetes and of this product.
	Scheme *runtime.Scheme

	envtest   *envtest.Environment
	admin     client.WithWatch
	temporary bool
	logs      []*os.File

	mu        sync.Mutex
	users     map[string]*account
	processes []*Process
	parts     []*Process // those of the processes that Workloads need
	operators []*Operator
}

// Scheme returns a scheme with the kinds of Kubernetes and of this product.
func Scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Start brings up etcd and kube-apiserver, applies the manifests and returns when their admission policies are enforced.
// The binaries must be there; see package assets. On an error nothing is left running.
func Start(ctx context.Context, o Options) (_ *Environment, err error) {
	root, err := assets.Root()
	if err != nil {
		return nil, err
	}
	binaries, err := assets.Find(root)
	if err != nil {
		return nil, err
	}
	if o.Workloads != nil {
		if err := o.Workloads.check(binaries); err != nil {
			return nil, err
		}
	}
	scheme, err := Scheme()
	if err != nil {
		return nil, err
	}
	e := &Environment{Root: root, Dir: o.Dir, Assets: binaries, Scheme: scheme, users: map[string]*account{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.Stop())
		}
	}()
	if e.Dir == "" {
		if e.Dir, err = os.MkdirTemp("", "ctrlrun-testenv-"); err != nil {
			return nil, err
		}
		e.temporary = true
	}
	if err := e.startControlPlane(o); err != nil {
		return nil, err
	}
	manifests := o.Manifests
	if manifests == "" {
		manifests = filepath.Join("config", "local")
	}
	if err := e.Apply(ctx, manifests); err != nil {
		return nil, fmt.Errorf("installing %s: %w", manifests, err)
	}
	if o.Workloads != nil {
		// After the CRDs: garbage collection and quotas look for new kinds every 30 seconds only.
		if err := e.startWorkloads(ctx, o.Workloads); err != nil {
			return nil, err
		}
	}
	if err := e.waitForPolicies(ctx); err != nil {
		return nil, fmt.Errorf("waiting for the admission policies to be enforced: %w", err)
	}
	if o.Workloads != nil {
		if err := e.waitForWorkloads(ctx); err != nil {
			return nil, err
		}
	}
	return e, nil
}

func (e *Environment) startControlPlane(o Options) error {
	for _, dir := range []string{"etcd", "apiserver"} {
		if err := os.MkdirAll(filepath.Join(e.Dir, dir), 0o700); err != nil {
			return err
		}
	}
	etcdLog, err := e.log("etcd")
	if err != nil {
		return err
	}
	apiserverLog, err := e.log("kube-apiserver")
	if err != nil {
		return err
	}
	// Plain files and not writers: a writer would need a pipe and a reader in this process, and the control plane would
	// die of a broken pipe with it instead of being stopped.
	e.envtest = &envtest.Environment{
		BinaryAssetsDirectory: e.Assets,
		Scheme:                e.Scheme,
		ControlPlane: envtest.ControlPlane{
			Etcd: &envtest.Etcd{
				Path: filepath.Join(e.Assets, "etcd"), DataDir: filepath.Join(e.Dir, "etcd"), Out: etcdLog, Err: etcdLog,
			},
			APIServer: &envtest.APIServer{
				Path: filepath.Join(e.Assets, "kube-apiserver"), CertDir: filepath.Join(e.Dir, "apiserver"), Out: apiserverLog, Err: apiserverLog,
			},
			KubectlPath: e.Kubectl(),
		},
	}
	// Nothing here outlives its directory, so nothing is worth an fsync: writes take a tenth of the time.
	e.envtest.ControlPlane.Etcd.Configure().Set("unsafe-no-fsync", "true").Set("log-level", "warn")
	apiserver := e.envtest.ControlPlane.APIServer.Configure()
	// A loopback address is refused as an endpoint of the kubernetes Service, which nobody here uses.
	apiserver.Set("endpoint-reconciler-type", "none")
	if o.Workloads != nil {
		c, err := e.certificates()
		if err != nil {
			return err
		}
		c.flags(e.envtest.ControlPlane.APIServer)
	}
	for name, value := range o.APIServerFlags {
		apiserver.Set(name, value)
	}
	cfg, err := e.envtest.Start()
	if err != nil {
		return fmt.Errorf("%w; see %s", err, apiserverLog.Name())
	}
	e.admin, err = client.NewWithWatch(cfg, client.Options{Scheme: e.Scheme})
	return err
}

func (e *Environment) log(name string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(e.Dir, name+".log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err == nil {
		e.logs = append(e.logs, f)
	}
	return f, err
}

// Kubectl is the path of a kubectl of the control plane's version.
func (e *Environment) Kubectl() string { return filepath.Join(e.Assets, "kubectl") }

// Admin is a client of a member of system:masters. RBAC does not bind it; admission policies do.
func (e *Environment) Admin() client.WithWatch { return e.admin }

// AdminConfig is the connection of Admin.
func (e *Environment) AdminConfig() *rest.Config { return rest.CopyConfig(e.envtest.Config) }

// Stop ends operators and processes first, then the control plane, and removes a temporary Dir. It can be called twice.
func (e *Environment) Stop() error {
	e.mu.Lock()
	operators, processes := e.operators, e.processes
	e.operators, e.processes = nil, nil
	e.mu.Unlock()

	var errs []error
	for _, o := range operators {
		errs = append(errs, o.Stop())
	}
	for _, p := range processes {
		errs = append(errs, p.Stop())
	}
	if e.envtest != nil {
		errs = append(errs, e.envtest.Stop())
		e.envtest = nil
	}
	for _, f := range e.logs {
		errs = append(errs, f.Close())
	}
	e.logs = nil
	if e.temporary {
		errs = append(errs, os.RemoveAll(e.Dir))
	}
	return errors.Join(errs...)
}
