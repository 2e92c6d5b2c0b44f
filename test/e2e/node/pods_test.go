package node

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/test/testenv"
)

// with adds a volume to a script, mounted at /data.
func with(pod *corev1.Pod, source corev1.VolumeSource) *corev1.Pod {
	pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: "data", VolumeSource: source})
	pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
	return pod
}

var _ = Describe("a pod", func() {
	var ns string
	BeforeEach(func(ctx context.Context) {
		ns = namespace(ctx)
		create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "secret"}, Data: map[string][]byte{"key": []byte("from a secret")},
		})
		create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "config"}, Data: map[string]string{"KEY": "from a map", "deep.conf": "deep"},
		})
	})

	It("has the environment that it says", func(ctx context.Context) {
		pod := script(ns, `echo "$ONE|$TWO|$THREE|$MAP_KEY|$POD|$NAMESPACE|$ACCOUNT|$NODE|$LABEL|$UNSET|$0"`)
		pod.Name, pod.GenerateName, pod.Labels = "env", "", map[string]string{"app": "agent"}
		field := func(path string) *corev1.EnvVarSource {
			return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
		}
		c := &pod.Spec.Containers[0]
		c.Args = []string{"$(ONE)-$$(ONE)"}
		c.EnvFrom = []corev1.EnvFromSource{{Prefix: "MAP_", ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}}}
		c.Env = []corev1.EnvVar{
			{Name: "ONE", Value: "1"}, {Name: "TWO", Value: "$(ONE)2 $(MAP_KEY)"},
			{Name: "THREE", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Key: "key",
			}}},
			{Name: "UNSET", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
				LocalObjectReference: corev1.LocalObjectReference{Name: "none"}, Key: "key", Optional: new(true),
			}}},
			{Name: "POD", ValueFrom: field("metadata.name")}, {Name: "NAMESPACE", ValueFrom: field("metadata.namespace")},
			{Name: "ACCOUNT", ValueFrom: field("spec.serviceAccountName")}, {Name: "NODE", ValueFrom: field("spec.nodeName")},
			{Name: "LABEL", ValueFrom: field("metadata.labels['app']")},
		}
		Expect(printed(ctx, pod)).To(Equal("1|12 from a map|from a secret|from a map|env|" + ns + "|default|test|agent||1-$(ONE)"))
	}, SpecTimeout(time.Minute))

	It("waits for a Secret that is not there yet, and says so", func(ctx context.Context) {
		pod := script(ns, `echo "$LATE $(cat /data/key)"`)
		with(pod, corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "late"}})
		create(ctx, pod)
		Eventually(ctx, func(g Gomega) {
			g.Expect(get(ctx, pod)(g).Status.ContainerStatuses).To(ConsistOf(HaveField("State.Waiting",
				HaveValue(And(HaveField("Reason", "ContainerCreating"), HaveField("Message", ContainSubstring(`"late" not found`)))))))
		}).Should(Succeed())
		Expect(pod.Status.Phase).To(Equal(corev1.PodPending))
		create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "late"}, Data: map[string][]byte{"key": []byte("at last")}})
		Expect(exit(ended(ctx, pod)).ExitCode).To(BeZero())
		Expect(logs(ctx, pod)).To(Equal(" at last\n"))
	}, SpecTimeout(time.Minute))

	It("has the files of ConfigMaps, Secrets and its own fields, and cannot write them", func(ctx context.Context) {
		pod := script(ns, `cat /data/deep/file /data/key /data/name; stat -L -c " %a" /data/key; (echo x > /data/key) 2>/dev/null || echo refused`)
		with(pod, corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "config"}, Items: []corev1.KeyToPath{{Key: "deep.conf", Path: "deep/file"}},
			}},
			{Secret: &corev1.SecretProjection{
				LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}, Items: []corev1.KeyToPath{{Key: "key", Path: "key", Mode: new(int32(0o400))}},
			}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "name", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
			}}},
		}}})
		Expect(printed(ctx, pod)).To(And(HavePrefix("deepfrom a secret"+ns+" 400\n"), HaveSuffix("refused")))
	}, SpecTimeout(time.Minute))

	It("shares an emptyDir between runs of its container, and has one directory of it by subPath", func(ctx context.Context) {
		pod := script(ns, `echo run >> /data/runs; [ "$(wc -l < /data/runs)" = 3 ] || exit 1; cat /data/runs; touch /part/file; ls /data/below`)
		with(pod, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		pod.Spec.Containers[0].VolumeMounts = append(pod.Spec.Containers[0].VolumeMounts,
			corev1.VolumeMount{Name: "data", MountPath: "/part", SubPath: "below"})
		pod.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		Expect(printed(ctx, pod)).To(Equal("run\nrun\nrun\nfile"))
		Expect(pod.Status.ContainerStatuses[0].RestartCount).To(BeEquivalentTo(2))
	}, SpecTimeout(time.Minute))

	It("sees what a ConfigMap, a Secret and a label are changed to", func(ctx context.Context) {
		pod := script(ns, `until [ "$(cat /data/KEY /data/key /data/label)" = "another map and secret, and label" ]; do sleep 0.1; done`)
		pod.Labels = map[string]string{"word": "one"}
		with(pod, corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}}},
			{Secret: &corev1.SecretProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "secret"}}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
				{Path: "label", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.labels['word']"}},
			}}},
		}}})
		create(ctx, pod)
		Eventually(ctx, func(g Gomega) { g.Expect(get(ctx, pod)(g).Status.Phase).To(Equal(corev1.PodRunning)) }).Should(Succeed())
		change := func(o client.Object, patch string) {
			GinkgoHelper()
			Expect(env.Admin().Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
		}
		meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
		change(&corev1.ConfigMap{ObjectMeta: meta("config")}, `{"data":{"KEY":"another map "}}`)
		change(&corev1.Secret{ObjectMeta: meta("secret")}, `{"stringData":{"key":"and secret, and "}}`)
		change(&corev1.Pod{ObjectMeta: meta(pod.Name)}, `{"metadata":{"labels":{"word":"label"}}}`)
		Expect(exit(ended(ctx, pod)).ExitCode).To(BeZero())
	}, SpecTimeout(time.Minute))

	It("is evicted when an emptyDir holds more than it may", func(ctx context.Context) {
		limit := resource.MustParse("1Mi")
		pod := with(script(ns, `stat -f -c %T /data; head -c 2M /dev/zero > /data/file; exec sleep 1000`), corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{Medium: corev1.StorageMediumMemory, SizeLimit: &limit}})
		create(ctx, pod)
		Expect(ended(ctx, pod).Status).To(And(HaveField("Phase", corev1.PodFailed), HaveField("Reason", "Evicted"),
			HaveField("Message", `Usage of EmptyDir volume "data" exceeds the limit "1Mi".`)))
		Expect(logs(ctx, pod)).To(Equal("tmpfs\n"))
	}, SpecTimeout(time.Minute))

	It("has no more memory than it may, and no system call that changes the machine, if it says so", func(ctx context.Context) {
		patch := `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`
		Expect(env.Admin().Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
		text := `grep ^Seccomp: /proc/self/status; unshare --user true 2>/dev/null || echo refused; head -c 100M /dev/zero | tail -c 100M | wc -c`
		pod := script(ns, text)
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{
			RunAsNonRoot: new(true), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		}
		c := &pod.Spec.Containers[0]
		c.Resources.Limits = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("32Mi")}
		c.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
		Expect(strings.Fields(printed(ctx, pod))).To(ConsistOf("Seccomp:", "2", "refused", "tail:", "memory", "exhausted", "0"))

		patch = `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":null}}}`
		Expect(env.Admin().Patch(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
		Expect(printed(ctx, script(ns, text))).To(And(HavePrefix("Seccomp:\t0\n"), HaveSuffix("104857600")))
	}, SpecTimeout(time.Minute))

	It("keeps what it writes to a claim for the next pod", func(ctx context.Context) {
		dir := filepath.Join(hostDir, ns)
		Expect(os.Mkdir(dir, 0o755)).To(Succeed())
		size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}
		modes := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
		pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: ns}, Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, StorageClassName: ns,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: dir}},
		}}
		claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "claim"}, Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: modes, StorageClassName: &ns, Resources: corev1.VolumeResourceRequirements{Requests: size},
		}}
		create(ctx, pv)
		create(ctx, claim)
		DeferCleanup(func(ctx context.Context) { Expect(env.Admin().Delete(ctx, pv)).To(Succeed()) })
		source := corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"}}
		Expect(printed(ctx, with(script(ns, "echo kept > /data/file"), source))).To(BeEmpty())
		Expect(printed(ctx, with(script(ns, "cat /data/file"), source))).To(Equal("kept"))
		Expect(os.ReadFile(filepath.Join(dir, "file"))).To(BeEquivalentTo("kept\n"))
	}, SpecTimeout(time.Minute))

	It("has no directory of the machine that it may not have", func(ctx context.Context) {
		pod := with(script(ns, "ls /data"), corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/root"}})
		create(ctx, pod)
		Expect(ended(ctx, pod).Status).To(And(HaveField("Reason", "Unsupported"), HaveField("Message", ContainSubstring("hostPath /root is not below"))))
	}, SpecTimeout(time.Minute))

	It("has a token that is its ServiceAccount's and its own, for as long as it is there", func(ctx context.Context) {
		create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "agent"}})
		agent := testenv.ServiceAccountUser(ns, "agent")
		Expect(env.Allow(ctx, ns, agent, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get"}})).To(Succeed())

		// As a program in a cluster finds the apiserver and its token.
		pod := script(ns, "")
		c := &pod.Spec.Containers[0]
		c.Image, c.Command, c.Args = kubectl, nil, []string{"get", "configmap", "config", "--output=jsonpath={.data.KEY}"}
		pod.Spec.ServiceAccountName = "agent"
		Expect(printed(ctx, pod)).To(Equal("from a map"))

		pod = script(ns, "cat /var/run/secrets/kubernetes.io/serviceaccount/token; echo; exec sleep 1000")
		pod.Spec.ServiceAccountName, pod.Spec.TerminationGracePeriodSeconds = "agent", new(int64(0))
		create(ctx, pod)
		var token string
		Eventually(ctx, func(g Gomega) {
			g.Expect(get(ctx, pod)(g).Status.Phase).To(Equal(corev1.PodRunning))
			token = strings.TrimSpace(logs(ctx, pod))
			g.Expect(token).NotTo(BeEmpty())
		}).Should(Succeed())
		cfg := rest.AnonymousClientConfig(env.AdminConfig())
		cfg.BearerToken = token
		speaker, err := client.New(cfg, client.Options{Scheme: env.Scheme})
		Expect(err).NotTo(HaveOccurred())
		review := &authenticationv1.SelfSubjectReview{}
		Expect(speaker.Create(ctx, review)).To(Succeed())
		Expect(review.Status.UserInfo.Username).To(Equal(agent.Name))
		Expect(review.Status.UserInfo.Extra).To(And(
			HaveKeyWithValue("authentication.kubernetes.io/pod-name", authenticationv1.ExtraValue{pod.Name}),
			HaveKeyWithValue("authentication.kubernetes.io/pod-uid", authenticationv1.ExtraValue{string(pod.UID)}),
			HaveKeyWithValue("authentication.kubernetes.io/node-name", authenticationv1.ExtraValue{testenv.NodeName})))

		Expect(env.Admin().Delete(ctx, pod)).To(Succeed())
		Eventually(ctx, func() bool {
			return apierrors.IsUnauthorized(speaker.Create(ctx, &authenticationv1.SelfSubjectReview{}))
		}).WithTimeout(30*time.Second).Should(BeTrue(), "the token ends with its pod")
	}, SpecTimeout(2*time.Minute))

	It("prints what kubectl logs shows, as it is asked for", func(ctx context.Context) {
		pod := script(ns, "echo one; echo two >&2; printf three")
		create(ctx, pod)
		ended(ctx, pod)
		Expect(logs(ctx, pod)).To(Equal("one\ntwo\nthree\n"))
		Expect(logs(ctx, pod, "--tail=2")).To(Equal("two\nthree\n"))
		Expect(logs(ctx, pod, "--limit-bytes=5")).To(Equal("one\nt"))
		Expect(logs(ctx, pod, "--timestamps", "--tail=1")).To(MatchRegexp(`^\d{4}-\d\d-\d\dT\S+Z three\n$`))
		Expect(logs(ctx, pod, "--since-time="+time.Now().Add(time.Hour).Format(time.RFC3339))).To(BeEmpty())

		again := script(ns, `[ -e /data/first ] && { echo second; exec sleep 1000; }; touch /data/first; echo first; exit 1`)
		with(again, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		again.Spec.RestartPolicy, again.Spec.TerminationGracePeriodSeconds = corev1.RestartPolicyOnFailure, new(int64(0))
		create(ctx, again)
		Eventually(ctx, func(g Gomega) {
			g.Expect(get(ctx, again)(g).Status.ContainerStatuses).To(ConsistOf(And(
				HaveField("RestartCount", BeEquivalentTo(1)), HaveField("State.Running", Not(BeNil())),
				HaveField("LastTerminationState.Terminated", HaveValue(HaveField("ExitCode", BeEquivalentTo(1)))))))
		}).Should(Succeed())
		Expect(logs(ctx, again, "--previous")).To(Equal("first\n"))
		follow := exec.CommandContext(ctx, env.Kubectl(), "--kubeconfig="+env.Kubeconfig(admin), "--namespace="+ns, "logs", "--follow", again.Name)
		out, err := follow.StdoutPipe()
		Expect(err).NotTo(HaveOccurred())
		Expect(follow.Start()).To(Succeed())
		lines := bufio.NewReader(out)
		Expect(lines.ReadString('\n')).To(Equal("second\n"))
		Expect(env.Admin().Delete(ctx, again)).To(Succeed())
		_, err = lines.ReadString('\n')
		Expect(err).To(MatchError(io.EOF), "it ends with the container")
		Expect(follow.Wait()).To(Succeed())
	}, SpecTimeout(time.Minute))

	It("ends with the message that it leaves, or with the end of its log", func(ctx context.Context) {
		left := script(ns, "echo why > /dev/termination-log; exit 7")
		create(ctx, left)
		Expect(exit(ended(ctx, left))).To(And(HaveField("ExitCode", BeEquivalentTo(7)), HaveField("Message", "why\n")))
		logged := script(ns, "echo last words; exit 1")
		logged.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
		create(ctx, logged)
		Expect(exit(ended(ctx, logged)).Message).To(Equal("last words\n"))
		none := script(ns, "")
		none.Spec.Containers[0].Command = []string{"/no/such/program"}
		create(ctx, none)
		Expect(exit(ended(ctx, none))).To(And(HaveField("Reason", "StartError"), HaveField("ExitCode", BeEquivalentTo(128)),
			HaveField("Message", ContainSubstring("/no/such/program"))))
	}, SpecTimeout(time.Minute))

	It("is ended when its time is over", func(ctx context.Context) {
		pod := script(ns, "exec sleep 1000")
		pod.Spec.ActiveDeadlineSeconds, pod.Spec.TerminationGracePeriodSeconds = new(int64(1)), new(int64(1))
		create(ctx, pod)
		Expect(ended(ctx, pod).Status).To(And(HaveField("Phase", corev1.PodFailed), HaveField("Reason", "DeadlineExceeded")))
		Expect(exit(pod).ExitCode).To(BeEquivalentTo(137), "a first process that does not handle SIGTERM is not ended by it")
	}, SpecTimeout(time.Minute))

	It("is asked to end when it is deleted, and is gone when it has", func(ctx context.Context) {
		pod := with(script(ns, `trap 'echo asked >> /data/said; exit 0' TERM; touch /data/ready; while :; do sleep 0.1; done`),
			corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: filepath.Join(hostDir, ns), Type: new(corev1.HostPathDirectoryOrCreate)}})
		// Somebody who wants to know how it ended.
		pod.Finalizers = []string{"example.com/reader"}
		create(ctx, pod)
		Eventually(ctx, func() error { _, err := os.Stat(filepath.Join(hostDir, ns, "ready")); return err }).Should(Succeed())
		Expect(env.Admin().Delete(ctx, pod)).To(Succeed())
		ended(ctx, pod)
		Expect(exit(pod)).To(And(HaveField("ExitCode", BeEquivalentTo(0)), HaveField("Reason", "Completed")))
		Expect(os.ReadFile(filepath.Join(hostDir, ns, "said"))).To(BeEquivalentTo("asked\n"))
		Expect(env.Admin().Patch(ctx, pod, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"remove","path":"/metadata/finalizers"}]`)))).To(Succeed())
		Eventually(ctx, func() bool { return apierrors.IsNotFound(env.Admin().Get(ctx, client.ObjectKeyFromObject(pod), pod)) }).Should(BeTrue())
	}, SpecTimeout(time.Minute))

	It("is killed when it does not end in its time, and its name can be had again", func(ctx context.Context) {
		for _, force := range []bool{false, true} {
			pod := with(script(ns, `trap '' TERM; while :; do sleep 0.1; done`),
				corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
			pod.Name, pod.GenerateName, pod.Spec.TerminationGracePeriodSeconds = "stubborn", "", new(int64(1))
			create(ctx, pod)
			Eventually(ctx, func(g Gomega) { g.Expect(get(ctx, pod)(g).Status.Phase).To(Equal(corev1.PodRunning)) }).Should(Succeed())
			Eventually(ctx, func() []string { return processesOf(pod) }).ShouldNot(BeEmpty())
			options := []client.DeleteOption{}
			if force {
				options = append(options, client.GracePeriodSeconds(0))
			}
			Expect(env.Admin().Delete(ctx, pod, options...)).To(Succeed())
			Eventually(ctx, func() bool { return apierrors.IsNotFound(env.Admin().Get(ctx, client.ObjectKeyFromObject(pod), pod)) }).Should(BeTrue())
			Eventually(ctx, func(g Gomega) { g.Expect(processesOf(pod)).To(BeEmpty()) }).WithTimeout(10 * time.Second).Should(Succeed())
		}
	}, SpecTimeout(time.Minute))

	It("cannot write its root, sees no process of the machine and nobody's files, and has no privilege", func(ctx context.Context) {
		pod := script(ns, strings.Join([]string{
			`for d in / /usr /etc /tmp /var /proc/sys/kernel; do touch $d/x 2>/dev/null && echo "wrote $d"; done`,
			`set -- /proc/[0-9]*; echo "processes: $#"`,
			fmt.Sprintf(`for f in /root /home %s %s /etc/shadow; do [ -e "$f" ] && echo "has $f"; done`, env.Dir, env.Root),
			`id -u; id -g; hostname; grep -E "^(CapEff|NoNewPrivs)" /proc/self/status`,
			`kill -0 ` + fmt.Sprint(os.Getpid()) + ` 2>/dev/null && echo "reached the test"; true`,
		}, "\n"))
		pod.Name, pod.GenerateName = "confined", ""
		pod.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: new(int64(1234)), RunAsGroup: new(int64(4321)), RunAsNonRoot: new(true)}
		Expect(strings.Fields(printed(ctx, pod))).To(Equal(strings.Fields(
			"processes: 1\n1234\n4321\nconfined\nCapEff: 0000000000000000\nNoNewPrivs: 1")))
	}, SpecTimeout(time.Minute))

	It("has no network, unless it shares the machine's", func(ctx context.Context) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(listener.Close)
		_, port, err := net.SplitHostPort(listener.Addr().String())
		Expect(err).NotTo(HaveOccurred())
		dial := func() *corev1.Pod {
			pod := script(ns, `tail -n +3 /proc/net/dev | cut -d: -f1 | xargs; (exec 3<>/dev/tcp/127.0.0.1/`+port+`) 2>/dev/null && echo reached || echo refused`)
			pod.Spec.Containers[0].Command[0] = "bash"
			return pod
		}
		Expect(printed(ctx, dial())).To(Equal("lo\nrefused"))
		sharing := dial()
		sharing.Spec.HostNetwork = true
		Expect(printed(ctx, sharing)).To(HaveSuffix("\nreached"))
		Expect(sharing.Status.PodIP).To(Equal("127.0.0.1"))
	}, SpecTimeout(time.Minute))

	It("runs several containers that share the machine's network", func(ctx context.Context) {
		pod := script(ns, "echo main; [ -d /data ]")
		with(pod, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		second := *pod.Spec.Containers[0].DeepCopy()
		second.Name, second.Command = "second", []string{"sh", "-c", "echo second; exit 4"}
		pod.Spec.Containers, pod.Spec.HostNetwork = append(pod.Spec.Containers, second), true
		create(ctx, pod)
		Expect(ended(ctx, pod).Status).To(And(HaveField("Phase", corev1.PodFailed), HaveField("ContainerStatuses", ConsistOf(
			HaveField("State.Terminated", HaveValue(HaveField("ExitCode", BeEquivalentTo(0)))),
			HaveField("State.Terminated", HaveValue(HaveField("ExitCode", BeEquivalentTo(4))))))))
		Expect(logs(ctx, pod, "--container=second")).To(Equal("second\n"))
	}, SpecTimeout(time.Minute))

	DescribeTable("is refused, with a reason, when it has what this node does not do", func(ctx context.Context, change func(*corev1.PodSpec), field string) {
		pod := script(ns, "echo ran > /data/ran")
		with(pod, corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
		change(&pod.Spec)
		create(ctx, pod)
		Expect(ended(ctx, pod).Status).To(And(HaveField("Phase", corev1.PodFailed), HaveField("Reason", "Unsupported"),
			HaveField("Message", ContainSubstring(field)), HaveField("ContainerStatuses", HaveEach(HaveField("ContainerID", BeEmpty())))))
	},
		Entry("an init container", func(s *corev1.PodSpec) {
			s.InitContainers = []corev1.Container{{Name: "first", Image: shell, Command: []string{"true"}}}
		}, "initContainers[0]"),
		Entry("a probe", func(s *corev1.PodSpec) {
			s.Containers[0].LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
		}, "containers[0].livenessProbe"),
		Entry("a hook", func(s *corev1.PodSpec) {
			s.Containers[0].Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 1}}}
		}, "containers[0].lifecycle"),
		Entry("a limit of time", func(s *corev1.PodSpec) {
			s.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		}, "containers[0].resources.limits.cpu"),
		Entry("a privilege", func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: new(true)}
		}, "containers[0].securityContext.privileged"),
		Entry("a capability", func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"NET_ADMIN"}}}
		}, "containers[0].securityContext.capabilities.add"),
		Entry("root where that must not be", func(s *corev1.PodSpec) {
			s.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsNonRoot: new(true), RunAsUser: new(int64(0))}
		}, "must not run as root"),
		Entry("a group of files", func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{FSGroup: new(int64(1))}
		}, "securityContext.fsGroup"),
		Entry("a profile of system calls that is somewhere", func(s *corev1.PodSpec) {
			s.SecurityContext = &corev1.PodSecurityContext{SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeLocalhost, LocalhostProfile: new("mine.json")}}
		}, "securityContext.seccompProfile"),
		Entry("a volume from elsewhere", func(s *corev1.PodSpec) {
			s.Volumes[0].VolumeSource = corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "example.com", Path: "/"}}
		}, "volumes[0].nfs"),
		Entry("the machine's processes", func(s *corev1.PodSpec) { s.HostPID = true }, "hostPID"),
		Entry("an unknown image", func(s *corev1.PodSpec) { s.Containers[0].Image = "elsewhere" }, `image "elsewhere" of container main`),
		Entry("two containers without a network in common", func(s *corev1.PodSpec) {
			s.Containers = append(s.Containers, *s.Containers[0].DeepCopy())
			s.Containers[1].Name = "second"
		}, "no network in common"),
	)

	It("stays pending when it is refused and would be restarted, and can be deleted", func(ctx context.Context) {
		pod := script(ns, "true")
		pod.Spec.RestartPolicy, pod.Spec.HostIPC = corev1.RestartPolicyAlways, true
		create(ctx, pod)
		Eventually(ctx, func(g Gomega) { g.Expect(get(ctx, pod)(g).Status.Reason).To(Equal("Unsupported")) }).Should(Succeed())
		Expect(pod.Status.Phase).To(Equal(corev1.PodPending))
		Expect(env.Admin().Delete(ctx, pod)).To(Succeed())
		Eventually(ctx, func() bool { return apierrors.IsNotFound(env.Admin().Get(ctx, client.ObjectKeyFromObject(pod), pod)) }).Should(BeTrue())
	}, SpecTimeout(time.Minute))

	It("ends when it is to have another image", func(ctx context.Context) {
		pod := script(ns, "exec sleep 1000")
		pod.Spec.TerminationGracePeriodSeconds = new(int64(0))
		create(ctx, pod)
		Eventually(ctx, func(g Gomega) { g.Expect(get(ctx, pod)(g).Status.Phase).To(Equal(corev1.PodRunning)) }).Should(Succeed())
		Expect(env.Admin().Patch(ctx, pod, client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/containers/0/image","value":"kubectl:latest"}]`)))).To(Succeed())
		Expect(ended(ctx, pod).Status).To(And(HaveField("Phase", corev1.PodFailed), HaveField("Reason", "Unsupported"), HaveField("Message", ContainSubstring("the image"))))
	}, SpecTimeout(time.Minute))
})

// processesOf are the ids of what runs in a pod's sandboxes, by the directory that only they were given.
func processesOf(pod *corev1.Pod) (ids []string) {
	GinkgoHelper()
	all, err := filepath.Glob("/proc/[0-9]*/mountinfo")
	Expect(err).NotTo(HaveOccurred())
	for _, file := range all {
		text, err := os.ReadFile(file)
		if err == nil && strings.Contains(string(text), string(pod.UID)) {
			ids = append(ids, filepath.Base(filepath.Dir(file)))
		}
	}
	return ids
}
