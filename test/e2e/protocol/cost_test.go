package protocol

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	sdk "ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/test/testenv"
)

// requestCount keeps the requests about objects in one namespace, each as its method, its resource and how it was answered.
// It does not see what is cluster-wide, such as the namespace's Ledger, of which one checkpoint a second is written at most
// however many actions there are. Watches are not counted, and neither is a dry run.
type requestCount struct {
	namespace string
	mu        sync.Mutex
	writes    []string
	reads     []string
}

func (c *requestCount) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err != nil || r.URL.Query().Get("watch") != "" || r.URL.Query().Get("dryRun") != "" {
			return response, err
		}
		_, path, found := strings.Cut(r.URL.Path, "/namespaces/"+c.namespace+"/")
		if !found {
			return response, err
		}
		parts := strings.Split(path, "/")
		resource := parts[0]
		if len(parts) == 3 {
			resource += "/" + parts[2]
		}
		line := fmt.Sprintf("%s %s %d", r.Method, resource, response.StatusCode)
		c.mu.Lock()
		defer c.mu.Unlock()
		if r.Method == http.MethodGet {
			c.reads = append(c.reads, line)
		} else {
			c.writes = append(c.writes, line)
		}
		return response, err
	})
}

func (c *requestCount) snapshot() (writes, reads []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string(nil), c.writes...), append([]string(nil), c.reads...)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var _ = Describe("what a governed action costs", Serial, func() {
	// counting starts the operator and a scene, and counts the requests of both. agent is the SDK, as an agent uses it.
	counting := func() (s *scene, agent *sdk.Client, ofOperator, ofAgent *requestCount) {
		GinkgoHelper()
		withoutOperator()
		s = setScene(payments, nil)
		ofOperator, ofAgent = &requestCount{namespace: s.ns}, &requestCount{namespace: s.ns}
		counted, err := env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
			cfg.Wrap(ofOperator.wrap)
			return controllers.New(cfg, controllers.Options{Namespace: testenv.SystemNamespace, MetricsAddress: "0", ProbeAddress: "0", Clock: clock})
		})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(counted.Stop)
		s.inForce("payments")
		s.committed(unique("txn")) // opens the chain; what is counted is every later one
		cfg := env.Config(s.agent)
		cfg.Wrap(ofAgent.wrap)
		agent, err = sdk.New(cfg, s.ns)
		Expect(err).NotTo(HaveOccurred())
		return s, agent, ofOperator, ofAgent
	}
	execute := func(context.Context, sdk.Execution) (any, error) { return nil, nil }
	show := func(path, who string, writes, reads []string) {
		AddReportEntry(fmt.Sprintf("%s: %d writes of the %s", path, len(writes), who), strings.Join(writes, ", "))
		AddReportEntry(fmt.Sprintf("%s: %d reads of the %s", path, len(reads), who), strings.Join(reads, ", "))
	}

	It("is two writes of the agent, and five writes and no read of the operator, on the allow path", func() {
		s, agent, ofOperator, ofAgent := counting()
		// A pass that began with a cache which lagged reads more. Not every action meets one.
		var paths []string // the operator's reads, action by action
		for i := 0; i < 50 && !(i >= 5 && slices.Contains(paths, "")); i++ {
			agentWritesBefore, agentReadsBefore := ofAgent.snapshot()
			writesBefore, readsBefore := ofOperator.snapshot()
			r, err := agent.Protect(ctx, sdk.Proposal{ActionType: "stripe.refund", Arguments: map[string]any{"payment_id": unique("txn"), "amount": 100}}, execute)
			Expect(err).NotTo(HaveOccurred())
			s.reaches(r.Action, v1alpha1.ActionCommitted)

			writes, reads := ofAgent.snapshot()
			writes, reads = writes[len(agentWritesBefore):], reads[len(agentReadsBefore):]
			show("allow path", "agent", writes, reads)
			Expect(writes).To(Equal([]string{"POST actions 201", "POST outcomes 201"}))
			// The operator hears how its last write was answered after everybody can see it.
			Eventually(func() []string {
				writes, reads = ofOperator.snapshot()
				writes, reads = writes[len(writesBefore):], reads[len(readsBefore):]
				return withoutRetries(slices.Clone(writes))
			}).Should(Equal([]string{
				"POST effects 201",
				"PUT actions/status 200",
				"PUT effects 200",
				"POST receipts 201",
				"PUT actions/status 200",
			}))
			show("allow path", "operator", writes, reads)
			// The head is looked at once two seconds have passed since it was seen, which is how fast this machine is.
			// So is the end of the chain, unless something was appended just now.
			reads = slices.DeleteFunc(reads, func(line string) bool { return strings.HasPrefix(line, "GET receipts ") })
			paths = append(paths, strings.Join(reads, ", "))
		}
		Expect(paths).To(ContainElement(""))
		s.chainHolds()
	})

	It("is three writes of the agent, and nine of the operator beside the Event that people are asked, on the approve path", func() {
		s, agent, ofOperator, ofAgent := counting()
		writesBefore, readsBefore := ofOperator.snapshot()
		var asked sync.Once
		var yes *v1alpha1.Approval
		r, err := agent.Protect(ctx, sdk.Proposal{
			ActionType: "stripe.refund", Arguments: map[string]any{"payment_id": unique("txn"), "amount": 2000},
			Progress: func(_ sdk.Stage, a *v1alpha1.Action) {
				if a.Status.State == v1alpha1.ActionAwaitingApproval {
					asked.Do(func() { yes = s.approve(s.approver, a) })
				}
			},
		}, execute)
		Expect(err).NotTo(HaveOccurred())
		a := s.reaches(r.Action, v1alpha1.ActionCommitted)
		expectAccepted(yes)
		claim := &v1alpha1.Claim{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: a.Status.Execution.ClaimRef.Name}}
		expectAccepted(claim)

		writes, reads := ofAgent.snapshot()
		show("approve path", "agent", writes, reads)
		Expect(writes).To(Equal([]string{"POST actions 201", "POST claims 201", "POST outcomes 201"}))
		Eventually(func() []string {
			writes, reads = ofOperator.snapshot()
			return withoutRetries(slices.Clone(writes[len(writesBefore):]))
		}).Should(ConsistOf(
			"PUT actions/status 200",   // what people are asked
			"POST events 201",          // people are told that they are asked; it is written aside, and nothing waits for it
			"PUT approvals/status 200", // the answer counts
			"PUT actions/status 200",   // a process may claim
			"POST effects 201",
			"PUT actions/status 200",
			"PUT claims/status 200", // the claim counts
			"PUT effects 200",
			"POST receipts 201",
			"PUT actions/status 200",
		))
		show("approve path", "operator", writes[len(writesBefore):], reads[len(readsBefore):])
		s.chainHolds()
	})

	It("is a receipt that holds all of a report of which the operator keeps a part", func() {
		s, _, ofOperator, _ := counting()
		output := fmt.Sprintf(`{"log":%q}`, strings.Repeat("all is well, ", 300))
		long := func(a *v1alpha1.Action) *v1alpha1.Outcome {
			o := s.outcome(a, v1alpha1.OutcomeCommitted)
			o.Spec.Output, o.Spec.Error = &apiextensionsv1.JSON{Raw: []byte(output)}, strings.Repeat("a warning, ", 50)
			return o
		}
		a := s.reaches(s.propose(refund(unique("txn"), 100)), v1alpha1.ActionAdmitted)
		report := long(a)
		Expect(env.Client(s.agent).Create(ctx, report)).To(Succeed())
		a = s.reaches(a, v1alpha1.ActionCommitted)
		d := s.receiptOf(a)
		Expect(d.Output).To(MatchJSON(output))
		Expect(d.Error).To(Equal(report.Spec.Error))
		_, reads := ofOperator.snapshot()
		Expect(reads).To(ContainElement("GET outcomes 200"))

		By("and the verdict on one that does not count leaves it as it is")
		stray := long(a)
		stray.Spec.ClaimID = uuid.NewString()
		stray.Name = flow.LockName(string(a.UID), stray.Spec.ClaimID, s.agent.Name)
		Expect(env.Client(s.agent).Create(ctx, stray)).To(Succeed())
		before := stray.Spec.DeepCopy()
		Eventually(func() bool {
			Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(stray), stray)).To(Succeed())
			return meta.IsStatusConditionFalse(stray.Status.Conditions, v1alpha1.AcceptedCondition)
		}).Should(BeTrue())
		Expect(&stray.Spec).To(Equal(before))
		s.chainHolds()
	})

	It("is no request for each that is finished when an operator starts, which judges what was said meanwhile all the same", func() {
		withoutOperator()
		operator = startOperator(controllers.Options{})
		s := newScene()
		const finished = 30
		s.commits(finished)
		a := s.committed(unique("txn"))
		withoutOperator()
		stray := s.outcome(a, v1alpha1.OutcomeCommitted)
		stray.Spec.ClaimID = uuid.NewString()
		stray.Name = flow.LockName(string(a.UID), stray.Spec.ClaimID, s.agent.Name)
		nothing := s.outcome(a, v1alpha1.OutcomeCommitted)
		nothing.Spec.ActionRef = v1alpha1.ObjectReference{Name: "nothing", UID: types.UID(uuid.NewString())}
		nothing.Name = flow.LockName(string(nothing.Spec.ActionRef.UID), nothing.Spec.ClaimID, s.agent.Name)
		for _, o := range []*v1alpha1.Outcome{stray, nothing} {
			Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
		}

		count := &requestCount{namespace: s.ns}
		counted, err := env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
			cfg.Wrap(count.wrap)
			return controllers.New(cfg, controllers.Options{Namespace: testenv.SystemNamespace, MetricsAddress: "0", ProbeAddress: "0", Clock: clock})
		})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(counted.Stop)
		for o, reason := range map[*v1alpha1.Outcome]string{stray: "NotAdmitted", nothing: v1alpha1.ReasonActionNotFound} {
			Eventually(func() string {
				Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
				if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.AcceptedCondition); c != nil {
					return c.Reason
				}
				return ""
			}).Should(Equal(reason))
		}
		s.committed(unique("txn")) // it is at work, and what exists is behind it
		_, reads := count.snapshot()
		AddReportEntry("reads of an operator that starts", strings.Join(reads, ", "))
		ofActions := 0
		for _, line := range reads {
			if strings.HasPrefix(line, "GET actions ") {
				ofActions++
			}
		}
		Expect(ofActions).To(BeNumerically("<", finished/2), "one list, those of the outcomes that need a verdict, and those of the last action")
		s.chainHolds()
	})

	It("is at most 100 KB of the operator's memory for an action that is finished", func() {
		withoutOperator()
		process, err := env.StartOperatorProcess("--leader-elect=false", "--kube-api-qps=1000")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(process.Stop)
		deadline, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		Expect(process.WaitReady(deadline)).To(Succeed())
		s := newScene()

		const first, more = 100, 300
		s.commits(first) // what any load takes is taken then
		before := residentKilobytes(process.PID())
		s.commits(more)
		grown := residentKilobytes(process.PID()) - before
		AddReportEntry(fmt.Sprintf("resident memory of the operator, %d MB, with %d finished actions more", before/1024, more), fmt.Sprintf("%+d KB", grown))
		Expect(before).To(BeNumerically("<", 150*1024))
		Expect(grown).To(BeNumerically("<", 100*more))
		Expect(s.receipts()).To(HaveLen(first + more))
		s.chainHolds()
	})
})

