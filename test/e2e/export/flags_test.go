package export

import (
	"bytes"
	"encoding/json"
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
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/test/testenv"
)

const (
	remoteTrace  = "4bf92f3577b34da6a3ce929d0e0e4736"
	remoteSpan   = "00f067aa0ba902b7"
	remoteParent = "00-" + remoteTrace + "-" + remoteSpan + "-01"
)

// stream is one output of a process.
type stream struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (s *stream) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.Write(p)
}

func (s *stream) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

// operator is the built binary, with its outputs apart.
type operator struct {
	cmd            *exec.Cmd
	stdout, stderr stream
}

func startOperator(args ...string) *operator {
	GinkgoHelper()
	o := &operator{cmd: exec.Command(env.OperatorBinary(), append([]string{
		"--kubeconfig=" + env.Kubeconfig(testenv.OperatorUser()), "--namespace=" + testenv.SystemNamespace,
		"--health-probe-bind-address=0", "--metrics-bind-address=0", "--leader-elect=false",
	}, args...)...)}
	o.cmd.Stdout, o.cmd.Stderr = &o.stdout, &o.stderr
	Expect(o.cmd.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = o.cmd.Process.Kill()
		if CurrentSpecReport().Failed() {
			AddReportEntry("the operator's log", o.stderr.String())
		}
	})
	return o
}

