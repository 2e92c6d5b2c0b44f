package v1alpha1

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Executor lets the operator execute actions of some types, instead of the agent that proposes them: by an HTTP request, a Job,
// or a write to the Kubernetes API. It never acts as the operator, but as a ServiceAccount of its namespace. Its spec does not
// change: another way to execute is another Executor, so that what was approved is what is executed.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=executors
// +kubebuilder:printcolumn:name="Types",type=string,JSONPath=`.spec.actionTypes`
// +kubebuilder:printcolumn:name="ServiceAccount",type=string,JSONPath=`.spec.serviceAccountName`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=='Ready')].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Executor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is how to execute. It does not change, and keys it does not know are refused, not ignored.
	Spec ExecutorSpec `json:"spec"`
	// status is written by the operator: whether the executor is valid and in force.
	// +optional
	// +kubebuilder:default:={"observedGeneration":-1}
	Status ExecutorStatus `json:"status,omitempty"`
}

// ExecutorSpec says which actions are executed, as whom and how. Exactly one of http, job and kubernetes is given; or none of
// them, and observe: then agents execute, and the operator only looks what became of what nobody knows of.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an Executor does not change, for people approve actions by its hash: make another one, and delete this one"
// +kubebuilder:validation:XValidation:rule="(has(self.http) ? 1 : 0) + (has(self.job) ? 1 : 0) + (has(self.kubernetes) ? 1 : 0) == 1 || (!has(self.http) && !has(self.job) && !has(self.kubernetes) && has(self.observe))",message="give exactly one of http, job and kubernetes, or observe alone"
type ExecutorSpec struct {
	// actionTypes it executes, each by its full name. Every type has at most one Executor; with two its actions are denied.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=253
	ActionTypes []string `json:"actionTypes"`
	// serviceAccountName is as whom it acts, and reads the Secrets and ConfigMaps it names. The operator takes a token of this
	// ServiceAccount and lends it none of its own rights.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName"`
	// maxConcurrent bounds how many of its executions run at a time in one operator. Default 4.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=256
	MaxConcurrent *int32 `json:"maxConcurrent,omitempty"`
	// maxPerMinute bounds how many of its executions begin within any minute in one operator. Default: no bound.
	// +optional
	// +nullable
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60000
	MaxPerMinute *int32 `json:"maxPerMinute,omitempty"`
	// http sends one request.
	// +optional
	// +nullable
	HTTP *HTTPExecutor `json:"http,omitempty"`
	// job runs a pod once.
	// +optional
	// +nullable
	Job *JobExecutor `json:"job,omitempty"`
	// kubernetes makes one write to the Kubernetes API.
	// +optional
	// +nullable
	Kubernetes *KubernetesExecutor `json:"kubernetes,omitempty"`

	// observe is how to look what became of an attempt that nobody knows of. Alone, without http, job and kubernetes, agents execute.
	// +optional
	// +nullable
	Observe *ExecutorObserve `json:"observe,omitempty"`

	// Raw is the spec as the apiserver sent it: what is judged. It is not part of the API.
	Raw []byte `json:"-"`
}

// UnmarshalJSON keeps the exact bytes beside the typed fields, and refuses nothing: what does not fit is judged later.
func (s *ExecutorSpec) UnmarshalJSON(data []byte) error {
	type plain ExecutorSpec
	var p plain
	_ = json.Unmarshal(data, &p)
	*s = ExecutorSpec(p)
	s.Raw = append([]byte(nil), data...)
	return nil
}

// HTTPExecutor sends the canonical arguments as one JSON request, on a connection of its own: no redirect is followed, nothing
// is sent again, no proxy of the environment is used. The header Idempotency-Key is the attempt's token.
//
// Nothing was executed if no connection was made, so that not a byte of the request was offered to it. Any answer is unknown,
// unless its status is listed.
//
// +kubebuilder:pruning:PreserveUnknownFields
type HTTPExecutor struct {
	// method of the request.
	// +kubebuilder:validation:Enum=POST;PUT;PATCH;DELETE
	Method string `json:"method"`
	// url of the request, http or https. {argument} in its path or query stands for an argument of the action, escaped for
	// where it is; scheme, host and port are literal.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`
	// headers besides Content-Type, Idempotency-Key and Ctrlrun-Continuation, which it sets itself.
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Headers []HTTPHeader `json:"headers,omitempty"`
	// caFrom is where the certificates are that sign the server's, in PEM. Default: those the system trusts.
	// +optional
	// +nullable
	CAFrom *CASource `json:"caFrom,omitempty"`
	// timeoutSeconds bounds the execution, within the lease of the action.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=3600
	TimeoutSeconds int32 `json:"timeoutSeconds"`
	// committed are the statuses by which the provider says that it happened.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Minimum=200
	// +kubebuilder:validation:items:Maximum=299
	Committed []int32 `json:"committed"`
	// notExecuted are the statuses by which the provider promises, in its documentation, that for certain nothing happened.
	// They are rare: a status alone is no such promise.
	// +optional
	// +nullable
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Minimum=400
	// +kubebuilder:validation:items:Maximum=499
	NotExecuted []int32 `json:"notExecuted,omitempty"`
}

