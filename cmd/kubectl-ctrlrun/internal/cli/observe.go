package cli

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/records"
)

// warnObserving says on stderr, before anything else, where nothing is enforced: in the session's namespace, or everywhere.
// Whoever may not read Settings is told by the Actions themselves.
func (a *app) warnObserving(ctx context.Context, s *session, where []kube.ListOption) {
	if namespaces := s.observing(ctx, where); len(namespaces) > 0 {
		a.bannerObserve(namespaces)
	}
}

// bannerObserve must not be missed, and has the same words wherever it is printed.
func (a *app) bannerObserve(namespaces []string) {
	word := "namespace"
	if len(namespaces) > 1 {
		word = "namespaces"
	}
	a.note("OBSERVE MODE: nothing is enforced in %s %s", word, displayLine(strings.Join(namespaces, ", ")))
}

// observing are the namespaces whose Settings say Observe, of those that may be read.
func (s *session) observing(ctx context.Context, where []kube.ListOption) []string {
	settings := &v1alpha1.SettingsList{}
	if len(where) > 0 {
		var one v1alpha1.Settings
		if err := s.kube.Get(ctx, s.key(v1alpha1.SettingsName), &one); err != nil {
			return nil
		}
		settings.Items = append(settings.Items, one)
	} else if err := s.kube.List(ctx, settings); err != nil {
		return nil
	}
	var namespaces []string
	for i := range settings.Items {
		if records.Settings(&settings.Items[i]).Observe {
			namespaces = append(namespaces, settings.Items[i].Namespace)
		}
	}
	slices.Sort(namespaces)
	return namespaces
}

// observeIn reports whether files, or the files of directories, hold Settings that say Observe, of that namespace or of none.
// What stdin says was read before. What cannot be read is an error of whoever reads it as policies.
func observeIn(paths []string, namespace string) bool {
	for _, path := range paths {
		files := []string{path}
		if isDirectory(path) {
			files = nil
			for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
				found, _ := filepath.Glob(filepath.Join(path, pattern)) // the only error is a bad pattern
				files = append(files, found...)
			}
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				continue
			}
			for _, document := range splitPolicies(file, data) {
				if saysObserve(document.data, namespace) {
					return true
				}
			}
		}
	}
	return false
}

func saysObserve(manifest []byte, namespace string) bool {
	var head struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string `yaml:"kind"`
		Metadata   struct {
			Namespace string `yaml:"namespace"`
		} `yaml:"metadata"`
		Spec struct {
			Mode v1alpha1.Mode `yaml:"mode"`
		} `yaml:"spec"`
	}
	if err := yaml.Unmarshal(manifest, &head); err != nil {
		return false
	}
	return head.Kind == "Settings" && strings.HasPrefix(head.APIVersion, v1alpha1.GroupVersion.Group+"/") && head.Spec.Mode == v1alpha1.ModeObserve &&
		(head.Metadata.Namespace == "" || head.Metadata.Namespace == namespace)
}
