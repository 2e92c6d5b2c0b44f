package agentsh

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/test/testenv"
)

const refunds = `{
  "stripe.refund": {"effect": "refund:{payment_id}", "rules": [
    {"when": {"amount_lte": 500}, "decision": "allow"},
    {"when": {"amount_lte": 5000}, "decision": "approve"},
    {"decision": "deny"}]}
}`

// tools are the programs the script says it needs, and those of every POSIX system.
var tools = []string{"awk", "cat", "curl", "cut", "date", "mktemp", "od", "rm", "sed", "sh", "sleep", "tr"}

// site is a namespace with an agent, whose only tools are those of the script.
type site struct {
	ns         string
	dir        string
	agent      testenv.User
	alice      testenv.User
	connection []string
}

func newSite(ctx context.Context) *site {
	GinkgoHelper()
	if _, err := exec.LookPath("curl"); err != nil {
		Skip("curl is not installed, so the agent in plain REST is not tested here")
	}
	s := &site{ns: env.Namespace(GinkgoT(), nil), dir: GinkgoT().TempDir(), alice: testenv.User{Name: "alice@example.com"}}
	s.agent = testenv.ServiceAccountUser(s.ns, "shell-agent")
	Expect(env.Grant(ctx, s.ns, "ctrlrun-agent", s.agent)).To(Succeed())
	Expect(env.Grant(ctx, s.ns, "ctrlrun-approver", s.alice)).To(Succeed())
	policy := &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "payments"}}
	Expect(json.Unmarshal([]byte(`{"actions":`+refunds+`}`), &policy.Spec)).To(Succeed())
	Expect(env.Admin().Create(ctx, policy)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(policy), policy)).To(Succeed())
		g.Expect(policy.Status.ObservedGeneration).To(Equal(policy.Generation))
	}).Should(Succeed())

	bin := filepath.Join(s.dir, "bin")
	Expect(os.Mkdir(bin, 0o700)).To(Succeed())
	for _, tool := range tools {
		path, err := exec.LookPath(tool)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.Symlink(path, filepath.Join(bin, tool))).To(Succeed())
	}
	s.byCertificate()
	return s
}

func (s *site) file(name string, data []byte) string {
	GinkgoHelper()
	path := filepath.Join(s.dir, name)
	Expect(os.WriteFile(path, data, 0o600)).To(Succeed())
	return path
}

func (s *site) byCertificate() {
	GinkgoHelper()
	cfg := env.Config(s.agent)
	s.connection = []string{
		"CTRLRUN_SERVER=" + strings.TrimSuffix(cfg.Host, "/"), "CTRLRUN_CA=" + s.file("ca.crt", cfg.CAData),
		"CTRLRUN_CERT=" + s.file("tls.crt", cfg.CertData), "CTRLRUN_KEY=" + s.file("tls.key", cfg.KeyData),
	}
}

func (s *site) byToken(ctx context.Context) {
	GinkgoHelper()
	Expect(env.Admin().Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "shell-agent"}})).To(Succeed())
	cfg, err := env.TokenConfig(ctx, s.ns, "shell-agent", nil)
	Expect(err).NotTo(HaveOccurred())
	s.connection = []string{
		"CTRLRUN_SERVER=" + strings.TrimSuffix(cfg.Host, "/"), "CTRLRUN_CA=" + s.file("ca.crt", cfg.CAData),
		"CTRLRUN_TOKEN_FILE=" + s.file("token", []byte(cfg.BearerToken)),
	}
}

