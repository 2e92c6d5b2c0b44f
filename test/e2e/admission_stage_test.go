package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gcustom"
	"github.com/onsi/gomega/types"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/test/testenv"
)

type fields = map[string]any

const (
	someHash  = "sha256:1111111111111111111111111111111111111111111111111111111111111111"
	otherHash = "sha256:2222222222222222222222222222222222222222222222222222222222222222"
	someTime  = "2026-01-02T03:04:05.000000Z"
)

// stage is a namespace with everybody who plays a part in the tests of admission. No operator runs in it.
type stage struct {
	namespace string
	// agent, approver, resolver and revoker have the shipped roles; governor may accept ledgers.
	agent, approver, resolver, revoker, governor testenv.User
	// policyAdmin owns the policies and the grants.
	policyAdmin testenv.User
	// wildcard has a Role with wildcards everywhere: all that can be had in one namespace.
	wildcard testenv.User
	// editor may do to ctrlrun.dev in the whole cluster whatever Kubernetes has verbs for. It is not the operator.
	editor testenv.User
}

var operator = testenv.OperatorUser()

func newStage() *stage {
	ctx := context.Background()
	ns := env.Namespace(GinkgoT(), nil)
	user := func(name string, groups ...string) testenv.User {
		return testenv.User{Name: name + "@" + ns + ".example.com", Groups: groups}
	}
	s := &stage{
		namespace:   ns,
		agent:       testenv.ServiceAccountUser(ns, "refund-agent"),
		approver:    user("alice", "people", "approvers"),
		resolver:    user("oncall", "people"),
		revoker:     user("rhea", "people"),
		governor:    user("grace"),
		policyAdmin: user("paula"),
		wildcard:    user("wanda"),
		editor:      user("edith"),
	}
	everything := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}
	for _, err := range []error{
		env.Grant(ctx, ns, "ctrlrun-agent", s.agent),
		env.Grant(ctx, ns, "ctrlrun-approver", s.approver),
		env.Grant(ctx, ns, "ctrlrun-resolver", s.resolver),
		env.Grant(ctx, ns, "ctrlrun-revoker", s.revoker),
		env.Grant(ctx, ns, "ctrlrun-policy-admin", s.policyAdmin),
		env.Allow(ctx, ns, s.wildcard, everything),
		env.Allow(ctx, "", s.governor, rbacv1.PolicyRule{
			APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"ledgeracceptances"}, Verbs: []string{"create"},
		}, rbacv1.PolicyRule{
			APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"ledgers"}, Verbs: []string{"govern"},
		}),
		env.Allow(ctx, "", s.editor, rbacv1.PolicyRule{
			APIGroups: []string{"ctrlrun.dev"}, Resources: []string{"*"},
			Verbs: []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"},
		}),
	} {
		Expect(err).NotTo(HaveOccurred())
	}
	return s
}

var theStage = sync.OnceValue(newStage)

var counter atomic.Int64

// unique makes a name that no other object of this run has.
func unique(prefix string) string { return fmt.Sprintf("%s-%d", prefix, counter.Add(1)) }

func object(kind, namespace, name string, spec fields) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: fields{}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	o.SetNamespace(namespace)
	o.SetName(name)
	if spec != nil {
		o.Object["spec"] = spec
	}
	return o
}

// set writes a value below an object, making what is missing on the way.
func set(o *unstructured.Unstructured, value any, path ...string) *unstructured.Unstructured {
	ExpectWithOffset(1, unstructured.SetNestedField(o.Object, value, path...)).To(Succeed())
	return o
}

func get(o *unstructured.Unstructured, path ...string) any {
	v, _, err := unstructured.NestedFieldNoCopy(o.Object, path...)
	ExpectWithOffset(1, err).NotTo(HaveOccurred())
	return v
}

// statementKind is what the tests need to know of one kind of statement.
type statementKind struct {
	kind   string
	policy string
	// by is who makes such a statement.
	by func(*stage) testenv.User
	// holder is where identity and claims are; identity is the field's name.
	holder   []string
	identity string
	// closed are the other objects inside the spec that have closed keys.
	closed []string
	// spec is a valid one without identity, and the name's part before the speaker, "" if any name is accepted.
	spec func() (fields, string)
	// change is a field and another valid value for it.
	change fields
}

func ref() fields { return fields{"name": unique("subject"), "uid": uuid.NewString()} }

