package node

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// rule says whether a field may have a value.
type rule func(value any) bool

// anything is for fields that are carried out, or that somebody else carries out: the scheduler, the API, a controller.
func anything(any) bool { return true }

// only is for fields of which some values are carried out.
func only(values ...any) rule {
	return func(value any) bool { return slices.Contains(values, value) }
}

// supported are the fields of a pod's spec that this node does something about, or need not. A field that is not here, a
// field of a later Kubernetes included, is refused: a test must not pass because something was left out. Everything below a
// path that is here goes with it. An object without fields is a value.
var supported = map[string]rule{
	// The scheduler's.
	"affinity":                  anything,
	"nodeName":                  anything,
	"nodeSelector":              anything,
	"preemptionPolicy":          anything,
	"priority":                  anything,
	"priorityClassName":         anything,
	"schedulerName":             anything,
	"tolerations":               anything,
	"topologySpreadConstraints": anything,

	"activeDeadlineSeconds":         anything,
	"automountServiceAccountToken":  anything, // the admission plugin's
	"dnsPolicy":                     only(string(corev1.DNSClusterFirst), string(corev1.DNSClusterFirstWithHostNet), string(corev1.DNSDefault)),
	"enableServiceLinks":            anything, // no Service can be reached, and none is announced
	"hostNetwork":                   anything,
	"hostname":                      anything,
	"imagePullSecrets":              anything, // nothing is pulled
	"restartPolicy":                 anything,
	"serviceAccount":                anything,
	"serviceAccountName":            anything,
	"setHostnameAsFQDN":             only(false),
	"shareProcessNamespace":         only(false),
	"terminationGracePeriodSeconds": anything,

	"securityContext.runAsGroup":          anything,
	"securityContext.runAsNonRoot":        anything,
	"securityContext.runAsUser":           anything,
	"securityContext.seccompProfile.type": only(string(corev1.SeccompProfileTypeRuntimeDefault), string(corev1.SeccompProfileTypeUnconfined)),

	"containers[].args":                                          anything,
	"containers[].command":                                       anything,
	"containers[].env[].name":                                    anything,
	"containers[].env[].value":                                   anything,
	"containers[].env[].valueFrom.fieldRef":                      anything, // an unknown field is an error when it is read
	"containers[].env[].valueFrom.configMapKeyRef":               anything,
	"containers[].env[].valueFrom.secretKeyRef":                  anything,
	"containers[].envFrom[].prefix":                              anything,
	"containers[].envFrom[].configMapRef":                        anything,
	"containers[].envFrom[].secretRef":                           anything,
	"containers[].image":                                         anything,
	"containers[].imagePullPolicy":                               anything,
	"containers[].name":                                          anything,
	"containers[].ports":                                         anything, // they are information
	"containers[].resizePolicy":                                  anything, // a resize itself ends the pod
	"containers[].resources.limits.memory":                       anything, // of each process
	"containers[].resources.requests":                            anything, // the scheduler's
	"containers[].securityContext.allowPrivilegeEscalation":      only(false),
	"containers[].securityContext.capabilities.drop":             anything, // none is ever given
	"containers[].securityContext.privileged":                    only(false),
	"containers[].securityContext.readOnlyRootFilesystem":        only(true),
	"containers[].securityContext.runAsGroup":                    anything,
	"containers[].securityContext.runAsNonRoot":                  anything,
	"containers[].securityContext.runAsUser":                     anything,
	"containers[].securityContext.seccompProfile.type":           only(string(corev1.SeccompProfileTypeRuntimeDefault), string(corev1.SeccompProfileTypeUnconfined)),
	"containers[].stdin":                                         only(false),
	"containers[].terminationMessagePath":                        anything,
	"containers[].terminationMessagePolicy":                      anything,
	"containers[].tty":                                           only(false),
	"containers[].volumeMounts[].mountPath":                      anything,
	"containers[].volumeMounts[].mountPropagation":               only(string(corev1.MountPropagationNone)),
	"containers[].volumeMounts[].name":                           anything,
	"containers[].volumeMounts[].readOnly":                       anything,
	"containers[].volumeMounts[].recursiveReadOnly":              only(string(corev1.RecursiveReadOnlyDisabled)),
	"containers[].volumeMounts[].subPath":                        anything,
	"containers[].workingDir":                                    anything,
	"volumes[].name":                                             anything,
	"volumes[].configMap":                                        anything,
	"volumes[].secret":                                           anything,
	"volumes[].downwardAPI.defaultMode":                          anything,
	"volumes[].downwardAPI.items[].path":                         anything,
	"volumes[].downwardAPI.items[].mode":                         anything,
	"volumes[].downwardAPI.items[].fieldRef":                     anything,
	"volumes[].emptyDir.medium":                                  only(string(corev1.StorageMediumDefault), string(corev1.StorageMediumMemory)),
	"volumes[].emptyDir.sizeLimit":                               anything,
	"volumes[].hostPath":                                         anything, // below the node's own directories only
	"volumes[].persistentVolumeClaim":                            anything, // of such a volume only
	"volumes[].projected.defaultMode":                            anything,
	"volumes[].projected.sources[].configMap":                    anything,
	"volumes[].projected.sources[].secret":                       anything,
	"volumes[].projected.sources[].serviceAccountToken":          anything,
	"volumes[].projected.sources[].downwardAPI.items[].path":     anything,
	"volumes[].projected.sources[].downwardAPI.items[].mode":     anything,
	"volumes[].projected.sources[].downwardAPI.items[].fieldRef": anything,
}

