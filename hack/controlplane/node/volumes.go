package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/secret"
	"k8s.io/kubernetes/pkg/volume/util"
)

// volume is one of a pod's: a directory or a file of the machine.
type volume struct {
	path     string
	readOnly bool
	limit    int64 // bytes it may hold; 0 for any
}

// token is one in a volume, until it should be a fresh one.
type token struct {
	text  string
	fresh time.Time
}

// volumes are those of one pod.
type volumes struct {
	node *node
	pod  *corev1.Pod
	// dir is for what is kept on disk, memory for what is kept in memory.
	dir, memory string
	all         map[string]volume
	tokens      map[string]token // by volume and path
}

func (n *node) volumesOf(pod *corev1.Pod, dir string) *volumes {
	return &volumes{node: n, pod: pod, dir: dir, memory: filepath.Join(n.memory, string(pod.UID)), tokens: map[string]token{}}
}

// prepare makes what the volumes are.
func (v *volumes) prepare(ctx context.Context) error {
	all := map[string]volume{}
	for _, spec := range v.pod.Spec.Volumes {
		one, err := v.make(ctx, spec)
		if err != nil {
			return fmt.Errorf("volume %s: %w", spec.Name, err)
		}
		all[spec.Name] = one
	}
	v.all = all
	return nil
}

func (v *volumes) make(ctx context.Context, spec corev1.Volume) (volume, error) {
	dir := filepath.Join(v.dir, spec.Name)
	switch {
	case spec.EmptyDir != nil:
		if spec.EmptyDir.Medium == corev1.StorageMediumMemory {
			dir = filepath.Join(v.memory, spec.Name)
		}
		one := volume{path: dir}
		if l := spec.EmptyDir.SizeLimit; l != nil {
			one.limit = l.Value()
		}
		return one, os.MkdirAll(dir, 0o777)
	case spec.HostPath != nil:
		path, err := v.node.hostPath(spec.HostPath)
		return volume{path: path}, err
	case spec.PersistentVolumeClaim != nil:
		path, err := v.node.claimed(ctx, v.pod.Namespace, spec.PersistentVolumeClaim.ClaimName)
		return volume{path: path, readOnly: spec.PersistentVolumeClaim.ReadOnly}, err
	}
	return volume{path: dir, readOnly: true}, v.project(ctx, reader{client: v.node.client, namespace: v.pod.Namespace}, spec, dir)
}

// refresh writes what ConfigMaps, Secrets and fields are now, and tokens that are old.
func (v *volumes) refresh(ctx context.Context, pod *corev1.Pod) error {
	v.pod = pod
	r := reader{client: v.node.client, namespace: pod.Namespace, configMaps: v.node.configMaps, secrets: v.node.secrets}
	var errs []error
	for _, spec := range pod.Spec.Volumes {
		if sources, _ := projections(spec); sources != nil {
			errs = append(errs, v.project(ctx, r, spec, v.all[spec.Name].path))
		}
	}
	return errors.Join(errs...)
}

// exceeded names a volume that holds more than it may, and how much that is; none if all is well.
func (v *volumes) exceeded() (name string, limit *resource.Quantity, err error) {
	for _, spec := range v.pod.Spec.Volumes {
		most := v.all[spec.Name].limit
		if most == 0 {
			continue
		}
		size, err := sizeOf(v.all[spec.Name].path)
		if err != nil {
			return "", nil, err
		}
		if size > most {
			return spec.Name, spec.EmptyDir.SizeLimit, nil
		}
	}
	return "", nil, nil
}

// sizeOf is what the files below a directory hold. Some may go while it is counted.
func sizeOf(dir string) (size int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil {
				size += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	return size, err
}

// remove removes what was made for them; what is the machine's stays.
func (v *volumes) remove() error { return errors.Join(os.RemoveAll(v.dir), os.RemoveAll(v.memory)) }

// projections are what the files of a volume come from; ConfigMaps, Secrets and fields are projected alone like together.
func projections(v corev1.Volume) (sources []corev1.VolumeProjection, mode *int32) {
	switch {
	case v.ConfigMap != nil:
		return []corev1.VolumeProjection{{ConfigMap: &corev1.ConfigMapProjection{
			LocalObjectReference: v.ConfigMap.LocalObjectReference, Items: v.ConfigMap.Items, Optional: v.ConfigMap.Optional,
		}}}, v.ConfigMap.DefaultMode
	case v.Secret != nil:
		return []corev1.VolumeProjection{{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: v.Secret.SecretName}, Items: v.Secret.Items, Optional: v.Secret.Optional,
		}}}, v.Secret.DefaultMode
	case v.DownwardAPI != nil:
		return []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: v.DownwardAPI.Items}}}, v.DownwardAPI.DefaultMode
	case v.Projected != nil:
		return v.Projected.Sources, v.Projected.DefaultMode
	}
	return nil, nil
}

