package agents

import (
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/test/chaos/proxy"
)

// languages are the agents. Each is tested for the same: what a call is like for whoever looks at the cluster and at the provider.
var languages = []struct {
	name    string
	command func(arguments string) []string
	names   func(flag, value string) []string
}{
	{
		name: "agent.sh",
		command: func(arguments string) []string {
			return []string{"/bin/sh", sample("agent.sh"), "stripe.refund", arguments, "sh", sample("post.sh")}
		},
		names: func(flag, value string) []string { return []string{"/bin/sh", sample("agent.sh"), flag, value} },
	},
	{
		name: "agent.sh in bash",
		command: func(arguments string) []string {
			return []string{"/bin/bash", "--posix", sample("agent.sh"), "stripe.refund", arguments, "/bin/bash", sample("post.sh")}
		},
		names: func(flag, value string) []string {
			return []string{"/bin/bash", "--posix", sample("agent.sh"), flag, value}
		},
	},
	{
		// -I and -S: nothing that is installed beside the standard library.
		name: "agent.py",
		command: func(arguments string) []string {
			return []string{python, "-I", "-S", sample("agent.py"), "stripe.refund", arguments}
		},
		names: func(flag, value string) []string {
			return []string{python, "-I", "-S", sample("agent.py"), flag, value}
		},
	},
}

func refund(payment string, amount int) string {
	return fmt.Sprintf(`{"payment_id":%q,"amount":%d}`, payment, amount)
}

func (s *site) effect(ctx SpecContext, key string) *v1alpha1.Effect {
	GinkgoHelper()
	e := &v1alpha1.Effect{}
	Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: action.EffectName(key)}, e)).To(Succeed())
	return e
}

func (s *site) state(ctx SpecContext, payment string) func() v1alpha1.ActionState {
	return func() v1alpha1.ActionState {
		found := s.actions(ctx, payment)
		if len(found) == 0 {
			return ""
		}
		return found[len(found)-1].Status.State
	}
}