var statementKinds = []statementKind{
	{
		kind: "Action", policy: "ctrlrun-actions", by: func(s *stage) testenv.User { return s.agent },
		holder: []string{"spec", "principal"}, identity: "agent",
		spec: func() (fields, string) {
			return fields{"actionType": "stripe.refund", "arguments": fields{"payment_id": "txn_1", "amount": int64(2000)}}, ""
		},
		change: fields{"actionType": "stripe.payout"},
	},
	{
		kind: "Approval", policy: "ctrlrun-approvals", by: func(s *stage) testenv.User { return s.approver },
		holder: []string{"spec"}, identity: "approver", closed: []string{"actionRef"},
		spec: func() (fields, string) {
			r := ref()
			return fields{
				"actionRef": r, "actionType": "stripe.refund", "actionHash": someHash, "decision": "Approved",
			}, r["name"].(string)
		},
		change: fields{"actionHash": otherHash},
	},
	{
		kind: "Claim", policy: "ctrlrun-claims", by: func(s *stage) testenv.User { return s.agent },
		holder: []string{"spec"}, identity: "claimant", closed: []string{"actionRef"},
		spec: func() (fields, string) {
			r := ref()
			return fields{"actionRef": r, "claimID": uuid.NewString(), "claimableTime": someTime}, r["name"].(string)
		},
		change: fields{"claimID": "11111111-1111-4111-8111-111111111111"},
	},
	{
		kind: "Outcome", policy: "ctrlrun-outcomes", by: func(s *stage) testenv.User { return s.agent },
		holder: []string{"spec"}, identity: "reporter", closed: []string{"actionRef"},
		spec: func() (fields, string) {
			r, claimID := ref(), uuid.NewString()
			return fields{"actionRef": r, "claimID": claimID, "result": "Unknown"}, r["uid"].(string) + "." + claimID
		},
		change: fields{"result": "NotExecuted"},
	},
	{
		kind: "Resolution", policy: "ctrlrun-resolutions", by: func(s *stage) testenv.User { return s.resolver },
		holder: []string{"spec"}, identity: "resolver", closed: []string{"effectRef", "receiptRef"},
		spec: func() (fields, string) {
			r := ref()
			return fields{
				"effectRef": r, "attempt": int64(3), "actionType": "stripe.refund", "result": "Committed", "reason": "seen",
				"receiptRef": fields{"name": "chain-000000000007", "hash": someHash},
			}, r["name"].(string) + ".3"
		},
		change: fields{"attempt": int64(4)},
	},
	{
		kind: "LedgerAcceptance", policy: "ctrlrun-ledgeracceptances", by: func(s *stage) testenv.User { return s.governor },
		holder: []string{"spec"}, identity: "acceptedBy",
		spec: func() (fields, string) {
			ledger := unique("payments")
			return fields{"ledger": ledger, "namespaceUID": uuid.NewString(), "seq": int64(7), "hash": someHash, "reason": "restored"}, ledger
		},
		change: fields{"seq": int64(8)},
	},
	{
		kind: "Delegation", policy: "ctrlrun-delegations", by: func(s *stage) testenv.User { return s.agent },
		holder: []string{"spec", "delegator"}, identity: "agent", closed: []string{"parentRef"},
		spec: func() (fields, string) {
			return fields{
				"parentRef": fields{"kind": "Grant", "name": unique("grant")}, "subject": fields{"agent": "system:serviceaccount:payments:helper"},
				"actions": []any{"stripe.refund"}, "reason": "over night",
			}, ""
		},
		change: fields{"reason": "by day"},
	},
	{
		kind: "Revocation", policy: "ctrlrun-revocations", by: func(s *stage) testenv.User { return s.revoker },
		holder: []string{"spec"}, identity: "revoker", closed: []string{"delegationRef"},
		spec: func() (fields, string) {
			r := ref()
			return fields{"delegationRef": r, "reason": "leaked"}, r["name"].(string)
		},
		change: fields{"reason": "lost"},
	},
}

// named says whether whoever makes such a statement chooses its name.
func (k statementKind) named() bool { return k.kind == "Action" || k.kind == "Delegation" }

func (k statementKind) namespaced() bool { return k.kind != "LedgerAcceptance" }

