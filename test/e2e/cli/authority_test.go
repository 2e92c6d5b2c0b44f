package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/test/testenv"
)

// authorityStage is a namespace where authority is required, with an agent that may hand on, somebody who opens an envelope,
// somebody who revokes, and somebody who may create delegations and read nothing.
type authorityStage struct {
	*cliStage
	helper, opener, revoker, blind testenv.User
}

func newAuthorityStage(ctx context.Context) *authorityStage {
	GinkgoHelper()
	s := &authorityStage{cliStage: newCLIStage()}
	ns := s.namespace
	user := func(name string) testenv.User { return testenv.User{Name: name + "@" + ns + ".example.com"} }
	s.helper, s.opener, s.revoker, s.blind = testenv.ServiceAccountUser(ns, "helper"), user("otto"), user("rosa"), user("bertha")
	ours := []string{"ctrlrun.dev"}
	for _, err := range []error{
		env.Grant(ctx, ns, "ctrlrun-agent", s.helper, s.opener),
		env.Grant(ctx, ns, "ctrlrun-revoker", s.revoker),
		env.Allow(ctx, ns, s.opener, rbacv1.PolicyRule{APIGroups: ours, Resources: []string{"grants"}, ResourceNames: []string{"glass"}, Verbs: []string{"breakglass"}}),
		env.Allow(ctx, ns, s.blind, rbacv1.PolicyRule{APIGroups: ours, Resources: []string{"delegations"}, Verbs: []string{"create", "get"}}),
	} {
		Expect(err).NotTo(HaveOccurred())
	}
	s.apply(ctx, &v1alpha1.Settings{}, "default", `{"authority":"Required"}`)
	root := `{"subject":{"agent":%q},"actions":["stripe.*"],"constraints":{"amount_lte":5000},"environments":["production"],"expirationTime":"2126-01-01T00:00:00Z","delegable":true}`
	for name, spec := range map[string]string{
		"root":  fmt.Sprintf(root, s.agent.Name),
		"blind": fmt.Sprintf(root, s.blind.Name),
		"plain": fmt.Sprintf(`{"subject":{"agent":%q},"actions":["iam.grant"]}`, s.agent.Name),
		"alice": fmt.Sprintf(`{"subject":{"agent":%q,"user":"alice"},"actions":["stripe.refund"],"expirationTime":"2126-01-01T00:00:00Z","delegable":true}`, s.agent.Name),
		"glass": `{"subject":{"agent":"*"},"actions":["stripe.refund"],"grantType":"BreakGlass","maxDurationSeconds":3600}`,
	} {
		s.apply(ctx, &v1alpha1.Grant{}, name, spec)
	}
	return s
}

// apply creates an object of a team's configuration.
func (s *authorityStage) apply(ctx context.Context, o client.Object, name, spec string) {
	GinkgoHelper()
	Expect(json.Unmarshal([]byte(`{"spec":`+spec+`}`), o)).To(Succeed())
	o.SetNamespace(s.namespace)
	o.SetName(name)
	Expect(env.Admin().Create(ctx, o)).To(Succeed())
}

// inForce waits until the operator has said of each grant that it is.
func (s *authorityStage) inForce(ctx context.Context) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		var list v1alpha1.GrantList
		g.Expect(env.Admin().List(ctx, &list, client.InNamespace(s.namespace))).To(Succeed())
		for _, o := range list.Items {
			g.Expect(meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ReadyCondition)).To(BeTrue(), o.Name)
		}
	}).WithTimeout(30 * time.Second).Should(Succeed())
}

const narrow = `subject: {agent: AGENT}
actions: [stripe.refund]
constraints: {amount_lte: 100}
environments: [production]
expirationTime: 2125-01-01T00:00:00Z
delegable: true
`

