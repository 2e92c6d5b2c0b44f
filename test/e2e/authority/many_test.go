package authority

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/timeline"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/testenv"
)

var many = flag.Int("authority.many", 40, "how many grants, and how many delegations at depth 3, are made in one namespace; the figures of 1000 are worth reading")

// together does something n times, several at once.
func together(n int, do func(i int)) {
	GinkgoHelper()
	next := make(chan int)
	var wg sync.WaitGroup
	failed := make(chan any, 8)
	for range 8 {
		wg.Go(func() {
			defer GinkgoRecover()
			defer func() {
				if r := recover(); r != nil {
					failed <- r
					for range next { // nobody waits for a worker that failed
					}
					panic(r)
				}
			}()
			for i := range next {
				do(i)
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	wg.Wait()
	Expect(failed).To(BeEmpty())
}

// gauge is what a metric says, in seconds.
func gauge(r prometheus.Gatherer, name string) time.Duration {
	GinkgoHelper()
	families, err := r.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, f := range families {
		if f.GetName() == name {
			return time.Duration(f.GetMetric()[0].GetGauge().GetValue() * float64(time.Second))
		}
	}
	Fail("no metric " + name)
	return 0
}

// quantile of measurements.
func quantile(all []time.Duration, q float64) time.Duration {
	slices.Sort(all)
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

var _ = Describe("A namespace with many grants and delegations", Serial, func() {
	It("decides as one with few, and says what that costs", func() {
		withoutOperator()
		registry := prometheus.NewRegistry()
		operator = startOperator(controllers.Options{Registry: registry})
		s := newScene()
		const roots = 10
		grantName, leafName := func(i int) string { return fmt.Sprintf("grant-%04d", i) }, func(i int) string { return fmt.Sprintf("leaf-%04d", i) }
		leaf := func(i int) testenv.User { return testenv.ServiceAccountUser(s.ns, leafName(i)) }
		team := func(i int) testenv.User { return testenv.ServiceAccountUser(s.ns, fmt.Sprintf("team-%04d", i)) }

		began := time.Now()
		together(*many, func(i int) {
			o := &v1alpha1.Grant{ObjectMeta: metav1.ObjectMeta{Namespace: s.ns, Name: grantName(i)}}
			spec := s.refunds(fields{"subject": fields{"agent": team(i).Name}})
			if i < roots {
				spec = s.refunds(nil)
			}
			spec.into(&o.Spec)
			Expect(env.Client(s.owner).Create(ctx, o)).To(Succeed())
		})
		Eventually(func() int { return len(s.events(timeline.GrantInForce)) }).WithTimeout(10 * time.Minute).WithPolling(time.Second).Should(Equal(*many))
		AddReportEntry(fmt.Sprintf("%d grants made, and on record", *many), time.Since(began).Round(time.Millisecond).String())

		began = time.Now()
		middle := make([]*v1alpha1.Delegation, roots)
		for k := range roots {
			first := fmt.Sprintf("first-%d", k)
			s.handed(s.agent, first, s.part(grantRef(grantName(k)), s.night, nil))
			middle[k] = s.handed(s.night, fmt.Sprintf("second-%d", k), s.part(delegationRef(first), s.dawn, nil))
		}
		together(*many, func(i int) {
			s.delegate(s.dawn, leafName(i), s.part(delegationRef(middle[i%roots].Name), leaf(i), fields{"delegable": nil}))
		})
		delegations := &v1alpha1.DelegationList{}
		Eventually(func() int {
			Expect(env.Admin().List(ctx, delegations, client.InNamespace(s.ns))).To(Succeed())
			n := 0
			for _, d := range delegations.Items {
				if meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.AcceptedCondition) {
					n++
				}
			}
			return n
		}).WithTimeout(10 * time.Minute).WithPolling(time.Second).Should(Equal(*many + 2*roots))
		AddReportEntry(fmt.Sprintf("%d delegations made, and accepted", *many+2*roots), time.Since(began).Round(time.Millisecond).String())

		By("deciding of the first, the last and one between")
		picked := []int{roots, *many / 2, *many - 1}
		for _, i := range picked {
			Expect(env.Grant(ctx, s.ns, "ctrlrun-agent", leaf(i), team(i))).To(Succeed())
		}
		began = time.Now()
		for _, i := range picked {
			root := grantName(i % roots)
			s.passes(leaf(i), byDelegation(leafName(i), root), map[string]string{"delegation": leafName(i), "grant": root, "depth": "3"})
			s.passes(team(i), byGrant(grantName(i)), map[string]string{"grant": grantName(i)})
			s.refused(s.refund(leaf(i), 60000), refusal{decision.AuthorityConstraint, nil, map[string]string{"delegation": leafName(i), "grant": root, "depth": "3"}})
		}
		s.refused(s.refund(s.noon, asked), refusal{decision.NoAuthority, nil, nil})
		AddReportEntry("an action from its proposal to its receipt, with its agent", (time.Since(began) / time.Duration(3*len(picked)+1)).Round(time.Millisecond).String())

		By("measuring what the operator decides by")
		documents := authority.Documents{MaxDepth: v1alpha1.DefaultMaxDelegationDepth}
		grants := &v1alpha1.GrantList{}
		Expect(env.Admin().List(ctx, grants, client.InNamespace(s.ns))).To(Succeed())
		for i := range grants.Items {
			g, findings := records.Grant(&grants.Items[i])
			Expect(findings).To(BeEmpty())
			documents.Grants = append(documents.Grants, g)
		}
		for i := range delegations.Items {
			documents.Delegations = append(documents.Delegations, records.Delegation(&delegations.Items[i], time.Time{}))
		}
		began = time.Now()
		set := authority.NewSet(documents)
		AddReportEntry("uniting them", time.Since(began).Round(10*time.Microsecond).String())
		var took []time.Duration
		resource := "payment:42"
		arguments, err := canonical.Parse([]byte(`{"payment_id":"42","amount":100}`))
		Expect(err).NotTo(HaveOccurred())
		for n := range 50000 {
			i := roots + rand.IntN(*many-roots)
			u, want := leaf(i), leafName(i)
			if n%2 == 0 {
				u, want = team(i), grantName(i)
			}
			p := action.Proposal{Name: "stripe.refund", Arguments: arguments.(map[string]any), Principal: action.Principal{Agent: u.Name}, Resource: &resource, Environment: "production"}
			now := time.Now()
			r := set.Evaluate(p, now)
			took = append(took, time.Since(now))
			if !r.Passed || r.Ref.Name != want {
				Fail(fmt.Sprintf("%s: %s %s", u.Name, r.Ref, r.Message))
			}
		}
		AddReportEntry("deciding by them: median, p99, longest of 50000", fmt.Sprint(quantile(took, .5), " ", quantile(took, .99), " ", quantile(took, 1)))

		By("measuring the freshness proof, whose age is least when a round has just ended")
		var rounds []time.Duration
		before := time.Duration(0)
		Eventually(func() int {
			age := gauge(registry, "ctrlrun_freshness_age_seconds")
			if age < before {
				rounds = append(rounds, age)
			}
			before = age
			return len(rounds)
		}).WithPolling(5 * time.Millisecond).Should(BeNumerically(">=", 8))
		AddReportEntry("a freshness round: median, longest", fmt.Sprint(quantile(rounds, .5).Round(time.Millisecond), " ", quantile(rounds, 1).Round(time.Millisecond)))

		By("one Revocation that cuts a tenth of them")
		s.revoke(middle[picked[0]%roots])
		for _, i := range picked {
			root := grantName(i % roots)
			if i%roots == picked[0]%roots {
				s.refused(s.refund(leaf(i), asked), refusal{decision.AuthorityRevoked, []string{"Delegation/second-"}, map[string]string{"delegation": leafName(i), "grant": root, "depth": "3"}})
				continue
			}
			s.passes(leaf(i), byDelegation(leafName(i), root), map[string]string{"delegation": leafName(i), "grant": root, "depth": "3"})
		}
		s.chainHolds()
	})
})