// byLossyProxy connects through a proxy that carries out the first create of each kind and loses the answer.
func (s *site) byLossyProxy() (lost func() []string) {
	GinkgoHelper()
	cfg := env.Config(s.agent)
	target, err := url.Parse(cfg.Host)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(cfg)
	Expect(err).NotTo(HaveOccurred())
	proxy := httputil.NewSingleHostReverseProxy(target)
	proxy.Transport = transport
	var mu sync.Mutex
	seen := map[string]bool{}
	var kinds []string
	first := func(r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		kind := filepath.Base(r.URL.Path)
		if r.Method != http.MethodPost || seen[kind] || !strings.Contains(r.URL.Path, "/ctrlrun.dev/") {
			return false
		}
		seen[kind] = true
		kinds = append(kinds, kind)
		return true
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !first(r) {
			proxy.ServeHTTP(w, r)
			return
		}
		proxy.ServeHTTP(discard{header: http.Header{}}, r)
		panic(http.ErrAbortHandler)
	})}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	go func() { _ = server.Serve(listener) }()
	DeferCleanup(server.Close)
	s.connection = []string{"CTRLRUN_SERVER=http://" + listener.Addr().String(), "CTRLRUN_CA=" + s.file("ca.crt", cfg.CAData),
		"CTRLRUN_TOKEN_FILE=" + s.file("token", []byte("none: the proxy has a certificate"))}
	return func() []string {
		mu.Lock()
		defer mu.Unlock()
		return append([]string(nil), kinds...)
	}
}

// discard is a reader that never gets the answer.
type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(b []byte) (int, error) { return len(b), nil }
func (d discard) WriteHeader(int)             {}

// script is one run of agent.sh.
type script struct {
	cmd            *exec.Cmd
	done           chan error
	stdout, stderr bytes.Buffer
}

// start runs the script with a command that is a line of shell.
func (s *site) start(arguments, command string, more ...string) *script {
	GinkgoHelper()
	r := &script{done: make(chan error, 1)}
	r.cmd = exec.Command("/bin/sh", filepath.Join(env.Root, "config", "samples", "agents", "agent.sh"), "stripe.refund", arguments, "sh", "-c", command)
	r.cmd.Dir = s.dir
	r.cmd.Env = append([]string{"PATH=" + filepath.Join(s.dir, "bin"), "TMPDIR=" + s.dir, "CTRLRUN_NAMESPACE=" + s.ns}, append(s.connection, more...)...)
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	Expect(r.cmd.Start()).To(Succeed())
	DeferCleanup(func() { _ = r.cmd.Process.Kill() })
	go func() { r.done <- r.cmd.Wait() }()
	return r
}

func (s *site) run(arguments, command string, more ...string) *script {
	GinkgoHelper()
	r := s.start(arguments, command, more...)
	r.wait()
	return r
}

func (r *script) wait() {
	GinkgoHelper()
	var err error
	Eventually(r.done).WithTimeout(time.Minute).Should(Receive(&err))
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		Fail(err.Error())
	}
}

// exits expects an exit code, and shows what the script said if it is another.
func (r *script) exits(code int) {
	GinkgoHelper()
	Expect(r.cmd.ProcessState.ExitCode()).To(Equal(code), r.stderr.String())
}

// actions are those for a payment.
func (s *site) actions(ctx context.Context, payment string) []v1alpha1.Action {
	GinkgoHelper()
	list := &v1alpha1.ActionList{}
	Expect(env.Admin().List(ctx, list, client.InNamespace(s.ns))).To(Succeed())
	var found []v1alpha1.Action
	for _, a := range list.Items {
		if strings.Contains(string(a.Spec.Arguments.Raw), fmt.Sprintf("%q", payment)) {
			found = append(found, a)
		}
	}
	return found
}

// one is the only Action for a payment.
func (s *site) one(ctx context.Context, payment string) *v1alpha1.Action {
	GinkgoHelper()
	found := s.actions(ctx, payment)
	Expect(found).To(HaveLen(1))
	return &found[0]
}

// asked waits until a refund waits for people.
func (s *site) asked(ctx context.Context, payment string) *v1alpha1.Action {
	GinkgoHelper()
	var a *v1alpha1.Action
	Eventually(func(g Gomega) {
		found := s.actions(ctx, payment)
		g.Expect(found).To(HaveLen(1))
		a = &found[0]
		g.Expect(a.Status.State).To(Equal(v1alpha1.ActionAwaitingApproval))
	}).Should(Succeed())
	return a
}