// ExecutorObserve asks what became of an attempt of an effect that is Ambiguous. It is told the effect key, the attempt and the
// attempt's token, and nothing else; it answers committed, not_executed or unknown, and whatever else it does is unknown. A proposal
// asks at most once. An answer becomes a Resolution that the operator makes; no receipt is written anew.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="has(self.http) != has(self.job)",message="give either http or job"
type ExecutorObserve struct {
	// eager: it is asked also right after an attempt ended because its executor did not know, not only when another proposal meets
	// what nobody knows of.
	// +optional
	// +nullable
	Eager *bool `json:"eager,omitempty"`
	// http asks by one request.
	// +optional
	// +nullable
	HTTP *HTTPObserver `json:"http,omitempty"`
	// job asks by a pod that runs once.
	// +optional
	// +nullable
	Job *JobObserver `json:"job,omitempty"`
}

// HTTPObserver asks by one HTTP request, on a connection of its own: no redirect is followed, nothing is sent again. Status 200 with
// a JSON object of one member, answer, is the answer: committed, not_executed or unknown. Everything else is unknown.
//
// +kubebuilder:pruning:PreserveUnknownFields
type HTTPObserver struct {
	// method of the request. POST sends {"attempt":...,"effect_key":...,"token":...}; GET sends no body.
	// +kubebuilder:validation:Enum=GET;POST
	Method string `json:"method"`
	// url of the request, http or https. {effect_key}, {attempt} and {token} in its path or query stand for what is asked, escaped for
	// where they are; scheme, host and port are literal. A key with a slash stands in a query only.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`
	// headers of the request.
	// +optional
	// +nullable
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=32
	Headers []HTTPHeader `json:"headers,omitempty"`
	// caFrom is where the certificates are that sign the server's, in PEM. Default: those the system trusts.
	// +optional
	// +nullable
	CAFrom *CASource `json:"caFrom,omitempty"`
	// timeoutSeconds bounds the look.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60
	TimeoutSeconds int32 `json:"timeoutSeconds"`
}

// JobObserver asks by one pod, by a Job without retries. The question, {"attempt":...,"effect_key":...,"token":...}, is in a file that a
// Secret holds. If the container exits with 0, its termination message is the answer: a JSON object of one member, answer, which is
// committed, not_executed or unknown. Everything else is unknown. A pod that started is never replaced.
//
// +kubebuilder:pruning:PreserveUnknownFields
type JobObserver struct {
	// template of the pod, as in a Job. It has one container, restartPolicy Never, and no serviceAccountName: that is the
	// Executor's. Nothing in it stands for what is asked.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:XPreserveUnknownFields
	Template corev1.PodTemplateSpec `json:"template"`
	// timeoutSeconds bounds the look, from before the Job is made.
	// +kubebuilder:validation:Minimum=10
	// +kubebuilder:validation:Maximum=600
	TimeoutSeconds int32 `json:"timeoutSeconds"`
}

