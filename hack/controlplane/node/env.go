package node

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/kubernetes/pkg/fieldpath"
	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// defaultPath is the PATH of a container that does not set one.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// reader reads what a pod refers to. Without listers it asks the apiserver: what was created before the pod is there then.
type reader struct {
	client     kubernetes.Interface
	namespace  string
	configMaps corev1listers.ConfigMapLister
	secrets    corev1listers.SecretLister
}

func (r reader) getConfigMap(ctx context.Context, name string) (*corev1.ConfigMap, error) {
	if r.configMaps != nil {
		return r.configMaps.ConfigMaps(r.namespace).Get(name)
	}
	return r.client.CoreV1().ConfigMaps(r.namespace).Get(ctx, name, metav1.GetOptions{})
}

func (r reader) getSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	if r.secrets != nil {
		return r.secrets.Secrets(r.namespace).Get(name)
	}
	return r.client.CoreV1().Secrets(r.namespace).Get(ctx, name, metav1.GetOptions{})
}

func (r reader) configMap(ctx context.Context, name string, optional *bool) (*corev1.ConfigMap, error) {
	object, err := r.getConfigMap(ctx, name)
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil, nil
	}
	return object, err
}

func (r reader) secret(ctx context.Context, name string, optional *bool) (*corev1.Secret, error) {
	object, err := r.getSecret(ctx, name)
	if apierrors.IsNotFound(err) && optional != nil && *optional {
		return nil, nil
	}
	return object, err
}

// environment of a container: that of the node, then envFrom, then env, each winning over the one before. apiserver is the
// address that clients inside a cluster are told.
func (r reader) environment(ctx context.Context, pod *corev1.Pod, c corev1.Container, apiserver string) (map[string]string, error) {
	host, port, err := net.SplitHostPort(apiserver)
	if err != nil {
		return nil, err
	}
	env := map[string]string{
		"PATH": defaultPath, "HOSTNAME": hostname(pod), "KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": port,
	}
	for _, from := range c.EnvFrom {
		values := map[string]string{}
		switch {
		case from.ConfigMapRef != nil:
			object, err := r.configMap(ctx, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
			if err != nil {
				return nil, err
			}
			if object != nil {
				values = object.Data
			}
		case from.SecretRef != nil:
			object, err := r.secret(ctx, from.SecretRef.Name, from.SecretRef.Optional)
			if err != nil {
				return nil, err
			}
			if object != nil {
				for key, value := range object.Data {
					values[key] = string(value)
				}
			}
		}
		for key, value := range values {
			name := from.Prefix + key
			if problems := validation.IsEnvVarName(name); len(problems) > 0 {
				return nil, fmt.Errorf("%q cannot be the name of an environment variable: %v", name, problems)
			}
			env[name] = value
		}
	}
	for _, one := range c.Env {
		value, set, err := r.value(ctx, pod, one, env)
		if err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", one.Name, err)
		}
		if set {
			env[one.Name] = value
		}
	}
	return env, nil
}

// value of a variable; an optional one may be unset.
func (r reader) value(ctx context.Context, pod *corev1.Pod, v corev1.EnvVar, before map[string]string) (value string, set bool, err error) {
	if v.ValueFrom == nil {
		return expansion.Expand(v.Value, expansion.MappingFuncFor(before)), true, nil
	}
	switch from := v.ValueFrom; {
	case from.FieldRef != nil:
		value, err := field(pod, from.FieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		object, err := r.configMap(ctx, ref.Name, ref.Optional)
		if err != nil || object == nil {
			return "", false, err
		}
		value, found := object.Data[ref.Key]
		return value, found, missing("ConfigMap", ref.Name, ref.Key, found, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		object, err := r.secret(ctx, ref.Name, ref.Optional)
		if err != nil || object == nil {
			return "", false, err
		}
		value, found := object.Data[ref.Key]
		return string(value), found, missing("Secret", ref.Name, ref.Key, found, ref.Optional)
	}
	return "", false, fmt.Errorf("nothing is known of where its value comes from")
}

func missing(kind, name, key string, found bool, optional *bool) error {
	if found || optional != nil && *optional {
		return nil
	}
	return fmt.Errorf("%s %s has no key %s", kind, name, key)
}

// field is the value of one of the pod's own.
func field(pod *corev1.Pod, ref *corev1.ObjectFieldSelector) (string, error) {
	switch ref.FieldPath {
	case "spec.nodeName":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.hostIP", "status.hostIPs":
		return loopback, nil
	case "status.podIP", "status.podIPs":
		if !pod.Spec.HostNetwork {
			return "", fmt.Errorf("the pod has no address, since it does not say hostNetwork: true")
		}
		return loopback, nil
	}
	return fieldpath.ExtractFieldPathAsString(pod, ref.FieldPath)
}

// arguments is the command line of a container.
func arguments(image Image, c corev1.Container, env map[string]string) []string {
	mapping := expansion.MappingFuncFor(env)
	expand := func(all []string) (expanded []string) {
		for _, one := range all {
			expanded = append(expanded, expansion.Expand(one, mapping))
		}
		return expanded
	}
	if len(c.Command) > 0 {
		return append(expand(c.Command), expand(c.Args)...)
	}
	return append(slices.Clone(image.Entrypoint), expand(c.Args)...)
}

func sorted(env map[string]string) []string { return slices.Sorted(maps.Keys(env)) }
