package executors

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/executors"
	jobexec "ctrlrun.dev/operator/executors/job"
	"ctrlrun.dev/operator/kernel/effect"
)

// shop is a namespace with a ServiceAccount that runs Jobs, and an action for one.
type shop struct {
	namespace string
	config    *rest.Config
	call      executors.Call
	cluster   actor
	pod       string // the pod of the template, in JSON
}

// jobRules are the rights an Executor with a Job needs.
func jobRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("batch", "jobs", "create", "get"), rule("", "pods", "list", "watch"), rule("", "secrets", "create", "patch", "delete"),
	}
}

func newShop(ctx context.Context, rules ...rbacv1.PolicyRule) *shop {
	GinkgoHelper()
	s := &shop{namespace: env.Namespace(GinkgoT(), nil), pod: `{"containers": [{"name": "main", "image": "refund:1"}]}`}
	s.config = account(ctx, s.namespace, "runner", rules...)
	s.call = executors.Call{
		Namespace: s.namespace, ActionName: "refund-1", ActionUID: uuid.NewString(), ActionType: "payment.refund",
		Arguments: []byte(`{"order":"` + confidential + `"}`), EffectKey: "refund:" + confidential, Attempt: 2, Token: "the-token",
	}
	s.cluster = actor{namespace: s.namespace, name: "ctrlrun-" + s.call.ActionUID}
	return s
}

// start executes and returns where the result will be.
func (s *shop) start(ctx context.Context) <-chan executors.Result {
	GinkgoHelper()
	spec := &v1alpha1.JobExecutor{TimeoutSeconds: 600, NotExecuted: []int32{75}}
	Expect(json.Unmarshal([]byte(s.pod), &spec.Template.Spec)).To(Succeed())
	e, err := jobexec.New(spec, "runner")
	Expect(err).NotTo(HaveOccurred())
	results := make(chan executors.Result, 1)
	go func() { results <- e.Execute(ctx, s.call, s.config) }()
	return results
}

// end waits for the result.
func (s *shop) end(results <-chan executors.Result) executors.Result {
	GinkgoHelper()
	var r executors.Result
	Eventually(results).Should(Receive(&r))
	for _, secret := range []string{confidential, s.call.Token} {
		Expect(r.Error).NotTo(ContainSubstring(secret), "an error says what is in the action")
	}
	return r
}

func (s *shop) secret(ctx context.Context) (*corev1.Secret, error) {
	it := &corev1.Secret{}
	err := env.Admin().Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: s.cluster.name}, it)
	return it, err
}

func (s *shop) expectNoSecret(ctx context.Context) {
	GinkgoHelper()
	_, err := s.secret(ctx)
	Expect(apierrors.IsNotFound(err)).To(BeTrue(), "the Secret is removed: %v", err)
}

func (s *shop) jobs(ctx context.Context) []batchv1.Job {
	GinkgoHelper()
	list := &batchv1.JobList{}
	Expect(env.Admin().List(ctx, list, client.InNamespace(s.namespace))).To(Succeed())
	return list.Items
}

// onCreate puts something between the executor and the apiserver where a resource is created.
func (s *shop) onCreate(resource string, f func(next http.RoundTripper, r *http.Request) (*http.Response, error)) {
	s.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/"+resource) {
				return f(next, r)
			}
			return next.RoundTrip(r)
		})
	})
}

func lost(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	if resp, err := next.RoundTrip(r); err == nil {
		_ = resp.Body.Close()
	}
	return nil, io.ErrUnexpectedEOF
}

func never(http.RoundTripper, *http.Request) (*http.Response, error) { return nil, io.ErrUnexpectedEOF }