var _ = Describe("an agent in plain REST", func() {
	for _, l := range languages {
		Describe("in "+l.name, func() {
			var s *site
			var p *provider
			BeforeEach(func(ctx SpecContext) {
				s, p = newSite(ctx), newProvider()
				s.byToken(ctx)
			})
			start := func(arguments string, more ...string) *script {
				GinkgoHelper()
				return s.launch(l.command(arguments), append([]string{"PROVIDER_URL=" + p.url, "CTRLRUN_NOT_EXECUTED_EXIT=75"}, more...)...)
			}
			run := func(arguments string, more ...string) *script {
				GinkgoHelper()
				r := start(arguments, more...)
				r.wait()
				return r
			}

			It("calls the provider once with the token and what is stored, and commits", func(ctx SpecContext) {
				r := run(`{"payment_id":"txn_1","amount":100,"note":"<&> \u00e9 \ud83d\udd11 \"}{\" \\","list":[1,{"b":-0,"a":null}]}`)
				r.exits(0)
				a := s.one(ctx, "txn_1")
				Expect(a.Status.State).To(Equal(v1alpha1.ActionCommitted))
				Expect(a.Spec.Principal.Agent).To(Equal(s.agent.Name))
				calls := p.seen("txn_1")
				Expect(calls).To(HaveLen(1))
				Expect(calls[0].token).To(Equal(a.Status.Execution.Token))
				Expect(calls[0].token).NotTo(BeEmpty())
				Expect(calls[0].body).To(MatchJSON(a.Spec.Arguments.Raw))
				Expect(r.stderr.String()).To(ContainSubstring("receipt " + a.Status.ReceiptRef.Name + " " + a.Status.ReceiptRef.Hash))

				By("not calling it for the same again")
				run(refund("txn_1", 200)).exits(4)
				Expect(p.seen("txn_1")).To(HaveLen(1))
			})

			It("waits for a person, then claims and goes on", func(ctx SpecContext) {
				r := start(refund("txn_1", 2000))
				a := s.asked(ctx, "txn_1")
				Expect(p.seen("txn_1")).To(BeEmpty())
				s.approve(ctx, a)
				r.wait()
				r.exits(0)
				Expect(p.seen("txn_1")).To(HaveLen(1))
				Expect(s.one(ctx, "txn_1").Status.Execution.Approvals).To(HaveLen(1))
			})

			It("does nothing that policy denies", func(ctx SpecContext) {
				run(refund("txn_1", 9000)).exits(3)
				Expect(p.seen("txn_1")).To(BeEmpty())
				Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionDenied))
			})

			It("calls the provider once although two processes try at once", func(ctx SpecContext) {
				release := p.blocks()
				first, second := start(refund("txn_1", 100)), start(refund("txn_1", 100))
				Eventually(func() int { return len(p.seen("txn_1")) }).Should(Equal(1))
				// The other one ends while the first executes, or waits for it.
				Eventually(func() int { return len(s.actions(ctx, "txn_1")) }).Should(Equal(2))
				release()
				first.wait()
				second.wait()
				codes := []int{first.cmd.ProcessState.ExitCode(), second.cmd.ProcessState.ExitCode()}
				Expect(codes).To(ContainElement(0), first.stderr.String()+second.stderr.String())
				Expect(codes).To(ContainElement(BeElementOf(4, 5)), first.stderr.String()+second.stderr.String())
				Expect(p.seen("txn_1")).To(HaveLen(1))
			})

			It("leaves to the lease what it did when it was killed", func(ctx SpecContext) {
				p.blocks()
				r := start(refund("txn_1", 100))
				Eventually(func() int { return len(p.seen("txn_1")) }).Should(Equal(1))
				r.kill()
				clock.Advance(GinkgoT(), 5*time.Minute+flow.LapseGrace+time.Second)
				Eventually(s.state(ctx, "txn_1")).Should(Equal(v1alpha1.ActionAmbiguous))
				Expect(s.effect(ctx, "refund:txn_1").Status.Cause).To(Equal(v1alpha1.CauseLeaseLapsed))

				run(refund("txn_1", 100)).exits(6)
				Expect(p.seen("txn_1")).To(HaveLen(1))
			})

			It("leaves its report for people when the lease was declared over first", func(ctx SpecContext) {
				release := p.blocks()
				r := start(refund("txn_1", 100))
				Eventually(func() int { return len(p.seen("txn_1")) }).Should(Equal(1))
				clock.Advance(GinkgoT(), 5*time.Minute+flow.LapseGrace+time.Second)
				Eventually(s.state(ctx, "txn_1")).Should(Equal(v1alpha1.ActionAmbiguous))
				release()
				r.wait()
				r.exits(6)
				a := s.one(ctx, "txn_1")
				late := &v1alpha1.Outcome{}
				name := "late." + flow.LockName(string(a.UID), a.Spec.ClaimID, s.agent.Name)
				Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: s.ns, Name: name}, late)).To(Succeed())
				Expect(late.Spec.Result).To(Equal(v1alpha1.OutcomeCommitted))
			})

			DescribeTable("proves that nothing was executed", func(ctx SpecContext, url func() string) {
				run(refund("txn_1", 100), "PROVIDER_URL="+url()).exits(7)
				Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionFailed))

				By("trying again")
				run(refund("txn_1", 100)).exits(0)
				Expect(p.seen("txn_1")).To(HaveLen(1))
				e := s.effect(ctx, "refund:txn_1")
				Expect(e.Status.State).To(Equal(v1alpha1.EffectCommitted))
				Expect(e.Status.Attempt).To(BeEquivalentTo(2))
			},
				Entry("when the provider refuses the connection", deaf),
				Entry("when the TLS handshake fails", unencrypted),
				Entry("when the provider has no address", func() string { return "http://nobody.invalid/v1/refunds" }),
			)

			It("asks no proxy for the provider, of which nothing could be proved", func(ctx SpecContext) {
				run(refund("txn_1", 100), "http_proxy="+deaf()).exits(0)
				Expect(p.seen("txn_1")).To(HaveLen(1))
			})

			It("believes a provider that promises so", func(ctx SpecContext) {
				p.answers(status(402))
				run(refund("txn_1", 100), "PROVIDER_NOT_EXECUTED=402 422").exits(7)
				Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionFailed))
			})

			for name, answer := range map[string]func(*provider){
				"hangs up after reading":            func(p *provider) { p.answers(hangsUp) },
				"breaks off within its answer":      func(p *provider) { p.answers(breaksOff(10)) },
				"breaks off late in a large answer": func(p *provider) { p.answers(breaksOff(50_000)) },
				"answers 500":                       func(p *provider) { p.answers(status(500)) },
				"answers 401":                       func(p *provider) { p.answers(status(401)) },
				"answers 202":                       func(p *provider) { p.answers(status(202)) },
				"redirects":                         func(p *provider) { p.answers(redirect) },
				"does not answer in time":           func(p *provider) { p.blocks() },
			} {
				It("does not guess when the provider "+name, func(ctx SpecContext) {
					answer(p)
					run(refund("txn_1", 100), "PROVIDER_TIMEOUT_SECONDS=1").exits(6)
					Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionAmbiguous))
					Expect(s.effect(ctx, "refund:txn_1").Status.Cause).To(Equal(v1alpha1.CauseReportedUnknown))
					Expect(p.seen("txn_1")).To(HaveLen(1))
				})
			}

			It("says everything once although the answers are lost", func(ctx SpecContext) {
				lost := &losing{}
				s.byProxy(ctx, lost)
				r := start(refund("txn_1", 2000))
				s.approve(ctx, s.asked(ctx, "txn_1"))
				r.wait()
				r.exits(0)
				Expect(lost.kinds()).To(Equal([]string{"actions", "claims", "outcomes"}))
				Expect(p.seen("txn_1")).To(HaveLen(1))
				Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionCommitted))
			})

			It("repeats what an apiserver does not answer, or not yet", func(ctx SpecContext) {
				s.byProxy(ctx, proxy.InjectorFunc(busy))
				run(refund("txn_1", 100)).exits(0)
				Expect(p.seen("txn_1")).To(HaveLen(1))
				s.one(ctx, "txn_1")
			})

			It("does not begin with less than a third of the lease left by the apiserver's clock", func(ctx SpecContext) {
				s.byClock(ctx, 35*time.Second)
				run(refund("txn_1", 100), "CTRLRUN_LEASE_SECONDS=50").exits(7)
				Expect(p.seen("txn_1")).To(BeEmpty())
				Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionFailed))
			})

			It("has never more of the lease than it asked for", func(ctx SpecContext) {
				s.byClock(ctx, -24*time.Hour)
				run(refund("txn_1", 100)).exits(0)
				Expect(p.seen("txn_1")).To(HaveLen(1))
			})

			It("reads its token anew for each request", func(ctx SpecContext) {
				token := s.connection[len(s.connection)-1]
				r := start(refund("txn_1", 2000))
				a := s.asked(ctx, "txn_1")
				s.byToken(ctx) // the same file
				Expect(s.connection).To(ContainElement(token))
				s.approve(ctx, a)
				r.wait()
				r.exits(0)
			})

			It("withdraws when it is interrupted before it may execute", func(ctx SpecContext) {
				r := start(refund("txn_1", 2000))
				s.asked(ctx, "txn_1")
				Expect(r.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
				r.wait()
				r.exits(1)
				Eventually(func(g Gomega) { g.Expect(s.one(ctx, "txn_1").Status.Reason).To(Equal("withdrawn")) }).Should(Succeed())
				Expect(p.seen("txn_1")).To(BeEmpty())
			})

			It("reports what it did when it is interrupted meanwhile", func(ctx SpecContext) {
				release := p.blocks()
				r := start(refund("txn_1", 100))
				Eventually(func() int { return len(p.seen("txn_1")) }).Should(Equal(1))
				Expect(r.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
				release()
				r.wait()
				r.exits(0)
				Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionCommitted))
			})

			It("never takes up somebody else's proposal that has its name", func(ctx SpecContext) {
				rival := &v1alpha1.Action{}
				rival.Namespace, rival.Name = s.ns, action.EffectName("refund:txn_1")
				rival.Spec.ActionType, rival.Spec.Arguments.Raw = "stripe.refund", []byte(refund("txn_1", 100))
				rival.Spec.ClaimID = "5f1c2a30-6f5e-4d7c-9f53-0c2a4b7d1e90"
				Expect(env.Client(s.agent).Create(ctx, rival)).To(Succeed())
				Eventually(s.state(ctx, "txn_1")).Should(Equal(v1alpha1.ActionAdmitted))
				r := run(refund("txn_1", 100), "CTRLRUN_TIMEOUT_SECONDS=5", "CTRLRUN_EFFECT_KEY=refund:txn_1")
				Expect(r.cmd.ProcessState.ExitCode()).To(BeElementOf(1, 5), r.stderr.String())
				Expect(p.seen("txn_1")).To(BeEmpty())
				Expect(s.actions(ctx, "txn_1")).To(HaveLen(2))
			})

			It("calls an action like its effect, so that people find it", func(ctx SpecContext) {
				run(refund("txn_1", 100), "CTRLRUN_EFFECT_KEY=refund:txn_1").exits(0)
				Expect(s.one(ctx, "txn_1").Name).To(Equal(action.EffectName("refund:txn_1")))
			})

			It("refuses arguments that are no object, and cannot be made to say more than arguments", func(ctx SpecContext) {
				for _, arguments := range []string{"", "[]", `{"a":1`, `{"a":1},"resource":"x"`, `{"a":"\"}"`, `{} {}`, "7"} {
					run(arguments).exits(2)
				}
				Expect(s.actions(ctx, "txn_1")).To(BeEmpty())
			})

			It("says when it has no right to propose", func(ctx SpecContext) {
				s.ns = env.Namespace(GinkgoT(), nil)
				r := run(refund("txn_1", 100))
				r.exits(9)
				Expect(r.stderr.String()).To(ContainSubstring("cannot create resource"))
			})

			It("computes the names that the operator and admission compute", func() {
				printed := func(flag, value string) string {
					r := s.launch(l.names(flag, value))
					r.wait()
					r.exits(0)
					return r.stdout.String()
				}
				for _, text := range []string{
					"refund:txn_1", "Refund:TXN_1", "", "é:🔑", strings.Repeat("a", 40), strings.Repeat("a", 29) + ":b", strings.Repeat("a", 30) + ":b",
					":::lead", "trail:::", "-a--b-", "a b\tc\nd\n", "\u212aim", "'\"\\$(x)`%s%n", "*", "-n", "refund:" + strings.Repeat("9", 3000),
					"system:serviceaccount:payments:refund-agent", "Alice@Example.COM", strings.Repeat("a", 100), strings.Repeat("a", 101),
					strings.Repeat("a", 60) + "bbb" + strings.Repeat("c", 39), strings.Repeat("x-", 80), "\xff\xfe", "系统",
				} {
					Expect(printed("--effect-name", text)).To(Equal(action.EffectName(text)+"\n"), "%q", text)
					Expect(printed("--speaker", text)).To(Equal(action.Speaker(text)+"\n"), "%q", text)
				}
			})

			It("leaves no file behind", func(ctx SpecContext) {
				run(refund("txn_1", 100)).exits(0)
				left, err := filepath.Glob(filepath.Join(s.dir, "tmp*"))
				Expect(err).NotTo(HaveOccurred())
				Expect(left).To(BeEmpty())
			})
		})
	}

	It("proves in Python that nothing was executed when there is no thread left to watch the provider", func(ctx SpecContext) {
		s, p := newSite(ctx), newProvider()
		s.byToken(ctx)
		r := s.launch([]string{python, "-I", "-S", "-c", `
import runpy, sys, threading
def none(timer): raise RuntimeError("can't start new thread")
threading.Timer.start = none
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")`, sample("agent.py"), "stripe.refund", refund("txn_1", 100)}, "PROVIDER_URL="+p.url)
		r.wait()
		r.exits(7)
		Expect(p.seen("txn_1")).To(BeEmpty())
		Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionFailed))
	})

	It("sends in Python the very bytes that were hashed", func(ctx SpecContext) {
		s, p := newSite(ctx), newProvider()
		s.byToken(ctx)
		r := s.launch(languages[2].command(`{"payment_id":"txn_1","amount":5,"\ud83d\udd11":"\u007f\u0001\n/é","\uffff":[true,{"z":1,"a":-3}],"A":9223372036854775807}`),
			"PROVIDER_URL="+p.url)
		r.wait()
		r.exits(0)
		value, err := canonical.Parse(s.one(ctx, "txn_1").Spec.Arguments.Raw)
		Expect(err).NotTo(HaveOccurred())
		want, err := canonical.Encode(value)
		Expect(err).NotTo(HaveOccurred())
		Expect(p.seen("txn_1")).To(HaveLen(1))
		Expect(p.seen("txn_1")[0].body).To(Equal(string(want)))
	})

	It("claims in Python what a process like it waits with, and one of the two executes", func(ctx SpecContext) {
		s, p := newSite(ctx), newProvider()
		s.byToken(ctx)
		first := s.launch(languages[2].command(refund("txn_1", 2000)), "PROVIDER_URL="+p.url)
		a := s.asked(ctx, "txn_1")
		second := s.launch(languages[2].command(refund("txn_1", 2000)), "PROVIDER_URL="+p.url)
		Eventually(second.stderr.String).Should(ContainSubstring("nobody is asked twice"))
		s.approve(ctx, a)
		first.wait()
		second.wait()
		codes := []int{first.cmd.ProcessState.ExitCode(), second.cmd.ProcessState.ExitCode()}
		Expect(codes).To(ConsistOf(0, BeElementOf(4, 5)), first.stderr.String()+second.stderr.String())
		Expect(p.seen("txn_1")).To(HaveLen(1))
		Expect(s.one(ctx, "txn_1").Status.State).To(Equal(v1alpha1.ActionCommitted))
	})

	It("may be one of two languages on one key", func(ctx SpecContext) {
		s, p := newSite(ctx), newProvider()
		s.byToken(ctx)
		var runs []*script
		for range 2 {
			for _, l := range languages {
				runs = append(runs, s.launch(l.command(refund("txn_1", 100)), "PROVIDER_URL="+p.url))
			}
		}
		committed := 0
		for _, r := range runs {
			r.wait()
			if code := r.cmd.ProcessState.ExitCode(); code == 0 {
				committed++
			} else {
				Expect(code).To(BeElementOf(4, 5), r.stderr.String())
			}
		}
		Expect(committed).To(Equal(1))
		Expect(p.seen("txn_1")).To(HaveLen(1))
	})
})

