package node

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// spec is one of a pod, in JSON; what the API adds to every pod is added.
func spec(t *testing.T, text string) *corev1.PodSpec {
	t.Helper()
	s := &corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyAlways, DNSPolicy: corev1.DNSClusterFirst, SchedulerName: corev1.DefaultSchedulerName,
		SecurityContext: &corev1.PodSecurityContext{}, EnableServiceLinks: new(true), ServiceAccountName: "default",
		DeprecatedServiceAccount: "default", NodeName: "test", Priority: new(int32(0)), PreemptionPolicy: new(corev1.PreemptLowerPriority),
		TerminationGracePeriodSeconds: new(int64(30)), Tolerations: []corev1.Toleration{{Key: "node.kubernetes.io/not-ready"}},
	}
	if err := json.Unmarshal([]byte(text), s); err != nil {
		t.Fatal(err)
	}
	for i := range s.Containers {
		c := &s.Containers[i]
		c.TerminationMessagePath, c.TerminationMessagePolicy, c.ImagePullPolicy = "/dev/termination-log", corev1.TerminationMessageReadFile, corev1.PullAlways
	}
	return s
}

func TestUnsupported(t *testing.T) {
	images := Images{"shell": {}, "agent": {Entrypoint: []string{"agent"}}, "sharing": {HostNetwork: true}}
	for name, test := range map[string]struct {
		spec string
		want []string // the beginnings of what is refused
	}{
		"a plain pod": {spec: `{"containers":[{"name":"main","image":"agent"}]}`},
		"what the restricted profile of pod security wants": {spec: `{
			"securityContext":{"runAsNonRoot":true,"runAsUser":65532,"runAsGroup":65532,"seccompProfile":{"type":"RuntimeDefault"}},
			"containers":[{"name":"main","image":"shell","command":["sh"],
			  "resources":{"requests":{"cpu":"10m","memory":"16Mi"},"limits":{"memory":"64Mi"}},
			  "securityContext":{"allowPrivilegeEscalation":false,"readOnlyRootFilesystem":true,"capabilities":{"drop":["ALL"]}},
			  "volumeMounts":[{"name":"tmp","mountPath":"/tmp"}]}],
			"volumes":[{"name":"tmp","emptyDir":{"medium":"Memory","sizeLimit":"8Mi"}}]}`},
		"empty objects that say nothing": {spec: `{"securityContext":{},"volumes":[{"name":"v","emptyDir":{}}],
			"containers":[{"name":"main","image":"agent","resources":{},"securityContext":{"capabilities":{}}}]}`},
		"an empty object that is a kind of volume": {
			spec: `{"containers":[{"name":"main","image":"agent"}],"volumes":[{"name":"v","image":{}}]}`, want: []string{"volumes[0].image"},
		},
		"each field by its place": {
			spec: `{"hostPID":true,"containers":[{"name":"main","image":"agent"},{"name":"second","image":"agent","tty":true}],"hostNetwork":true}`,
			want: []string{"containers[1].tty: true", "hostPID"},
		},
		"a value that is not carried out": {
			spec: `{"dnsPolicy":"None","containers":[{"name":"main","image":"agent"}]}`, want: []string{"dnsPolicy: None"},
		},
		"a root that is to be writable": {
			spec: `{"containers":[{"name":"main","image":"agent","securityContext":{"readOnlyRootFilesystem":false}}]}`,
			want: []string{"containers[0].securityContext.readOnlyRootFilesystem: false"},
		},
		"a variable of a resource": {
			spec: `{"containers":[{"name":"main","image":"agent","env":[{"name":"M","valueFrom":{"resourceFieldRef":{"resource":"limits.memory"}}}]}]}`,
			want: []string{"containers[0].env[0].valueFrom.resourceFieldRef.divisor", "containers[0].env[0].valueFrom.resourceFieldRef.resource"},
		},
		"an init container": {
			spec: `{"containers":[{"name":"main","image":"agent"}],"initContainers":[{"name":"first","image":"agent"}]}`,
			want: []string{"initContainers[0].image", "initContainers[0].name", "initContainers[0].resources"},
		},
		"an unknown image": {spec: `{"containers":[{"name":"main","image":"other","command":["x"]}]}`, want: []string{`image "other"`}},
		"no command":       {spec: `{"containers":[{"name":"main","image":"shell"}]}`, want: []string{"container main has no command"}},
		"root that must not be root": {
			spec: `{"securityContext":{"runAsNonRoot":true},"containers":[{"name":"main","image":"agent","securityContext":{"runAsUser":0}}]}`,
			want: []string{"container main must not run as root"},
		},
		"two containers alone": {
			spec: `{"containers":[{"name":"a","image":"agent"},{"name":"b","image":"agent"}]}`, want: []string{"containers of one pod"},
		},
		"two containers that share the machine's network": {
			spec: `{"containers":[{"name":"a","image":"sharing","command":["x"]},{"name":"b","image":"sharing","command":["x"]}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := unsupported(spec(t, test.spec), images)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(test.want) {
				t.Fatalf("refused: %q, want %q", got, test.want)
			}
			for i, want := range test.want {
				if !strings.HasPrefix(got[i], want) {
					t.Errorf("refused: %q, want %q", got[i], want)
				}
			}
		})
	}
}

func TestImagesAreChecked(t *testing.T) {
	for name, test := range map[string]struct {
		image Image
		good  bool
	}{
		"a program of the system": {Image{Entrypoint: []string{"sh", "-c"}}, true},
		"a file":                  {Image{Entrypoint: []string{"/opt/agent"}, Files: []string{"/opt/lib"}}, true},
		"everything":              {Image{Files: []string{"/"}}, false},
		"a way around":            {Image{Files: []string{"/opt/../etc"}}, false},
		"a place that depends":    {Image{Files: []string{"lib"}}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := (Images{"image": test.image}).check(); (err == nil) != test.good {
				t.Errorf("got %v", err)
			}
		})
	}
}