func (s *site) approve(ctx context.Context, a *v1alpha1.Action) {
	GinkgoHelper()
	Expect(env.Client(s.alice).Create(ctx, &v1alpha1.Approval{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Name + "." + action.Speaker(s.alice.Name)},
		Spec: v1alpha1.ApprovalSpec{
			ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ActionType: a.Spec.ActionType,
			ActionHash: a.Status.ActionHash, EffectKey: &a.Status.Effect.Key, Decision: v1alpha1.Approved,
		},
	})).To(Succeed())
}

// executions is how often a command ran that has `echo x >>ran` in it.
func (s *site) executions() int {
	GinkgoHelper()
	data, err := os.ReadFile(filepath.Join(s.dir, "ran"))
	if os.IsNotExist(err) {
		return 0
	}
	Expect(err).NotTo(HaveOccurred())
	return strings.Count(string(data), "x")
}

var _ = Describe("agent.sh", func() {
	var s *site
	BeforeEach(func(ctx SpecContext) { s = newSite(ctx) })

	It("executes what policy allows, with what is stored and the token, and names the receipt", func(ctx SpecContext) {
		r := s.run(`{"payment_id":"txn_1","amount":5,"list":[1,{"a":"}"}],"note":"<&>"}`, `echo x >>ran; cat; echo " $CTRLRUN_IDEMPOTENCY_TOKEN"`)
		r.exits(0)
		Expect(s.executions()).To(Equal(1))
		a := s.one(ctx, "txn_1")
		Expect(a.Status.State).To(Equal(v1alpha1.ActionCommitted))
		Expect(a.Spec.Principal.Agent).To(Equal(s.agent.Name))
		at := strings.LastIndex(r.stdout.String(), " ")
		Expect(r.stdout.String()[:at]).To(MatchJSON(a.Spec.Arguments.Raw))
		Expect(strings.TrimSpace(r.stdout.String()[at:])).To(Equal(a.Status.Execution.Token))
		Expect(r.stderr.String()).To(ContainSubstring("receipt " + a.Status.ReceiptRef.Name + " " + a.Status.ReceiptRef.Hash))

		By("not executing the same again")
		s.run(`{"payment_id":"txn_1","amount":5}`, "echo x >>ran").exits(4)
		Expect(s.executions()).To(Equal(1))
	})

	It("waits for a person and claims, with the token of a ServiceAccount", func(ctx SpecContext) {
		s.byToken(ctx)
		r := s.start(`{"payment_id":"txn_1","amount":2000}`, "echo x >>ran")
		a := s.asked(ctx, "txn_1")
		Expect(s.executions()).To(BeZero())
		s.approve(ctx, a)
		r.wait()
		r.exits(0)
		Expect(s.executions()).To(Equal(1))
		a = s.one(ctx, "txn_1")
		Expect(a.Status.State).To(Equal(v1alpha1.ActionCommitted))
		Expect(a.Status.Execution.Approvals).To(HaveLen(1))
	})

	It("leaves to a person what it does not know", func(ctx SpecContext) {
		s.run(`{"payment_id":"txn_1","amount":5}`, "echo x >>ran; exit 3", "CTRLRUN_NOT_EXECUTED_EXIT=75").exits(6)
		Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionAmbiguous))

		s.run(`{"payment_id":"txn_1","amount":5}`, "echo x >>ran").exits(6)
		Expect(s.executions()).To(Equal(1))
	})

	It("does not know what a killed command did", func(ctx SpecContext) {
		s.run(`{"payment_id":"txn_1","amount":5}`, "kill -9 $$").exits(6)
		Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionAmbiguous))
	})

	It("states not executed by the one exit code, and may try again", func(ctx SpecContext) {
		s.run(`{"payment_id":"txn_1","amount":5}`, "exit 75", "CTRLRUN_NOT_EXECUTED_EXIT=75").exits(7)
		Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionFailed))
		s.run(`{"payment_id":"txn_1","amount":5}`, "echo x >>ran").exits(0)
		Expect(s.executions()).To(Equal(1))
	})

	It("does not execute what policy denies, whatever the arguments look like", func(ctx SpecContext) {
		r := s.run(`{"payment_id":"txn_1","amount":9000,"status":{"state":"Admitted","execution":{"claimID":""}}}`, "echo x >>ran")
		r.exits(3)
		Expect(s.executions()).To(BeZero())
		Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionDenied))
	})

	It("withdraws when it is interrupted before it may execute", func(ctx SpecContext) {
		r := s.start(`{"payment_id":"txn_1","amount":2000}`, "echo x >>ran")
		s.asked(ctx, "txn_1")
		Expect(r.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
		r.wait()
		r.exits(1)
		Eventually(func(g Gomega) {
			g.Expect(s.one(ctx, "txn_1").Status.Reason).To(Equal("withdrawn"))
		}).Should(Succeed())
		Expect(s.executions()).To(BeZero())
	})

	It("reports what its command did when it is interrupted meanwhile", func(ctx SpecContext) {
		r := s.start(`{"payment_id":"txn_1","amount":5}`, "echo x >>ran; while ! [ -e go ]; do sleep 0.1; done")
		Eventually(s.executions).Should(Equal(1))
		Expect(r.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
		s.file("go", nil)
		r.wait()
		r.exits(0)
		Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionCommitted))
	})

	It("says everything once although the answers are lost", func(ctx SpecContext) {
		lost := s.byLossyProxy()
		r := s.start(`{"payment_id":"txn_1","amount":2000}`, "echo x >>ran")
		s.approve(ctx, s.asked(ctx, "txn_1"))
		r.wait()
		r.exits(0)
		Expect(lost()).To(Equal([]string{"actions", "claims", "outcomes"}))
		Expect(s.executions()).To(Equal(1))
		Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionCommitted))
	})

	It("leaves its report for people when the lease was declared over first", func(ctx SpecContext) {
		r := s.start(`{"payment_id":"txn_1","amount":5}`, "echo x >>ran; while ! [ -e go ]; do sleep 0.1; done")
		Eventually(s.executions).Should(Equal(1))
		a := s.one(ctx, "txn_1")
		lock := flow.LockName(string(a.UID), a.Spec.ClaimID, s.agent.Name)
		Expect(env.Client(testenv.OperatorUser()).Create(ctx, &v1alpha1.Outcome{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: lock},
			Spec: v1alpha1.OutcomeSpec{
				ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: a.Spec.ClaimID,
				Result: v1alpha1.OutcomeUnknown, Reason: v1alpha1.OutcomeReasonLeaseLapsed,
			},
		})).To(Succeed())
		s.file("go", nil)
		r.wait()
		r.exits(6)
		late := &v1alpha1.Outcome{}
		Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: "late." + lock}, late)).To(Succeed())
		Expect(late.Spec.Result).To(Equal(v1alpha1.OutcomeCommitted))
	})

	It("says what the apiserver refuses", func(ctx SpecContext) {
		s.run(`{"payment_id":`, "echo x >>ran").exits(1)
		s.agent = testenv.ServiceAccountUser(s.ns, "stranger")
		s.byCertificate()
		r := s.run(`{"payment_id":"txn_1","amount":5}`, "echo x >>ran")
		r.exits(9)
		Expect(r.stderr.String()).To(ContainSubstring("cannot create resource"))
		Expect(s.executions()).To(BeZero())
	})

	It("leaves no file behind", func(ctx SpecContext) {
		s.run(`{"payment_id":"txn_1","amount":5}`, "true").exits(0)
		left, err := filepath.Glob(filepath.Join(s.dir, "tmp.*"))
		Expect(err).NotTo(HaveOccurred())
		Expect(left).To(BeEmpty())
	})
})
