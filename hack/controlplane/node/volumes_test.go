package node

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestHostPathsEndWherePodsMayBe(t *testing.T) {
	root := t.TempDir()
	may, other := filepath.Join(root, "may"), filepath.Join(root, "may-not")
	for _, dir := range []string{filepath.Join(may, "below"), other} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(other, filepath.Join(may, "link")); err != nil {
		t.Fatal(err)
	}
	dirs, err := directories(may)
	if err != nil {
		t.Fatal(err)
	}
	n := &node{hostDirs: dirs}
	create := corev1.HostPathDirectoryOrCreate
	socket := corev1.HostPathSocket
	for name, test := range map[string]struct {
		source  corev1.HostPathVolumeSource
		good    bool
		refused bool
	}{
		"the directory":       {source: corev1.HostPathVolumeSource{Path: may}, good: true},
		"one below":           {source: corev1.HostPathVolumeSource{Path: filepath.Join(may, "below")}, good: true},
		"one that is made":    {source: corev1.HostPathVolumeSource{Path: filepath.Join(may, "new"), Type: &create}, good: true},
		"one that is missing": {source: corev1.HostPathVolumeSource{Path: filepath.Join(may, "missing")}},
		"one beside":          {source: corev1.HostPathVolumeSource{Path: other}, refused: true},
		"one above":           {source: corev1.HostPathVolumeSource{Path: may + "/.."}, refused: true},
		"a link":              {source: corev1.HostPathVolumeSource{Path: filepath.Join(may, "link")}, refused: true},
		"one by a link":       {source: corev1.HostPathVolumeSource{Path: filepath.Join(may, "link", "new"), Type: &create}},
		"another kind":        {source: corev1.HostPathVolumeSource{Path: may, Type: &socket}, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			path, err := n.hostPath(&test.source)
			var refused refusal
			if (err == nil) != test.good || errors.As(err, &refused) != test.refused {
				t.Errorf("got %q, %v", path, err)
			}
		})
	}
	if _, err := os.Lstat(filepath.Join(other, "new")); !os.IsNotExist(err) {
		t.Errorf("a directory was made by a link: %v", err)
	}
}

func TestASubPathStaysInItsVolume(t *testing.T) {
	root, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(other, filepath.Join(root, "link")); err != nil {
		t.Fatal(err)
	}
	c := corev1.Container{VolumeMounts: []corev1.VolumeMount{{Name: "v", MountPath: "/data"}}}
	for _, out := range []string{"link", "link/new"} {
		c.VolumeMounts[0].SubPath = out
		if got, err := mounts(c, map[string]volume{"v": {path: root}}); err == nil {
			t.Errorf("%s: got %v", out, got)
		}
	}
	if _, err := os.Lstat(filepath.Join(other, "new")); !os.IsNotExist(err) {
		t.Errorf("a directory was made by a link: %v", err)
	}
	c.VolumeMounts[0].SubPath = "new/one"
	got, err := mounts(c, map[string]volume{"v": {path: root}})
	if err != nil || got[0].from != filepath.Join(root, "new", "one") {
		t.Errorf("got %v, %v", got, err)
	}
	// Of what cannot be written nothing is made.
	c.VolumeMounts[0].SubPath = "other"
	if got, err := mounts(c, map[string]volume{"v": {path: root, readOnly: true}}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestArguments(t *testing.T) {
	image, env := Image{Entrypoint: []string{"entry", "$(A)"}}, map[string]string{"A": "1"}
	for name, test := range map[string]struct {
		c    corev1.Container
		want []string
	}{
		"of the image":           {corev1.Container{}, []string{"entry", "$(A)"}},
		"added to the image's":   {corev1.Container{Args: []string{"$(A)", "$(B)", "$$(A)"}}, []string{"entry", "$(A)", "1", "$(B)", "$(A)"}},
		"instead of the image's": {corev1.Container{Command: []string{"c$(A)"}, Args: []string{"x"}}, []string{"c1", "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := arguments(image, test.c, env)
			if len(got) != len(test.want) {
				t.Fatalf("got %q, want %q", got, test.want)
			}
			for i := range got {
				if got[i] != test.want[i] {
					t.Errorf("got %q, want %q", got, test.want)
				}
			}
		})
	}
}
