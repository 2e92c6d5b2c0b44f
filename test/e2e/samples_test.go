package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/testenv"
)

// The samples of authority, made by who makes them with the roles that are shipped, and judged as stored. The time is the
// samples' own: they have dates.
var _ = Describe("The samples of authority", func() {
	now := time.Date(2026, 12, 1, 12, 0, 0, 0, time.UTC)
	const files = "config/samples/grants"
	sample := func(name string) []*unstructured.Unstructured {
		GinkgoHelper()
		data, err := os.ReadFile(filepath.Join(env.Root, files, name))
		Expect(err).NotTo(HaveOccurred())
		var objects []*unstructured.Unstructured
		for _, document := range strings.Split(string(data), "\n---\n") {
			o := &unstructured.Unstructured{}
			Expect(yaml.UnmarshalStrict([]byte(document), &o.Object)).To(Succeed())
			objects = append(objects, o)
		}
		return objects
	}
	create := func(ctx SpecContext, u testenv.User, namespace string, objects ...*unstructured.Unstructured) {
		GinkgoHelper()
		for _, o := range objects {
			o.SetNamespace(namespace)
			Expect(env.Client(u).Create(ctx, o)).To(Succeed(), o.GetName())
		}
	}
	// world is all authority of a namespace as the operator reads it, with delegations accepted or not.
	world := func(ctx SpecContext, namespace string, accepted bool) *authority.Set {
		GinkgoHelper()
		d := authority.Documents{MaxDepth: v1alpha1.DefaultMaxDelegationDepth}
		grants, delegations, revocations := &v1alpha1.GrantList{}, &v1alpha1.DelegationList{}, &v1alpha1.RevocationList{}
		for _, list := range []client.ObjectList{grants, delegations, revocations} {
			Expect(env.Admin().List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		}
		uids := map[string]string{}
		for i := range grants.Items {
			source, findings := records.Grant(&grants.Items[i])
			Expect(findings).To(BeEmpty(), source.Name)
			uids[source.Name] = source.UID
			d.Grants = append(d.Grants, source)
		}
		for i := range delegations.Items {
			source := records.Delegation(&delegations.Items[i], time.Time{})
			Expect(source.Problem).To(BeEmpty(), source.Name)
			if accepted {
				source.Accepted, source.ParentUID = true, uids[source.Delegation.Parent.Name]
			}
			d.Delegations = append(d.Delegations, source)
		}
		for i := range revocations.Items {
			d.Revocations = append(d.Revocations, records.Revocation(&revocations.Items[i]))
		}
		return authority.NewSet(d)
	}
	ask := func(set *authority.Set, environment, agent, actionType, resource string, arguments map[string]any) string {
		p := action.Proposal{Name: actionType, Arguments: arguments, Principal: action.Principal{Agent: agent}, Environment: environment}
		if resource != "" {
			p.Resource = &resource
		}
		r := set.Evaluate(p, now)
		return strings.TrimSpace(string(r.Reason) + " " + r.Ref.String())
	}
	amount := func(n int64) map[string]any { return map[string]any{"amount": n} }

	It("for payments are granted by a policy admin, and bound what the agents propose", func(ctx SpecContext) {
		s := newStage()
		objects, err := env.Render(ctx, files)
		Expect(err).NotTo(HaveOccurred())
		create(ctx, s.policyAdmin, s.namespace, objects...)
		set := world(ctx, s.namespace, false)
		agent, head := "system:serviceaccount:payments:refund-agent", "head-of-finance@example.com"
		Expect(ask(set, "production", agent, "stripe.refund", "payment:EU-1", amount(500000))).To(Equal("authority_grant Grant/refunds"))
		Expect(ask(set, "production", agent, "stripe.refund", "payment:EU-1", amount(500001))).To(Equal("authority_constraint Grant/refunds"))
		Expect(ask(set, "production", agent, "stripe.refund", "payment:US-1", amount(1))).To(Equal(string(decision.NoAuthority)))
		Expect(ask(set, "staging", agent, "stripe.refund", "payment:EU-1", amount(1))).To(Equal(string(decision.NoAuthority)))
		Expect(ask(set, "production", agent, "stripe.payout", "", amount(1))).To(Equal(string(decision.NoAuthority)))
		Expect(ask(set, "production", head, "stripe.payout", "", amount(10000000))).To(Equal("authority_grant Grant/payouts"))
		// The envelope lets nobody propose, whoever may open it.
		Expect(ask(set, "production", "anybody", "stripe.refund", "payment:EU-1", amount(1))).To(Equal(string(decision.NoAuthority)))
	})

	It("for DevOps are handed on by an agent, and cut by a revoker", func(ctx SpecContext) {
		ns := env.Namespace(GinkgoT(), map[string]string{v1alpha1.EnvironmentLabel: "staging"})
		owner, agent, rosa := testenv.User{Name: "olga@example.com"}, testenv.ServiceAccountUser("platform", "release-agent"), testenv.User{Name: "rosa@example.com"}
		Expect(env.Grant(ctx, ns, "ctrlrun-policy-admin", owner)).To(Succeed())
		Expect(env.Grant(ctx, ns, "ctrlrun-agent", agent)).To(Succeed())
		Expect(env.Grant(ctx, ns, "ctrlrun-revoker", rosa)).To(Succeed())
		create(ctx, owner, ns, sample("devops.yaml")...)
		given := sample("delegation.yaml")[0]
		create(ctx, agent, ns, given)

		night := "system:serviceaccount:platform:night-agent"
		set := world(ctx, ns, false)
		made := &v1alpha1.Delegation{}
		Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(given), made)).To(Succeed())
		made.CreationTimestamp = metav1.NewTime(now) // the samples' own time, whatever the machine's is
		Expect(set.Judge(records.Delegation(made, time.Time{}), now).Message).To(Equal("It holds, 1 step below Grant/releases-staging."))
		Expect(ask(set, "staging", night, "deploy.rollback", "service:checkout", nil)).To(Equal(string(decision.NoAuthority)))

		set = world(ctx, ns, true)
		Expect(ask(set, "staging", night, "deploy.rollback", "service:checkout", nil)).To(Equal("authority_grant Delegation/releases-over-night"))
		Expect(ask(set, "production", night, "deploy.rollback", "service:checkout", nil)).To(Equal(string(decision.NoAuthority)))
		Expect(ask(set, "staging", night, "deploy.rollout", "service:checkout", nil)).To(Equal(string(decision.NoAuthority)))
		Expect(ask(set, "staging", agent.Name, "deploy.scale", "service:checkout", nil)).To(Equal("authority_grant Grant/releases-staging"))
		Expect(ask(set, "production", agent.Name, "deploy.scale", "service:checkout", nil)).To(Equal(string(decision.NoAuthority)))
		Expect(ask(set, "production", agent.Name, "deploy.rollout", "service:checkout", nil)).To(Equal("authority_grant Grant/releases"))

		cut := sample("revocation.yaml")[0]
		Expect(unstructured.SetNestedField(cut.Object, string(made.UID), "spec", "delegationRef", "uid")).To(Succeed())
		create(ctx, rosa, ns, cut)
		set = world(ctx, ns, true)
		Expect(ask(set, "staging", night, "deploy.rollback", "service:checkout", nil)).To(Equal("authority_revoked Delegation/releases-over-night"))
		Expect(ask(set, "staging", agent.Name, "deploy.rollback", "service:checkout", nil)).To(Equal("authority_grant Grant/releases-staging"))
	})

	It("have a grant for each envelope that a Role opens", func(ctx SpecContext) {
		grants := map[string]bool{}
		for _, name := range []string{"payments.yaml", "break-glass.yaml", "devops.yaml"} {
			for _, o := range sample(name) {
				grants[o.GetName()] = true
			}
		}
		objects, err := env.Render(ctx, "config/samples/roles")
		Expect(err).NotTo(HaveOccurred())
		opened := 0
		for _, o := range objects {
			role := &rbacv1.Role{}
			if o.GetKind() != "Role" {
				continue
			}
			Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, role)).To(Succeed())
			for _, rule := range role.Rules {
				if len(rule.Verbs) == 1 && rule.Verbs[0] == "breakglass" {
					opened++
					for _, name := range rule.ResourceNames {
						Expect(grants).To(HaveKey(name))
					}
				}
			}
		}
		Expect(opened).To(BeNumerically(">", 0))
	})
})
