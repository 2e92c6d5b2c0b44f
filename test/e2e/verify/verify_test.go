package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/santhosh-tekuri/jsonschema/v6"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv"
)

// Policies, as the actions of one ActionPolicy each.
const (
	refunds = `{"stripe.refund": {"effect": "refund:{payment_id}", "resource": "payment:{payment_id}", "rules": [
		{"when": {"amount_gte": 0, "amount_lte": 50000}, "decision": "allow"},
		{"when": {"amount_gte": 0, "amount_lte": 500000}, "decision": "approve"},
		{"decision": "deny"}]}}`
	allowOnly      = `{"stripe.balance": {"decision": "allow"}}`
	approveOnly    = `{"iam.grant": {"effect": "grant:{to}", "decision": "approve"}}`
	sharedTemplate = `{"a.refund": {"effect": "refund:{id}", "decision": "allow"}, "b.refund": {"effect": "refund:{id}", "decision": "approve"}}`
	paidOut        = `{"stripe.payout": {"effect": "payout:{id}", "decision": "approve", "approvalsRequired": 2, "maxAttempts": 3, "approverGroups": ["finance", "audit"]}}`
	thrice         = `{"stripe.refund": {"effect": "refund:{payment_id}", "decision": "allow", "maxAttempts": 3}}`
	oneEffect      = `{"cluster.upgrade": {"effect": "upgrade", "decision": "allow"}}`
	allDenied      = `{"stripe.refund": {"effect": "refund:{payment_id}", "decision": "deny"}}`
)

// admin is who runs verify, where rights are not what is tested.
func admin() testenv.User {
	return testenv.User{Name: "root@example.com", Groups: []string{"system:masters"}}
}

// namespaceWith is a namespace of the user's, with a policy.
func namespaceWith(ctx context.Context, labels map[string]string, actions string) string {
	GinkgoHelper()
	ns := env.Namespace(GinkgoT(), labels)
	o := &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "own"}}
	Expect(json.Unmarshal([]byte(`{"version":"v7","actions":`+actions+`}`), &o.Spec)).To(Succeed())
	Expect(env.Admin().Create(ctx, o)).To(Succeed())
	return ns
}

// outcome is how one run ended.
type outcome struct {
	code           int
	stdout, stderr string
	took           time.Duration
}

// scratch is the name of the scratch namespace, which verify says when it is there; "" if it never was.
func (o outcome) scratch() string {
	return regexp.MustCompile(`ctrlrun-verify-[a-z0-9]{8}`).FindString(o.stderr)
}

func command(u testenv.User, namespace string, args ...string) *exec.Cmd {
	cmd := exec.Command(plugin, append([]string{"verify"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+env.KubeconfigIn(u, namespace))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// verify runs the command to its end, and checks what holds for every run: it never claims more than it checks, and it leaves no
// namespace behind.
func verify(ctx context.Context, u testenv.User, namespace string, args ...string) outcome {
	GinkgoHelper()
	o := complete(ctx, command(u, namespace, args...))
	if name := o.scratch(); name != "" {
		Eventually(ctx, func() bool { return gone(ctx, name) }).WithTimeout(30 * time.Second).Should(BeTrue())
	}
	return o
}

// complete runs a command to its end.
func complete(ctx context.Context, cmd *exec.Cmd) outcome {
	GinkgoHelper()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	begin := time.Now()
	Expect(cmd.Start()).To(Succeed())
	DeferCleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
		}
	})
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	Eventually(ctx, done).WithTimeout(3*time.Minute).Should(Receive(), stderr.String)
	o := outcome{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String(), took: time.Since(begin)}
	AddReportEntry(strings.Join(cmd.Args[1:], " "), o.String(), ReportEntryVisibilityFailureOrVerbose)
	Expect(strings.ToLower(o.stdout + o.stderr)).NotTo(MatchRegexp(`secure|\bsafe|complian|certif|audited`))
	return o
}

func (o outcome) String() string {
	return fmt.Sprintf("exit code %d after %s\n%s%s", o.code, o.took.Round(time.Millisecond), o.stderr, o.stdout)
}

// report is what the tests read of the JSON.
type report struct {
	Namespace   string         `json:"namespace"`
	Environment string         `json:"environment"`
	Settings    map[string]any `json:"settings"`
	Partial     bool           `json:"partial"`
	Scratch     struct {
		Namespace string `json:"namespace"`
		Removed   bool   `json:"removed"`
		Ledger    string `json:"ledger"`
	} `json:"scratch"`
	Summary struct {
		Passed, Failed, Applicable, NotApplicable, Skipped int
	} `json:"summary"`
	Guarantees []struct {
		ID             string
		Status         string
		Reason         *string
		ActionType     *string
		Arguments      map[string]any
		EffectKey      *string
		Approvals      int
		Detail         map[string]any
		Counterexample *struct {
			Expected, Observed        string
			Receipts, Events, Effects []map[string]any
		}
	} `json:"guarantees"`
}

