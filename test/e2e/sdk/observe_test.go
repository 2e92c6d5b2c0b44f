package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/test/testenv"
)

// lookup is an observer that finds what it is told to, and notes for which attempts it was asked.
type lookup struct {
	finding client.Finding
	err     error
	first   func(client.Attempt) // before it answers
	asked   []client.Attempt
}

func (l *lookup) observer(eager bool) *client.Observer {
	return &client.Observer{Name: "refund lookup", Eager: eager, Look: func(_ context.Context, a client.Attempt) (client.Finding, error) {
		l.asked = append(l.asked, a)
		if l.first != nil {
			l.first(a)
		}
		return l.finding, l.err
	}}
}

// mayObserve lets the agent state what its programs find.
func (s *scene) mayObserve(ctx context.Context) {
	GinkgoHelper()
	group := []string{v1alpha1.GroupVersion.Group}
	Expect(env.Allow(ctx, s.ns, s.agent,
		rbacv1.PolicyRule{APIGroups: group, Resources: []string{"resolutions"}, Verbs: []string{"create", "get"}},
		rbacv1.PolicyRule{APIGroups: group, Resources: []string{"actiontypes"}, ResourceNames: []string{"stripe.*"}, Verbs: []string{"observe"}},
	)).To(Succeed())
}

var errReset = errors.New("connection reset")

// unknown leaves the effect of a payment Ambiguous, and gives the token of that attempt.
func (s *scene) unknown(ctx context.Context, payment string) (token string) {
	GinkgoHelper()
	_, err := s.sdk.Protect(ctx, proposal(payment, allowed), func(_ context.Context, x client.Execution) (any, error) {
		token = x.Token
		return nil, errReset
	})
	Expect(errors.Is(err, client.ErrAmbiguous)).To(BeTrue(), "%v", err)
	return token
}

func observed(payment string, l *lookup, eager bool) client.Proposal {
	p := proposal(payment, allowed)
	p.Observer = l.observer(eager)
	return p
}

func (s *scene) resolutions(ctx context.Context) []v1alpha1.Resolution {
	GinkgoHelper()
	var list v1alpha1.ResolutionList
	Expect(env.Admin().List(ctx, &list, kube.InNamespace(s.ns))).To(Succeed())
	return list.Items
}

// receiptOf is the receipt of the Resolution that settled an effect.
func (s *scene) receiptOf(ctx context.Context, resolution string) receipt.Document {
	GinkgoHelper()
	var list v1alpha1.ReceiptList
	Expect(env.Admin().List(ctx, &list, kube.InNamespace(s.ns))).To(Succeed())
	for _, r := range list.Items {
		d, err := receipt.Parse(receipt.Entry{Seq: r.Spec.Seq, Hash: r.Spec.Hash, Document: r.Spec.Document})
		Expect(err).NotTo(HaveOccurred())
		if d.Kind == receipt.KindResolution && d.ResolutionName == resolution {
			return d
		}
	}
	Fail("there is no receipt of " + resolution)
	return receipt.Document{}
}