// terms writes a file of terms for somebody, with some words in it replaced.
func (s *authorityStage) terms(u testenv.User, replace ...string) string {
	GinkgoHelper()
	text := strings.NewReplacer(append([]string{"AGENT", fmt.Sprintf("%q", u.Name)}, replace...)...).Replace(narrow)
	f, err := os.CreateTemp(s.dir, "terms-*.yaml")
	Expect(err).NotTo(HaveOccurred())
	defer f.Close()
	_, err = f.WriteString(text)
	Expect(err).NotTo(HaveOccurred())
	return filepath.Base(f.Name())
}

func (s *authorityStage) delegation(name string) *v1alpha1.Delegation {
	GinkgoHelper()
	o := &v1alpha1.Delegation{}
	Expect(env.Admin().Get(context.Background(), client.ObjectKey{Namespace: s.namespace, Name: name}, o)).To(Succeed())
	return o
}

func (s *authorityStage) count(list client.ObjectList) int {
	GinkgoHelper()
	Expect(env.Admin().List(context.Background(), list, client.InNamespace(s.namespace))).To(Succeed())
	return meta.LenList(list)
}

// delegate hands on, and gives the name.
func (s *authorityStage) delegate(u testenv.User, parent, name string, to testenv.User) string {
	GinkgoHelper()
	r := s.run(u, "delegate", "--parent", parent, "-f", s.terms(to), "--name", name, "--yes")
	Expect(r.Code).To(Equal(0), r.Stderr)
	return name
}

// revokedLines are the names that were said to be revoked by this run.
func revokedLines(r cliResult) []string {
	var names []string
	for line := range strings.Lines(r.Stdout) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "revoked: "); ok {
			names = append(names, name)
		}
	}
	return names
}

