package node

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// A pod that is stopped while a container waits for its restart ends as that container did, and one that never ran has failed.
func TestAPodEndsAsItsContainersDid(t *testing.T) {
	for name, test := range map[string]struct {
		last corev1.ContainerState
		want corev1.PodPhase
	}{
		"badly":     {corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 3}}, corev1.PodFailed},
		"well":      {corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}, corev1.PodSucceeded},
		"never ran": {corev1.ContainerState{}, corev1.PodFailed},
	} {
		t.Run(name, func(t *testing.T) {
			// The API has no such pod any more, so that nothing is told.
			n := &node{lister: corev1listers.NewPodLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}))}
			p := newPod(n, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: "uid"},
				Spec:       corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways, Containers: []corev1.Container{{Name: "main"}}},
			})
			c := p.containers[0]
			c.last, c.state = test.last, waiting(reasonBackOff, "")
			p.stop(0, "", "")
			p.runContainer(c)
			p.over = true
			if got := p.phase(); got != test.want {
				t.Errorf("it is %s, want %s", got, test.want)
			}
		})
	}
}