// commits takes so many actions from the proposal to the end, several at once.
func (s *scene) commits(actions int) {
	GinkgoHelper()
	const agents = 16
	work := make(chan struct{}, actions)
	for range actions {
		work <- struct{}{}
	}
	close(work)
	c := env.Client(s.agent)
	var group sync.WaitGroup
	for range agents {
		group.Go(func() {
			defer GinkgoRecover()
			for range work {
				o := refund(unique("txn"), 100).object(s.ns)
				Expect(c.Create(ctx, o)).To(Succeed())
				a := s.arrives(o, v1alpha1.ActionAdmitted)
				Expect(c.Create(ctx, s.outcome(a, v1alpha1.OutcomeCommitted))).To(Succeed())
				s.arrives(o, v1alpha1.ActionCommitted)
			}
		})
	}
	group.Wait()
}

// arrives is reaches for a crowd: it asks less often.
func (s *scene) arrives(a *v1alpha1.Action, state v1alpha1.ActionState) *v1alpha1.Action {
	GinkgoHelper()
	var o *v1alpha1.Action
	Eventually(func() v1alpha1.ActionState {
		o = s.get(a)
		return o.Status.State
	}).WithPolling(200 * time.Millisecond).WithTimeout(time.Minute).Should(Equal(state))
	return o
}

// withoutRetries leaves out writes that stored nothing: a pass that began with what a cache held a moment ago is refused by
// the version it read, and begins again.
func withoutRetries(writes []string) []string {
	return slices.DeleteFunc(writes, func(line string) bool { return strings.HasSuffix(line, " 409") })
}

func residentKilobytes(pid int) int {
	GinkgoHelper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(string(data)) {
		if kilobytes, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(kilobytes)[0])
			Expect(err).NotTo(HaveOccurred())
			return n
		}
	}
	Fail("no VmRSS")
	return 0
}
