package oversight

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/test/testenv"
)

// withoutOperator stops the operator of the suite for one spec.
func withoutOperator() {
	GinkgoHelper()
	Expect(operator.Stop()).To(Succeed())
	DeferCleanup(func() {
		_ = operator.Stop()
		operator = startOperator(controllers.Options{})
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// startWrapped starts an operator whose requests go through something.
func startWrapped(wrap func(http.RoundTripper) http.RoundTripper) *testenv.Operator {
	GinkgoHelper()
	started, err := env.StartOperator(func(cfg *rest.Config) (testenv.Runnable, error) {
		cfg.QPS = -1
		cfg.Wrap(wrap)
		return controllers.New(cfg, controllers.Options{Namespace: testenv.SystemNamespace, MetricsAddress: "0", ProbeAddress: "0", Clock: clock})
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(started.Stop)
	return started
}

// reviews reports whether a request asks who may do something.
func reviews(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "/subjectaccessreviews") }

// mayReview takes from the operator the right to ask who may approve, or gives it back, and returns when the apiserver knows.
func mayReview(may bool) {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{}
	Expect(env.Admin().Get(ctx, client.ObjectKey{Name: "ctrlrun-operator"}, role)).To(Succeed())
	rule := rbacv1.PolicyRule{APIGroups: []string{authorizationv1.GroupName}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}}
	rest := slices.DeleteFunc(slices.Clone(role.Rules), func(r rbacv1.PolicyRule) bool { return slices.Contains(r.Resources, "subjectaccessreviews") })
	Expect(may || len(rest) == len(role.Rules)-1).To(BeTrue(), "the shipped role has one rule for it: %v", role.Rules)
	role.Rules = rest
	if may {
		role.Rules = append(rest, rule)
	}
	Expect(env.Admin().Update(ctx, role)).To(Succeed())
	u := testenv.OperatorUser()
	Eventually(func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: u.Name, Groups: u.Groups, ResourceAttributes: &authorizationv1.ResourceAttributes{Group: authorizationv1.GroupName, Resource: "subjectaccessreviews", Verb: "create"},
		}}
		err := env.Admin().Create(ctx, review)
		return review.Status.Allowed, err
	}).Should(Equal(may))
}

// stuck expects that nothing comes of an Action while the question cannot be asked, and that the log says why, of that Action.
func (s *scene) stuck(a *v1alpha1.Action, state v1alpha1.ActionState, from int, why string) {
	GinkgoHelper()
	Eventually(func() bool {
		return slices.ContainsFunc(strings.Split(logged.Since(from), "\n"), func(line string) bool {
			return strings.Contains(line, "ask whether alice may approve stripe.refund") && strings.Contains(line, why) && strings.Contains(line, `controller="action"`) && strings.Contains(line, a.Name)
		})
	}).Should(BeTrue(), "the log says nothing of it")
	o := s.get(a)
	Expect(o.Status.State).To(Equal(state))
	Expect(o.Status.Execution).To(BeNil())
	s.noEffect(a)
}

var _ = Describe("while nobody says who may approve", Serial, func() {
	// passes takes an approved action through two outages: before it may be claimed, and after.
	passes := func(down, up func(), why string) {
		GinkgoHelper()
		s := newScene(one)
		alice, _ := s.approver("alice")
		a := s.asked()
		from := logged.Len()
		down()
		yes := s.approve(alice, a)
		s.stuck(a, v1alpha1.ActionAwaitingApproval, from, why)
		Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(yes), yes)).To(Succeed())
		Expect(yes.Status.Conditions).To(BeEmpty(), "nobody is told that it counts")
		up()
		a = s.reaches(a, v1alpha1.ActionClaimable)
		expectAccepted(yes)

		from = logged.Len()
		down()
		s.claim(a)
		s.stuck(a, v1alpha1.ActionClaimable, from, why)
		up()
		s.ends(a, yes)
	}

	It("because the operator may not ask, nothing is admitted, and it goes on when it may", func() {
		DeferCleanup(mayReview, true)
		passes(func() { mayReview(false) }, func() { mayReview(true) }, "forbidden")
	})

	DescribeTable("nothing is admitted, and it goes on when somebody does", func(answer func(next http.RoundTripper, r *http.Request) (*http.Response, error), why string) {
		withoutOperator()
		var down atomic.Bool
		operator = startWrapped(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				if down.Load() && reviews(r) {
					return answer(next, r)
				}
				return next.RoundTrip(r)
			})
		})
		passes(func() { down.Store(true) }, func() { down.Store(false) }, why)
	},
		Entry("because the question does not arrive", func(http.RoundTripper, *http.Request) (*http.Response, error) {
			return nil, errors.New("the network is down")
		}, "the network is down"),
		Entry("because the apiserver cannot evaluate it", func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
			response, err := next.RoundTrip(r)
			if err != nil {
				return nil, err
			}
			defer response.Body.Close() // nobody reads what it says
			review := &authorizationv1.SubjectAccessReview{
				TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
				Status:   authorizationv1.SubjectAccessReviewStatus{EvaluationError: "the authorizer did not answer"},
			}
			body, err := json.Marshal(review)
			if err != nil {
				return nil, err
			}
			response.Body, response.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
			response.Header.Set("Content-Type", "application/json")
			response.Header.Del("Content-Length")
			return response, nil
		}, "the authorizer did not answer"),
	)
})

