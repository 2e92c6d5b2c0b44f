package protocol

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/test/testenv"
)

// refusedByApiserver expects an error by which the apiserver refused a request, for a reason that names the given words.
func refusedByApiserver(err error, words string) {
	GinkgoHelper()
	Expect(err).To(HaveOccurred())
	Expect(apierrors.IsForbidden(err) || apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
	Expect(err.Error()).To(ContainSubstring(words))
}

// allowTypes lets a user create one kind of statement, and use a verb on some action types only.
func (s *scene) allowTypes(u testenv.User, resource, verb string, types ...string) {
	GinkgoHelper()
	rules := []rbacv1.PolicyRule{{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{resource}, Verbs: []string{"create"}}}
	if len(types) > 0 {
		rules = append(rules, rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{"actiontypes"}, ResourceNames: types, Verbs: []string{verb}})
	}
	Expect(env.Allow(ctx, s.ns, u, rules...)).To(Succeed())
}

// receiptExists reports whether an Action has a receipt in the chain.
func (s *scene) receiptExists(a *v1alpha1.Action) bool {
	GinkgoHelper()
	for _, r := range s.receipts() {
		if r.Spec.Kind == receipt.KindAction && r.Spec.ActionName == a.Name {
			return true
		}
	}
	return false
}

// admissionGap takes the bindings of admission policies away, so that they are not enforced, and gives the function that
// puts them back and returns when statements count again.
func admissionGap(names ...string) (closeGap func()) {
	GinkgoHelper()
	return env.AdmissionGap(GinkgoT(), names...)
}

// admissionSince is the time after which a statement must have been created to count.
func admissionSince() time.Time {
	GinkgoHelper()
	since, err := env.AdmissionSince(ctx)
	Expect(err).NotTo(HaveOccurred())
	return since
}
