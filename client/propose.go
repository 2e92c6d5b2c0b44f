package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
)

// Proposal is what an agent wants to do.
type Proposal struct {
	// ActionType, such as "stripe.refund".
	ActionType string
	// Arguments of the action. Integers, no fractions: amounts go in minor units or as strings.
	Arguments map[string]any
	// Resource acted on, or empty. A resource template of the policy overrides it.
	Resource string
	// User on whose behalf, or empty. It needs the verb represent.
	User string
	// LeaseDuration is how long the execution may take; 0 is five minutes.
	LeaseDuration time.Duration
	// NotAfter: an action that is not admitted by then is Expired. The zero time sets no bound.
	NotAfter time.Time
	// Expires is the last moment of the credential this process acts by; what is not admitted by then is denied. The zero time says
	// nothing about it.
	Expires time.Time
	// Preconditions are parts of Kubernetes objects that have to be, when the effect is reserved, what they were when the action
	// began to wait. The agent and the operator need the right to get those objects.
	Preconditions []v1alpha1.Precondition
	// Name of the Action. Empty: it is called like its effect, if the policies can be read, or else like its type. When an Observer
	// lets Protect propose it once more, that one's name is this and ".2".
	Name string
	// Unclaimed proposes without saying that this process will execute. Whoever executes makes a Claim.
	Unclaimed bool
	// Observer of Protect looks whether an attempt happened of which nobody knows. It may be nil.
	Observer *Observer
	// Trace is the trace this is a part of, or nothing.
	Trace TraceContext
	// Progress is told about the stages of the call. It may be nil.
	Progress Progress
}

const (
	defaultLease = 300 * time.Second
	maxName      = 100
	// lastNumberedName is the last of NAME, NAME.2, NAME.3 that is tried before a random one.
	lastNumberedName = 9
	// createWindow bounds how long a create without a definite answer is repeated.
	createWindow = 30 * time.Second
)

// Call is one proposal and the process that made it, or that wants to execute it. It executes at most once, and is for one goroutine
// at a time.
type Call struct {
	client  *Client
	claimID string
	asked   time.Time // monotonic: before the create was sent by which this process asked for the lease
	claimed metav1.MicroTime
	action  *v1alpha1.Action
	// statement is the last Claim or Outcome of this call: it is followed while the Action is waited on.
	statement kube.Object
	said      report // what was reported, or would have been
	begun     bool   // it was given the permission to execute
	gaveUp    bool   // it was said, or tried to be, that this process will not execute

	// Progress is told about the stages of the call. It may be nil.
	Progress Progress
}

func (call *Call) tell(stage Stage, action *v1alpha1.Action) {
	if call.Progress != nil {
		call.Progress(stage, action)
	}
}

// Action as it was last seen.
func (call *Call) Action() *v1alpha1.Action { return call.action }

// ClaimID of this process for this call.
func (call *Call) ClaimID() string { return call.claimID }

// Propose creates the Action. It is safe against lost responses: an Action is made once, or the error says that it is not
// known to have been made.
func (c *Client) Propose(ctx context.Context, p Proposal) (*Call, error) {
	object, err := c.build(ctx, p)
	if err != nil {
		return nil, err
	}
	call := &Call{client: c, claimID: object.Spec.ClaimID, Progress: p.Progress}
	names := []string{p.Name}
	if p.Name == "" {
		names = c.names(ctx, p, object)
	}
	for _, name := range names {
		object.Name = name
		call.asked = time.Now()
		created, err := c.createAction(ctx, object)
		if err == nil {
			call.action = created
			call.tell(StageProposed, created)
			return call, nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return nil, refusal("propose "+p.ActionType, err)
		}
	}
	return nil, &NoNameError{Names: names}
}

// Attach takes up an existing Action, to claim or to report it. claimID is that of the process; empty makes a new one.
func (c *Client) Attach(ctx context.Context, name, claimID string) (*Call, error) {
	if claimID == "" {
		claimID = uuid.NewString()
	}
	call := &Call{client: c, claimID: claimID, asked: time.Now(), action: &v1alpha1.Action{}}
	err := c.kube.Get(ctx, types.NamespacedName{Namespace: c.namespace, Name: name}, call.action)
	if apierrors.IsNotFound(err) {
		return nil, &GoneError{Name: name}
	}
	return call, err
}

// Build is the Action a request becomes, without a name. Nothing is created.
func (c *Client) build(ctx context.Context, p Proposal) (*v1alpha1.Action, error) {
	arguments, err := CanonicalArguments(p.Arguments)
	if err != nil {
		return nil, err
	}
	user, err := c.Whoami(ctx)
	if err != nil {
		return nil, err
	}
	lease := p.LeaseDuration
	if lease == 0 {
		lease = defaultLease
	}
	object := &v1alpha1.Action{
		ObjectMeta: metav1.ObjectMeta{Namespace: c.namespace, Annotations: p.Trace.annotations()},
		Spec: v1alpha1.ActionSpec{
			ActionType:           p.ActionType,
			Arguments:            apiextensionsv1.JSON{Raw: arguments},
			Principal:            v1alpha1.Principal{Agent: user.Username},
			LeaseDurationSeconds: int64(lease / time.Second),
		},
	}
	if p.Resource != "" {
		object.Spec.Resource = &p.Resource
	}
	if p.User != "" {
		object.Spec.Principal.User = &p.User
	}
	if !p.Unclaimed {
		object.Spec.ClaimID = uuid.NewString()
	}
	if !p.NotAfter.IsZero() {
		object.Spec.NotAfter = &metav1.Time{Time: p.NotAfter}
	}
	if !p.Expires.IsZero() {
		object.Spec.Principal.ExpiresTime = &metav1.Time{Time: p.Expires}
	}
	object.Spec.Preconditions = p.Preconditions
	return object, nil
}

