package sdk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
)

var _ = Describe("Protect", func() {
	It("runs the function once, with what was admitted, and gives the proof", func(ctx SpecContext) {
		s := newScene(ctx)
		s.mayReadReceipts(ctx)
		payment := unique()
		runs := 0
		var token string
		proof, err := s.sdk.Protect(ctx, proposal(payment, allowed), func(ctx context.Context, x client.Execution) (any, error) {
			runs++
			token = x.Token
			Expect(x.Arguments).To(Equal(map[string]any{"payment_id": payment, "amount": int64(allowed)}))
			Expect(string(x.CanonicalArguments)).To(Equal(fmt.Sprintf(`{"amount":100,"payment_id":%q}`, payment)))
			deadline, bounded := ctx.Deadline()
			Expect(bounded).To(BeTrue())
			Expect(time.Until(deadline)).To(BeNumerically("~", x.LeaseRemaining, time.Second))
			Expect(x.LeaseRemaining).To(BeNumerically("~", 5*time.Minute, 30*time.Second))
			id, err := refund(ctx, payment, allowed, x.Token)
			return map[string]any{"id": id, "amount": int64(allowed)}, err
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(Equal(1))
		Expect(provider.asked(payment)).To(Equal([]string{token}))

		Expect(proof.Unread).NotTo(HaveOccurred())
		ref := s.get(ctx, proof.Action.Name).Status.ReceiptRef
		Expect(v1alpha1.ReceiptReference{Name: proof.Name, Seq: proof.Seq, Hash: proof.Hash}).To(Equal(*ref))
		document, err := receipt.Parse(receipt.Entry{Seq: proof.Seq, Hash: proof.Hash, Document: string(proof.Document)})
		Expect(err).NotTo(HaveOccurred())
		Expect(document.Result).To(Equal(decision.Committed))
		Expect(document.ActionUID).To(BeEquivalentTo(proof.Action.UID))
		Expect(document.Token).To(Equal(token))
		Expect(document.Output).To(MatchJSON(fmt.Sprintf(`{"id":"re_%s","amount":100}`, payment)))
	}, SpecTimeout(time.Minute))

	It("gives name and hash of the proof to an agent that may not read it", func(ctx SpecContext) {
		s := newScene(ctx)
		proof, err := s.sdk.Protect(ctx, proposal(unique(), allowed), returns(nil, nil))
		Expect(err).NotTo(HaveOccurred())
		Expect(apierrors.IsForbidden(proof.Unread)).To(BeTrue(), "%v", proof.Unread)
		Expect(proof.Document).To(BeNil())
		ref := s.get(ctx, proof.Action.Name).Status.ReceiptRef
		Expect(v1alpha1.ReceiptReference{Name: proof.Name, Seq: proof.Seq, Hash: proof.Hash}).To(Equal(*ref))
	}, SpecTimeout(time.Minute))

	DescribeTable("commits whatever the value is that the function returns", func(ctx SpecContext, output any, kept string) {
		s := newScene(ctx)
		proof, err := s.sdk.Protect(ctx, proposal(unique(), allowed), returns(output, nil))
		Expect(err).NotTo(HaveOccurred())
		o := s.outcome(ctx, proof.Action)
		Expect(o.Spec.Result).To(Equal(v1alpha1.OutcomeCommitted))
		if kept == "" {
			Expect(o.Spec.Output).To(BeNil())
			return
		}
		Expect(string(o.Spec.Output.Raw)).To(MatchJSON(kept))
	},
		Entry("a struct", struct {
			ID string `json:"id"`
		}{"re_1"}, `{"id":"re_1"}`, SpecTimeout(time.Minute)),
		Entry("a fraction", map[string]any{"rate": 0.5}, "", SpecTimeout(time.Minute)),
		Entry("infinity", math.Inf(1), "", SpecTimeout(time.Minute)),
		Entry("a function", func() {}, "", SpecTimeout(time.Minute)),
		Entry("too much", make([]int, 20_000), "", SpecTimeout(time.Minute)),
	)

	It("calls it Failed only if the function says that nothing happened, and lets it be tried again with another token", func(ctx SpecContext) {
		s := newScene(ctx)
		payment := unique()
		closed := errors.New("the provider is closed")
		var tokens []string
		proof, err := s.sdk.Protect(ctx, proposal(payment, allowed), func(_ context.Context, x client.Execution) (any, error) {
			tokens = append(tokens, x.Token)
			return nil, fmt.Errorf("refund: %w", client.NotExecuted(closed))
		})
		var failed *client.FailedError
		Expect(errors.As(err, &failed)).To(BeTrue(), "%v", err)
		Expect(errors.Is(err, closed)).To(BeTrue())
		Expect(proof.Name).NotTo(BeEmpty())
		Expect(s.effect(ctx, payment).Status.State).To(Equal(v1alpha1.EffectFailed))
		Expect(s.outcome(ctx, proof.Action).Spec.Error).To(Equal("refund: the provider is closed"))

		_, err = s.sdk.Protect(ctx, proposal(payment, allowed), func(_ context.Context, x client.Execution) (any, error) {
			tokens = append(tokens, x.Token)
			return nil, nil
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(tokens[0]).NotTo(Equal(tokens[1]))
	}, SpecTimeout(time.Minute))

	DescribeTable("calls every other end unknown", func(ctx SpecContext, end func(cancel func()) error, says string) {
		s := newScene(ctx)
		payment := unique()
		// The function may end its goroutine, or panic.
		type ended struct {
			err    error
			thrown any
		}
		came := make(chan ended, 1)
		go func() {
			e := ended{err: errors.New("Protect did not return")}
			defer func() { e.thrown = recover(); came <- e }()
			calling, cancel := context.WithCancel(ctx)
			defer cancel()
			_, e.err = s.sdk.Protect(calling, proposal(payment, allowed), func(context.Context, client.Execution) (any, error) {
				return "a value beside it", end(cancel)
			})
		}()
		e := <-came
		switch says {
		case "panic":
			Expect(e.thrown).To(Equal("boom"))
		case "exit":
			Expect(e.thrown).To(BeNil())
			Expect(e.err).To(MatchError("Protect did not return"))
		default:
			Expect(errors.Is(e.err, client.ErrAmbiguous)).To(BeTrue(), "%v", e.err)
			var unknown *client.UnknownError
			Expect(errors.As(e.err, &unknown)).To(BeTrue())
			Expect(unknown.Returned).To(MatchError(ContainSubstring(says)))
		}
		Eventually(func() v1alpha1.EffectState { return s.effect(ctx, payment).Status.State }).Should(Equal(v1alpha1.EffectAmbiguous))
		Expect(s.effect(ctx, payment).Status.Cause).To(Equal(v1alpha1.CauseReportedUnknown), "it was reported, and did not wait for the end of the lease")

		By("and nobody tries it again")
		_, err := s.sdk.Protect(ctx, proposal(payment, allowed), never)
		var ambiguous *client.AmbiguousError
		Expect(errors.As(err, &ambiguous)).To(BeTrue(), "%v", err)
		Expect(errors.Is(err, client.ErrAmbiguous)).To(BeTrue())
	},
		Entry("an error", func(func()) error { return io.ErrUnexpectedEOF }, "unexpected EOF", SpecTimeout(time.Minute)),
		Entry("a cancelled context", func(cancel func()) error { cancel(); return context.Canceled }, "canceled", SpecTimeout(time.Minute)),
		Entry("a certain failure joined with another", func(func()) error {
			return errors.Join(client.NotExecuted(io.EOF), errors.New("the second request timed out"))
		}, "timed out", SpecTimeout(time.Minute)),
		Entry("another action's end", func(func()) error {
			return &client.FailedError{EndedError: &client.EndedError{Action: &v1alpha1.Action{}}, Returned: client.NotExecuted(io.EOF)}
		}, "EOF", SpecTimeout(time.Minute)),
		Entry("a panic", func(func()) error { panic("boom") }, "panic", SpecTimeout(time.Minute)),
		Entry("runtime.Goexit", func(func()) error { runtime.Goexit(); return nil }, "exit", SpecTimeout(time.Minute)),
	)

	It("tells a duplicate what it is a duplicate of", func(ctx SpecContext) {
		s := newScene(ctx)
		payment := unique()
		first, err := s.sdk.Protect(ctx, proposal(payment, allowed), func(ctx context.Context, x client.Execution) (any, error) {
			_, err := s.sdk.Protect(ctx, proposal(payment, allowed), never)
			var duplicate *client.DuplicateError
			Expect(errors.As(err, &duplicate)).To(BeTrue(), "%v", err)
			Expect(duplicate.State).To(Equal(v1alpha1.EffectExecuting))
			Expect(duplicate.OutcomeRef).To(BeNil())
			return nil, nil
		})
		Expect(err).NotTo(HaveOccurred())

		_, err = s.sdk.Protect(ctx, proposal(payment, allowed), never)
		var duplicate *client.DuplicateError
		Expect(errors.As(err, &duplicate)).To(BeTrue(), "%v", err)
		Expect(duplicate.State).To(Equal(v1alpha1.EffectCommitted))
		Expect(duplicate.OutcomeRef.Name).To(Equal(s.outcome(ctx, first.Action).Name))

		By("a process that comes back to its own action is told the same")
		call, err := s.sdk.Attach(ctx, first.Action.Name, first.Action.Spec.ClaimID)
		Expect(err).NotTo(HaveOccurred())
		_, err = call.Execute(ctx, never)
		Expect(errors.As(err, &duplicate)).To(BeTrue(), "%v", err)
		proof, err := call.Wait(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(proof.Hash).To(Equal(first.Hash))
	}, SpecTimeout(time.Minute))

	It("says who or what said no", func(ctx SpecContext) {
		s := newScene(ctx)
		_, err := s.sdk.Protect(ctx, proposal(unique(), denied), never)
		var no *client.DeniedError
		Expect(errors.As(err, &no)).To(BeTrue(), "%v", err)
		Expect(no.Reason).To(Equal("rule[2]"))
		_, err = s.sdk.Protect(ctx, client.Proposal{ActionType: "mail.send"}, never)
		Expect(errors.As(err, &no)).To(BeTrue(), "%v", err)
		Expect(no.Reason).To(Equal("unknown_action"))
	}, SpecTimeout(time.Minute))

	It("waits for people", func(ctx SpecContext) {
		s := newScene(ctx)
		p := proposal(unique(), asked)
		p.Progress = whenAsked(func(a *v1alpha1.Action) {
			defer GinkgoRecover()
			Expect(s.approve(ctx, a)).To(Succeed())
		})
		runs := 0
		_, err := s.sdk.Protect(ctx, p, func(context.Context, client.Execution) (any, error) { runs++; return nil, nil })
		Expect(err).NotTo(HaveOccurred())
		Expect(runs).To(Equal(1))
	}, SpecTimeout(time.Minute))

	It("withdraws what people were asked when its context ends", func(ctx SpecContext) {
		s := newScene(ctx)
		waiting, stop := context.WithCancel(ctx)
		defer stop()
		p := proposal(unique(), asked)
		p.Progress = whenAsked(func(*v1alpha1.Action) { stop() })
		proof, err := s.sdk.Protect(waiting, p, never)
		var required *client.ApprovalRequiredError
		Expect(errors.As(err, &required)).To(BeTrue(), "%v", err)
		Expect(required.Withdrawn).To(BeTrue())
		Expect(required.Required).To(BeEquivalentTo(1))
		Expect(errors.Is(err, context.Canceled)).To(BeTrue())
		Eventually(func() string { return s.get(ctx, proof.Action.Name).Status.Reason }).Should(Equal("withdrawn"))
	}, SpecTimeout(time.Minute))

	It("says that nobody answered in time", func(ctx SpecContext) {
		s := newScene(ctx)
		p := proposal(unique(), asked)
		p.Progress = whenAsked(func(*v1alpha1.Action) { clock.Advance(GinkgoT(), time.Hour) })
		_, err := s.sdk.Protect(ctx, p, never)
		var late *client.ExpiredError
		Expect(errors.As(err, &late)).To(BeTrue(), "%v", err)
		Expect(late.Reason).To(Equal("approval_expired"))
	}, SpecTimeout(time.Minute))

	It("does not begin with less than a third of the lease left", func(ctx SpecContext) {
		s := newScene(ctx)
		cfg := env.Config(s.agent)
		// For this agent the apiserver is four minutes ahead of the operator, which wrote the lease of five.
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return ahead{next, 4 * time.Minute} })
		agent, err := client.New(cfg, s.ns)
		Expect(err).NotTo(HaveOccurred())
		payment := unique()
		proof, err := agent.Protect(ctx, proposal(payment, allowed), never)
		var late *client.LeaseError
		Expect(errors.As(err, &late)).To(BeTrue(), "%v", err)
		Expect(late.Remaining).To(BeNumerically("<", 100*time.Second))
		Eventually(func() v1alpha1.ActionState { return s.get(ctx, proof.Action.Name).Status.State }).Should(Equal(v1alpha1.ActionFailed))
		Expect(s.effect(ctx, payment).Status.State).To(Equal(v1alpha1.EffectFailed))
	}, SpecTimeout(time.Minute))
})

// ahead moves the Date of every answer.
type ahead struct {
	next http.RoundTripper
	by   time.Duration
}

func (a ahead) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := a.next.RoundTrip(request)
	if err == nil {
		response.Header.Set("Date", time.Now().Add(a.by).UTC().Format(http.TimeFormat))
	}
	return response, err
}

var _ = Describe("The parts of Protect", func() {
	It("do the same in the hands of a program that has no function to give", func(ctx SpecContext) {
		s := newScene(ctx)
		p := proposal(unique(), asked)
		p.Unclaimed = true
		proposed, err := s.sdk.Propose(ctx, p)
		Expect(err).NotTo(HaveOccurred())

		By("waiting in another process")
		call, err := s.sdk.Attach(ctx, proposed.Action().Name, "")
		Expect(err).NotTo(HaveOccurred())
		call.Progress = whenAsked(func(a *v1alpha1.Action) {
			defer GinkgoRecover()
			Expect(s.approve(ctx, a)).To(Succeed())
		})
		x, err := call.Claim(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(x.Arguments).To(HaveKeyWithValue("amount", int64(asked)))
		Expect(call.Report(ctx, "done", nil)).To(Succeed())
		proof, err := call.Wait(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(proof.Name).NotTo(BeEmpty())

		By("the process that proposed it hears of it")
		seen, err := proposed.Wait(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(seen.Hash).To(Equal(proof.Hash))
	}, SpecTimeout(time.Minute))

	It("execute at most once for one call, and take nothing back", func(ctx SpecContext) {
		s := newScene(ctx)
		payment := unique()
		call, err := s.sdk.Propose(ctx, proposal(payment, allowed))
		Expect(err).NotTo(HaveOccurred())
		again := func() {
			_, err := call.Execute(ctx, never)
			Expect(err).To(MatchError(ContainSubstring("nothing was executed again")))
		}
		_, err = call.Execute(ctx, func(context.Context, client.Execution) (any, error) { again(); return nil, nil })
		Expect(err).NotTo(HaveOccurred())
		Expect(s.effect(ctx, payment).Status.State).To(Equal(v1alpha1.EffectCommitted))
		again()

		By("also when it gave up, before anybody knows")
		call, err = s.sdk.Propose(ctx, proposal(unique(), allowed))
		Expect(err).NotTo(HaveOccurred())
		Expect(call.Claim(ctx)).Error().NotTo(HaveOccurred())
		Expect(call.GiveUp(ctx, "changed its mind")).To(Succeed())
		again()
	}, SpecTimeout(time.Minute))

	It("leave a proposal that waits for people as it is when a Claim ends", func(ctx SpecContext) {
		s := newScene(ctx)
		waiting, stop := context.WithCancel(ctx)
		defer stop()
		p := proposal(unique(), asked)
		p.Progress = whenAsked(func(*v1alpha1.Action) { stop() })
		call, err := s.sdk.Propose(ctx, p)
		Expect(err).NotTo(HaveOccurred())
		_, err = call.Claim(waiting)
		var required *client.ApprovalRequiredError
		Expect(errors.As(err, &required)).To(BeTrue(), "%v", err)
		Expect(required.Withdrawn).To(BeFalse())

		Expect(s.approve(ctx, call.Action())).To(Succeed())
		proof, err := call.Execute(ctx, returns(nil, nil))
		Expect(err).NotTo(HaveOccurred())
		Expect(proof.Action.UID).To(Equal(call.Action().UID))
	}, SpecTimeout(time.Minute))
})
