package testenv

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestTheControlPlaneComesBack: what was stored before is there after each of them, and can be written again.
func TestTheControlPlaneComesBack(t *testing.T) {
	ctx := context.Background()
	e, err := Start(ctx, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(); err != nil {
			t.Error(err)
		}
	})
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kept"}}
	if err := e.Admin().Create(ctx, o); err != nil {
		t.Fatal(err)
	}
	for name, cause := range map[string]func(context.Context) (func(context.Context) error, error){
		"apiserver": e.KillAPIServer, "etcd": e.KillEtcd, "no space": e.RaiseNoSpace,
	} {
		t.Run(name, func(t *testing.T) {
			repair, err := cause(ctx)
			if err != nil {
				t.Fatal(err)
			}
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lost"}}
			bounded, cancel := context.WithTimeout(ctx, stopTimeout)
			defer cancel()
			if name != "etcd" && e.Admin().Create(bounded, o) == nil { // without etcd the apiserver lets a write wait for it
				t.Error("a write was taken")
			}
			if err := repair(ctx); err != nil {
				t.Fatal(err)
			}
			kept := &corev1.ConfigMap{}
			if err := e.Admin().Get(ctx, client.ObjectKey{Namespace: "default", Name: "kept"}, kept); err != nil {
				t.Fatal(err)
			}
			kept.Data = map[string]string{"after": name}
			if err := e.Admin().Update(ctx, kept); err != nil {
				t.Fatal(err)
			}
		})
	}
}