var _ = Describe("an observer", func() {
	It("finds that what is in the way happened", func(ctx SpecContext) {
		s := newScene(ctx)
		s.mayObserve(ctx)
		payment := unique()
		token := s.unknown(ctx, payment)
		l := &lookup{finding: client.FoundCommitted}
		_, err := s.sdk.Protect(ctx, observed(payment, l, false), never)
		var duplicate *client.DuplicateError
		Expect(errors.As(err, &duplicate)).To(BeTrue(), "%v", err)
		Expect(errors.Is(err, client.ErrAmbiguous)).To(BeFalse())
		Expect(duplicate.State).To(Equal(v1alpha1.EffectCommitted))
		Expect(duplicate.Observer).To(Equal("refund lookup"))
		Expect(err).To(MatchError(ContainSubstring("observer refund lookup found that its effect is committed already")))
		Expect(l.asked).To(Equal([]client.Attempt{{EffectKey: "refund:" + payment, Number: 1, Token: token}}))

		e := s.effect(ctx, payment)
		Expect(e.Status.State).To(Equal(v1alpha1.EffectCommitted))
		by := e.Status.Resolution
		Expect(by.Resolver).To(Equal(s.agent.Name))
		var proof receipt.Document
		Eventually(func(g Gomega) {
			for _, r := range s.resolutions(ctx) {
				g.Expect(r.Status.Conditions).To(ContainElement(And(HaveField("Type", v1alpha1.AcceptedCondition), HaveField("Status", metav1.ConditionTrue))))
			}
		}).Should(Succeed())
		proof = s.receiptOf(ctx, by.Name)
		Expect(proof.Result).To(Equal(decision.Committed))
		Expect(proof.Observer).To(Equal("refund lookup"))
		Expect(proof.Resolver).To(Equal(s.agent.Name))
	}, SpecTimeout(time.Minute))

	DescribeTable("finds that what is in the way did not happen, and the next attempt is made", func(ctx SpecContext, name string) {
		s := newScene(ctx)
		s.mayObserve(ctx)
		payment := unique()
		token := s.unknown(ctx, payment)
		l := &lookup{finding: client.FoundNotExecuted}
		p := observed(payment, l, true)
		p.Name = name
		var tokens []string
		proof, err := s.sdk.Protect(ctx, p, func(_ context.Context, x client.Execution) (any, error) {
			tokens = append(tokens, x.Token)
			return nil, nil
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(tokens).To(HaveLen(1))
		Expect(tokens[0]).NotTo(Equal(token))
		Expect(l.asked).To(HaveLen(1))
		e := s.effect(ctx, payment)
		Expect(e.Status.State).To(Equal(v1alpha1.EffectCommitted))
		Expect(e.Status.Attempt).To(BeEquivalentTo(2))
		if name != "" {
			Expect(proof.Action.Name).To(Equal(name + ".2"))
		}
	},
		Entry("under names of the SDK", "", SpecTimeout(time.Minute)),
		Entry("under a name of the agent's", "refund-it", SpecTimeout(time.Minute)),
	)

	DescribeTable("that does not know changes nothing", func(ctx SpecContext, l *lookup, says string) {
		s := newScene(ctx)
		s.mayObserve(ctx)
		payment := unique()
		s.unknown(ctx, payment)
		l.asked = nil
		_, err := s.sdk.Protect(ctx, observed(payment, l, true), never)
		var ambiguous *client.AmbiguousError
		Expect(errors.As(err, &ambiguous)).To(BeTrue(), "%v", err)
		Expect(errors.Is(err, client.ErrAmbiguous)).To(BeTrue())
		var trouble *client.ObserverError
		Expect(errors.As(err, &trouble)).To(BeTrue(), "%v", err)
		Expect(trouble).To(MatchError(ContainSubstring(says)))
		Expect(l.asked).To(HaveLen(1))
		Expect(s.effect(ctx, payment).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
		Expect(s.resolutions(ctx)).To(BeEmpty())
	},
		Entry("since it says so", &lookup{finding: client.FoundUnknown}, "does not know", SpecTimeout(time.Minute)),
		Entry("since it failed", &lookup{finding: client.FoundCommitted, err: errReset}, "does not know: connection reset", SpecTimeout(time.Minute)),
		Entry("since it says anything else", &lookup{finding: "Committed"}, "counts as unknown", SpecTimeout(time.Minute)),
		Entry("since it says nothing", &lookup{}, "counts as unknown", SpecTimeout(time.Minute)),
	)

	It("that panics changes nothing", func(ctx SpecContext) {
		s := newScene(ctx)
		s.mayObserve(ctx)
		payment := unique()
		s.unknown(ctx, payment)
		l := &lookup{first: func(client.Attempt) { panic("boom") }}
		Expect(func() { _, _ = s.sdk.Protect(ctx, observed(payment, l, true), never) }).To(PanicWith("boom"))
		Expect(s.effect(ctx, payment).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
		Expect(s.resolutions(ctx)).To(BeEmpty())
	}, SpecTimeout(time.Minute))

	It("looks at the end of this call where it is eager, and the call still does not know", func(ctx SpecContext) {
		s := newScene(ctx)
		s.mayObserve(ctx)
		s.mayReadReceipts(ctx)
		payment := unique()
		l := &lookup{finding: client.FoundCommitted}
		proof, err := s.sdk.Protect(ctx, observed(payment, l, true), returns(nil, errReset))
		var unknown *client.UnknownError
		Expect(errors.As(err, &unknown)).To(BeTrue(), "%v", err)
		Expect(errors.Is(err, errReset)).To(BeTrue())
		Expect(l.asked).To(HaveLen(1))
		Expect(s.effect(ctx, payment).Status.State).To(Equal(v1alpha1.EffectCommitted))
		document, err := receipt.Parse(receipt.Entry{Seq: proof.Seq, Hash: proof.Hash, Document: string(proof.Document)})
		Expect(err).NotTo(HaveOccurred())
		Expect(document.Result).To(Equal(decision.Ambiguous), "the receipt is not rewritten")
		Expect(s.get(ctx, proof.Action.Name).Status.State).To(Equal(v1alpha1.ActionAmbiguous))
	}, SpecTimeout(time.Minute))

	DescribeTable("does not look at the end of this call", func(ctx SpecContext, eager bool, end func(cancel func()) error) {
		s := newScene(ctx)
		s.mayObserve(ctx)
		payment := unique()
		l := &lookup{finding: client.FoundCommitted}
		calling, cancel := context.WithCancel(ctx)
		defer cancel()
		func() {
			defer func() { _ = recover() }()
			_, err := s.sdk.Protect(calling, observed(payment, l, eager), func(context.Context, client.Execution) (any, error) { return nil, end(cancel) })
			Expect(errors.Is(err, client.ErrAmbiguous)).To(BeTrue(), "%v", err)
		}()
		Eventually(func() v1alpha1.EffectState { return s.effect(ctx, payment).Status.State }).Should(Equal(v1alpha1.EffectAmbiguous))
		Expect(l.asked).To(BeEmpty())
	},
		Entry("where it is not eager", false, func(func()) error { return errReset }, SpecTimeout(time.Minute)),
		Entry("after its context is done", true, func(cancel func()) error { cancel(); return context.Canceled }, SpecTimeout(time.Minute)),
		Entry("after a panic", true, func(func()) error { panic("boom") }, SpecTimeout(time.Minute)),
	)

	It("looks once, even if the attempt that it made possible ends as nobody knows", func(ctx SpecContext) {
		s := newScene(ctx)
		s.mayObserve(ctx)
		payment := unique()
		s.unknown(ctx, payment)
		l := &lookup{finding: client.FoundNotExecuted}
		_, err := s.sdk.Protect(ctx, observed(payment, l, true), returns(nil, errReset))
		Expect(errors.Is(err, client.ErrAmbiguous)).To(BeTrue(), "%v", err)
		Expect(l.asked).To(HaveLen(1))
		e := s.effect(ctx, payment)
		Expect(e.Status.Attempt).To(BeEquivalentTo(2))
		Expect(e.Status.State).To(Equal(v1alpha1.EffectAmbiguous))
	}, SpecTimeout(time.Minute))

	It("settles nothing without the verb", func(ctx SpecContext) {
		s := newScene(ctx)
		Expect(env.Grant(ctx, s.ns, "ctrlrun-resolver", s.agent)).To(Succeed())
		payment := unique()
		s.unknown(ctx, payment)
		l := &lookup{finding: client.FoundNotExecuted}
		_, err := s.sdk.Protect(ctx, observed(payment, l, false), never)
		Expect(errors.Is(err, client.ErrAmbiguous)).To(BeTrue(), "%v", err)
		var refused *client.RefusedError
		Expect(errors.As(err, &refused)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring(`the verb "observe"`)))
		Expect(s.effect(ctx, payment).Status.State).To(Equal(v1alpha1.EffectAmbiguous))
	}, SpecTimeout(time.Minute))

	It("does not overrule a person who was first", func(ctx SpecContext) {
		s := newScene(ctx)
		s.mayObserve(ctx)
		payment := unique()
		s.unknown(ctx, payment)
		bob := testenv.User{Name: "bob"}
		Expect(env.Grant(ctx, s.ns, "ctrlrun-resolver", bob)).To(Succeed())
		l := &lookup{finding: client.FoundNotExecuted, first: func(client.Attempt) { s.resolve(ctx, bob, payment) }}
		_, err := s.sdk.Protect(ctx, observed(payment, l, false), never)
		var duplicate *client.DuplicateError
		Expect(errors.As(err, &duplicate)).To(BeTrue(), "%v", err)
		Expect(s.effect(ctx, payment).Status.Resolution.Resolver).To(Equal("bob"))
	}, SpecTimeout(time.Minute))

	It("does not stand for the people of whom there have to be two", func(ctx SpecContext) {
		s := newScene(ctx)
		s.mayObserve(ctx)
		p := &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "payouts"}}
		Expect(json.Unmarshal([]byte(`{"actions":{"stripe.payout":{"effect":"payout:{payout_id}","resolutionsRequired":2,"rules":[{"decision":"allow"}]}}}`), &p.Spec)).To(Succeed())
		Expect(env.Admin().Create(ctx, p)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(env.Admin().Get(ctx, kube.ObjectKeyFromObject(p), p)).To(Succeed())
			g.Expect(p.Status.ObservedGeneration).To(Equal(p.Generation))
		}).Should(Succeed())
		payout := client.Proposal{ActionType: "stripe.payout", Arguments: map[string]any{"payout_id": "p_1"}}
		_, err := s.sdk.Protect(ctx, payout, returns(nil, errReset))
		Expect(errors.Is(err, client.ErrAmbiguous)).To(BeTrue(), "%v", err)
		payout.Observer = (&lookup{finding: client.FoundNotExecuted}).observer(false)
		_, err = s.sdk.Protect(ctx, payout, never)
		var trouble *client.ObserverError
		Expect(errors.As(err, &trouble)).To(BeTrue(), "%v", err)
		Expect(trouble).To(MatchError(ContainSubstring("PeopleRequired")))
		e := &v1alpha1.Effect{}
		Expect(env.Admin().Get(ctx, kube.ObjectKey{Namespace: s.ns, Name: action.EffectName("payout:p_1")}, e)).To(Succeed())
		Expect(e.Status.State).To(Equal(v1alpha1.EffectAmbiguous))
	}, SpecTimeout(time.Minute))

	DescribeTable("that cannot look is refused before anything is proposed", func(ctx SpecContext, o client.Observer) {
		s := newScene(ctx)
		p := proposal(unique(), allowed)
		p.Observer = &o
		_, err := s.sdk.Protect(ctx, p, never)
		Expect(err).To(MatchError(ContainSubstring("nothing was proposed")))
		var list v1alpha1.ActionList
		Expect(env.Admin().List(ctx, &list, kube.InNamespace(s.ns))).To(Succeed())
		Expect(list.Items).To(BeEmpty())
	},
		Entry("without a function", client.Observer{Name: "n"}, SpecTimeout(time.Minute)),
		Entry("without a name", *(&lookup{}).named(""), SpecTimeout(time.Minute)),
		Entry("with a name that is too long", *(&lookup{}).named(fmt.Sprintf("%0254d", 0)), SpecTimeout(time.Minute)),
	)
})

func (l *lookup) named(name string) *client.Observer {
	o := l.observer(false)
	o.Name = name
	return o
}

// resolve says as a person that the effect of a payment is committed, and waits until that counts.
func (s *scene) resolve(ctx context.Context, as testenv.User, payment string) {
	GinkgoHelper()
	e := s.effect(ctx, payment)
	holder := s.get(ctx, e.Status.Holder.Name)
	Expect(env.Client(as).Create(ctx, &v1alpha1.Resolution{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: fmt.Sprintf("%s.%d.%s", e.Name, e.Status.Attempt, action.Speaker(as.Name))},
		Spec: v1alpha1.ResolutionSpec{
			EffectRef: v1alpha1.ObjectReference{Name: e.Name, UID: e.UID}, Attempt: e.Status.Attempt, ActionType: e.Status.ActionType,
			Result: v1alpha1.ResolutionCommitted, Reason: "The provider has it.",
			ReceiptRef: v1alpha1.ReceiptReference{Name: holder.Status.ReceiptRef.Name, Hash: holder.Status.ReceiptRef.Hash},
		},
	})).To(Succeed())
	Eventually(func() v1alpha1.EffectState { return s.effect(ctx, payment).Status.State }).Should(Equal(v1alpha1.EffectCommitted))
}
