package testenv

import (
	"context"
	"errors"
	"fmt"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// WaitForAdmission returns when statements made from now on count. An operator must be running: it says since when they do,
// some seconds after it first saw its admission policies refuse what they must refuse. Creation times are whole seconds, so
// the second that this time is in has to be over.
func (e *Environment) WaitForAdmission(ctx context.Context) error {
	return e.waitForAdmission(ctx, time.Time{})
}

// waitForAdmission is WaitForAdmission once statements count since a later time than they did.
func (e *Environment) waitForAdmission(ctx context.Context, before time.Time) error {
	var since time.Time
	err := poll(ctx, 2*time.Minute, func(ctx context.Context) (done bool, err error) {
		since, err = e.AdmissionSince(ctx)
		return since.After(before) && time.Now().Truncate(time.Second).After(since), err
	})
	if err != nil {
		return fmt.Errorf("waiting for statements to count: %w: they do since %s, and did since %s", err, since, before)
	}
	return nil
}

// AdmissionSince is the time after which a statement must have been created to count, as operators recorded it; zero before
// they first did.
func (e *Environment) AdmissionSince(ctx context.Context) (time.Time, error) {
	ledger := &v1alpha1.Ledger{}
	if err := e.admin.Get(ctx, client.ObjectKey{Name: SystemNamespace}, ledger); err != nil {
		return time.Time{}, client.IgnoreNotFound(err)
	}
	if ledger.Status == nil || ledger.Status.AdmissionSince == nil {
		return time.Time{}, nil
	}
	return ledger.Status.AdmissionSince.Time, nil
}

// AdmissionGap takes bindings of admission policies away, as a cluster-admin can, so that the policies are not enforced, and
// fails the test if that fails. It gives the function that puts them back and returns when statements count again, for which
// an operator must be running. The test does so when it is over if it did not before.
func (e *Environment) AdmissionGap(t TB, bindings ...string) (closeGap func()) {
	t.Helper()
	ctx := context.Background()
	before, err := e.AdmissionSince(ctx)
	if err != nil {
		t.Fatalf("reading since when statements count: %v", err)
	}
	var away []*admissionregistrationv1.ValidatingAdmissionPolicyBinding
	closed := false
	closeGap = func() {
		t.Helper()
		if closed {
			return
		}
		closed = true
		var errs []error
		for _, b := range away {
			errs = append(errs, e.admin.Create(ctx, b))
		}
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("putting admission policies into force again: %v", err)
		}
		if err := e.waitForAdmission(ctx, before); err != nil {
			t.Fatalf("%v", err)
		}
	}
	t.Cleanup(closeGap)
	for _, name := range bindings {
		b := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
		if err := e.admin.Get(ctx, client.ObjectKey{Name: name}, b); err != nil {
			t.Fatalf("reading the binding %s: %v", name, err)
		}
		if err := e.admin.Delete(ctx, b); err != nil {
			t.Fatalf("deleting the binding %s: %v", name, err)
		}
		away = append(away, &admissionregistrationv1.ValidatingAdmissionPolicyBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: b.Labels, Annotations: b.Annotations}, Spec: b.Spec,
		})
	}
	return closeGap
}