// dies starts an operator that dies at its first request that match picks once it is armed: before that one reaches the apiserver,
// or after, before it hears of the answer. No request of it reaches the apiserver any more.
func dies(match func(*http.Request) bool, answered bool) (arm func(), died chan struct{}) {
	GinkgoHelper()
	died = make(chan struct{})
	var once sync.Once
	var armed, cut atomic.Bool
	gone := errors.New("this operator is dead")
	startWrapped(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if cut.Load() {
				return nil, gone
			}
			if !armed.Load() || !match(r) {
				return next.RoundTrip(r)
			}
			cut.Store(true)
			if answered {
				if response, err := next.RoundTrip(r); err == nil {
					_ = response.Body.Close()
				}
			}
			once.Do(func() { close(died) })
			return nil, gone
		})
	})
	return func() { armed.Store(true) }, died
}

// writes reports whether a request writes an object of a kind, and which.
func writes(method, resource string) func(*http.Request) bool {
	return func(r *http.Request) bool {
		return r.Method == method && strings.Contains(r.URL.Path, "/"+resource)
	}
}

var _ = Describe("an operator that dies between asking who may approve and admitting", Serial, func() {
	reserve, admit := writes(http.MethodPost, "effects"), writes(http.MethodPut, "actions/")
	DescribeTable("leaves it to the next, which asks again", func(match func(*http.Request) bool, answered, revoked bool) {
		withoutOperator()
		s := setScene(one)
		arm, died := dies(match, answered)
		alice, right := s.approver("alice")
		bob, _ := s.approver("bob")
		s.inForce()
		a := s.asked()
		yes := s.approve(alice, a)
		a = s.reaches(a, v1alpha1.ActionClaimable)
		expectAccepted(yes)
		arm()
		s.claim(a)
		Eventually(died).Should(BeClosed())
		admitted := s.get(a).Status.Execution != nil
		if revoked {
			right.revoke()
		}

		operator = startOperator(controllers.Options{})
		if !revoked || admitted {
			s.ends(a, yes) // what was admitted by then is
			Expect(s.effect(s.get(a)).Status.Attempt).To(Equal(int64(1)))
			return
		}
		a = s.waits(a, "0/1", "Not counted: alice")
		s.executed(a, s.approve(bob, a))
		e := s.effect(s.get(a))
		Expect(e.Status.Attempt).To(Equal(int64(1)), "what was reserved is used, once")
		Expect(e.Status.StartedAttempts).To(Equal(int64(1)))
	},
		Entry("before the question arrives", reviews, false, false),
		Entry("before the question arrives, and the right is taken away", reviews, false, true),
		Entry("before it hears the answer", reviews, true, false),
		Entry("before it hears the answer, and the right is taken away", reviews, true, true),
		Entry("before the reservation arrives", reserve, false, false),
		Entry("before the reservation arrives, and the right is taken away", reserve, false, true),
		Entry("before it hears of the reservation", reserve, true, false),
		Entry("before it hears of the reservation, and the right is taken away", reserve, true, true),
		Entry("before the admission arrives", admit, false, false),
		Entry("before the admission arrives, and the right is taken away", admit, false, true),
		Entry("before it hears of the admission", admit, true, false),
		Entry("before it hears of the admission, and the right is taken away", admit, true, true),
	)

	It("leaves a reservation that ends while somebody else is asked: nothing is executed under it", func() {
		withoutOperator()
		s := setScene(one)
		arm, died := dies(reserve, true)
		alice, right := s.approver("alice")
		bob, _ := s.approver("bob")
		s.inForce()
		a := s.asked()
		s.approve(alice, a)
		a = s.reaches(a, v1alpha1.ActionClaimable)
		arm()
		s.claim(a)
		Eventually(died).Should(BeClosed())
		right.revoke()
		operator = startOperator(controllers.Options{})
		a = s.waits(a, "0/1")
		clock.Advance(GinkgoT(), time.Duration(a.Spec.LeaseDurationSeconds)*time.Second+time.Second)
		s.approve(bob, a)
		s.claim(s.reaches(a, v1alpha1.ActionClaimable))
		a = s.reaches(a, v1alpha1.ActionBlocked)
		Expect(a.Status.Reason).To(Equal(string(decision.NotAdmitted)))
		Eventually(func() v1alpha1.EffectState { return s.effect(a).Status.State }).Should(Equal(v1alpha1.EffectFailed), "its key is free again")
		Expect(s.effect(a).Status.StartedAttempts).To(BeZero())
		s.chainHolds()
	})
})
