package testenv

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// fieldOwner owns what Apply writes.
const fieldOwner = client.FieldOwner("ctrlrun-testenv")

// Apply renders a kustomize directory and applies it server-side, in an order that works the first time: CRDs until they
// are established, namespaces, then the rest as rendered. The directory is relative to the root of the repository.
func (e *Environment) Apply(ctx context.Context, dir string) error {
	objects, err := e.Render(ctx, dir)
	if err != nil {
		return err
	}
	slices.SortStableFunc(objects, func(a, b *unstructured.Unstructured) int { return phase(a) - phase(b) })
	for i, o := range objects {
		if i > 0 && phase(objects[i-1]) == 0 && phase(o) != 0 {
			if err := e.waitForCRDs(ctx, objects[:i]); err != nil {
				return err
			}
		}
		if err := e.admin.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), fieldOwner, client.ForceOwnership); err != nil {
			return fmt.Errorf("applying %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

func phase(o *unstructured.Unstructured) int {
	switch o.GetKind() {
	case "CustomResourceDefinition":
		return 0
	case "Namespace":
		return 1
	}
	return 2
}

// Render returns the objects of a kustomize directory. The kubectl of the control plane renders it, as it would for a user.
func (e *Environment) Render(ctx context.Context, dir string) ([]*unstructured.Unstructured, error) {
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(e.Root, dir)
	}
	cmd := exec.CommandContext(ctx, e.Kubectl(), "kustomize", dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kubectl kustomize %s: %w: %s", dir, err, strings.TrimSpace(stderr.String()))
	}
	var objects []*unstructured.Unstructured
	for d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(out), 4096); ; {
		o := &unstructured.Unstructured{}
		if err := d.Decode(&o.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("reading what kubectl kustomize %s printed: %w", dir, err)
		}
		if len(o.Object) > 0 {
			objects = append(objects, o)
		}
	}
}

func (e *Environment) waitForCRDs(ctx context.Context, crds []*unstructured.Unstructured) error {
	for _, o := range crds {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		err := poll(ctx, 20*time.Second, func(ctx context.Context) (bool, error) {
			if err := e.admin.Get(ctx, client.ObjectKeyFromObject(o), crd); err != nil {
				return false, err
			}
			return slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
				return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
			}), nil
		})
		if err != nil {
			return fmt.Errorf("waiting for CRD %s to be established: %w: %v", o.GetName(), err, crd.Status.Conditions)
		}
	}
	return nil
}

// waitForPolicies returns when every admission policy that exists now is enforced. The apiserver takes new policies up
// about once a second, all that its watch has delivered at once. So a marker of each kind, created last, shows by its
// effect that those before it are in force too.
func (e *Environment) waitForPolicies(ctx context.Context) (err error) {
	const marker = "ctrlrun-testenv-marker"
	meta := metav1.ObjectMeta{Name: marker}
	rules := &admissionregistrationv1.MatchResources{ResourceRules: []admissionregistrationv1.NamedRuleWithOperations{{
		ResourceNames: []string{marker},
		RuleWithOperations: admissionregistrationv1.RuleWithOperations{
			Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
		},
	}}}
	markers := []client.Object{
		&admissionregistrationv1.MutatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicySpec{
			MatchConstraints:   rules,
			ReinvocationPolicy: admissionregistrationv1.NeverReinvocationPolicy,
			Mutations: []admissionregistrationv1.Mutation{{
				PatchType: admissionregistrationv1.PatchTypeJSONPatch,
				JSONPatch: &admissionregistrationv1.JSONPatch{Expression: `[JSONPatch{op: "add", path: "/data", value: {"mutated": "yes"}}]`},
			}},
		}},
		&admissionregistrationv1.MutatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.MutatingAdmissionPolicyBindingSpec{
			PolicyName: marker,
		}},
		// It refuses only what the other marker has touched: one answer for both.
		&admissionregistrationv1.ValidatingAdmissionPolicy{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: rules,
			Validations:      []admissionregistrationv1.Validation{{Expression: "!has(object.data)", Message: marker}},
		}},
		&admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: meta, Spec: admissionregistrationv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: marker, ValidationActions: []admissionregistrationv1.ValidationAction{admissionregistrationv1.Deny},
		}},
	}
	defer func() {
		for _, o := range markers {
			err = errors.Join(err, client.IgnoreNotFound(e.admin.Delete(context.WithoutCancel(ctx), o)))
		}
	}()
	for _, o := range markers {
		if err := e.admin.Create(ctx, o); err != nil {
			return err
		}
	}
	err = poll(ctx, 20*time.Second, func(ctx context.Context) (bool, error) {
		err := e.admin.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: marker}}, client.DryRunAll)
		if apierrors.IsInvalid(err) || apierrors.IsForbidden(err) {
			return strings.Contains(err.Error(), marker+"' with binding"), nil
		}
		return false, err
	})
	if err != nil {
		return err
	}
	// A policy with parameters refuses everything until the apiserver's informer of their kind has listed it.
	return poll(ctx, 20*time.Second, func(ctx context.Context) (bool, error) {
		err := e.admin.Create(ctx, &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: marker}}, client.DryRunAll)
		return err == nil || !strings.Contains(err.Error(), "not yet synced"), nil
	})
}

// poll asks until the answer is yes, the deadline has passed or asking fails.
func poll(ctx context.Context, timeout time.Duration, done func(context.Context) (bool, error)) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, timeout, true, done)
}