// mayBeEmpty are the objects that say nothing when they have no fields.
var mayBeEmpty = map[string]bool{
	"securityContext":                           true,
	"containers[].securityContext":              true,
	"containers[].securityContext.capabilities": true,
	"containers[].resources":                    true,
	"volumes[].emptyDir":                        true,
}

// unsupported says what in a pod this node cannot carry out, field by field; nothing if it can do all.
func unsupported(spec *corev1.PodSpec, images Images) ([]string, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return nil, err
	}
	var refused []string
	walk("", "", fields, func(field string) { refused = append(refused, field+" is not supported") })
	hostNetwork := true
	for _, c := range spec.Containers {
		image, known := images[c.Image]
		if !known {
			refused = append(refused, fmt.Sprintf("image %q of container %s is not in the node's table", c.Image, c.Name))
		}
		if len(c.Command) == 0 && known && len(image.Entrypoint) == 0 {
			refused = append(refused, fmt.Sprintf("container %s has no command, and its image no entrypoint", c.Name))
		}
		hostNetwork = hostNetwork && sharesNetwork(spec, image)
		if user := runsAs(spec, c); user.nonRoot && user.uid == 0 {
			refused = append(refused, fmt.Sprintf("container %s must not run as root, and is to run as user 0", c.Name))
		}
	}
	if len(spec.Containers) > 1 && !hostNetwork {
		refused = append(refused, "containers of one pod have no network in common here, unless all of them share the machine's")
	}
	slices.Sort(refused)
	return refused, nil
}

// filters says whether a container asks for the default profile of system calls.
func filters(spec *corev1.PodSpec, c corev1.Container) bool {
	var profile *corev1.SeccompProfile
	if s := spec.SecurityContext; s != nil {
		profile = s.SeccompProfile
	}
	if s := c.SecurityContext; s != nil && s.SeccompProfile != nil {
		profile = s.SeccompProfile
	}
	return profile != nil && profile.Type == corev1.SeccompProfileTypeRuntimeDefault
}

// walk calls refuse for each field that is not supported. path is that of the table, field the one to tell.
func walk(path, field string, value any, refuse func(field string)) {
	if rule, ok := supported[path]; ok && path != "" {
		if !rule(value) {
			refuse(fmt.Sprintf("%s: %v", field, value))
		}
		return
	}
	switch value := value.(type) {
	case map[string]any:
		if len(value) == 0 && !mayBeEmpty[path] {
			refuse(field)
		}
		for key, one := range value {
			walk(strings.TrimPrefix(path+"."+key, "."), strings.TrimPrefix(field+"."+key, "."), one, refuse)
		}
	case []any:
		for i, one := range value {
			walk(path+"[]", fmt.Sprintf("%s[%d]", field, i), one, refuse)
		}
	default:
		refuse(field)
	}
}

func sharesNetwork(spec *corev1.PodSpec, image Image) bool {
	return spec.HostNetwork || image.HostNetwork
}

// user is who a process is inside its sandbox. Outside it is whoever runs the node.
type user struct {
	uid, gid int64
	nonRoot  bool
}

// defaultUser is who runs a container that does not say who, as for an image that is not root's.
const defaultUser = 65532

func runsAs(spec *corev1.PodSpec, c corev1.Container) user {
	u := user{uid: defaultUser, gid: defaultUser}
	if s := spec.SecurityContext; s != nil {
		u = u.with(s.RunAsUser, s.RunAsGroup, s.RunAsNonRoot)
	}
	if s := c.SecurityContext; s != nil {
		u = u.with(s.RunAsUser, s.RunAsGroup, s.RunAsNonRoot)
	}
	return u
}

func (u user) with(uid, gid *int64, nonRoot *bool) user {
	if uid != nil {
		u.uid = *uid
	}
	if gid != nil {
		u.gid = *gid
	}
	if nonRoot != nil {
		u.nonRoot = *nonRoot
	}
	return u
}