var _ = Describe("The job executor", func() {
	var s *shop
	BeforeEach(func(ctx SpecContext) { s = newShop(ctx, jobRules()...) })

	It("runs a Job that has the arguments, and says what the container said", func(ctx SpecContext) {
		results := s.start(ctx)
		j := s.cluster.job(ctx)
		Expect(*j.Spec.BackoffLimit).To(BeZero())
		Expect(*j.Spec.PodReplacementPolicy).To(Equal(batchv1.Failed))
		Expect(*j.Spec.ActiveDeadlineSeconds).To(BeEquivalentTo(600))
		Expect(j.Spec.Template.Spec.ServiceAccountName).To(Equal("runner"))
		var secret *corev1.Secret
		Eventually(func(g Gomega) {
			var err error
			secret, err = s.secret(ctx)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(secret.OwnerReferences).To(ConsistOf(And(HaveField("Kind", "Job"), HaveField("UID", j.UID))))
		}).Should(Succeed(), "the Secret goes with the Job")
		Expect(secret.Data).To(Equal(map[string][]byte{"arguments.json": s.call.Arguments, "token": []byte("the-token"), "effect-key": []byte(s.call.EffectKey)}))

		p := s.cluster.run(ctx, j)
		Expect(p.Spec.Containers[0].Env).To(ContainElements(
			corev1.EnvVar{Name: "CTRLRUN_ARGUMENTS_FILE", Value: "/var/run/ctrlrun/arguments.json"},
			corev1.EnvVar{Name: "CTRLRUN_ATTEMPT", Value: "2"},
			HaveField("ValueFrom.SecretKeyRef.Key", "token"),
		))
		Consistently(results, 3*time.Second).ShouldNot(Receive(), "it runs")
		s.cluster.exit(ctx, p, 0, "Completed", `{"refund": "r-1"}`)
		Expect(s.end(results)).To(Equal(executors.Result{State: effect.Committed, Output: []byte(`{"refund":"r-1"}`)}))
		s.expectNoSecret(ctx)
	})

	It("reads the end of a Job whose pod is gone", func(ctx SpecContext) {
		results := s.start(ctx)
		j := s.cluster.job(ctx)
		s.cluster.complete(ctx, j)
		s.cluster.remove(ctx, s.cluster.run(ctx, j))
		Expect(s.end(results)).To(HaveField("State", effect.Committed))
	})

	Describe("proves that nothing was executed", func() {
		It("by a listed exit code, once the Job has failed", func(ctx SpecContext) {
			results := s.start(ctx)
			j := s.cluster.job(ctx)
			s.cluster.exit(ctx, s.cluster.run(ctx, j), 75, "Error", "")
			Consistently(results, 3*time.Second).ShouldNot(Receive(), "another pod could start")
			s.cluster.fail(ctx, j, 1)
			Expect(s.end(results)).To(beNotExecuted("exited with 75"))
			s.expectNoSecret(ctx)
		})

		It("by a Job that failed without a pod", func(ctx SpecContext) {
			results := s.start(ctx)
			s.cluster.fail(ctx, s.cluster.job(ctx), 0)
			Expect(s.end(results)).To(beNotExecuted("without having made a pod"))
		})

		It("by a pod that was deleted before it was given to a node", func(ctx SpecContext) {
			results := s.start(ctx)
			j := s.cluster.job(ctx)
			s.cluster.remove(ctx, s.cluster.pod(ctx, j))
			s.cluster.fail(ctx, j, 1)
			Expect(s.end(results)).To(beNotExecuted("before it was given to a node"))
		})

		DescribeTable("by a right that is missing", func(ctx SpecContext, why string, rules ...rbacv1.PolicyRule) {
			s = newShop(ctx, rules...)
			Expect(s.end(s.start(ctx))).To(beNotExecuted(why))
			Expect(s.jobs(ctx)).To(BeEmpty())
			s.expectNoSecret(ctx)
		},
			Entry("to see pods", "listing pods: Forbidden", rule("batch", "jobs", "create", "get"), rule("", "secrets", "create")),
			Entry("to make the Secret", "creating the Secret: HTTP 403", rule("batch", "jobs", "create", "get"), rule("", "pods", "list", "watch")),
			Entry("to make the Job", "refused the Job: Forbidden", rule("batch", "jobs", "get"), rule("", "pods", "list", "watch"), rule("", "secrets", "create", "delete")),
			Entry("to read the Job", "reading the Job: Forbidden", rule("batch", "jobs", "create"), rule("", "pods", "list", "watch"), rule("", "secrets", "create", "delete")),
		)

		It("by a Job that is invalid", func(ctx SpecContext) {
			s.pod = `{"containers": [{"name": "main", "image": "refund:1", "volumeMounts": [{"name": "none", "mountPath": "/x"}]}]}`
			Expect(s.end(s.start(ctx))).To(beNotExecuted("refused the Job: Invalid"))
			s.expectNoSecret(ctx)
		})

		It("by a lost answer to the Secret alone", func(ctx SpecContext) {
			s.onCreate("secrets", lost)
			Expect(s.end(s.start(ctx))).To(beNotExecuted("creating the Secret"))
			Expect(s.jobs(ctx)).To(BeEmpty())
			secret, err := s.secret(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(secret.OwnerReferences).To(ConsistOf(And(HaveField("Kind", "Action"), HaveField("UID", BeEquivalentTo(s.call.ActionUID)))))
		})

		It("by a time that is over before", func(ctx SpecContext) {
			short, cancel := context.WithTimeout(ctx, time.Second)
			defer cancel()
			Expect(s.end(s.start(short))).To(beNotExecuted("less than a second"))
			Expect(s.jobs(ctx)).To(BeEmpty())
		})
	})

	Describe("goes on", func() {
		It("with a Job whose creation was not answered", func(ctx SpecContext) {
			s.onCreate("jobs", lost)
			results := s.start(ctx)
			s.cluster.exit(ctx, s.cluster.run(ctx, s.cluster.job(ctx)), 0, "Completed", "")
			Expect(s.end(results)).To(HaveField("State", effect.Committed))
		})

		It("with what is left of the time, after an apiserver that was slow", func(ctx SpecContext) {
			short, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			s.onCreate("secrets", func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				slow, cancel := context.WithTimeout(r.Context(), 5*time.Second)
				defer cancel()
				<-slow.Done() // that it lasts is what it is about
				return next.RoundTrip(r)
			})
			results := s.start(short)
			j := s.cluster.job(ctx)
			Expect(*j.Spec.ActiveDeadlineSeconds).To(BeNumerically("<=", 22), "nine tenths of 25 s")
			s.cluster.exit(ctx, s.cluster.run(ctx, j), 0, "Completed", "")
			Expect(s.end(results)).To(HaveField("State", effect.Committed))
		})

		It("with its own Job that is said to exist already", func(ctx SpecContext) {
			s.onCreate("jobs", func(next http.RoundTripper, r *http.Request) (*http.Response, error) {
				body, err := io.ReadAll(r.Body)
				if err != nil {
					return nil, err
				}
				again := r.Clone(r.Context())
				again.Body, r.Body = io.NopCloser(bytes.NewReader(body)), io.NopCloser(bytes.NewReader(body))
				if resp, err := next.RoundTrip(again); err == nil {
					_ = resp.Body.Close()
				}
				return next.RoundTrip(r)
			})
			results := s.start(ctx)
			s.cluster.exit(ctx, s.cluster.run(ctx, s.cluster.job(ctx)), 0, "Completed", "")
			Expect(s.end(results)).To(HaveField("State", effect.Committed))
			Expect(s.jobs(ctx)).To(HaveLen(1))
		})

		It("without being allowed to watch", func(ctx SpecContext) {
			s = newShop(ctx, rule("batch", "jobs", "create", "get"), rule("", "pods", "list"), rule("", "secrets", "create", "patch", "delete"))
			results := s.start(ctx)
			s.cluster.exit(ctx, s.cluster.run(ctx, s.cluster.job(ctx)), 0, "Completed", "")
			Expect(s.end(results)).To(HaveField("State", effect.Committed))
		})
	})

	Describe("does not know", func() {
		It("what an exit code means that is not listed", func(ctx SpecContext) {
			results := s.start(ctx)
			s.cluster.exit(ctx, s.cluster.run(ctx, s.cluster.job(ctx)), 1, "Error", "")
			Expect(s.end(results)).To(beUnknown("exited with 1"))
		})

		It("what a Job did that was deleted", func(ctx SpecContext) {
			results := s.start(ctx)
			j := s.cluster.job(ctx)
			s.cluster.run(ctx, j)
			Expect(env.Admin().Delete(ctx, j, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
			Expect(s.end(results)).To(beUnknown("was deleted"))
		})

		It("what another Job of that name did", func(ctx SpecContext) {
			results := s.start(ctx)
			j := s.cluster.job(ctx)
			Expect(env.Admin().Delete(ctx, j, client.PropagationPolicy(metav1.DeletePropagationBackground))).To(Succeed())
			another := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: j.Name}, Spec: *j.Spec.DeepCopy()}
			another.Spec.Selector, another.Spec.Template.Labels = nil, nil
			Expect(env.Admin().Create(ctx, another)).To(Succeed())
			s.cluster.complete(ctx, another)
			Expect(s.end(results)).To(beUnknown("was deleted"))
		})

		It("what two pods did", func(ctx SpecContext) {
			results := s.start(ctx)
			j := s.cluster.job(ctx)
			s.cluster.remove(ctx, s.cluster.run(ctx, j))
			s.cluster.exit(ctx, s.cluster.run(ctx, j), 0, "Completed", "")
			Expect(s.end(results)).To(beUnknown("more than one pod"))
		})

		It("whether a container started that could not be pulled", func(ctx SpecContext) {
			results := s.start(ctx)
			j := s.cluster.job(ctx)
			p := s.cluster.pod(ctx, j)
			s.cluster.bind(ctx, p)
			s.cluster.report(ctx, p, corev1.PodPending, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff"}})
			s.cluster.remove(ctx, p)
			s.cluster.fail(ctx, j, 1)
			Expect(s.end(results)).To(beUnknown("how its pod ended"))
		})

		It("whether a pod got a node that was lost sight of", func(ctx SpecContext) {
			results := s.start(ctx)
			j := s.cluster.job(ctx)
			p := s.cluster.pod(ctx, j)
			p.Labels = nil
			Expect(env.Admin().Update(ctx, p)).To(Succeed())
			s.cluster.fail(ctx, j, 0)
			Expect(s.end(results)).To(beUnknown("how its pod ended"))
		})

		It("whether a pod got a node, if it may not watch", func(ctx SpecContext) {
			s = newShop(ctx, rule("batch", "jobs", "create", "get"), rule("", "pods", "list"), rule("", "secrets", "create", "patch", "delete"))
			results := s.start(ctx)
			j := s.cluster.job(ctx)
			s.cluster.remove(ctx, s.cluster.pod(ctx, j))
			s.cluster.fail(ctx, j, 1)
			Expect(s.end(results)).To(beUnknown("how its pod ended"))
		})

		It("whether a Job was created that nobody can find", func(ctx SpecContext) {
			s.onCreate("jobs", never)
			short, cancel := context.WithTimeout(ctx, 5*time.Second)
			defer cancel()
			Expect(s.end(s.start(short))).To(beUnknown("whether it was created"))
			s.expectNoSecret(ctx)
		})

		It("how a Job ends for which it has no time left", func(ctx SpecContext) {
			short, cancel := context.WithCancel(ctx)
			results := s.start(short)
			s.cluster.run(ctx, s.cluster.job(ctx))
			cancel()
			Expect(s.end(results)).To(beUnknown("had not ended"))
			_, err := s.secret(ctx)
			Expect(err).NotTo(HaveOccurred(), "the Job still needs it")
		})

		It("what is there that it did not make", func(ctx SpecContext) {
			meta := metav1.ObjectMeta{Namespace: s.namespace, Name: s.cluster.name}

			By("a Secret")
			squatter := &corev1.Secret{ObjectMeta: meta, StringData: map[string]string{"arguments.json": "{}"}}
			Expect(env.Admin().Create(ctx, squatter)).To(Succeed())
			Expect(s.end(s.start(ctx))).To(beUnknown("a Secret of this action already"))
			still, err := s.secret(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(still.UID).To(Equal(squatter.UID), "it is left alone")

			By("a pod")
			template := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
			Expect(env.Admin().Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "p", Labels: map[string]string{jobexec.ActionLabel: s.call.ActionUID}},
				Spec:       template,
			})).To(Succeed())
			Expect(s.end(s.start(ctx))).To(beUnknown("a pod of this action already"))

			By("a Job")
			Expect(env.Admin().Create(ctx, &batchv1.Job{ObjectMeta: meta, Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: template}}})).To(Succeed())
			Expect(s.end(s.start(ctx))).To(beUnknown("a Job of this action already"))
		})
	})

	It("runs one of two executions of an action, and the other does not know", func(ctx SpecContext) {
		first, second := s.start(ctx), s.start(ctx)
		j := s.cluster.job(ctx)
		p := s.cluster.run(ctx, j)
		s.cluster.exit(ctx, p, 0, "Completed", "")
		results := []effect.State{s.end(first).State, s.end(second).State}
		Expect(results).To(ConsistOf(effect.Committed, effect.Ambiguous))
		Expect(s.jobs(ctx)).To(HaveLen(1))
	})
})
