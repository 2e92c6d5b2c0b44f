package protocol

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
)

// The test binary is also the agent of these tests: a process of its own, with a connection of its own.
const (
	agentKubeconfig = "CTRLRUN_TEST_AGENT_KUBECONFIG"
	agentNamespace  = "CTRLRUN_TEST_AGENT_NAMESPACE"
	agentProvider   = "CTRLRUN_TEST_AGENT_PROVIDER"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(agentKubeconfig); path != "" {
		if err := runAgent(path, os.Getenv(agentNamespace), os.Getenv(agentProvider)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// runAgent refunds each payment it is told on standard input, and says on standard output how that ended.
func runAgent(kubeconfig, namespace, provider string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	c, err := client.New(cfg, namespace)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		payment := lines.Text()
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		receipt, err := c.Protect(ctx, client.Proposal{
			ActionType: "stripe.refund", Arguments: map[string]any{"payment_id": payment, "amount": 100},
		}, func(ctx context.Context, x client.Execution) (any, error) {
			return nil, call(ctx, provider, payment, x.Token)
		})
		cancel()
		var ended *client.EndedError
		switch {
		case err == nil:
			fmt.Println("committed")
		case errors.As(err, &ended):
			fmt.Println(strings.ToLower(string(ended.Action.Status.State)), ended.Action.Status.Reason)
		default:
			state := "none"
			if receipt.Action != nil {
				state = string(receipt.Action.Status.State)
			}
			fmt.Println("error", state, strings.ReplaceAll(err.Error(), "\n", " "))
		}
	}
	return lines.Err()
}

func call(ctx context.Context, provider, payment, token string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, provider+"/refunds/"+payment, nil)
	if err != nil {
		return client.NotExecuted(err)
	}
	request.Header.Set("Idempotency-Key", token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return errors.New(response.Status)
	}
	return nil
}

// remote is the system the effects happen in. It counts, and knows nothing of keys or tokens.
type remote struct {
	*httptest.Server
	mu    sync.Mutex
	calls map[string]int
}

func newRemote() *remote {
	r := &remote{calls: map[string]int{}}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.calls[strings.TrimPrefix(q.URL.Path, "/refunds/")]++
	}))
	DeferCleanup(r.Close)
	return r
}

func (r *remote) count(payment string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.calls[payment]
}

// agentProcess is the other end of runAgent.
type agentProcess struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startAgent(kubeconfig, namespace, provider string) *agentProcess {
	GinkgoHelper()
	self, err := os.Executable()
	Expect(err).NotTo(HaveOccurred())
	p := &agentProcess{cmd: exec.Command(self)}
	p.cmd.Env = append(os.Environ(), agentKubeconfig+"="+kubeconfig, agentNamespace+"="+namespace, agentProvider+"="+provider)
	p.cmd.Stderr = GinkgoWriter
	p.in, err = p.cmd.StdinPipe()
	Expect(err).NotTo(HaveOccurred())
	out, err := p.cmd.StdoutPipe()
	Expect(err).NotTo(HaveOccurred())
	p.out = bufio.NewScanner(out)
	Expect(p.cmd.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = p.in.Close()
		_ = p.cmd.Wait()
	})
	return p
}

var _ = Describe("eight processes of one identity", func() {
	It("race for one key, and one of them executes, fifty times", func() {
		const processes, rounds = 8, 50
		s := newScene()
		provider := newRemote()
		var agents []*agentProcess
		for range processes {
			agents = append(agents, startAgent(env.Kubeconfig(s.agent), s.ns, provider.URL))
		}
		for range rounds {
			payment := unique("txn")
			for _, a := range agents {
				_, err := fmt.Fprintln(a.in, payment)
				Expect(err).NotTo(HaveOccurred())
			}
			committed := 0
			for _, a := range agents {
				Expect(a.out.Scan()).To(BeTrue(), "an agent died: %v", a.out.Err())
				switch got := a.out.Text(); {
				case got == "committed":
					committed++
				default:
					Expect(got).To(BeElementOf("blocked in_progress", "blocked duplicate"))
				}
			}
			Expect(committed).To(Equal(1), payment)
			Expect(provider.count(payment)).To(Equal(1), payment)
			Expect(s.effect("refund:" + payment).Status.State).To(Equal(v1alpha1.EffectCommitted))
		}
		// Who was refused does not wait for the receipt of it.
		Eventually(s.receipts).Should(HaveLen(processes * rounds))
		s.chainHolds()
	})

	It("leave an ambiguous effect when the one that executes is killed", func() {
		s := newScene()
		began := make(chan struct{})
		hold := make(chan struct{})
		var once sync.Once
		provider := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			once.Do(func() { close(began) })
			<-hold
		}))
		DeferCleanup(func() { close(hold); provider.Close() })
		agent := startAgent(env.Kubeconfig(s.agent), s.ns, provider.URL)
		payment := unique("txn")
		_, err := fmt.Fprintln(agent.in, payment)
		Expect(err).NotTo(HaveOccurred())
		Eventually(began).Should(BeClosed())
		Expect(agent.cmd.Process.Kill()).To(Succeed())

		clock.Advance(GinkgoT(), 10*time.Minute+11*time.Second)
		e := s.effectReaches("refund:"+payment, v1alpha1.EffectAmbiguous)
		Expect(e.Status.Cause).To(Equal(v1alpha1.CauseLeaseLapsed))
		a := &v1alpha1.Action{}
		a.Namespace, a.Name = s.ns, e.Status.Holder.Name
		s.reaches(a, v1alpha1.ActionAmbiguous, "lease_lapsed")
		s.chainHolds()
	})
})
