package protocol

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
	"ctrlrun.dev/operator/test/testenv"
)

// events are those on record in the namespace's chain, by type.
func (s *scene) events(kind timeline.Type) []receipt.Document {
	GinkgoHelper()
	var found []receipt.Document
	for _, r := range s.chain() {
		d, err := receipt.Parse(receipt.Entry{Seq: r.Spec.Seq, Hash: r.Spec.Hash, Document: r.Spec.Document})
		Expect(err).NotTo(HaveOccurred())
		if d.Kind == receipt.KindEvent && d.Event == string(kind) {
			found = append(found, d)
		}
	}
	return found
}

// earlierServer says that the apiserver's clock is ten minutes behind, while it is so.
type earlierServer struct {
	next  http.RoundTripper
	ahead *atomic.Bool
}

func (e earlierServer) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := e.next.RoundTrip(r)
	if err == nil && e.ahead.Load() {
		response.Header.Set("Date", time.Now().Add(-10*time.Minute).UTC().Format(http.TimeFormat))
	}
	return response, err
}

var _ = Describe("By what was decided", Serial, func() {
	It("is on record, each generation once, and that a policy is gone", func() {
		s := newScene()
		Eventually(func() []receipt.Document { return s.events(timeline.PolicyInForce) }).Should(HaveLen(1))
		first := s.events(timeline.PolicyInForce)[0]
		Expect(first.Data).To(HaveKeyWithValue("name", "payments"))
		Expect(first.Data).To(HaveKeyWithValue("generation", "1"))

		By("an edit")
		s.policy("payments", `{"stripe.refund": {"decision": "deny"}}`)
		Eventually(func() []receipt.Document { return s.events(timeline.PolicyInForce) }).Should(HaveLen(2))
		second := s.events(timeline.PolicyInForce)[1]
		Expect(second.SubjectUID).To(Equal(first.SubjectUID))
		Expect(second.Ordinal).To(Equal(int64(2)))
		Expect(second.Data["rules_hash"]).NotTo(Equal(first.Data["rules_hash"]))
		a := s.reaches(s.propose(refund(unique("txn"), 100)), v1alpha1.ActionDenied)
		Expect(a.Status.RulesHash).To(Equal(second.Data["rules_hash"]), "an action is decided by what the event names")

		By("another operator, which reads what is on record and adds nothing")
		other := startOperator(controllers.Options{})
		s.policy("another", `{"stripe.payout": {"decision": "deny"}}`)
		Eventually(func() []receipt.Document { return s.events(timeline.PolicyInForce) }).Should(HaveLen(3))
		Expect(other.Stop()).To(Succeed())

		By("settings, and their end")
		ttl := int64(600)
		settings := &v1alpha1.Settings{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: v1alpha1.SettingsName}, Spec: v1alpha1.SettingsSpec{ApprovalTTLSeconds: &ttl}}
		Expect(env.Admin().Create(ctx, settings)).To(Succeed())
		Eventually(func() []receipt.Document { return s.events(timeline.SettingsInForce) }).Should(HaveLen(1))
		Expect(env.Admin().Delete(ctx, settings)).To(Succeed())
		Eventually(func() []receipt.Document { return s.events(timeline.SettingsRemoved) }).Should(HaveLen(1))

		By("the Ledger, which a later operator begins with")
		Eventually(func(g Gomega) {
			status := s.ledger().Status
			names := map[string]int64{}
			for _, r := range status.Rules {
				names[r.Name] = r.Generation
			}
			g.Expect(names).To(Equal(map[string]int64{"payments": 2, "another": 1}))
			g.Expect(*status.RulesSeq).To(Equal(status.Seq))
		}).Should(Succeed())

		By("a policy that is deleted while no operator runs")
		withoutOperator()
		Expect(env.Admin().Delete(ctx, &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "another"}})).To(Succeed())
		operator = startOperator(controllers.Options{})
		Eventually(func() []receipt.Document { return s.events(timeline.PolicyRemoved) }).Should(HaveLen(1))
		Expect(s.events(timeline.PolicyRemoved)[0].Data).To(HaveKeyWithValue("name", "another"))
		Expect(s.events(timeline.PolicyInForce)).To(HaveLen(3))
		s.chainHolds()
	})

	DescribeTable("is on record once, wherever an operator dies while it writes", func(point string) {
		withoutOperator()
		s := newSceneWithoutWaiting()
		died := startDoomed(point)
		Eventually(died).Should(BeClosed())
		operator = startOperator(controllers.Options{})
		s.inForce("payments")
		Eventually(func() []receipt.Document { return s.events(timeline.PolicyInForce) }).Should(HaveLen(1))
		s.committed(unique("txn"))
		Expect(s.events(timeline.PolicyInForce)).To(HaveLen(1))
		s.chainHolds()
	},
		Entry("before", "before event"),
		Entry("after", "after event"),
	)

	It("is on record as in force never after its end, however late an operator is", func() {
		s := newScene()
		s.policy("another", `{"stripe.payout": {"decision": "deny"}}`)
		Eventually(func() []receipt.Document { return s.events(timeline.PolicyInForce) }).Should(HaveLen(2))
		withoutOperator()
		stuck := testenv.PauseAt(GinkgoT(), "before event")
		late := startOperator(controllers.Options{Crash: stuck.At})
		DeferCleanup(func() { _ = late.Stop() })
		s.writePolicy("another", `{"stripe.payout": {"decision": "allow"}}`)
		Eventually(stuck.Reached).Should(BeClosed(), "it has seen that the policy is there, and is about to say that it came into force")

		By("which is deleted meanwhile, as another operator says")
		Expect(env.Admin().Delete(ctx, &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "another"}})).To(Succeed())
		operator = startOperator(controllers.Options{})
		Eventually(func() []receipt.Document { return s.events(timeline.PolicyRemoved) }).Should(HaveLen(1))
		stuck.Resume()
		s.committed(unique("txn"))
		s.policy("payments", `{"stripe.refund": {"effect": "refund:{payment_id}", "decision": "allow"}}`)
		Eventually(func() []receipt.Document { return s.events(timeline.PolicyInForce) }).Should(HaveLen(3))
		for _, d := range s.events(timeline.PolicyInForce)[2:] {
			Expect(d.Data).To(HaveKeyWithValue("name", "payments"))
		}
		Expect(s.events(timeline.PolicyRemoved)).To(HaveLen(1))
		s.chainHolds()
	})

	It("is on record although something else waits for its finalizer", func() {
		s := newScene()
		s.policy("another", `{"stripe.payout": {"decision": "deny"}}`)
		ttl := int64(600)
		settings := &v1alpha1.Settings{
			ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: v1alpha1.SettingsName, Finalizers: []string{"example.com/wait"}},
			Spec:       v1alpha1.SettingsSpec{ApprovalTTLSeconds: &ttl},
		}
		Expect(env.Admin().Create(ctx, settings)).To(Succeed())
		Eventually(func() []receipt.Document { return s.events(timeline.SettingsInForce) }).Should(HaveLen(1))
		Expect(env.Admin().Delete(ctx, settings)).To(Succeed())
		edit := func(change func()) {
			GinkgoHelper()
			Eventually(func() error {
				if err := env.Admin().Get(ctx, client.ObjectKeyFromObject(settings), settings); err != nil {
					return err
				}
				change()
				return env.Admin().Update(ctx, settings)
			}).Should(Succeed())
		}
		edit(func() { *settings.Spec.ApprovalTTLSeconds = 604800 })
		Expect(env.Admin().Delete(ctx, &v1alpha1.ActionPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: "another"}})).To(Succeed())
		Eventually(func() []receipt.Document { return s.events(timeline.PolicyRemoved) }).Should(HaveLen(1))
		Eventually(func() int64 {
			all := s.events(timeline.SettingsInForce)
			return all[len(all)-1].Ordinal
		}).Should(Equal(settings.Generation), "they decide until they are gone")
		edit(func() { settings.Finalizers = nil })
		Eventually(func() []receipt.Document { return s.events(timeline.SettingsRemoved) }).Should(HaveLen(1))
		s.chainHolds()
	})

	It("has gaps, and an operator that dies right after it said so is no reason to say it again", func() {
		newScene()
		withoutOperator()
		began := time.Now()
		died := startDoomed("after event")
		closed := make(chan struct{})
		go func() {
			defer GinkgoRecover()
			defer close(closed)
			admissionGap("ctrlrun-records-kept")()
		}()
		Eventually(died).WithTimeout(time.Minute).Should(BeClosed())
		// Whichever chains were the first to say so: several workers go through them. The operator's last act was to write
		// their heads into the Ledgers.
		all := &v1alpha1.ReceiptList{}
		Expect(env.Admin().List(ctx, all, client.MatchingFields{"spec.kind": receipt.KindEvent})).To(Succeed())
		var said []v1alpha1.Receipt
		for _, r := range all.Items {
			if r.Spec.Reason == string(timeline.AdmissionGap) && r.CreationTimestamp.After(began.Add(-time.Second)) {
				said = append(said, r)
			}
		}
		Expect(said).NotTo(BeEmpty())
		before := map[*scene]int{}
		for _, r := range said {
			s := &scene{ns: r.Namespace}
			before[s] = len(s.events(timeline.AdmissionGap))
			Eventually(func() error {
				l := s.ledger()
				if l.Status.Seq >= r.Spec.Seq {
					return nil
				}
				l.Status.Seq, l.Status.Hash = r.Spec.Seq, r.Spec.Hash
				return env.Client(testenv.OperatorUser()).Status().Update(ctx, l)
			}).Should(Succeed())
		}
		operator = startOperator(controllers.Options{})
		<-closed
		for s, events := range before {
			Eventually(func() *metav1.MicroTime { return s.ledger().Status.AdmissionSince }).WithTimeout(time.Minute).
				Should(HaveValue(HaveField("Time", BeTemporally("~", admissionSince(), time.Millisecond))))
			Expect(s.events(timeline.AdmissionGap)).To(HaveLen(events))
			s.chainHolds()
		}
	})

	It("has gaps, and each chain says when", func() {
		s, quiet := newScene(), newScene()
		s.committed(unique("txn"))
		closeGap := admissionGap("ctrlrun-records-kept")
		closeGap()
		counting := admissionSince()
		Eventually(func() []receipt.Document { return quiet.events(timeline.AdmissionGap) }).Should(HaveLen(1), "nothing happens in it, and it is audited all the same")
		Eventually(func() []receipt.Document { return s.events(timeline.AdmissionGap) }).Should(HaveLen(1))
		gap := s.events(timeline.AdmissionGap)[0]
		Expect(gap.Data["admission_since"]).To(Equal(counting.UTC().Format(receipt.TimeLayout)))
		Expect(gap.Data["previous_admission_since"] < gap.Data["noticed"]).To(BeTrue())
		Expect(gap.Data["noticed"] < gap.Data["admission_since"]).To(BeTrue())

		By("the next operator, which was not there")
		withoutOperator()
		operator = startOperator(controllers.Options{})
		s.committed(unique("txn"))
		Expect(s.events(timeline.AdmissionGap)).To(HaveLen(1))
		s.chainHolds()
	})

	It("was not decided by a clock that was off, and the operator's own chain says so", func() {
		withoutOperator()
		system := &scene{ns: testenv.SystemNamespace}
		before := len(system.events(timeline.ClockSkewDetected))
		ahead := &atomic.Bool{}
		var err error
		operator, err = env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
			cfg.QPS, cfg.Burst = 500, 1000
			cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return earlierServer{next, ahead} })
			return controllers.New(cfg, controllers.Options{Namespace: testenv.SystemNamespace, MetricsAddress: "0", ProbeAddress: "0", Clock: clock})
		})
		Expect(err).NotTo(HaveOccurred())
		s := newScene()
		ahead.Store(true)
		Eventually(func() []receipt.Document { return system.events(timeline.ClockSkewDetected) }).Should(HaveLen(before + 1))
		d := system.events(timeline.ClockSkewDetected)[before]
		Expect(d.Data).To(HaveKeyWithValue("direction", "ahead"))
		skew, err := strconv.Atoi(d.Data["skew_us"])
		Expect(err).NotTo(HaveOccurred())
		Expect(skew).To(BeNumerically("~", (10 * time.Minute).Microseconds(), (2 * time.Second).Microseconds()))
		a := s.propose(refund(unique("txn"), 100).unclaimed())
		Consistently(func() v1alpha1.ActionState { return s.get(a).Status.State }).WithTimeout(time.Second).Should(Equal(v1alpha1.ActionPending))
		ahead.Store(false)
		s.reaches(a, v1alpha1.ActionClaimable)
		Expect(system.events(timeline.ClockSkewDetected)).To(HaveLen(before + 1))
		system.chainHolds()
	})

	It("is told with the action, from the proposal to the end", func() {
		s := newScene()
		a := s.committed(unique("txn"))
		var types []string
		for _, e := range a.Status.Timeline {
			types = append(types, e.Type)
		}
		Expect(types).To(Equal([]string{"ACTION_PROPOSED", "POLICY_EVALUATED", "EFFECT_RESERVED", "EXECUTION_STARTED", "EXECUTION_COMMITTED"}))
		Expect(string(a.Status.Timeline[1].Data["rules_hash"])).To(Equal(a.Status.RulesHash))
	})
})