// read checks the JSON against the schema in docs/verify.md and reads it.
func (o outcome) read() report {
	GinkgoHelper()
	page, err := os.ReadFile(filepath.Join(env.Root, "docs", "verify.md"))
	Expect(err).NotTo(HaveOccurred())
	_, rest, found := strings.Cut(string(page), "```json\n")
	text, _, closed := strings.Cut(rest, "\n```")
	Expect(found && closed).To(BeTrue(), "docs/verify.md has no schema")
	document, err := jsonschema.UnmarshalJSON(strings.NewReader(text))
	Expect(err).NotTo(HaveOccurred())
	compiler := jsonschema.NewCompiler()
	Expect(compiler.AddResource("verify.json", document)).To(Succeed())
	schema, err := compiler.Compile("verify.json")
	Expect(err).NotTo(HaveOccurred())
	instance, err := jsonschema.UnmarshalJSON(strings.NewReader(o.stdout))
	Expect(err).NotTo(HaveOccurred(), o.String())
	Expect(schema.Validate(instance)).To(Succeed())
	var r report
	Expect(json.Unmarshal([]byte(o.stdout), &r)).To(Succeed())
	return r
}

// statuses are the guarantees with their status, in order.
func (r report) statuses() string {
	var words []string
	for _, g := range r.Guarantees {
		words = append(words, g.ID+" "+g.Status)
	}
	return strings.Join(words, ", ")
}

// with are the guarantees of the given status.
func (r report) with(status string) []string {
	var ids []string
	for _, g := range r.Guarantees {
		if g.Status == status {
			ids = append(ids, g.ID)
		}
	}
	return ids
}

// detail is what there is to say of a guarantee beside the verdict.
func (r report) detail(id string) map[string]any {
	for _, g := range r.Guarantees {
		if g.ID == id {
			return g.Detail
		}
	}
	return nil
}

// expected is what was to be seen of a guarantee that failed, and observed what was.
func (r report) expected(id string) string { return r.counterexample(id)[0] }

func (r report) observed(id string) string { return r.counterexample(id)[1] }

func (r report) counterexample(id string) [2]string {
	for _, g := range r.Guarantees {
		if g.ID == id && g.Counterexample != nil {
			return [2]string{g.Counterexample.Expected, g.Counterexample.Observed}
		}
	}
	return [2]string{}
}

func (r report) reason(id string) string {
	GinkgoHelper()
	for _, g := range r.Guarantees {
		if g.ID == id && g.Reason != nil {
			return *g.Reason
		}
	}
	return ""
}

// word is the status of each of these guarantees.
func word(status string, ids ...string) string {
	var words []string
	for _, id := range ids {
		words = append(words, id+" "+status)
	}
	return strings.Join(words, ", ")
}

// allPass is the answer where people are asked, one of them, and nobody needs a grant.
const allPass = "G1 pass, G2 pass, G3 pass, G4 pass, G5 pass, G6 pass, G7 pass, G8 not_applicable, G9 not_applicable, G10 pass, G11 pass, " +
	"G12 not_applicable, G13 not_applicable, G14 pass, G15 not_applicable, G16 pass, G17 pass, G18 pass, G19 not_applicable, G20 pass, G21 not_applicable"

// governed gives a namespace Settings, and grants by name, as their specs.
func governed(ctx context.Context, namespace, settings string, grants map[string]string) {
	GinkgoHelper()
	o := &v1alpha1.Settings{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1alpha1.SettingsName}}
	Expect(json.Unmarshal([]byte(settings), &o.Spec)).To(Succeed())
	Expect(env.Admin().Create(ctx, o)).To(Succeed())
	for name, spec := range grants {
		g := &v1alpha1.Grant{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		Expect(json.Unmarshal([]byte(spec), &g.Spec)).To(Succeed())
		Expect(env.Admin().Create(ctx, g)).To(Succeed())
	}
}

