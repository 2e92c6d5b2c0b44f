package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/yaml"
)

// Images says what runs for an image, by the name that containers give. Nothing is ever pulled: an image that is not here is
// refused.
type Images map[string]Image

// Image is what a container of it finds.
type Image struct {
	// Entrypoint is the command of containers that have none, and what the args of such a container are appended to. Its
	// first element is an absolute path, or a name that is looked up in the sandbox's PATH.
	Entrypoint []string `json:"entrypoint,omitempty"`
	// Files are absolute paths of files and directories that are there, read-only, beside those of the system. An absolute
	// path in Entrypoint is among them without being listed.
	Files []string `json:"files,omitempty"`
	// HostNetwork lets containers of this image share the machine's network, as if their pods said hostNetwork: true. It
	// is for pods that must reach the apiserver and that say in a cluster nothing of the kind.
	HostNetwork bool `json:"hostNetwork,omitempty"`
}

// readImages reads a table in YAML or JSON.
func readImages(file string) (Images, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	images := Images{}
	if err := yaml.UnmarshalStrict(text, &images); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return images, images.check()
}

func (images Images) check() error {
	var errs []error
	for name, image := range images {
		for _, file := range image.files() {
			if !filepath.IsAbs(file) || filepath.Clean(file) != file || file == "/" {
				errs = append(errs, fmt.Errorf("image %s: %q is not the absolute path of a file or a directory", name, file))
			}
		}
	}
	return errors.Join(errs...)
}

// files are all that are there beside those of the system.
func (i Image) files() []string {
	files := slices.Clone(i.Files)
	if len(i.Entrypoint) > 0 && filepath.IsAbs(i.Entrypoint[0]) && !slices.Contains(files, i.Entrypoint[0]) {
		files = append(files, i.Entrypoint[0])
	}
	return files
}
