package protocol

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/test/testenv"
)

// requestCount counts requests about one namespace, or the Ledger of that name, by verb and resource.
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
	It("takes two writes of the agent and five of the operator on the allow path", func() {
		withoutOperator()
		s := setScene(payments, nil)
		count := &requestCount{namespace: s.ns}
		counted, err := env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
			cfg.Wrap(count.wrap)
			return controllers.New(cfg, controllers.Options{Namespace: testenv.SystemNamespace, MetricsAddress: "0", ProbeAddress: "0", Clock: clock})
		})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(counted.Stop)
		s.inForce("payments")
		s.committed(unique("txn")) // opens the chain; what is counted is every later one
		writesBefore, readsBefore := count.snapshot()

		agentWrites := 0
		a := s.propose(refund(unique("txn"), 100))
		agentWrites++
		a = s.reaches(a, v1alpha1.ActionAdmitted)
		s.report(s.agent, a, v1alpha1.OutcomeCommitted)
		agentWrites++
		s.reaches(a, v1alpha1.ActionCommitted)

		writes, reads := count.snapshot()
		writes, reads = writes[len(writesBefore):], reads[len(readsBefore):]
		AddReportEntry("operator writes per allowed action", strings.Join(writes, ", "))
		AddReportEntry("operator reads per allowed action", fmt.Sprintf("%d: %s", len(reads), strings.Join(reads, ", ")))
		Expect(agentWrites).To(Equal(2))
		Expect(writes).To(Equal([]string{
			"POST effects 201",
			"PUT actions/status 200",
			"PUT effects 200",
			"POST receipts 201",
			"PUT actions/status 200",
		}))
		Expect(len(reads)).To(BeNumerically("<=", 4))
	})

	It("keeps the operator under 150 MB with a thousand finished actions", func() {
		withoutOperator()
		process, err := env.StartOperatorProcess("--leader-elect=false", "--kube-api-qps=1000")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(process.Stop)
		deadline, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		Expect(process.WaitReady(deadline)).To(Succeed())
		s := newScene()

		const actions, agents = 1000, 16
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
		resident := residentMegabytes(process.PID())
		AddReportEntry("operator resident memory with 1000 finished actions", fmt.Sprintf("%d MB", resident))
		Expect(resident).To(BeNumerically("<", 150))
		Expect(s.receipts()).To(HaveLen(actions))
		s.chainHolds()
	})
})

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

func residentMegabytes(pid int) int {
	GinkgoHelper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	Expect(err).NotTo(HaveOccurred())
	for line := range strings.Lines(string(data)) {
		if kilobytes, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.Fields(kilobytes)[0])
			Expect(err).NotTo(HaveOccurred())
			return n / 1024
		}
	}
	Fail("no VmRSS")
	return 0
}