// project writes the files of a volume, all at once for those who read them, if they are not what they were.
func (v *volumes) project(ctx context.Context, r reader, spec corev1.Volume, dir string) error {
	sources, mode := projections(spec)
	files := map[string]util.FileProjection{}
	for _, source := range sources {
		more, err := v.files(ctx, r, spec.Name, source, mode)
		if err != nil {
			return err
		}
		maps.Copy(files, more)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	writer, err := util.NewAtomicWriter(dir, "pod "+v.pod.Namespace+"/"+v.pod.Name)
	if err != nil {
		return err
	}
	return writer.Write(files, nil)
}

func (v *volumes) files(ctx context.Context, r reader, name string, source corev1.VolumeProjection, mode *int32) (map[string]util.FileProjection, error) {
	switch {
	case source.ConfigMap != nil:
		object, err := r.configMap(ctx, source.ConfigMap.Name, source.ConfigMap.Optional)
		if err != nil {
			return nil, err
		}
		if object == nil {
			object = &corev1.ConfigMap{}
		}
		return configmap.MakePayload(source.ConfigMap.Items, object, mode, nil, isTrue(source.ConfigMap.Optional))
	case source.Secret != nil:
		object, err := r.secret(ctx, source.Secret.Name, source.Secret.Optional)
		if err != nil {
			return nil, err
		}
		if object == nil {
			object = &corev1.Secret{}
		}
		return secret.MakePayload(source.Secret.Items, object, mode, nil, isTrue(source.Secret.Optional))
	case source.DownwardAPI != nil:
		files := map[string]util.FileProjection{}
		for _, item := range source.DownwardAPI.Items {
			text, err := field(v.pod, item.FieldRef)
			if err != nil {
				return nil, err
			}
			one := util.FileProjection{Data: []byte(text), Mode: *mode}
			if item.Mode != nil {
				one.Mode = *item.Mode
			}
			files[item.Path] = one
		}
		return files, nil
	}
	path := source.ServiceAccountToken.Path
	id := name + "/" + path
	if !time.Now().Before(v.tokens[id].fresh) {
		t, err := v.node.token(ctx, v.pod, source.ServiceAccountToken)
		if err != nil {
			return nil, err
		}
		v.tokens[id] = t
	}
	return map[string]util.FileProjection{path: {Data: []byte(v.tokens[id].text), Mode: 0o600}}, nil
}

// token asks for a token of the pod's ServiceAccount that ends with the pod. The next is asked for after four fifths of its time,
// as a kubelet does.
func (n *node) token(ctx context.Context, pod *corev1.Pod, p *corev1.ServiceAccountTokenProjection) (token, error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: p.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if p.Audience != "" {
		request.Spec.Audiences = []string{p.Audience}
	}
	asked := time.Now()
	request, err := n.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return token{}, err
	}
	valid := request.Status.ExpirationTimestamp.Sub(asked)
	return token{text: request.Status.Token, fresh: asked.Add(valid * 4 / 5)}, nil
}

// claimed is the directory behind a claim.
func (n *node) claimed(ctx context.Context, namespace, name string) (string, error) {
	claim, err := n.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if claim.Status.Phase != corev1.ClaimBound || claim.Spec.VolumeName == "" {
		return "", fmt.Errorf("claim %s is not bound", name)
	}
	pv, err := n.client.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if ref := pv.Spec.ClaimRef; ref == nil || ref.UID != claim.UID {
		return "", fmt.Errorf("volume %s is not bound to claim %s", pv.Name, name)
	}
	if pv.Spec.HostPath == nil {
		return "", refusal(fmt.Sprintf("volume %s of claim %s has no hostPath, and nothing else is supported", pv.Name, name))
	}
	return n.hostPath(pv.Spec.HostPath)
}

// hostPath is a directory of the machine, if it is one that pods may have: the node has flags, and pods are not trusted.
func (n *node) hostPath(source *corev1.HostPathVolumeSource) (string, error) {
	kind := corev1.HostPathUnset
	if source.Type != nil {
		kind = *source.Type
	}
	switch kind {
	case corev1.HostPathUnset, corev1.HostPathDirectory, corev1.HostPathDirectoryOrCreate:
	default:
		return "", refusal(fmt.Sprintf("hostPath of type %s is not supported", kind))
	}
	path := filepath.Clean(source.Path)
	dir, may := n.mayHave(path)
	if !may {
		return "", refusal(fmt.Sprintf("hostPath %s is not below a directory that pods may have: %s", path, strings.Join(n.hostDirs, ", ")))
	}
	if kind == corev1.HostPathDirectoryOrCreate {
		if err := makeBelow(dir, path); err != nil {
			return "", err
		}
	}
	// Not by a link to somewhere else.
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	if _, may := n.mayHave(real); !may {
		return "", refusal(fmt.Sprintf("hostPath %s leads to %s, which pods may not have", path, real))
	}
	return real, nil
}

// mayHave says whether a path is in a directory that pods may have, and in which.
func (n *node) mayHave(path string) (dir string, may bool) {
	for _, dir := range n.hostDirs {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return dir, true
		}
	}
	return "", false
}

// makeBelow makes a directory in another one, and nothing where a link leads out of that. A pod can make links.
func makeBelow(dir, path string) error {
	below, err := filepath.Rel(dir, path)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(root.MkdirAll(below, 0o777), root.Close())
}

// mounts of a container are its pod's volumes.
func mounts(c corev1.Container, volumes map[string]volume) ([]mount, error) {
	var all []mount
	for _, m := range c.VolumeMounts {
		v := volumes[m.Name]
		from := v.path
		if m.SubPath != "" {
			below := filepath.Join(from, m.SubPath)
			if !v.readOnly {
				if _, err := os.Lstat(below); os.IsNotExist(err) {
					if err := makeBelow(from, below); err != nil {
						return nil, fmt.Errorf("subPath %s of volume %s: %w", m.SubPath, m.Name, err)
					}
				}
			}
			real, err := filepath.EvalSymlinks(below)
			if err != nil {
				return nil, err
			}
			// A pod can make links in its volumes.
			if !strings.HasPrefix(real, from+"/") {
				return nil, fmt.Errorf("subPath %s of volume %s leads out of it", m.SubPath, m.Name)
			}
			from = real
		}
		all = append(all, mount{from: from, to: m.MountPath, readOnly: m.ReadOnly || v.readOnly})
	}
	return all, nil
}

func isTrue(b *bool) bool { return b != nil && *b }