func (o *operator) stop() {
	GinkgoHelper()
	Expect(o.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
	Expect(o.cmd.Wait()).To(Succeed(), o.stderr.String())
}

// line is one exported line, of either kind.
type line struct {
	Document *string           `json:"document"`
	EventID  *string           `json:"event_id"`
	Type     string            `json:"type"`
	ActionID *string           `json:"action_id"`
	Data     map[string]string `json:"data"`
}

// parsed splits exported lines by the rule that is documented.
func parsed(lines string) (receipts []string, events []line) {
	GinkgoHelper()
	for text := range strings.Lines(lines) {
		text = strings.TrimSuffix(text, "\n")
		var l line
		Expect(json.Unmarshal([]byte(text), &l)).To(Succeed(), text)
		Expect(l.Document == nil).NotTo(Equal(l.EventID == nil), "neither a receipt nor an event: %s", text)
		if l.Document != nil {
			receipts = append(receipts, text)
			continue
		}
		events = append(events, l)
	}
	return receipts, events
}

func read(path string) string {
	GinkgoHelper()
	b, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	return string(b)
}

var _ = Describe("the operator's exports", func() {
	It("are refused at the start if they cannot work", func(SpecContext) {
		for flags, want := range map[string]string{
			"--export=dir:/proc/self":              "cannot be written to; mount a volume",
			"--export=dir:/proc/none":              "cannot be made; mount a volume",
			"--export=kafka":                       "neither stdout nor dir:PATH",
			"--otlp":                               "nobody says where to",
			"--otlp-endpoint=http://host:1/traces": "OTLP over gRPC has no path",
			"--otlp-arguments":                     "none are exported",
			"--kubernetes-events=some":             "not one of notable, all, none",
		} {
			o := startOperator(flags)
			Expect(o.cmd.Wait()).NotTo(Succeed(), flags)
			Expect(o.stderr.String()).To(ContainSubstring(want), flags)
			Expect(o.stdout.String()).To(BeEmpty())
		}
	}, SpecTimeout(time.Minute)) // one that is not refused would run on
})

var _ = Describe("what the operator exports", Ordered, func() {
	var (
		s, other                            *stage
		dir                                 string
		traces                              *collector
		o                                   *operator
		committed, denied, ambiguous, asked *v1alpha1.Action
		actions                             []*v1alpha1.Action
	)

	BeforeAll(func(c SpecContext) {
		dir = filepath.Join(env.Dir, "exported")
		traces = startCollector()
		o = startOperator("--export=stdout", "--export=dir:"+dir, "--otlp-endpoint="+traces.address, "--kubernetes-events=all")
		Expect(env.WaitForAdmission(c)).To(Succeed())
		s, other = newStage(), newStage()

		traced := request("txn_1", 100)
		traced.Trace = client.TraceContext{Parent: remoteParent, State: "a=1"}
		committed = s.do(c, traced, nil)
		denied = s.do(c, request("txn_2", 50000), nil)
		ambiguous = s.do(c, request("txn_3", 100), errors.New("no answer"))

		out, err := s.plugin([]string{"TRACEPARENT=" + remoteParent}, "propose", "stripe.refund", "payment_id=txn_4", "amount:=4000")
		Expect(err).NotTo(HaveOccurred(), out)
		asked = &v1alpha1.Action{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: strings.TrimSpace(out)}}
		Eventually(func(g Gomega) {
			g.Expect(env.Admin().Get(c, kube.ObjectKeyFromObject(asked), asked)).To(Succeed())
			g.Expect(asked.Status.State).To(Equal(v1alpha1.ActionAwaitingApproval))
		}).Should(Succeed())
		Expect(asked.Annotations).To(HaveKeyWithValue("traceparent", remoteParent))
		Expect(env.Client(s.approver).Create(c, s.refusal(asked))).To(Succeed())
		asked = s.finished(asked)
		actions = []*v1alpha1.Action{committed, denied, ambiguous, asked}
		// A policy in force is a chain of its own.
		Eventually(other.receiptLines).ShouldNot(BeEmpty())
	}, NodeTimeout(90*time.Second))

	It("is beside each object as Kubernetes Events", func(c SpecContext) {
		Eventually(func(g Gomega) {
			list := &eventsv1.EventList{}
			g.Expect(env.Admin().List(c, list, kube.InNamespace(s.ns))).To(Succeed())
			reasons := map[string][]string{}
			for _, e := range list.Items {
				reasons[e.Regarding.Name] = append(reasons[e.Regarding.Name], e.Type+" "+e.Reason)
				g.Expect(e.Note).NotTo(BeEmpty())
				g.Expect(e.Note).NotTo(ContainSubstring("DE-private"))
				g.Expect(e.ReportingController).To(Equal("ctrlrun-operator"))
			}
			g.Expect(reasons[committed.Name]).To(ContainElements("Normal ActionProposed", "Normal ExecutionCommitted"))
			g.Expect(reasons[denied.Name]).To(ContainElement("Warning ActionDenied"))
			g.Expect(reasons[ambiguous.Name]).To(ContainElement("Warning ExecutionAmbiguous"))
			g.Expect(reasons[asked.Name]).To(ContainElements("Normal ApprovalRequested", "Warning ApprovalDenied"))
			g.Expect(reasons["payments"]).To(ContainElement("Normal PolicyInForce"))
		}).Should(Succeed())
		described, err := exec.Command(env.Kubectl(), "--kubeconfig="+env.Kubeconfig(testenv.User{Name: "root", Groups: []string{"system:masters"}}), "describe", "action", denied.Name, "-n", s.ns).CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(described))
		Expect(string(described)).To(MatchRegexp(`Warning\s+ActionDenied`))
	}, SpecTimeout(60*time.Second))

	It("is complete when the operator has ended: as lines on stdout and in files", func() {
		o.stop()
		lines := s.receiptLines()
		Expect(len(lines)).To(BeNumerically(">=", len(actions)))
		stdoutReceipts, stdoutEvents := parsed(o.stdout.String())
		fileReceipts, none := parsed(read(filepath.Join(dir, "receipts.jsonl")))
		Expect(none).To(BeEmpty())
		nothing, fileEvents := parsed(read(filepath.Join(dir, "events.jsonl")))
		Expect(nothing).To(BeEmpty())
		Expect(stdoutReceipts).To(ContainElements(lines))
		Expect(fileReceipts).To(ContainElements(lines))
		Expect(fileEvents).To(ConsistOf(stdoutEvents))
		for _, a := range actions {
			Expect(a.Status.Timeline).NotTo(BeEmpty())
			for _, e := range a.Status.Timeline {
				id := fmt.Sprintf("%s.%d", a.UID, e.Seq)
				Expect(fileEvents).To(ContainElement(HaveField("EventID", HaveValue(Equal(id)))), "%s of %s", e.Type, a.Name)
			}
		}
		seen := map[string]bool{}
		for _, e := range fileEvents {
			Expect(seen).NotTo(HaveKey(*e.EventID), "an event is there twice")
			seen[*e.EventID] = true
		}
		Expect(read(filepath.Join(dir, "events.jsonl"))).NotTo(ContainSubstring("DE-private"), "an event holds an argument")
	})

	It("is receipts that verify without a cluster, in as many files as there are", func() {
		// As a rotation would part them, with the chains of all namespaces in them.
		lines, _ := parsed(read(filepath.Join(dir, "receipts.jsonl")))
		var files []string
		for i, part := range [][]string{lines[:len(lines)/2], lines[len(lines)/2:]} {
			files = append(files, filepath.Join(dir, fmt.Sprintf("part-%d.jsonl", i)))
			Expect(os.WriteFile(files[i], []byte(strings.Join(part, "\n")+"\n"), 0o600)).To(Succeed())
		}
		out, err := s.plugin(nil, "receipts", "verify", "-f", files[0], "-f", files[1])
		Expect(err).NotTo(HaveOccurred(), out)
		Expect(out).To(And(ContainSubstring("intact"), ContainSubstring(s.ns), ContainSubstring(other.ns)))
		out, err = s.plugin(nil, "receipts", "verify", "-f", files[1])
		Expect(err).To(HaveOccurred(), "a part that does not begin at the beginning is not the chain: %s", out)
	})

	It("is a span for each action, and none that tells too much", func() {
		for _, a := range actions {
			span := traces.of(string(a.UID))
			Expect(span).NotTo(BeNil(), a.Name)
			Expect(span.Events).To(HaveLen(len(a.Status.Timeline)))
			Expect(span.Events[0].Name).To(Equal("ACTION_PROPOSED"))
			Expect(text(span, "ctrlrun.receipt_id")).To(Equal(a.Status.ReceiptRef.Name))
			Expect(span.String()).NotTo(ContainSubstring("DE-private"))
		}
		for _, a := range []*v1alpha1.Action{committed, asked} {
			trace, parent := ids(traces.of(string(a.UID)))
			Expect([]string{trace, parent}).To(Equal([]string{remoteTrace, remoteSpan}), a.Name)
		}
		trace, parent := ids(traces.of(string(denied.UID)))
		Expect(trace).To(Equal(strings.ReplaceAll(string(denied.UID), "-", "")))
		Expect(parent).To(BeEmpty())
		Expect(traces.named("POLICY_IN_FORCE")).NotTo(BeEmpty())
	})
})