// valid returns a statement that admission accepts from the user, if RBAC does. Who made it is left for the apiserver to
// fill in.
func (k statementKind) valid(s *stage, u testenv.User) *unstructured.Unstructured {
	spec, subject := k.spec()
	name := subject + "." + action.Speaker(u.Name)
	if subject == "" {
		name = unique(strings.ToLower(k.kind))
	}
	namespace := s.namespace
	if !k.namespaced() {
		namespace = ""
	}
	return object(k.kind, namespace, name, spec)
}

// make creates a valid one.
func (k statementKind) make(ctx context.Context, s *stage) *unstructured.Unstructured {
	u := k.by(s)
	o := k.valid(s, u)
	ExpectWithOffset(1, env.Client(u).Create(ctx, o)).To(Succeed())
	return o
}

// meddler is the most powerful user who is not the operator.
func (k statementKind) meddler(s *stage) testenv.User {
	if k.namespaced() {
		return s.wildcard
	}
	return s.editor
}

// closedObjects are the paths of all objects that have a closed list of keys.
func (k statementKind) closedObjects() [][]string {
	paths := [][]string{{"spec"}, k.at("claims")}
	if len(k.holder) > 1 {
		paths = append(paths, k.holder)
	}
	for _, field := range k.closed {
		paths = append(paths, []string{"spec", field})
	}
	return paths
}

func (k statementKind) at(field string) []string {
	return append(append([]string{}, k.holder...), field)
}

// ofEveryStatement runs body once for each kind of statement, as a container of its own.
func ofEveryStatement(body func(k statementKind)) {
	for _, k := range statementKinds {
		Context("of kind "+k.kind, func() { body(k) })
	}
}

// deniedBy matches the refusal of an admission policy by its own binding, and a message that has all the texts. A refusal
// by RBAC or by the schema does not match.
func deniedBy(policy string, texts ...string) types.GomegaMatcher {
	return deniedByOneOf([]string{policy}, texts...)
}

// deniedByOneOf is for requests that break rules of several policies: the apiserver reports one of them.
func deniedByOneOf(policies []string, texts ...string) types.GomegaMatcher {
	return gcustom.MakeMatcher(func(err error) (bool, error) {
		message := denial(err, policies)
		if message == "" {
			return false, nil
		}
		for _, text := range texts {
			if !strings.Contains(message, text) {
				return false, nil
			}
		}
		return true, nil
	}).WithTemplate("Expected\n{{.FormattedActual}}\n{{.To}} be denied by {{.Data.Policies}}, saying {{.Data.Texts}}", struct{ Policies, Texts []string }{policies, texts})
}

func denial(err error, policies []string) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil {
		return ""
	}
	for _, cause := range status.Status().Details.Causes {
		for _, p := range policies {
			prefix := fmt.Sprintf("ValidatingAdmissionPolicy '%[1]s' with binding '%[1]s' denied request: ", p)
			if message, ok := strings.CutPrefix(cause.Message, prefix); ok {
				return message
			}
		}
	}
	return ""
}

// refusedBySchema matches a refusal by the CRD: its types, or its rules.
func refusedBySchema(text string) types.GomegaMatcher {
	return gcustom.MakeMatcher(func(err error) (bool, error) {
		return apierrors.IsInvalid(err) && !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") && strings.Contains(err.Error(), text), nil
	}).WithTemplate("Expected\n{{.FormattedActual}}\n{{.To}} be refused by the schema, saying {{.Data}}", text)
}

func mergePatch(ctx context.Context, c client.Client, o *unstructured.Unstructured, patch string) error {
	return c.Patch(ctx, o.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(patch)))
}

func jsonPatch(ctx context.Context, c client.Client, o *unstructured.Unstructured, patch string) error {
	return c.Patch(ctx, o.DeepCopy(), client.RawPatch("application/json-patch+json", []byte(patch)))
}

// apply is a server-side apply of exactly what is given.
func apply(ctx context.Context, c client.Client, manager string, o *unstructured.Unstructured) error {
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(manager), client.ForceOwnership)
}

// identityOnly is an object of the same identity and nothing else: the start of an apply.
func identityOnly(o *unstructured.Unstructured) *unstructured.Unstructured {
	return object(o.GetKind(), o.GetNamespace(), o.GetName(), nil)
}

func deleteForeground(ctx context.Context, c client.Client, o client.Object) error {
	return c.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationForeground))
}
