package proposals

import (
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv"
)

var _ = Describe("the samples", func() {
	It("set a namespace up, in which two people of the group approve what is proposed", func() {
		s := &scene{ns: env.Namespace(GinkgoT(), nil), flux: testenv.ServiceAccountUser("payments", "proposals")}
		Expect(env.Grant(ctx, s.ns, "ctrlrun-policy-proposer", s.flux)).To(Succeed())
		objects, err := env.Render(ctx, "config/samples/proposals")
		Expect(err).NotTo(HaveOccurred())
		Expect(objects).To(HaveLen(5))
		for _, o := range objects {
			o.SetNamespace(s.ns)
			Expect(env.Admin().Create(ctx, o)).To(Succeed())
		}
		data, err := os.ReadFile(filepath.Join(env.Root, "config", "samples", "proposals", "refunds.yaml"))
		Expect(err).NotTo(HaveOccurred())
		o := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal(data, &o.Object)).To(Succeed())
		spec, _, err := unstructured.NestedMap(o.Object, "spec")
		Expect(err).NotTo(HaveOccurred())
		s.proposes("refunds", spec)
		a := s.asked("refunds")
		Expect(a.Status.Approval.Required).To(Equal(int64(2)))
		for _, name := range []string{"lena", "luis"} {
			s.approves(testenv.User{Name: name, Groups: []string{"payments-leads"}}, a)
		}
		s.reaches("refunds", v1alpha1.ProposalApplied)
		s.inForce("refunds")
	})
})
