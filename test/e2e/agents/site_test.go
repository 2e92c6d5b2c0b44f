package agents

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	"ctrlrun.dev/operator/test/chaos/proxy"
	"ctrlrun.dev/operator/test/testenv"
)

// account is the ServiceAccount of the agents.
const account = "refund-agent"

// sample is the path of a file of the samples.
func sample(name string) string { return filepath.Join(env.Root, "config", "samples", "agents", name) }

const refunds = `{
  "stripe.refund": {"effect": "refund:{payment_id}", "rules": [
    {"when": {"amount_lte": 500}, "decision": "allow"},
    {"when": {"amount_lte": 5000}, "decision": "approve"},
    {"decision": "deny"}]}
}`

// tools are the programs that agent.sh says it needs.
var tools = []string{"awk", "cat", "curl", "cut", "mktemp", "od", "rm", "sed", "sh", "sha256sum", "sleep", "tr"}

// site is a namespace with an agent, whose only tools are those of the scripts.
type site struct {
	ns         string
	dir        string
	agent      testenv.User
	alice      testenv.User
	connection []string
}

func newSite(ctx context.Context) *site {
	GinkgoHelper()
	s := &site{ns: env.Namespace(GinkgoT(), nil), dir: GinkgoT().TempDir(), alice: testenv.User{Name: "alice@example.com"}}
	s.agent = testenv.ServiceAccountUser(s.ns, account)
	Expect(env.Policy(ctx, s.ns, `{"actions":`+refunds+`}`)).To(Succeed())
	s.people(ctx)
	s.equip()
	s.byCertificate()
	return s
}

// newSampleSite is a site with the policies of the samples, whose agent has what is on the PATH.
func newSampleSite(ctx SpecContext) *site {
	GinkgoHelper()
	s := &site{ns: env.Namespace(GinkgoT(), nil), dir: GinkgoT().TempDir(), alice: testenv.User{Name: "alice@example.com"}}
	applyPolicies(ctx, env.Admin(), s.ns)
	return s
}

// people gives the agent, a ServiceAccount, and Alice their rights.
func (s *site) people(ctx context.Context) {
	GinkgoHelper()
	Expect(env.Grant(ctx, s.ns, "ctrlrun-agent", s.agent)).To(Succeed())
	Expect(env.Grant(ctx, s.ns, "ctrlrun-approver", s.alice)).To(Succeed())
	name := s.agent.Name[strings.LastIndex(s.agent.Name, ":")+1:]
	Expect(env.Admin().Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: name}})).To(Succeed())
}

// equip puts the tools into a directory, and nothing else.
func (s *site) equip() {
	GinkgoHelper()
	bin := filepath.Join(s.dir, "bin")
	Expect(os.Mkdir(bin, 0o700)).To(Succeed())
	for _, tool := range tools {
		path, err := exec.LookPath(tool)
		Expect(err).NotTo(HaveOccurred())
		Expect(os.Symlink(path, filepath.Join(bin, tool))).To(Succeed())
	}
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

func (s *site) tokenConfig(ctx context.Context) (*rest.Config, error) {
	return env.TokenConfig(ctx, s.ns, s.agent.Name[strings.LastIndex(s.agent.Name, ":")+1:], nil)
}

func (s *site) byToken(ctx context.Context) {
	GinkgoHelper()
	cfg, err := s.tokenConfig(ctx)
	Expect(err).NotTo(HaveOccurred())
	s.connection = []string{
		"CTRLRUN_SERVER=" + strings.TrimSuffix(cfg.Host, "/"), "CTRLRUN_CA=" + s.file("ca.crt", cfg.CAData),
		"CTRLRUN_TOKEN_FILE=" + s.file("token", []byte(cfg.BearerToken)),
	}
}

// byProxy connects through a proxy that puts faults before the apiserver, with the token of the ServiceAccount.
func (s *site) byProxy(ctx context.Context, injector proxy.Injector) {
	GinkgoHelper()
	cfg, err := s.tokenConfig(ctx)
	Expect(err).NotTo(HaveOccurred())
	p := proxy.New(injector)
	DeferCleanup(func() error { _, err := p.Close(); return err })
	listener, err := p.Listen("agent", cfg)
	Expect(err).NotTo(HaveOccurred())
	s.connection = []string{"CTRLRUN_SERVER=" + listener.Host, "CTRLRUN_TOKEN_FILE=" + s.file("token", []byte(cfg.BearerToken))}
}

// output is what a process says, read while it does.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// script is one run of an agent.
type script struct {
	cmd            *exec.Cmd
	done           chan error
	ended          chan struct{}
	stdout, stderr output
}

// start runs agent.sh with a command that is a line of shell.
func (s *site) start(arguments, command string, more ...string) *script {
	GinkgoHelper()
	return s.launch([]string{"/bin/sh", sample("agent.sh"), "stripe.refund", arguments, "sh", "-c", command}, more...)
}

// launch starts a process in the directory of the site, in a process group of its own.
func (s *site) launch(command []string, more ...string) *script {
	GinkgoHelper()
	r := &script{done: make(chan error, 1), ended: make(chan struct{})}
	r.cmd = exec.Command(command[0], command[1:]...)
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	r.cmd.Dir = s.dir
	r.cmd.Env = append([]string{"PATH=" + filepath.Join(s.dir, "bin"), "TMPDIR=" + s.dir, "CTRLRUN_NAMESPACE=" + s.ns}, append(s.connection, more...)...)
	r.cmd.Stdout, r.cmd.Stderr = &r.stdout, &r.stderr
	Expect(r.cmd.Start()).To(Succeed())
	DeferCleanup(func() {
		r.kill()
		if CurrentSpecReport().Failed() {
			AddReportEntry(strings.Join(command, " "), r.stderr.String())
		}
	})
	go func() {
		r.done <- r.cmd.Wait()
		close(r.ended)
	}()
	return r
}

// kill ends the process and its children without giving them a chance, and returns when it is gone.
func (r *script) kill() {
	_ = syscall.Kill(-r.cmd.Process.Pid, syscall.SIGKILL)
	<-r.ended
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
