package node

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/secret"
	"k8s.io/kubernetes/pkg/volume/util"
)

// volume is one of a pod's: a directory or a file of the machine.
type volume struct {
	path     string
	readOnly bool
	// expires is when its tokens should be fresh ones; zero without tokens.
	expires time.Time
}

// volumes makes what a pod's volumes are. ConfigMaps, Secrets and fields are as they are now: unlike a kubelet this node does
// not follow their changes. Tokens it renews.
func (n *node) volumes(ctx context.Context, pod *corev1.Pod, dir string) (map[string]volume, error) {
	all := map[string]volume{}
	for _, v := range pod.Spec.Volumes {
		one, err := n.volume(ctx, pod, v, filepath.Join(dir, v.Name))
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", v.Name, err)
		}
		all[v.Name] = one
	}
	return all, nil
}

func (n *node) volume(ctx context.Context, pod *corev1.Pod, v corev1.Volume, dir string) (volume, error) {
	switch {
	case v.EmptyDir != nil:
		return volume{path: dir}, os.MkdirAll(dir, 0o777)
	case v.HostPath != nil:
		path, err := n.hostPath(v.HostPath)
		return volume{path: path}, err
	case v.PersistentVolumeClaim != nil:
		path, err := n.claimed(ctx, pod.Namespace, v.PersistentVolumeClaim.ClaimName)
		return volume{path: path, readOnly: v.PersistentVolumeClaim.ReadOnly}, err
	}
	sources, mode := projections(v)
	expires, err := n.project(ctx, pod, sources, mode, dir)
	return volume{path: dir, readOnly: true, expires: expires}, err
}

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

// project writes the files of a volume, all at once for those who read them.
func (n *node) project(ctx context.Context, pod *corev1.Pod, sources []corev1.VolumeProjection, mode *int32, dir string) (expires time.Time, err error) {
	r := reader{client: n.client, namespace: pod.Namespace}
	files := map[string]util.FileProjection{}
	for _, source := range sources {
		var more map[string]util.FileProjection
		switch {
		case source.ConfigMap != nil:
			object, err := r.configMap(ctx, source.ConfigMap.Name, source.ConfigMap.Optional)
			if err != nil {
				return time.Time{}, err
			}
			if object == nil {
				object = &corev1.ConfigMap{}
			}
			more, err = configmap.MakePayload(source.ConfigMap.Items, object, mode, nil, isTrue(source.ConfigMap.Optional))
			if err != nil {
				return time.Time{}, err
			}
		case source.Secret != nil:
			object, err := r.secret(ctx, source.Secret.Name, source.Secret.Optional)
			if err != nil {
				return time.Time{}, err
			}
			if object == nil {
				object = &corev1.Secret{}
			}
			more, err = secret.MakePayload(source.Secret.Items, object, mode, nil, isTrue(source.Secret.Optional))
			if err != nil {
				return time.Time{}, err
			}
		case source.DownwardAPI != nil:
			more = map[string]util.FileProjection{}
			for _, item := range source.DownwardAPI.Items {
				text, err := field(pod, item.FieldRef)
				if err != nil {
					return time.Time{}, err
				}
				one := util.FileProjection{Data: []byte(text), Mode: *mode}
				if item.Mode != nil {
					one.Mode = *item.Mode
				}
				more[item.Path] = one
			}
		case source.ServiceAccountToken != nil:
			token, fresh, err := n.token(ctx, pod, source.ServiceAccountToken)
			if err != nil {
				return time.Time{}, err
			}
			if expires.IsZero() || fresh.Before(expires) {
				expires = fresh
			}
			more = map[string]util.FileProjection{source.ServiceAccountToken.Path: {Data: []byte(token), Mode: 0o600}}
		}
		for path, file := range more {
			files[path] = file
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return time.Time{}, err
	}
	writer, err := util.NewAtomicWriter(dir, "pod "+pod.Namespace+"/"+pod.Name)
	if err != nil {
		return time.Time{}, err
	}
	return expires, writer.Write(files, nil)
}

// token asks for a token of the pod's ServiceAccount that ends with the pod, and says when to ask for the next: after four
// fifths of its time, as a kubelet does.
func (n *node) token(ctx context.Context, pod *corev1.Pod, p *corev1.ServiceAccountTokenProjection) (token string, fresh time.Time, err error) {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: p.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if p.Audience != "" {
		request.Spec.Audiences = []string{p.Audience}
	}
	asked := time.Now()
	request, err = n.client.CoreV1().ServiceAccounts(pod.Namespace).CreateToken(ctx, pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return "", time.Time{}, err
	}
	valid := request.Status.ExpirationTimestamp.Sub(asked)
	return request.Status.Token, asked.Add(valid * 4 / 5), nil
}

// renew writes the volumes with tokens again, and says when to do so the next time; zero if never.
func (n *node) renew(ctx context.Context, pod *corev1.Pod, volumes map[string]volume, now time.Time) (next time.Time, err error) {
	for _, v := range pod.Spec.Volumes {
		one := volumes[v.Name]
		if one.expires.IsZero() {
			continue
		}
		if !now.Before(one.expires) {
			sources, mode := projections(v)
			if one.expires, err = n.project(ctx, pod, sources, mode, one.path); err != nil {
				return time.Time{}, fmt.Errorf("volume %s: %w", v.Name, err)
			}
			volumes[v.Name] = one
		}
		if next.IsZero() || one.expires.Before(next) {
			next = one.expires
		}
	}
	return next, nil
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
	if !n.mayHave(path) {
		return "", refusal(fmt.Sprintf("hostPath %s is not below a directory that pods may have: %s", path, strings.Join(n.hostDirs, ", ")))
	}
	if kind == corev1.HostPathDirectoryOrCreate {
		if err := os.MkdirAll(path, 0o777); err != nil {
			return "", err
		}
	}
	// Not by a link to somewhere else.
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	if !n.mayHave(real) {
		return "", refusal(fmt.Sprintf("hostPath %s leads to %s, which pods may not have", path, real))
	}
	return real, nil
}

func (n *node) mayHave(path string) bool {
	for _, dir := range n.hostDirs {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
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
					if err := os.MkdirAll(below, 0o777); err != nil {
						return nil, err
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
