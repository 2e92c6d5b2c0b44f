package metrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/test/testenv"
)

var _ = Describe("the metrics of the operator", func() {
	It("are those of docs/metrics.md, tell what happened and what waits, and name nothing an agent can choose", func(ctx SpecContext) {
		ns, agent := scene(ctx)
		propose := func(actionType, payment string, amount int) *client.Call {
			GinkgoHelper()
			return proposed(ctx, ns, agent, actionType, payment, amount)
		}

		By("executing one, leaving one Ambiguous, asking people about one, and having one denied")
		for payment, end := range map[string]error{"txn_good": nil, "txn_lost": errors.New("the provider did not answer")} {
			call := propose("stripe.refund", payment, 100)
			Expect(call.Claim(ctx)).Error().NotTo(HaveOccurred())
			Expect(call.Report(ctx, nil, end)).To(Succeed())
		}
		propose("stripe.refund", "txn_large", 90_000)
		propose("stripe.wire", "txn_unknown", 1)

		By("executing one where nothing is enforced")
		observed, observer := scene(ctx)
		mode := v1alpha1.ModeObserve
		settings := &v1alpha1.Settings{Spec: v1alpha1.SettingsSpec{Mode: &mode}}
		settings.Namespace, settings.Name = observed, v1alpha1.SettingsName
		owner := testenv.User{Name: "paula"}
		Expect(env.Grant(ctx, observed, "ctrlrun-policy-admin", owner)).To(Succeed())
		Expect(env.Client(owner).Create(ctx, settings)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(env.Admin().Get(ctx, kube.ObjectKeyFromObject(settings), settings)).To(Succeed())
			g.Expect(meta.IsStatusConditionFalse(settings.Status.Conditions, v1alpha1.EnforcingCondition)).To(BeTrue())
		}).Should(Succeed())
		call := proposed(ctx, observed, observer, "stripe.refund", "txn_seen", 90_000)
		Expect(call.Claim(ctx)).Error().NotTo(HaveOccurred())
		Expect(call.Report(ctx, nil, nil)).To(Succeed())

		By("breaking a glass")
		brokenGlass(ctx, observed)

		By("making a namespace again whose chain is known")
		other, another := scene(ctx)
		Eventually(ctx, func(g Gomega) {
			g.Expect(scrape(ctx, g)).To(ContainSubstring(fmt.Sprintf("ctrlrun_chain_seq{namespace=%q} ", other)))
		}).Should(Succeed())
		Expect(env.RecreateNamespace(ctx, other, func() {})).To(Succeed()) // what was in it stays
		proposed(ctx, other, another, "stripe.refund", "txn_again", 100)   // a chain is looked at when it is needed

		want := promised()
		Expect(len(want)).To(BeNumerically(">", 20))
		var body string
		Eventually(ctx, func(g Gomega) {
			body = scrape(ctx, g)
			for _, line := range []string{
				`ctrlrun_actions{state="AwaitingApproval"} 1`,
				`ctrlrun_actions{state="Pending"} 1`,
				`ctrlrun_actions_held{reason="ledger_rolled_back"} 1`,
				`ctrlrun_approvals_waiting 1`,
				`ctrlrun_actions_finished_total{decision="allow",reason="none",state="Committed"} 1`,
				`ctrlrun_actions_finished_total{decision="allow",reason="reported_unknown",state="Ambiguous"} 1`,
				`ctrlrun_actions_finished_total{decision="deny",reason="unknown_action",state="Denied"} 1`,
				`ctrlrun_effects{state="Ambiguous"} 1`,
				`ctrlrun_effect_transitions_total{state="Committed"} 2`,
				`ctrlrun_actions_observed_total{blocked_reason="approval_required",outcome="Committed"} 1`,
				`ctrlrun_effects_ambiguous_total{cause="ReportedUnknown"} 1`,
				`ctrlrun_effects_ambiguous_total{cause="LeaseLapsed"} 0`,
				`ctrlrun_proposal_to_admitted_seconds_count 3`,
				`ctrlrun_decision_seconds_count 5`,
				`ctrlrun_receipts_appended_total{kind="action"} 4`,
				fmt.Sprintf(`ctrlrun_namespace_held{namespace=%q,reason="ledger_rolled_back"} 1`, other),
				`ctrlrun_admission_held 0`,
				fmt.Sprintf(`ctrlrun_break_glass_open{namespace=%q} 1`, observed),
				`ctrlrun_receipts_missing_oldest_seconds 0`,
				`leader_election_master_status{name="operator.ctrlrun.dev"} 1`,
			} {
				g.Expect(strings.Split(body, "\n")).To(ContainElement(line))
			}
			served := families(body)
			for name, f := range want {
				g.Expect(served).To(HaveKeyWithValue(name, f))
			}
		}).Should(Succeed(), "%s", &printed{&body})

		for name := range families(body) {
			if strings.HasPrefix(name, "ctrlrun_") {
				Expect(want).To(HaveKey(name), "docs/metrics.md lacks it")
			}
		}
		for _, secret := range []string{"stripe", "txn_", "refund", agent.Name, "payments"} {
			Expect(body).NotTo(ContainSubstring(secret))
		}
	}, SpecTimeout(3*time.Minute))
})

func proposed(ctx context.Context, ns string, agent testenv.User, actionType, payment string, amount int) *client.Call {
	GinkgoHelper()
	sdk, err := client.New(env.Config(agent), ns)
	Expect(err).NotTo(HaveOccurred())
	call, err := sdk.Propose(ctx, client.Proposal{ActionType: actionType, Arguments: map[string]any{"payment_id": payment, "amount": amount}})
	Expect(err).NotTo(HaveOccurred())
	return call
}

// brokenGlass opens an envelope for an emergency, of a grant that the owner of the policies made.
func brokenGlass(ctx context.Context, ns string) {
	GinkgoHelper()
	owner, oncall := testenv.User{Name: "paula"}, testenv.User{Name: "oncall"}
	rule := func(resource, verb string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{resource}, Verbs: []string{verb}}
	}
	Expect(env.Allow(ctx, ns, oncall, rule("delegations", "create"), rule("grants", "breakglass"))).To(Succeed())
	for _, object := range []string{
		`{"kind":"Grant","metadata":{"name":"glass"},"spec":{"subject":{"agent":"*"},"actions":["stripe.refund"],"grantType":"BreakGlass","maxDurationSeconds":3600}}`,
		`{"kind":"Delegation","metadata":{"name":"emergency"},"spec":{"parentRef":{"kind":"Grant","name":"glass"},"subject":{"agent":"oncall"},"actions":["stripe.refund"],"breakGlass":true,"reason":"INC-7"}}`,
	} {
		o := &unstructured.Unstructured{}
		Expect(json.Unmarshal([]byte(`{"apiVersion":"ctrlrun.dev/v1alpha1",`+object[1:]), o)).To(Succeed())
		o.SetNamespace(ns)
		who := owner
		if o.GetKind() == "Delegation" {
			who = oncall
			Expect(unstructured.SetNestedField(o.Object, time.Now().Add(30*time.Minute).UTC().Format(time.RFC3339), "spec", "expirationTime")).To(Succeed())
		}
		Expect(env.Client(who).Create(ctx, o)).To(Succeed())
	}
}

// printed is the last scrape, once it is needed.
type printed struct{ body *string }

func (p *printed) String() string {
	var own strings.Builder
	for line := range strings.Lines(*p.body) {
		if strings.HasPrefix(line, "ctrlrun_") {
			own.WriteString(line)
		}
	}
	return own.String()
}