// HTTPHeader is one header.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="has(self.value) != has(self.valueFrom)",message="give either value or valueFrom"
type HTTPHeader struct {
	// name of the header. It is literal.
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9!#$%&'*+.^_|~-]+$`
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`
	// value of the header. {argument} in it stands for an argument of the action.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxLength=4096
	Value *string `json:"value,omitempty"`
	// valueFrom is where the value is. It is literal.
	// +optional
	// +nullable
	ValueFrom *HTTPHeaderSource `json:"valueFrom,omitempty"`
}

// HTTPHeaderSource is where the value of a header is.
//
// +kubebuilder:pruning:PreserveUnknownFields
type HTTPHeaderSource struct {
	// prefix is put before what the Secret holds, such as "Bearer ".
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxLength=128
	Prefix *string `json:"prefix,omitempty"`
	// secretKeyRef is a key of a Secret in the namespace.
	SecretKeyRef KeyReference `json:"secretKeyRef"`
}

// CASource is where certificates are.
//
// +kubebuilder:pruning:PreserveUnknownFields
// +kubebuilder:validation:XValidation:rule="has(self.secretKeyRef) != has(self.configMapKeyRef)",message="give either secretKeyRef or configMapKeyRef"
type CASource struct {
	// secretKeyRef is a key of a Secret in the namespace.
	// +optional
	// +nullable
	SecretKeyRef *KeyReference `json:"secretKeyRef,omitempty"`
	// configMapKeyRef is a key of a ConfigMap in the namespace.
	// +optional
	// +nullable
	ConfigMapKeyRef *KeyReference `json:"configMapKeyRef,omitempty"`
}

// KeyReference names a key of a Secret or a ConfigMap.
//
// +kubebuilder:pruning:PreserveUnknownFields
type KeyReference struct {
	// name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// key in it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// JobExecutor runs one pod, by a Job without retries. The canonical arguments are in a file that a Secret holds, the attempt's
// token in an environment variable. Exit 0 of the container is committed, a listed exit code says that nothing was executed,
// everything else is unknown. A pod that started is never replaced.
//
// +kubebuilder:pruning:PreserveUnknownFields
type JobExecutor struct {
	// template of the pod, as in a Job. It has one container, restartPolicy Never, and no serviceAccountName: that is the
	// Executor's. Nothing in it stands for an argument.
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:XPreserveUnknownFields
	Template corev1.PodTemplateSpec `json:"template"`
	// timeoutSeconds bounds the execution, within the lease of the action: it is the Job's activeDeadlineSeconds.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	TimeoutSeconds int32 `json:"timeoutSeconds"`
	// notExecuted are the exit codes by which the container says that for certain nothing happened.
	// +optional
	// +nullable
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:Minimum=1
	// +kubebuilder:validation:items:Maximum=125
	NotExecuted []int32 `json:"notExecuted,omitempty"`
}

// KubernetesOperation is what a KubernetesExecutor does.
// +kubebuilder:validation:Enum=Apply;Patch;Scale;Delete
type KubernetesOperation string

const (
	// KubernetesApply applies the template server-side.
	KubernetesApply KubernetesOperation = "Apply"
	// KubernetesPatch merges the template into the object.
	KubernetesPatch KubernetesOperation = "Patch"
	// KubernetesScale sets the replicas of the object.
	KubernetesScale KubernetesOperation = "Scale"
	// KubernetesDelete deletes the object.
	KubernetesDelete KubernetesOperation = "Delete"
)

// KubernetesExecutor makes one write to one object of the Kubernetes API, once. A refusal of the apiserver that precedes the
// write, such as a conflict or an invalid object, proves that nothing was executed; a timeout does not.
//
// +kubebuilder:pruning:PreserveUnknownFields
type KubernetesExecutor struct {
	// operation is what it does.
	Operation KubernetesOperation `json:"operation"`
	// apiVersion of the object, such as apps/v1. It is literal.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	APIVersion string `json:"apiVersion"`
	// kind of the object, such as Deployment. It is literal.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// namespace of the object. It is literal. Default: the Executor's; an object that is in none has none.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxLength=63
	Namespace *string `json:"namespace,omitempty"`
	// name of the object. {argument} in it stands for an argument of the action.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid the object must have: the argument that holds it, as {argument}. Delete needs uid, resourceVersion or both.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxLength=253
	UID *string `json:"uid,omitempty"`
	// resourceVersion the object must have: the argument that holds it, as {argument}.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxLength=253
	ResourceVersion *string `json:"resourceVersion,omitempty"`
	// replicas for Scale: a number, or the argument that holds it, as {argument}.
	// +optional
	// +nullable
	// +kubebuilder:validation:MaxLength=253
	Replicas *string `json:"replicas,omitempty"`
	// template for Apply and Patch: what of the object is set, without apiVersion, kind and its metadata's name and namespace. A
	// string value that is {argument} alone becomes the argument, of whatever type; within other text it is inserted.
	// +optional
	// +nullable
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	// +kubebuilder:validation:XPreserveUnknownFields
	Template *apiextensionsv1.JSON `json:"template,omitempty"`
	// timeoutSeconds bounds the request, within the lease of the action.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=60
	TimeoutSeconds int32 `json:"timeoutSeconds"`
}

// Reasons of an Executor's conditions when it is not Ready.
const (
	// ReasonExecutorInvalid: it is not valid.
	ReasonExecutorInvalid = "ExecutorInvalid"
	// ReasonExecutorConflict: another Executor has one of its types.
	ReasonExecutorConflict = "ExecutorConflict"
)

// ExecutorStatus is the operator's judgement.
type ExecutorStatus struct {
	// observedGeneration is the generation this status speaks of; -1: none yet.
	// +optional
	// +kubebuilder:default=-1
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// hash of the spec: what people approve with an action, and what is compared right before it is executed.
	// +optional
	// +kubebuilder:validation:MaxLength=71
	Hash string `json:"hash,omitempty"`
	// conditions: Ready (valid and in force) and Stalled (it is not valid, or another Executor has one of its types).
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ExecutorList is a list of Executor.
// +kubebuilder:object:root=true
type ExecutorList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Executor `json:"items"`
}