// junit is a JUnit file as those who read it expect it.
type junit struct {
	XMLName xml.Name `xml:"testsuites"`
	Suites  []struct {
		Name     string `xml:"name,attr"`
		Tests    int    `xml:"tests,attr"`
		Failures int    `xml:"failures,attr"`
		Skipped  int    `xml:"skipped,attr"`
		Time     string `xml:"time,attr"`
		Cases    []struct {
			Class   string `xml:"classname,attr"`
			Name    string `xml:"name,attr"`
			Time    string `xml:"time,attr"`
			Skipped *struct {
				Message string `xml:"message,attr"`
			} `xml:"skipped"`
			Failure *struct {
				Message string `xml:"message,attr"`
				Type    string `xml:"type,attr"`
				Text    string `xml:",chardata"`
			} `xml:"failure"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

func readJUnit(data []byte) junit {
	GinkgoHelper()
	var j junit
	Expect(xml.Unmarshal(data, &j)).To(Succeed())
	Expect(j.Suites).To(HaveLen(1))
	s := j.Suites[0]
	Expect(s.Name).To(Equal("ctrlrun.verify"))
	Expect(s.Cases).To(HaveLen(s.Tests))
	failures, skipped := 0, 0
	for _, c := range s.Cases {
		Expect(c.Class).To(Equal("ctrlrun.guarantees"))
		Expect(c.Time).To(MatchRegexp(`^[0-9]+\.[0-9]{3}$`))
		Expect(c.Skipped != nil && c.Failure != nil).To(BeFalse())
		if c.Skipped != nil {
			skipped++
			Expect(c.Skipped.Message).NotTo(BeEmpty())
		}
		if c.Failure != nil {
			failures++
			Expect(c.Name).To(HavePrefix(c.Failure.Type + " "))
		}
	}
	Expect([]int{failures, skipped}).To(Equal([]int{s.Failures, s.Skipped}))
	return j
}

// everythingIn is what a namespace holds, with versions: whoever writes anything changes it.
func everythingIn(ctx context.Context, namespace string) []string {
	GinkgoHelper()
	ns := &corev1.Namespace{}
	Expect(env.Admin().Get(ctx, client.ObjectKey{Name: namespace}, ns)).To(Succeed())
	all := []string{"namespace " + ns.ResourceVersion}
	for _, list := range []client.ObjectList{
		&v1alpha1.ActionPolicyList{}, &v1alpha1.SettingsList{}, &v1alpha1.ActionList{}, &v1alpha1.ApprovalList{}, &v1alpha1.ClaimList{},
		&v1alpha1.OutcomeList{}, &v1alpha1.EffectList{}, &v1alpha1.ReceiptList{}, &v1alpha1.GrantList{}, &v1alpha1.DelegationList{}, &corev1.ServiceAccountList{}, &rbacv1.RoleBindingList{}, &rbacv1.RoleList{},
	} {
		Expect(env.Admin().List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		var items struct {
			Items []metav1.PartialObjectMetadata
		}
		text, err := json.Marshal(list)
		Expect(err).NotTo(HaveOccurred())
		Expect(json.Unmarshal(text, &items)).To(Succeed())
		for _, item := range items.Items {
			all = append(all, fmt.Sprintf("%T %s %s", list, item.Name, item.ResourceVersion))
		}
	}
	return all
}

// scratchNamespaces are those that are there.
func scratchNamespaces(ctx context.Context) []string {
	GinkgoHelper()
	list := &corev1.NamespaceList{}
	Expect(env.Admin().List(ctx, list, client.HasLabels{"ctrlrun.dev/scratch"})).To(Succeed())
	var names []string
	for _, ns := range list.Items {
		names = append(names, ns.Name)
	}
	return names
}

// unread runs verify until G1 is over, then lets do close a pipe that nobody reads any more, and waits for the end.
func unread(namespace string, do func(scratch string, stderr, stdout io.Closer)) outcome {
	GinkgoHelper()
	cmd := command(admin(), namespace)
	errors, err := cmd.StderrPipe()
	Expect(err).NotTo(HaveOccurred())
	out, err := cmd.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	Expect(cmd.Start()).To(Succeed())
	var stderr, stdout bytes.Buffer
	buffer := make([]byte, 4096)
	for !strings.Contains(stderr.String(), "G1 ") {
		n, err := errors.Read(buffer)
		Expect(err).NotTo(HaveOccurred(), stderr.String())
		stderr.Write(buffer[:n])
	}
	do(outcome{stderr: stderr.String()}.scratch(), errors, out)
	_, _ = stderr.ReadFrom(errors) // one of them is closed
	_, _ = stdout.ReadFrom(out)
	_ = cmd.Wait() // the exit code says it
	return outcome{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
}

var _ = Describe("verify", Ordered, ContinueOnFailure, func() {
	BeforeAll(func(ctx SpecContext) { startOperator(ctx) }, NodeTimeout(2*time.Minute))

	It("passes with a policy that gives an occasion for everything, and touches nothing of the user's", func(ctx SpecContext) {
		ns := namespaceWith(ctx, map[string]string{"ctrlrun.dev/environment": "staging"}, refunds)
		keep, lease := int64(0), int64(30)
		settings := &v1alpha1.Settings{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "default"}, Spec: v1alpha1.SettingsSpec{FinishedTTLSeconds: &keep, MaxLeaseSeconds: &lease}}
		Expect(env.Admin().Create(ctx, settings)).To(Succeed())
		for _, o := range []client.Object{settings, &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "own"}}} {
			Eventually(ctx, func(g Gomega) {
				g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
				g.Expect(json.Marshal(o)).To(ContainSubstring(`"observedGeneration":1`))
			}).WithTimeout(30 * time.Second).Should(Succeed())
		}
		var before []string
		Eventually(ctx, func() bool {
			now := everythingIn(ctx, ns)
			same := slices.Equal(now, before) && len(now) > 4 // with the receipts of policy and Settings
			before = now
			return same
		}).WithTimeout(30 * time.Second).WithPolling(time.Second).Should(BeTrue())

		file := filepath.Join(GinkgoT().TempDir(), "verify.xml")
		o := verify(ctx, admin(), ns, "-o", "json", "--junit", file)
		Expect(o.code).To(Equal(0), o.String())
		r := o.read()
		Expect(r.statuses()).To(Equal(allPass))
		Expect(r.Partial).To(BeFalse())
		Expect([]any{r.Namespace, r.Environment}).To(Equal([]any{ns, "staging"}))
		Expect(r.Scratch.Removed).To(BeTrue())
		Expect(*r.Guarantees[0].ActionType).To(Equal("stripe.refund"))
		Expect(r.Guarantees[0].Arguments).To(HaveKeyWithValue("amount", BeEquivalentTo(50001)), "the first that no earlier rule allows")
		Expect(r.Guarantees[0].Approvals).To(Equal(1))
		Expect(*r.Guarantees[2].EffectKey).To(Equal("refund:" + r.Guarantees[2].Arguments["payment_id"].(string)))
		Expect(r.Guarantees[3].Detail).To(HaveKeyWithValue("processes", BeEquivalentTo(8)))
		Expect(r.detail("G10")).To(HaveKeyWithValue("executors", HaveLen(5)))
		Expect(o.took).To(BeNumerically("<", time.Minute))
		AddReportEntry("time", o.took.String(), ReportEntryVisibilityAlways)

		By("writing the same as JUnit")
		data, err := os.ReadFile(file)
		Expect(err).NotTo(HaveOccurred())
		j := readJUnit(data)
		Expect([]int{j.Suites[0].Tests, j.Suites[0].Failures, j.Suites[0].Skipped}).To(Equal([]int{21, 0, 7}))
		Expect(j.Suites[0].Cases[2].Name).To(Equal("G3 duplicate effect refused"))

		By("leaving nothing but the Ledger")
		Expect(everythingIn(ctx, ns)).To(Equal(before))
		Expect(scratchNamespaces(ctx)).To(BeEmpty())
		Expect(r.Scratch.Ledger).To(Equal(r.Scratch.Namespace))
		Expect(env.Admin().Get(ctx, client.ObjectKey{Name: r.Scratch.Ledger}, &v1alpha1.Ledger{})).To(Succeed())
		chains := exec.Command(plugin, "receipts", "verify", "-A")
		chains.Env = append(os.Environ(), "KUBECONFIG="+env.KubeconfigIn(admin(), ns))
		text, err := chains.Output()
		Expect(err).To(HaveOccurred())
		Expect(chains.ProcessState.ExitCode()).To(Equal(3), "of a namespace that was deleted the chain is short of its head")
		Expect(string(text)).To(MatchRegexp(`(?m)^head_mismatch [0-9]+ ` + r.Scratch.Ledger + `$`))
	}, SpecTimeout(4*time.Minute))

	It("passes with the sample of this repository, from its file", func(ctx SpecContext) {
		ns := env.Namespace(GinkgoT(), nil)
		o := verify(ctx, admin(), ns, "-f", filepath.Join(env.Root, "config", "samples", "policies", "payments.yaml"))
		Expect(o.code).To(Equal(0), o.String())
		Expect(o.stdout).To(HaveSuffix("\n15/15 declared guarantees pass. 6 not applicable: G8, G9, G12, G13, G15, G21.\n"))
		Expect(o.stdout).To(And(
			MatchRegexp(`(?m)^PASS G1   mutated approval refused +stripe\.payout \{"payout_id":"ctrlrun-verify-payout_id-1"\}, approved by 2$`),
			MatchRegexp(`(?m)^PASS G4   one winner under concurrency +\(8 processes\) stripe\.payout `),
			MatchRegexp(`(?m)^PASS G7   no principal refused +stripe\.balance \{\}$`),
			ContainSubstring("3 actions, sha256:"), ContainSubstring("the Ledger "+o.scratch()+" stays"),
		))
		Expect(o.took).To(BeNumerically("<", time.Minute))
	}, SpecTimeout(4*time.Minute))

	It("passes where grants are required, and several people, and groups, and names of one person", func(ctx SpecContext) {
		ns := namespaceWith(ctx, map[string]string{"ctrlrun.dev/environment": "staging"}, strings.TrimSuffix(paidOut, "}")+
			`, "stripe.refund": {"effect": "refund:{payment_id}", "resource": "payment:{payment_id}", "decision": "allow"}}`)
		governed(ctx, ns, `{"authority": "Required", "maxDelegationDepth": 5, "policyChanges": "Proposed", "identityAliases": [["alice@example.com", "alice-admin"]]}`, map[string]string{
			"refunds": `{"subject": {"agent": "system:serviceaccount:*", "user": "alice@example.com"}, "actions": ["stripe.refund"], "resources": ["payment:EU-*"],
				"constraints": {"amount_lte": 50000, "currency_in": ["EUR", "CHF"]}, "environments": ["staging", "test"],
				"expirationTime": "2026-01-01T00:00:00Z", "delegable": true}`,
			"payouts": `{"subject": {"user": "*"}, "actions": ["stripe.*"]}`,
			"glass":   `{"grantType": "BreakGlass", "maxDurationSeconds": 600, "subject": {"agent": "*"}, "actions": ["stripe.refund"]}`,
		})
		o := verify(ctx, admin(), ns, "-o", "json")
		Expect(o.code).To(Equal(0), o.String())
		r := o.read()
		Expect(r.statuses()).To(Equal(word("pass", "G1", "G2", "G3", "G4", "G5", "G6", "G7", "G8", "G9", "G10", "G11") + ", " +
			word("not_applicable", "G12", "G13") + ", " + word("pass", "G14", "G15", "G16", "G17", "G18", "G19", "G20", "G21")))
		Expect(r.detail("G6")).To(HaveKeyWithValue("refusedBy", "no_authority"))
		Expect(r.detail("G8")).To(HaveKeyWithValue("grant", "refunds"))
		Expect(r.detail("G9")).To(And(
			HaveKeyWithValue("dimensionsExercised", ConsistOf("subject", "actions", "resources", "constraints", "environments", "expires_at")),
			HaveKeyWithValue("delegationsRefused", BeEquivalentTo(11))))
		Expect(r.detail("G15")).To(HaveKeyWithValue("attempts", BeEquivalentTo(3)))
		Expect(r.detail("G16")).To(HaveKeyWithValue("precondition", MatchRegexp(`^ctrlrun\.dev/v1alpha1/ActionPolicy/[^#]+#/metadata/generation$`)))
		Expect(r.detail("G17")).To(HaveKeyWithValue("groups", ConsistOf("finance", "audit")))
		Expect(r.detail("G18")).To(HaveKeyWithValue("refused", HaveLen(2)))
		Expect(r.detail("G19")).To(HaveKeyWithValue("refused", HaveLen(2)))
		Expect(r.detail("G21")).To(HaveKeyWithValue("refusedBy", ConsistOf("ctrlrun-policy-changes", "ctrlrun-actions")))
		Expect(*r.Guarantees[len(r.Guarantees)-1].ActionType).To(Equal("ctrlrun.policy.change"))
		Expect(r.Settings).To(HaveKeyWithValue("policyChanges", "Proposed"))
		AddReportEntry("time", o.took.String(), ReportEntryVisibilityAlways)

		By("saying so to people")
		o = verify(ctx, admin(), ns, "--only", "G6,G9")
		Expect(o.code).To(Equal(0), o.String())
		Expect(o.stdout).To(And(
			ContainSubstring("authority Required, maxDelegationDepth 5, identityAliases with people of the scratch namespace, policyChanges Proposed for G21\n"),
			ContainSubstring("copied, for the scratch agent: payouts, refunds\n"),
			MatchRegexp(`(?m)^PASS G9   delegation cannot escalate +\(6 of 6 dimensions\) stripe\.refund \{"amount":50000,"currency":"EUR","payment_id":"EU-ctrlrun-verify-payment_id-[0-9]+"\}$`)))
	}, SpecTimeout(4*time.Minute))

	It("verifies next to nothing where grants are required and there is none", func(ctx SpecContext) {
		ns := namespaceWith(ctx, nil, refunds)
		governed(ctx, ns, `{"authority": "Required"}`, nil)
		o := verify(ctx, admin(), ns)
		Expect(o.code).To(Equal(0), o.String())
		Expect(o.stdout).To(And(
			ContainSubstring("none, so nobody may propose\n"),
			MatchRegexp(`(?m)^PASS G11 `),
			MatchRegexp(`(?m)^N/A  G7 .* no action that can run can be driven: .*; a grant has to cover it$`),
			MatchRegexp(`(?m)^N/A  G6 .* no grant covers an action that the policy lists, so an unknown action is indistinguishable from a known one$`)))
		Expect(o.stdout).To(ContainSubstring("\n1/1 declared guarantees pass. 20 not applicable: "))
	}, SpecTimeout(4*time.Minute))

	DescribeTable("says what a policy gives no occasion for, and does not count it",
		func(ctx SpecContext, actions, verdict string, lines ...string) {
			o := verify(ctx, admin(), namespaceWith(ctx, nil, actions))
			Expect(o.code).To(Equal(0), o.String())
			Expect(o.stdout).To(HaveSuffix("\n" + verdict + "\n"))
			for _, line := range lines {
				Expect(o.stdout).To(MatchRegexp(`(?m)^N/A +` + line + `$`))
			}
		},
		Entry("nobody is asked, and nothing has an effect", allowOnly, "4/4 declared guarantees pass. 17 not applicable: G1, G2, G3, G4, G5, G8, G9, G12, G13, G14, G15, G16, G17, G18, G19, G20, G21.",
			`G1 +mutated approval refused +no action requires approval`,
			"G3 +duplicate effect refused +no action declares an `effect:` template, so nothing keeps one from being executed twice"),
		Entry("everything is denied", allDenied, "2/2 declared guarantees pass. 19 not applicable: G1, G2, G3, G4, G5, G7, G8, G9, G10, G12, G13, G14, G15, G16, G17, G18, G19, G20, G21.",
			`G7 +no principal refused +no action in the policy can run at all`,
			`G10 +unknown exception is ambiguous +every action in the policy is denied`,
			"G5 +ambiguous blocks a blind retry +every action that declares an `effect:` template is denied"),
		Entry("people are always asked", approveOnly, "14/14 declared guarantees pass. 7 not applicable: G8, G9, G12, G13, G15, G19, G21."),
		Entry("two actions have one template", sharedTemplate, "14/14 declared guarantees pass. 7 not applicable: G8, G9, G12, G13, G15, G19, G21."),
		Entry("there is one effect for all", oneEffect, "2/2 declared guarantees pass. 19 not applicable: G1, G2, G3, G4, G5, G7, G8, G9, G10, G12, G13, G14, G15, G16, G17, G18, G19, G20, G21."),
	)

	It("checks only what is named, and says that the report is partial", func(ctx SpecContext) {
		ns := namespaceWith(ctx, nil, refunds)
		o := verify(ctx, admin(), ns, "--only", "G6,G3", "-o", "json")
		Expect(o.code).To(Equal(0), o.String())
		r := o.read()
		Expect(r.statuses()).To(Equal("G1 skipped, G2 skipped, G3 pass, G4 skipped, G5 skipped, G6 pass, " +
			word("skipped", "G7", "G8", "G9", "G10", "G11", "G12", "G13", "G14", "G15", "G16", "G17", "G18", "G19", "G20", "G21")))
		Expect(r.Partial).To(BeTrue())
		Expect(r.reason("G1")).To(Equal("not selected"))

		By("saying the same each time")
		Expect(verify(ctx, admin(), ns, "--only", "G3,G6", "-o", "json").read().Guarantees).To(Equal(r.Guarantees))

		o = verify(ctx, admin(), namespaceWith(ctx, nil, refunds), "--only", "G6", "-o", "junit")
		Expect(o.code).To(Equal(0), o.String())
		j := readJUnit([]byte(o.stdout))
		Expect([]int{j.Suites[0].Tests, j.Suites[0].Skipped}).To(Equal([]int{21, 20}))
	}, SpecTimeout(4*time.Minute))

	It("passes where policies change by proposals only, whatever else they say", func(ctx SpecContext) {
		ns := namespaceWith(ctx, nil, allDenied)
		governed(ctx, ns, `{"policyChanges": "Proposed"}`, nil)
		o := verify(ctx, admin(), ns, "--only", "G21")
		Expect(o.code).To(Equal(0), o.String())
		Expect(o.stdout).To(And(
			ContainSubstring(", policyChanges Proposed for G21\n"),
			MatchRegexp(`(?m)^PASS G21  unapproved policy change refused  ctrlrun\.policy\.change \{\}$`)))
	}, SpecTimeout(time.Minute))

	DescribeTable("refuses what cannot be verified, before it creates anything",
		func(ctx SpecContext, prepare func(ctx context.Context) (namespace string, args []string), messages ...string) {
			ns, args := prepare(ctx)
			o := verify(ctx, admin(), ns, args...)
			Expect(o.code).To(Equal(2), o.String())
			Expect(o.stdout).To(BeEmpty())
			for _, message := range messages {
				Expect(o.stderr).To(ContainSubstring(message))
			}
			Expect(o.scratch()).To(BeEmpty())
			Expect(scratchNamespaces(ctx)).To(BeEmpty())
		},
		Entry("no policy", func(context.Context) (string, []string) { return env.Namespace(GinkgoT(), nil), nil }, "has no ActionPolicy", "kubectl ctrlrun init"),
		Entry("no namespace", func(context.Context) (string, []string) { return "nowhere", nil }, `there is no namespace "nowhere"`),
		Entry("a policy without actions", func(ctx context.Context) (string, []string) { return namespaceWith(ctx, nil, `{}`), nil },
			"no guarantee is applicable", "G6 the policy lists no action", "G11 the policy lists no action"),
		Entry("nothing applicable of what is selected", func(ctx context.Context) (string, []string) {
			return namespaceWith(ctx, nil, allowOnly), []string{"--only", "G1"}
		}, "G1 no action requires approval"),
		Entry("two policies that contradict each other", func(ctx context.Context) (string, []string) {
			ns := namespaceWith(ctx, nil, allowOnly)
			second := &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "other"}}
			Expect(json.Unmarshal([]byte(`{"actions":{"stripe.balance":{"decision":"deny"}}}`), &second.Spec)).To(Succeed())
			Expect(env.Admin().Create(ctx, second)).To(Succeed())
			return ns, nil
		}, "define the action stripe.balance differently"),
		Entry("a guarantee that is not there", func(ctx context.Context) (string, []string) {
			return namespaceWith(ctx, nil, allowOnly), []string{"--only", "G99"}
		}, `there is no guarantee "G99"`, "G1, G2, G3, G4, G5, G6, G7, G8, G9, G10, G11"),
		Entry("a file that is not there", func(context.Context) (string, []string) {
			return env.Namespace(GinkgoT(), nil), []string{"-f", "nowhere.yaml"}
		}, "nowhere.yaml"),
		Entry("a file that is no policy", func(context.Context) (string, []string) {
			path := filepath.Join(GinkgoT().TempDir(), "policy.yaml")
			Expect(os.WriteFile(path, []byte("schema: ctrlrun.policy/v2\nactions: {a.b: {decision: maybe}}\n"), 0o600)).To(Succeed())
			return env.Namespace(GinkgoT(), nil), []string{"-f", path}
		}, `"maybe" is not a decision`),
	)

	It("names every right that is missing, and creates nothing", func(ctx SpecContext) {
		ns := namespaceWith(ctx, nil, refunds)
		reader := testenv.User{Name: "reader@" + ns}
		Expect(env.Grant(ctx, "", "ctrlrun-viewer", reader)).To(Succeed())
		o := verify(ctx, reader, ns)
		Expect(o.code).To(Equal(2), o.String())
		Expect(o.stderr).To(And(
			ContainSubstring("create namespaces\n"), ContainSubstring("delete namespaces\n"), ContainSubstring("create serviceaccounts/token\n"),
			ContainSubstring("create rolebindings.rbac.authorization.k8s.io\n"),
			ContainSubstring("delete rolebindings.rbac.authorization.k8s.io\n"), ContainSubstring("delete serviceaccounts\n"),
			ContainSubstring("update actionpolicies.ctrlrun.dev\n"), ContainSubstring("update settings.ctrlrun.dev\n"), ContainSubstring("create grants.ctrlrun.dev\n"), ContainSubstring("create actionpolicies.ctrlrun.dev\n"),
			ContainSubstring("update receipts.ctrlrun.dev\n"), ContainSubstring("delete receipts.ctrlrun.dev\n"), ContainSubstring("docs/verify.md")))
		Expect(o.stderr).NotTo(Or(ContainSubstring("get namespaces"), ContainSubstring("get receipts")))
		Expect(scratchNamespaces(ctx)).To(BeEmpty())
		Expect(verify(ctx, testenv.User{Name: "nobody@" + ns}, ns).code).To(Equal(2))
	}, SpecTimeout(time.Minute))

	// documented is the ClusterRole in docs/verify.md.
	documented := func() *rbacv1.ClusterRole {
		GinkgoHelper()
		page, err := os.ReadFile(filepath.Join(env.Root, "docs", "verify.md"))
		Expect(err).NotTo(HaveOccurred())
		_, rest, found := strings.Cut(string(page), "```yaml\napiVersion: rbac.authorization.k8s.io/v1\n")
		text, _, closed := strings.Cut(rest, "```")
		Expect(found && closed).To(BeTrue())
		role := &rbacv1.ClusterRole{}
		Expect(yaml.UnmarshalStrict([]byte("apiVersion: rbac.authorization.k8s.io/v1\n"+text), role)).To(Succeed())
		return role
	}

	It("needs no other rights than those in its documentation", func(ctx SpecContext) {
		role := documented()
		Expect(env.Admin().Create(ctx, role)).To(Succeed())
		ns := namespaceWith(ctx, map[string]string{v1alpha1.EnvironmentLabel: "staging"}, paidOut)
		governed(ctx, ns, `{"maxLeaseSeconds": 30, "authority": "Required", "maxDelegationDepth": 9, "policyChanges": "Proposed", "identityAliases": [["a", "b"]]}`, map[string]string{
			"payouts": `{"subject": {"agent": "payer"}, "actions": ["stripe.**"], "expirationTime": "2040-01-01T00:00:00Z", "delegable": true}`,
		})
		verifier := testenv.User{Name: "verifier@" + ns}
		Expect(env.Grant(ctx, "", role.Name, verifier)).To(Succeed())
		o := verify(ctx, verifier, ns, "-o", "json")
		Expect(o.code).To(Equal(0), o.String())
		r := o.read()
		Expect(r.with("not_applicable")).To(Equal([]string{"G12", "G13"}))
		Expect(r.with("pass")).To(HaveLen(19))
		Expect(r.Environment).To(Equal("staging"), "which is read and copied")
		Expect(r.Settings).To(HaveKeyWithValue("maxLeaseSeconds", BeEquivalentTo(30)))
	}, SpecTimeout(2*time.Minute))

	// meanwhile does something in the middle of a run.
	meanwhile := func(u testenv.User, namespace string, do func(process *os.Process, scratch string), args ...string) outcome {
		GinkgoHelper()
		var stdout, stderr bytes.Buffer
		cmd := command(u, namespace, args...)
		cmd.Stdout = &stdout
		pipe, err := cmd.StderrPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(cmd.Start()).To(Succeed())
		buffer := make([]byte, 4096)
		for !strings.Contains(stderr.String(), "G1 ") {
			n, err := pipe.Read(buffer)
			Expect(err).NotTo(HaveOccurred(), stderr.String())
			stderr.Write(buffer[:n])
		}
		do(cmd.Process, outcome{stderr: stderr.String()}.scratch())
		_, err = stderr.ReadFrom(pipe)
		Expect(err).NotTo(HaveOccurred())
		_ = cmd.Wait() // the exit code says it
		return outcome{code: cmd.ProcessState.ExitCode(), stdout: stdout.String(), stderr: stderr.String()}
	}

	It("says the command if it may not remove the scratch namespace any more", func(ctx SpecContext) {
		ns := namespaceWith(ctx, nil, approveOnly)
		verifier := testenv.User{Name: "dismissed@" + ns}
		role := documented()
		role.Name = "dismissed"
		role.Rules[0].Verbs = []string{"create", "get"}
		Expect(env.Admin().Create(ctx, role)).To(Succeed())
		remover := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "remover"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"delete"}}}}
		Expect(env.Admin().Create(ctx, remover)).To(Succeed())
		Expect(env.Grant(ctx, "", role.Name, verifier)).To(Succeed())
		Expect(env.Grant(ctx, "", remover.Name, verifier)).To(Succeed())
		var left string
		o := meanwhile(verifier, ns, func(_ *os.Process, scratch string) {
			left = scratch
			Expect(env.Admin().Delete(ctx, remover)).To(Succeed())
		}, "--only", "G1,G4")
		DeferCleanup(func(ctx SpecContext) {
			Expect(env.Admin().Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: left}})).To(Succeed())
			Eventually(ctx, func() bool { return gone(ctx, left) }).WithTimeout(30 * time.Second).Should(BeTrue())
		})
		Expect(o.code).To(Equal(3), o.String())
		Expect(o.stderr).To(And(ContainSubstring("kubectl delete namespace "+left), Not(ContainSubstring("no verdict"))))
		Expect(o.stdout).To(ContainSubstring("2/2 declared guarantees pass."), "what was found out is said all the same")
		Expect(scratchNamespaces(ctx)).To(ConsistOf(left))
	}, SpecTimeout(2*time.Minute))

	DescribeTable("removes the scratch namespace when it is interrupted",
		func(ctx SpecContext, signal syscall.Signal) {
			var there string
			o := meanwhile(admin(), namespaceWith(ctx, nil, refunds), func(process *os.Process, scratch string) {
				there = scratch
				Expect(scratchNamespaces(ctx)).To(ContainElement(scratch))
				Expect(syscall.Kill(-process.Pid, signal)).To(Succeed()) // as a terminal does: to the whole group
			})
			Expect(o.code).To(Equal(3), o.String())
			Expect(o.stderr).To(ContainSubstring("interrupted, and there is no verdict"))
			Expect(o.stdout).To(BeEmpty())
			Expect(gone(ctx, there)).To(BeTrue())
		},
		Entry("by Ctrl-C", syscall.SIGINT), Entry("by a terminal that is closed", syscall.SIGHUP), Entry("by kill", syscall.SIGTERM),
	)

	It("goes on when nobody reads what it says, and removes the scratch namespace", func(ctx SpecContext) {
		ns := namespaceWith(ctx, nil, refunds)
		var there string
		o := unread(ns, func(scratch string, stderr, _ io.Closer) {
			there = scratch
			Expect(stderr.Close()).To(Succeed())
		})
		Expect(o.code).To(Equal(0), o.String())
		Expect(o.stdout).To(HaveSuffix("\n14/14 declared guarantees pass. 7 not applicable: G8, G9, G12, G13, G15, G19, G21.\n"))
		Expect(gone(ctx, there)).To(BeTrue())

		By("saying that the report could not be printed")
		o = unread(ns, func(scratch string, _, stdout io.Closer) {
			there = scratch
			Expect(stdout.Close()).To(Succeed())
		})
		Expect(o.code).To(Equal(3), o.String())
		Expect(o.stderr).To(And(ContainSubstring("print the report: "), Not(ContainSubstring("no verdict"))))
		Expect(gone(ctx, there)).To(BeTrue())
	}, SpecTimeout(4*time.Minute))

	It("prints the report if its file cannot be written", func(ctx SpecContext) {
		o := verify(ctx, admin(), namespaceWith(ctx, nil, allowOnly), "--junit", "/nowhere/x.xml", "--only", "G6")
		Expect(o.code).To(Equal(3), o.String())
		Expect(o.stdout).To(ContainSubstring("\n1/1 declared guarantees pass."))
		Expect(o.stderr).To(And(ContainSubstring("write the report to /nowhere/x.xml: "), Not(ContainSubstring("no verdict"))))
	}, SpecTimeout(time.Minute))

	It("has no verdict when the time is over", func(ctx SpecContext) {
		o := verify(ctx, admin(), namespaceWith(ctx, nil, refunds), "--timeout", "2s")
		Expect(o.code).To(Equal(3), o.String())
		Expect(o.stderr).To(ContainSubstring("--timeout"))
		Expect(o.stdout).To(BeEmpty())
	}, SpecTimeout(2*time.Minute))
})

var _ = Describe("verify without an operator", func() {
	It("says that nobody answers, and removes what it made", func(ctx SpecContext) {
		o := verify(ctx, admin(), namespaceWith(ctx, nil, refunds))
		Expect(o.code).To(Equal(3), o.String())
		Expect(o.stdout).To(BeEmpty())
		Expect(o.stderr).To(And(ContainSubstring("there is no verdict"), ContainSubstring("is it running?")))
		Expect(o.scratch()).NotTo(BeEmpty())
	}, SpecTimeout(2*time.Minute))
})