// CanonicalArguments are the bytes that are stored and hashed for Go values. A number that Kubernetes cannot store exactly
// is refused with its JSON pointer.
func CanonicalArguments(arguments map[string]any) ([]byte, error) {
	if arguments == nil {
		arguments = map[string]any{}
	}
	text, err := marshal(arguments)
	if err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	value, err := canonical.Parse(text)
	if err != nil {
		return nil, fmt.Errorf("arguments: %w", err)
	}
	if pointer, ok := action.CheckStored(value); !ok {
		return nil, fmt.Errorf("arguments: the number at %q does not fit 64 bits: Kubernetes cannot store it exactly, send it as a string", pointer)
	}
	return canonical.Encode(value)
}

// marshal is json.Marshal for values that may already be canonical; *big.Int writes itself as a number.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return b.Bytes(), err
}

// createAction repeats a create until it has a definite answer. "Exists already" is read back: an Action with this claimID
// is the one a lost response was about. The caller tries another name for anything else.
func (c *Client) createAction(ctx context.Context, object *v1alpha1.Action) (*v1alpha1.Action, error) {
	var created *v1alpha1.Action
	unanswered := false
	err := repeat(ctx, createWindow, transient, func(ctx context.Context) error {
		attempt := object.DeepCopy()
		err := c.kube.Create(ctx, attempt)
		if apierrors.IsAlreadyExists(err) {
			existing := &v1alpha1.Action{}
			if readErr := c.kube.Get(ctx, kube.ObjectKeyFromObject(object), existing); readErr != nil {
				if apierrors.IsNotFound(readErr) {
					return err
				}
				return readErr
			}
			if !ownProposal(object, existing, unanswered) {
				return err
			}
			attempt, err = existing, nil
		}
		unanswered = unanswered || err != nil && transient(err)
		created = attempt
		return err
	})
	if err != nil && unanswered {
		c.withdrawUnanswered(ctx, object)
	}
	return created, err
}

// ownProposal says whether existing is what this process created. A claimID is never shared. An Action without one has no
// executor yet, so taking up an equal one after a lost response executes nothing.
func ownProposal(object, existing *v1alpha1.Action, unanswered bool) bool {
	if object.Spec.ClaimID != "" || existing.Spec.ClaimID != "" {
		return object.Spec.ClaimID == existing.Spec.ClaimID
	}
	return unanswered && SameProposal(&object.Spec, &existing.Spec)
}

// SameProposal says whether two Actions of one namespace say the same: type, arguments, resource, and who acts for whom.
func SameProposal(a, b *v1alpha1.ActionSpec) bool {
	return a.ActionType == b.ActionType &&
		equalJSON(a.Arguments.Raw, b.Arguments.Raw) &&
		equalString(a.Resource, b.Resource) &&
		a.Principal.Agent == b.Principal.Agent &&
		equalString(a.Principal.User, b.Principal.User)
}

func equalJSON(a, b []byte) bool {
	x, errX := canonical.Parse(a)
	y, errY := canonical.Parse(b)
	return errX == nil && errY == nil && canonical.Equal(x, y)
}

func equalString(a, b *string) bool {
	return (a == nil) == (b == nil) && (a == nil || *a == *b)
}

// withdrawUnanswered cleans up after a create whose fate is unknown: if the Action is there after all, it is told that
// nobody will execute it.
func (c *Client) withdrawUnanswered(ctx context.Context, object *v1alpha1.Action) {
	if object.Spec.ClaimID == "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	existing := &v1alpha1.Action{}
	if err := c.kube.Get(ctx, kube.ObjectKeyFromObject(object), existing); err != nil || existing.Spec.ClaimID != object.Spec.ClaimID {
		return
	}
	call := &Call{client: c, claimID: object.Spec.ClaimID, action: existing}
	// The error has nowhere to go: the caller is told that the proposal failed, and an Action nobody starts expires.
	_ = call.send(ctx, report{result: v1alpha1.OutcomeNotExecuted, text: "the proposer gave up before it had an answer"})
}

// repeat runs f until its error is none that it is run again for, for at most window.
func repeat(ctx context.Context, window time.Duration, again func(error) bool, f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, window)
	defer cancel()
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 64, Cap: 5 * time.Second}
	for {
		err := f(ctx)
		if err == nil || ctx.Err() != nil || !again(err) {
			return err
		}
		timer := time.NewTimer(backoff.Step())
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
	}
}

// names are the names to try, in order. The random one at the end is made here and not by the apiserver's generateName: after
// a lost response the client must know which name to read back, or one process would hold two proposals.
func (c *Client) names(ctx context.Context, p Proposal, object *v1alpha1.Action) []string {
	suffix := strings.ReplaceAll(uuid.NewString(), "-", "")[:8]
	key, ok := c.effectKey(ctx, object)
	if !ok {
		return []string{typeName(p.ActionType) + "-" + suffix}
	}
	base := action.EffectName(key)
	names := []string{base}
	for i := 2; i <= lastNumberedName; i++ {
		names = append(names, fmt.Sprintf("%s.%d", base, i))
	}
	return append(names, base+"-"+suffix)
}

// typeName makes an object name of an action type.
func typeName(actionType string) string {
	name := action.Speaker(actionType)
	if room := maxName - len("-") - 8; len(name) > room {
		name = strings.TrimRight(name[:room], "-")
	}
	return name
}
