package agents

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/test/testenv"
)

const manifests = "config/samples/agents"

// rendered are the objects of a kustomize directory, by kind and name without the hash that kustomize appends.
func rendered(ctx SpecContext, dir string) map[string]*unstructured.Unstructured {
	GinkgoHelper()
	objects, err := env.Render(ctx, dir)
	Expect(err).NotTo(HaveOccurred())
	byName := map[string]*unstructured.Unstructured{}
	for _, o := range objects {
		name := o.GetName()
		if strings.HasPrefix(name, "agent-scripts-") {
			name = "agent-scripts"
		}
		byName[o.GetKind()+"/"+name] = o
	}
	return byName
}

func as[T any](o *unstructured.Unstructured) *T {
	GinkgoHelper()
	Expect(o).NotTo(BeNil())
	typed := new(T)
	Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(o.Object, typed, true)).To(Succeed())
	return typed
}

// pods are the pod templates of the two agents.
func pods(objects map[string]*unstructured.Unstructured) (deployment, cronJob corev1.PodSpec) {
	GinkgoHelper()
	return as[appsv1.Deployment](objects["Deployment/refund-agent"]).Spec.Template.Spec,
		as[batchv1.CronJob](objects["CronJob/payout-agent"]).Spec.JobTemplate.Spec.Template.Spec
}