var _ = Describe("authority by kubectl ctrlrun", Ordered, func() {
	var s *authorityStage

	BeforeAll(func(ctx SpecContext) {
		s = newAuthorityStage(ctx)
		startOperator(ctx)
		s.inForce(ctx)
	}, NodeTimeout(2*time.Minute))

	AfterEach(reportOperatorLog)

	Describe("delegate", func() {
		It("shows what it hands on beside the parent, waits for the verdict, and finds its own at a rerun", func() {
			file := s.terms(s.helper)
			args := []string{"delegate", "--parent", "root", "-f", file, "--reason", "for the night", "--yes"}
			r := s.run(s.agent, args...)
			Expect(r.Code).To(Equal(0), r.Stderr)
			Expect(r.Stdout).To(MatchRegexp(`^delegated: root\.[a-z0-9-]+ below Grant/root depth 1\n$`))
			Expect(r.Stderr).To(MatchRegexp(`DIMENSION +GRANT root +HANDED ON`))
			Expect(r.Stderr).To(MatchRegexp(`actions +stripe\.\* +stripe\.refund`))
			Expect(r.Stderr).To(MatchRegexp(`constraints +amount_lte: 5000 +amount_lte: 100`))
			Expect(r.Stderr).To(ContainSubstring("it will be accepted"))
			name := strings.Fields(r.Stdout)[1]
			o := s.delegation(name)
			Expect(o.Spec.Delegator.Agent).To(Equal(s.agent.Name))
			Expect(*o.Spec.Reason).To(Equal("for the night"))
			Expect(meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.AcceptedCondition)).To(BeTrue())

			before := s.count(&v1alpha1.DelegationList{})
			again := s.run(s.agent, args...)
			Expect(again.Code).To(Equal(0), again.Stderr)
			Expect(again.Stdout).To(Equal(r.Stdout))
			Expect(s.count(&v1alpha1.DelegationList{})).To(Equal(before))
		})

		It("hands on what was handed on, and prints the object", func() {
			s.delegate(s.agent, "Grant/root", "first", s.helper)
			r := s.run(s.helper, "delegate", "--parent", "delegation.ctrlrun.dev/first", "-f", s.terms(s.opener), "--name", "second", "--yes", "-o", "json")
			Expect(r.Code).To(Equal(0), r.Stderr)
			var o v1alpha1.Delegation
			Expect(json.Unmarshal([]byte(r.Stdout), &o)).To(Succeed())
			Expect(o.Name).To(Equal("second"))
			Expect(o.Status.Depth).To(BeEquivalentTo(2))
		})

		It("prints a manifest and creates nothing at a dry run", func() {
			before := s.count(&v1alpha1.DelegationList{})
			r := s.run(s.agent, "delegate", "--parent", "root", "-f", s.terms(s.helper), "--dry-run=client")
			Expect(r.Code).To(Equal(0), r.Stderr)
			var o v1alpha1.Delegation
			Expect(yaml.Unmarshal([]byte(r.Stdout), &o)).To(Succeed())
			Expect(o.Kind).To(Equal("Delegation"))
			Expect(o.Spec.ParentRef.Name).To(Equal("root"))
			Expect(s.count(&v1alpha1.DelegationList{})).To(Equal(before))
		})

		It("asks a person, and a pipe is none", func() {
			r := s.run(s.agent, "delegate", "--parent", "root", "-f", s.terms(s.helper))
			Expect(r.Code).To(Equal(2))
			Expect(r.Stderr).To(ContainSubstring("give --yes"))
		})

		It("does not take the name of another", func() {
			s.delegate(s.agent, "root", "taken", s.helper)
			r := s.run(s.agent, "delegate", "--parent", "root", "-f", s.terms(s.opener), "--name", "taken", "--yes")
			Expect(r.Code).To(Equal(1))
			Expect(r.Stdout).To(BeEmpty())
			Expect(r.Stderr).To(ContainSubstring("choose another --name"))
		})

		It("names what would be refused, with its dimension, and creates nothing", func() {
			before := s.count(&v1alpha1.DelegationList{})
			for _, t := range []struct {
				who    testenv.User
				parent string
				file   string
				says   string
			}{
				{s.agent, "root", s.terms(s.helper, "stripe.refund", "iam.grant"), "Containment (actions)"},
				{s.agent, "root", s.terms(s.helper, "amount_lte: 100", "amount_lte: 9999"), "Containment (constraints)"},
				{s.agent, "root", s.terms(s.helper, "environments: [production]\n", ""), "Containment (environments)"},
				{s.agent, "root", s.terms(s.helper, "2125-", "2127-"), "Containment (expires_at)"},
				{s.agent, "root", s.terms(testenv.User{Name: "many*"}), "Containment (subject)"},
				{s.agent, "alice", s.terms(s.helper), "NotTheSubject"},
				{s.helper, "root", s.terms(s.helper), "NotTheSubject"},
				{s.agent, "plain", s.terms(s.helper), "ParentNotDelegable"},
				{s.agent, "Grant/none", s.terms(s.helper), "UnknownParent"},
				{s.agent, "glass", s.terms(s.helper), "BreakGlassMismatch"},
			} {
				r := s.run(t.who, "delegate", "--parent", t.parent, "-f", t.file, "--yes")
				Expect(r.Code).To(Equal(1), t.says+": "+r.Stderr)
				Expect(r.Stdout).To(BeEmpty())
				Expect(r.Stderr).To(ContainSubstring("would be refused: " + t.says))
			}
			Expect(s.count(&v1alpha1.DelegationList{})).To(Equal(before))
		})

		It("names what the operator refuses to somebody who may not read grants", func() {
			r := s.run(s.blind, "delegate", "--parent", "Grant/blind", "-f", s.terms(s.helper), "--name", "unseen", "--yes")
			Expect(r.Code).To(Equal(0), r.Stderr)
			Expect(r.Stderr).To(ContainSubstring("not visible to you"))

			r = s.run(s.blind, "delegate", "--parent", "Grant/blind", "-f", s.terms(s.helper, "stripe.refund", "iam.grant"), "--name", "too-wide", "--yes")
			Expect(r.Code).To(Equal(1), r.Stderr)
			Expect(r.Stdout).To(BeEmpty())
			Expect(r.Stderr).To(And(ContainSubstring("too-wide does not count: Containment"), ContainSubstring("(actions)")))

			r = s.run(s.blind, "delegate", "--parent", "Grant/root", "-f", s.terms(s.helper), "--name", "not-mine", "--yes")
			Expect(r.Code).To(Equal(1), r.Stderr)
			Expect(r.Stderr).To(ContainSubstring("NotTheSubject"))

			r = s.run(s.blind, "delegate", "--parent", "blind", "-f", s.terms(s.helper), "--yes")
			Expect(r.Code).To(Equal(2), r.Stderr)
			Expect(r.Stderr).To(ContainSubstring("say which it is"))
		})

		It("exits 9 for what admission or RBAC refuses", func() {
			r := s.run(s.blind, "delegate", "--parent", "Grant/blind", "-f", s.terms(testenv.User{Name: "many*"}), "--yes")
			Expect(r.Code).To(Equal(9), r.Stderr)
			Expect(r.Stderr).To(ContainSubstring("one user name, without *"))

			for lack, args := range map[string][]string{
				"create on delegations":      nil,
				"represent on users/alice":   {"--for", "alice"},
				"breakglass on grants/glass": {"--break-glass", "--reason", "r"},
			} {
				who, parent := s.agent, "alice"
				if args == nil {
					who, parent = s.view, "root"
				}
				if strings.HasPrefix(lack, "breakglass") {
					parent = "glass"
				}
				r := s.run(who, append([]string{"delegate", "--parent", parent, "-f", s.terms(s.helper), "--yes"}, args...)...)
				Expect(r.Code).To(Equal(9), lack+": "+r.Stderr)
				Expect(r.Stdout).To(BeEmpty())
				Expect(r.Stderr).To(ContainSubstring("you lack " + lack))
			}
		})

		It("opens an envelope, loudly, and whoever approves by it is told", func(ctx SpecContext) {
			soon := time.Now().Add(30 * time.Minute).UTC().Format(time.RFC3339)
			file := s.terms(s.helper, "2125-01-01T00:00:00Z", soon, "delegable: true\n", "", "environments: [production]\n", "", "amount_lte: 100", "amount_lte: 4000")
			r := s.run(s.opener, "delegate", "--parent", "glass", "-f", file, "--name", "emergency", "--break-glass", "--reason", "INC-7", "--yes")
			Expect(r.Code).To(Equal(0), r.Stderr)
			Expect(r.Stderr).To(ContainSubstring("BREAK GLASS"))

			Expect(s.run(s.view).Stdout).To(MatchRegexp(`BREAK GLASS: +1 open for an emergency, the last until ` + soon + `; who and why: kubectl ctrlrun grants`))

			late := s.terms(s.helper, "2125-01-01T00:00:00Z", time.Now().Add(3*time.Hour).UTC().Format(time.RFC3339), "delegable: true\n", "")
			r = s.run(s.opener, "delegate", "--parent", "glass", "-f", late, "--break-glass", "--reason", "INC-7", "--yes")
			Expect(r.Code).To(Equal(1), r.Stderr)
			Expect(r.Stderr).To(ContainSubstring("BreakGlassTooLong"))

			r = s.run(s.helper, "propose", "stripe.refund", "payment_id=glass", "amount:=3000")
			Expect(r.Code).To(Equal(0), r.Stderr)
			object := s.awaiting(strings.TrimSpace(r.Stdout))
			r = s.run(s.approver, "approve", object.Name, "--yes", "--hash", object.Status.ActionHash)
			Expect(r.Code).To(Equal(0), r.Stderr)
			Expect(r.Stderr).To(MatchRegexp(`Authority: +Delegation emergency, from Grant glass, break glass`))
			Expect(r.Stderr).To(MatchRegexp(`BREAK GLASS: +somebody opened Grant glass`))
		})
	})

	Describe("grants", func() {
		It("shows who may do what, as a tree, and says whether authority is required", func() {
			s.delegate(s.agent, "root", "shown", s.helper)
			r := s.run(s.view, "grants")
			Expect(r.Code).To(Equal(0), r.Stderr)
			Expect(r.Stdout).To(MatchRegexp(`Authority: +Required`))
			Expect(r.Stdout).To(MatchRegexp(`(?m)^Grant/root +\S+ +stripe\.\* +amount_lte: 5000 +production +2126-01-01T00:00:00Z +in force`))
			Expect(r.Stdout).To(MatchRegexp(`(?m)^  Delegation/shown +\S+ +stripe\.refund +amount_lte: 100 .*in force`))
			Expect(r.Stdout).To(MatchRegexp(`(?m)^Grant/glass .*envelope`))
			Expect(r.Stdout).To(MatchRegexp(`(?m)Delegation/too-wide .*refused Containment`))

			wide := s.run(s.view, "grants", "-o", "wide", "--agent", s.helper.Name)
			Expect(wide.Stdout).To(And(ContainSubstring("DELEGATOR"), ContainSubstring("Delegation/shown"), Not(ContainSubstring("Grant/plain"))))
		})

		It("prints a document, and tells an agent what it may read", func() {
			r := s.run(s.view, "grants", "--action", "iam.grant", "-o", "json")
			Expect(r.Code).To(Equal(0), r.Stderr)
			var answer struct {
				Schema    string
				Authority *string
				Items     []struct {
					Name, State string
					Matches     bool
				}
			}
			Expect(json.Unmarshal([]byte(r.Stdout), &answer)).To(Succeed())
			Expect(answer.Schema).To(Equal("ctrlrun.dev/grants/v1alpha1"))
			Expect(*answer.Authority).To(Equal("Required"))
			matching := map[string]string{}
			for _, item := range answer.Items {
				if item.Matches {
					matching[item.Name] = item.State
				}
			}
			Expect(matching).To(HaveKeyWithValue("plain", "InForce"))
			Expect(matching).NotTo(HaveKey("root"))

			r = s.run(s.agent, "grants")
			Expect(r.Code).To(Equal(0), r.Stderr)
			Expect(r.Stdout).To(MatchRegexp(`Authority: +Required`))
			Expect(s.run(s.blind, "grants").Code).To(Equal(9))
		})
	})

	Describe("revoke", func() {
		It("revokes one, once, and a rerun says so", func() {
			name := s.delegate(s.agent, "root", "leaked", s.helper)
			r := s.run(s.agent, "revoke", name, "--yes")
			Expect(r.Code).To(Equal(9), r.Stderr)
			Expect(r.Stderr).To(ContainSubstring("you lack create on revocations"))

			r = s.run(s.revoker, "revoke", name, "--dry-run=client")
			Expect(r.Code).To(Equal(0), r.Stderr)
			Expect(r.Stdout).To(Equal("would revoke: leaked\n"))
			Expect(s.run(s.revoker, "revoke", name).Code).To(Equal(2), "a pipe is no person")

			r = s.run(s.revoker, "revoke", name, "--reason", "its token leaked", "--yes")
			Expect(r.Code).To(Equal(0), r.Stderr)
			Expect(r.Stdout).To(Equal("revoked: leaked\n"))
			var revocation v1alpha1.Revocation
			Expect(env.Admin().Get(context.Background(), client.ObjectKey{Namespace: s.namespace, Name: "leaked." + action.Speaker(s.revoker.Name)}, &revocation)).To(Succeed())
			Expect(*revocation.Spec.Reason).To(Equal("its token leaked"))

			before := s.count(&v1alpha1.RevocationList{})
			r = s.run(s.revoker, "revoke", name, "--yes")
			Expect(r.Code).To(Equal(0), r.Stderr)
			Expect(r.Stdout).To(BeEmpty())
			Expect(r.Stderr).To(ContainSubstring("revoked already"))
			Expect(s.count(&v1alpha1.RevocationList{})).To(Equal(before))
			Expect(s.run(s.view, "grants").Stdout).To(MatchRegexp(`Delegation/leaked .*revoked by rosa@`))
		})

		It("takes the next name where one of its own was refused", func(ctx SpecContext) {
			name := s.delegate(s.agent, "root", "again", s.helper)
			wrong := &v1alpha1.Revocation{Spec: v1alpha1.RevocationSpec{DelegationRef: v1alpha1.ObjectReference{Name: name, UID: "another"}, Revoker: s.revoker.Name}}
			wrong.Namespace, wrong.Name = s.namespace, name+"."+action.Speaker(s.revoker.Name)
			Expect(env.Client(s.revoker).Create(ctx, wrong)).To(Succeed())
			Eventually(func(g Gomega) {
				g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(wrong), wrong)).To(Succeed())
				g.Expect(meta.IsStatusConditionFalse(wrong.Status.Conditions, v1alpha1.AcceptedCondition)).To(BeTrue())
			}).WithTimeout(20 * time.Second).Should(Succeed())
			r := s.run(s.revoker, "revoke", name, "--yes", "-o", "name")
			Expect(r.Code).To(Equal(0), r.Stderr)
			Expect(r.Stdout).To(Equal("revocation.ctrlrun.dev/" + wrong.Name + ".2\n"))
		})

		It("revokes everything below, goes on where it was interrupted, and names an empty search", func() {
			s.delegate(s.agent, "root", "top", s.helper)
			s.delegate(s.helper, "Delegation/top", "mid", s.opener)
			s.delegate(s.opener, "Delegation/mid", "low", s.helper)
			s.delegate(s.helper, "Delegation/top", "side", s.opener)
			// As if a first run had come as far as one of them.
			Expect(s.run(s.revoker, "revoke", "side", "--yes").Code).To(Equal(0))

			r := s.run(s.revoker, "revoke", "--under", "Delegation/top", "--yes")
			Expect(r.Code).To(Equal(0), r.Stderr)
			Expect(revokedLines(r)).To(Equal([]string{"mid", "low"}))
			Expect(r.Stderr).To(ContainSubstring("2 revoked now, 1 already"))
			r = s.run(s.revoker, "revoke", "--under", "top", "--yes")
			Expect(r.Code).To(Equal(0), r.Stderr)
			Expect(r.Stdout).To(BeEmpty())
			Expect(r.Stderr).To(ContainSubstring("3 delegations: revoked already"))
			Expect(s.run(s.view, "grants").Stdout).To(MatchRegexp(`Delegation/top .*in force`))

			for _, t := range [][]string{{"--under", "Delegation/low", "below Delegation/low"}, {"--created-by", "nobody", "created by nobody"}, {"--agent", "nobody", "for nobody or created by it"}} {
				r := s.run(s.revoker, "revoke", t[0], t[1], "--yes")
				Expect(r.Code).To(Equal(1), r.Stderr)
				Expect(r.Stdout).To(BeEmpty())
				Expect(r.Stderr).To(ContainSubstring("no delegation " + t[2]))
			}
			r = s.run(s.revoker, "revoke", "nobody", "--yes")
			Expect(r.Code).To(Equal(1), r.Stderr)
			r = s.run(s.revoker, "revoke", "too-wide", "--yes")
			Expect(r.Code).To(Equal(1), r.Stderr)
			Expect(r.Stderr).To(ContainSubstring("refused at its creation (Containment)"))
		})

		It("revokes those of which it has the right, and names the others", func(ctx SpecContext) {
			s.delegate(s.agent, "root", "mine", s.helper)
			s.delegate(s.helper, "Delegation/mine", "mine-a", s.opener)
			s.delegate(s.helper, "Delegation/mine", "mine-b", s.opener)
			some := testenv.User{Name: "sam@" + s.namespace + ".example.com"}
			ours := []string{"ctrlrun.dev"}
			Expect(env.Allow(ctx, s.namespace, some,
				rbacv1.PolicyRule{APIGroups: ours, Resources: []string{"grants", "delegations", "revocations"}, Verbs: []string{"get", "list"}},
				rbacv1.PolicyRule{APIGroups: ours, Resources: []string{"revocations"}, Verbs: []string{"create"}},
				rbacv1.PolicyRule{APIGroups: ours, Resources: []string{"delegations"}, ResourceNames: []string{"mine-a"}, Verbs: []string{"revoke"}},
			)).To(Succeed())
			r := s.run(some, "revoke", "--under", "Delegation/mine", "--yes")
			Expect(r.Code).To(Equal(9), r.Stderr)
			Expect(revokedLines(r)).To(Equal([]string{"mine-a"}))
			Expect(r.Stderr).To(ContainSubstring("mine-b: you may not revoke it: you lack revoke on delegations/mine-b"))
		})

		It("revokes what an agent created, and everything of one agent", func() {
			s.delegate(s.agent, "root", "to-helper", s.helper)
			s.delegate(s.helper, "Delegation/to-helper", "by-helper", s.opener)
			r := s.run(s.revoker, "revoke", "--created-by", s.helper.Name, "--for", "alice", "--yes")
			Expect(r.Code).To(Equal(1), r.Stderr)
			r = s.run(s.revoker, "revoke", "--created-by", s.helper.Name, "--yes")
			Expect(r.Code).To(Equal(0), r.Stderr)
			Expect(revokedLines(r)).To(And(ContainElement("by-helper"), Not(ContainElement("to-helper"))))
			r = s.run(s.revoker, "revoke", "--agent", s.helper.Name, "--yes")
			Expect(r.Code).To(Equal(0), r.Stderr)
			Expect(revokedLines(r)).To(And(ContainElement("to-helper"), Not(ContainElement("by-helper"))))
			Expect(r.Stderr).To(ContainSubstring("grants are not revoked"))
		})
	})

	Describe("why", func() {
		type whyDocument struct {
			Authority struct {
				Passed     bool
				Reason, By string
				Verdicts   []struct{ Name string }
			}
			Policy    struct{ Decision, Reason string }
			Effect    *struct{ State string }
			Approvals *struct {
				Required int
				May      []struct{ Subject string }
			}
			WouldHappen struct{ State, Reason, Message string }
		}
		why := func(u testenv.User, args ...string) whyDocument {
			GinkgoHelper()
			before := s.count(&v1alpha1.ActionList{})
			r := s.run(u, append([]string{"why", "-o", "json"}, args...)...)
			Expect(r.Code).To(Equal(0), r.Stderr)
			var d whyDocument
			Expect(json.Unmarshal([]byte(r.Stdout), &d)).To(Succeed())
			Expect(s.count(&v1alpha1.ActionList{})).To(Equal(before))
			return d
		}

		It("says what would happen, and it does", func() {
			refund := func(id, amount string) []string {
				return []string{"stripe.refund", "--as", s.agent.Name, "payment_id=" + id, "amount:=" + amount}
			}
			d := why(s.view, refund("why-1", "5")...)
			Expect(d.Authority.Passed).To(BeTrue())
			Expect(d.Authority.By).To(Equal("Grant/root"))
			Expect(d.WouldHappen.State).To(Equal("Admitted"))
			r := s.run(s.agent, "run", "stripe.refund", "payment_id=why-1", "amount:=5", "--", "true")
			Expect(r.Code).To(Equal(0), r.Stderr)

			d = why(s.view, refund("why-1", "5")...)
			Expect(d.Effect.State).To(Equal("Committed"))
			Expect(d.WouldHappen.State + " " + d.WouldHappen.Reason).To(Equal("Blocked duplicate"))
			Expect(s.run(s.agent, "run", "stripe.refund", "payment_id=why-1", "amount:=5", "--", "true").Code).To(Equal(4))

			d = why(s.view, refund("why-2", "900")...)
			Expect(d.WouldHappen.State).To(Equal("AwaitingApproval"))
			Expect(d.Approvals.Required).To(Equal(1))
			Expect(d.Approvals.May).To(BeNil(), "the viewer may read no Roles")

			d = why(s.view, refund("why-3", "9000")...)
			Expect(d.WouldHappen.State + " " + d.WouldHappen.Reason).To(Equal("Denied authority_constraint"))
			r = s.run(s.agent, "run", "stripe.refund", "payment_id=why-3", "amount:=9000", "--", "true")
			Expect(r.Code).To(Equal(3), r.Stderr)
			Expect(r.Stderr).To(ContainSubstring("authority_constraint"))

			d = why(s.view, "stripe.refund", "--as", "stranger", "payment_id=why-4", "amount:=5")
			Expect(d.WouldHappen.Reason).To(Equal("no_authority"))
			d = why(s.view, "stripe.refund", "--as", s.agent.Name, "--for", "alice", "payment_id=why-5", "amount:=5")
			Expect(d.Authority.Passed).To(BeTrue())
		})

		It("names who may approve to somebody who may read Roles", func(ctx SpecContext) {
			admin := testenv.User{Name: "admin@" + s.namespace + ".example.com"}
			Expect(env.Grant(ctx, "", "ctrlrun-viewer", admin)).To(Succeed())
			Expect(env.Allow(ctx, s.namespace, admin, rbacv1.PolicyRule{APIGroups: []string{"rbac.authorization.k8s.io"}, Resources: []string{"roles", "rolebindings"}, Verbs: []string{"get", "list"}})).To(Succeed())
			d := why(admin, "stripe.refund", "--as", s.agent.Name, "payment_id=who", "amount:=900")
			Expect(d.Approvals.May).To(ContainElement(HaveField("Subject", "User "+s.approver.Name)))
			r := s.run(admin, "why", "stripe.refund", "--as", s.approver.Name, "payment_id=who", "amount:=900")
			Expect(r.Stdout).To(ContainSubstring("no_authority"))
			Expect(r.Stdout).NotTo(ContainSubstring("People asked"))
		})

		It("explains to people step by step, hides what is about others, and says what it may not read", func() {
			args := []string{"why", "stripe.refund", "--as", s.agent.Name, "payment_id=w", "amount:=700"}
			r := s.run(s.view, args...)
			Expect(r.Code).To(Equal(0), r.Stderr)
			Expect(r.Stdout).To(MatchRegexp(`(?m)^Grant/root: +yes`))
			Expect(r.Stdout).NotTo(ContainSubstring("Grant/plain"))
			Expect(r.Stdout).To(MatchRegexp(`(?m)^rule\[0\]: +allow when \{"amount_lte":500\}: .*amount`))
			Expect(r.Stdout).To(MatchRegexp(`(?m)^rule\[1\]: +approve when .*: matches`))
			Expect(r.Stdout).To(MatchRegexp(`(?m)^What would happen: +AwaitingApproval`))
			Expect(s.run(s.view, append(args, "--all")...).Stdout).To(ContainSubstring("Grant/plain"))

			// The agent itself may not read the namespace, and is told so; what requires authority it may read.
			own := s.run(s.agent, "why", "stripe.refund", "payment_id=w", "amount:=700")
			Expect(own.Code).To(Equal(0), own.Stderr)
			Expect(own.Stderr).To(ContainSubstring("you may not read the namespace"))
			Expect(own.Stderr).NotTo(ContainSubstring("the Settings"))
		})
	})
})