var _ = Describe("agent.py --serve", func() {
	var s *site
	var p *provider
	BeforeEach(func(ctx SpecContext) {
		s, p = newSite(ctx), newProvider()
		s.byToken(ctx)
	})
	start := func() *script {
		GinkgoHelper()
		return s.launch([]string{python, "-I", "-S", sample("agent.py"), "--serve", filepath.Join(s.dir, "requests.json")}, "PROVIDER_URL="+p.url)
	}
	item := func(payment string, amount int) string {
		return `{"actionType":"stripe.refund","arguments":` + refund(payment, amount) + `}`
	}
	stop := func(r *script) {
		GinkgoHelper()
		Expect(r.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
		r.wait()
		r.exits(0)
	}

	It("does each request once, whatever waits, fails or is denied beside it, and whoever comes after it", func(ctx SpecContext) {
		s.file("requests.json", []byte("["+item("txn_1", 100)+","+item("txn_2", 2000)+","+item("txn_3", 9000)+"]"))
		first := start()
		a := s.asked(ctx, "txn_2")
		Eventually(s.state(ctx, "txn_1")).Should(Equal(v1alpha1.ActionCommitted))
		Eventually(s.state(ctx, "txn_3")).Should(Equal(v1alpha1.ActionDenied))

		By("leaving what waits for people to the process that replaces it")
		stop(first)
		Expect(s.one(ctx, "txn_2").Status.State).To(Equal(v1alpha1.ActionAwaitingApproval))
		second := start()
		Eventually(second.stderr.String).Should(ContainSubstring("nobody is asked twice"))
		s.approve(ctx, a)
		Eventually(s.state(ctx, "txn_2")).Should(Equal(v1alpha1.ActionCommitted))
		Expect(s.one(ctx, "txn_2").UID).To(Equal(a.UID))

		By("taking up what is added to the file")
		s.file("requests.json", []byte("["+item("txn_1", 100)+","+item("txn_4", 100)+"]"))
		Eventually(s.state(ctx, "txn_4")).Should(Equal(v1alpha1.ActionCommitted))
		stop(second)
		for _, payment := range []string{"txn_1", "txn_2", "txn_4"} {
			Expect(p.seen(payment)).To(HaveLen(1), payment)
		}
		Expect(p.seen("txn_3")).To(BeEmpty())
	})

	It("tries again what was not executed, and not what nobody knows", func(ctx SpecContext) {
		p.answers(hangsUp)
		s.file("requests.json", []byte("["+item("txn_1", 100)+"]"))
		r := start()
		Eventually(s.state(ctx, "txn_1")).Should(Equal(v1alpha1.ActionAmbiguous))
		s.file("requests.json", []byte("["+item("txn_1", 100)+","+item("txn_2", 100)+"]"))
		Eventually(func() int { return len(p.seen("txn_2")) }).Should(Equal(1))
		stop(r)
		Expect(p.seen("txn_1")).To(HaveLen(1))
		Expect(s.actions(ctx, "txn_1")).To(HaveLen(1))

		up := p.url
		p.url = deaf()
		s.file("requests.json", []byte("["+item("txn_5", 100)+"]"))
		r = start()
		Eventually(func() int { return len(s.actions(ctx, "txn_5")) }).Should(BeNumerically(">", 1))
		stop(r)
		p.url = up
		p.answers(status(201))
		r = start()
		Eventually(func() int { return len(p.seen("txn_5")) }).Should(Equal(1))
		Eventually(func() v1alpha1.EffectState { return s.effect(ctx, "refund:txn_5").Status.State }).Should(Equal(v1alpha1.EffectCommitted))
		stop(r)
	})
})