var _ = Describe("The manifests of the agents", func() {
	It("are what an apiserver takes, pods by the restricted standard included", func(ctx SpecContext) {
		objects := rendered(ctx, manifests)
		namespace := as[corev1.Namespace](objects["Namespace/refunds"])
		Expect(namespace.Labels).To(HaveKeyWithValue("pod-security.kubernetes.io/enforce", "restricted"))
		ns := env.Namespace(GinkgoT(), namespace.Labels)
		admin := client.WithFieldValidation(env.Admin(), metav1.FieldValidationStrict)
		for name, o := range objects {
			if o.GetNamespace() != "" {
				o.SetNamespace(ns)
			}
			Expect(admin.Create(ctx, o.DeepCopy(), client.DryRunAll)).To(Succeed(), name)
		}

		deployment, cronJob := pods(objects)
		for account, spec := range map[string]corev1.PodSpec{"refund-agent": deployment, "payout-agent": cronJob} {
			Expect(spec.ServiceAccountName).To(Equal(account))
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: account}, Spec: spec}
			Expect(admin.Create(ctx, pod.DeepCopy(), client.DryRunAll)).To(Succeed(), account)
			Expect(*spec.Containers[0].SecurityContext.ReadOnlyRootFilesystem).To(BeTrue())
			// The check can fail: the same pod as root is refused.
			pod.Spec.SecurityContext.RunAsNonRoot, pod.Spec.SecurityContext.RunAsUser = nil, nil
			Expect(admin.Create(ctx, pod, client.DryRunAll)).To(MatchError(ContainSubstring("restricted")), account)

			Expect(objects).To(HaveKey("ServiceAccount/" + account))
			binding := as[rbacv1.RoleBinding](objects["RoleBinding/"+account])
			Expect(binding.RoleRef.Name).To(Equal("ctrlrun-agent"))
			Expect(binding.Subjects).To(Equal([]rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: "refunds"}}))
		}
	})

	It("have policies without a finding, which whoever Flux acts as may apply, and the operator puts in force", func(ctx SpecContext) {
		lint := exec.CommandContext(ctx, filepath.Join(env.Root, "bin", "kubectl-ctrlrun"), "policy", "lint", "-R", "-f", filepath.Join(env.Root, manifests, "policies"))
		out, err := lint.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		Expect(string(out)).To(Equal("1 policy valid, 0 warnings\n"))

		ns := env.Namespace(GinkgoT(), nil)
		flux := testenv.ServiceAccountUser(ns, "policies")
		Expect(env.Grant(ctx, ns, "ctrlrun-policy-admin", flux)).To(Succeed())
		applyPolicies(ctx, env.Client(flux), ns)
	})

	It("name in Flux's and Argo CD's files what is there", func() {
		for name, paths := range map[string][]string{
			"flux/agents.yaml":   {"path: ./agents/policies\n", "path: ./agents\n", "targetNamespace: refunds\n", "serviceAccountName: policies\n"},
			"argocd/agents.yaml": {"path: agents/policies\n", "path: agents\n", "namespace: refunds\n"},
		} {
			data, err := os.ReadFile(filepath.Join(env.Root, "config", "samples", name))
			Expect(err).NotTo(HaveOccurred())
			for _, path := range paths {
				Expect(string(data)).To(ContainSubstring(path), name)
			}
		}
	})

	Describe("run by their own command lines, environment and files", func() {
		var s *site
		var p *provider
		var objects map[string]*unstructured.Unstructured
		BeforeEach(func(ctx SpecContext) {
			objects = rendered(ctx, manifests)
			s = newSampleSite(ctx)
			p = newProvider()
			for mount, configMap := range map[string]string{"agent": "agent-scripts", "requests": "refund-requests"} {
				Expect(os.Mkdir(filepath.Join(s.dir, mount), 0o700)).To(Succeed())
				for name, text := range as[corev1.ConfigMap](objects["ConfigMap/"+configMap]).Data {
					s.file(filepath.Join(mount, name), []byte(text))
				}
			}
		})
		// run starts what a container would, as the ServiceAccount of its pod.
		run := func(ctx SpecContext, pod corev1.PodSpec) *script {
			GinkgoHelper()
			s.agent = testenv.ServiceAccountUser(s.ns, pod.ServiceAccountName)
			s.people(ctx)
			s.byToken(ctx)
			environment := []string{"PATH=" + os.Getenv("PATH")}
			for _, variable := range pod.Containers[0].Env {
				environment = append(environment, variable.Name+"="+variable.Value)
			}
			var command []string
			for _, word := range pod.Containers[0].Command {
				for _, mount := range []string{"/agent/", "/requests/"} {
					word = strings.ReplaceAll(word, mount, s.dir+mount)
				}
				command = append(command, word)
			}
			command[0] = map[string]string{"python3": python, "sh": "/bin/sh"}[command[0]]
			return s.launch(command, append(environment, "PROVIDER_URL="+p.url)...)
		}

		It("as a Deployment: what is allowed at once, the rest after a person", func(ctx SpecContext) {
			deployment, _ := pods(objects)
			r := run(ctx, deployment)
			Eventually(s.state(ctx, "txn_1")).Should(Equal(v1alpha1.ActionCommitted))
			s.approve(ctx, s.asked(ctx, "txn_2"))
			Eventually(s.state(ctx, "txn_2")).Should(Equal(v1alpha1.ActionCommitted))
			Expect(p.seen("txn_1")).To(HaveLen(1))
			Expect(p.seen("txn_2")).To(HaveLen(1))
			Expect(r.cmd.Process.Signal(syscall.SIGTERM)).To(Succeed())
			r.wait()
			r.exits(0)
		})

		It("as a CronJob: once a day, however often it is started", func(ctx SpecContext) {
			_, cronJob := pods(objects)
			day := time.Now().UTC().Format(time.DateOnly)
			r := run(ctx, cronJob)
			s.approve(ctx, s.asked(ctx, day))
			r.wait()
			r.exits(0)
			Expect(p.seen(day)).To(HaveLen(1))
			var body map[string]string
			Expect(json.Unmarshal([]byte(p.seen(day)[0].body), &body)).To(Succeed())
			Expect(body).To(Equal(map[string]string{"day": day}))
			Expect(s.effect(ctx, "payout:"+day).Status.State).To(Equal(v1alpha1.EffectCommitted))
		})
	})
})

// applyPolicies applies the policies of the samples as somebody, and returns when they are in force.
func applyPolicies(ctx SpecContext, as client.Client, namespace string) {
	GinkgoHelper()
	for name, o := range rendered(ctx, manifests+"/policies") {
		Expect(o.GetNamespace()).To(Equal("refunds"), name)
		o.SetNamespace(namespace)
		Expect(as.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("flux"))).To(Succeed(), name)
		Eventually(func(g Gomega) {
			stored := o.DeepCopy()
			g.Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), stored)).To(Succeed())
			conditions, _, err := unstructured.NestedSlice(stored.Object, "status", "conditions")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(conditions).To(ContainElement(And(HaveKeyWithValue("type", "Ready"), HaveKeyWithValue("status", "True"))), name)
		}).Should(Succeed())
	}
}
