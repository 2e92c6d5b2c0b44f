package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/records"
)

const (
	// applyLease is how long the operator may take to write what was approved, where Settings allow that long.
	applyLease = time.Hour
	// applyTimeout is how long it waits for the answer to that write. Then it finds out by reading.
	applyTimeout = 30 * time.Second
	// proposalRetry is how soon it looks again where nothing it watches tells it to.
	proposalRetry = 15 * time.Second
)

// proposalReconciler puts each revision of a PolicyProposal to people, as an Action that it proposes itself, and is the process
// that executes it: it writes the target. It keeps the order of any agent: asked, approved, claimed, admitted, written, reported.
//
// What it does next follows from the proposal, its Action and its target, read from the apiserver in each pass; and from its own
// status, which is written before what it announces: the question before the Action, Applying before the target. So a process that
// dies at any point leaves what the next one needs, and two at once meet in the version of the status, of the target, or in the
// name of the Outcome.
type proposalReconciler struct {
	client   client.Client
	reader   client.Reader
	clock    Clock
	worlds   *worlds
	identity string
	crash    func(point string)

	mu   sync.Mutex
	seen map[types.NamespacedName]seenProposal
}

func newProposalReconciler(mgr ctrl.Manager, clock Clock, w *worlds, identity string, crash func(string)) *proposalReconciler {
	return &proposalReconciler{
		client: mgr.GetClient(), reader: mgr.GetAPIReader(), clock: clock, worlds: w, identity: identity, crash: crash,
		seen: map[types.NamespacedName]seenProposal{},
	}
}

var _ reconcile.Reconciler = &proposalReconciler{}

// Reconcile implements reconcile.Reconciler.
func (r *proposalReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var after ctrl.Result
	result, err := r.worlds.stated(ctx, request.Namespace, func(world flow.World, _ *openChain) error {
		o := &v1alpha1.PolicyProposal{}
		err := r.reader.Get(ctx, request.NamespacedName, o)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read proposal: %w", err)
		}
		if err != nil || o.DeletionTimestamp != nil {
			r.forget(request.NamespacedName)
			return r.closeAll(ctx, request.NamespacedName, "")
		}
		if err := r.closeAll(ctx, request.NamespacedName, o.UID); err != nil {
			return err
		}
		p := &proposalPass{proposalReconciler: r, world: world, o: o, next: o.DeepCopy(), base: r.baseline(o, world.AdmissionSince)}
		after, err = p.run(ctx)
		return err
	})
	if result.RequeueAfter == 0 {
		result = after
	}
	return result, err
}

// proposalPass is one look at one proposal.
type proposalPass struct {
	*proposalReconciler
	world  flow.World
	o      *v1alpha1.PolicyProposal // as the apiserver has it
	next   *v1alpha1.PolicyProposal // with the status that is to be
	base   int64                    // the generation that was there when statements began to count
	target *unstructured.Unstructured
	now    policy.Target
	to     string // the hash of what is proposed; "": that it goes
}

func (p *proposalPass) run(ctx context.Context) (ctrl.Result, error) {
	s := &p.next.Status
	if q := s.Question; q != nil && q.Generation != p.o.Generation {
		// People were asked about an earlier revision. That question is over before the next is asked.
		a, err := p.question(ctx, q)
		if err != nil {
			return ctrl.Result{}, err
		}
		if a != nil && !over(a) {
			return ctrl.Result{}, p.close(ctx, a, s.State == v1alpha1.ProposalApplying, "the proposal was edited since")
		}
	}
	if s.ObservedGeneration != p.o.Generation {
		s.ObservedGeneration, s.Question, s.ActionRef, s.ReceiptRef, s.State = p.o.Generation, nil, nil, nil, ""
	}
	if err := p.readTarget(ctx); err != nil {
		return ctrl.Result{}, err
	}
	if result, done, err := p.content(ctx); done || err != nil {
		return result, err
	}
	if q := s.Question; q != nil && s.State != v1alpha1.ProposalApplied && s.State != v1alpha1.ProposalReplaced && s.State != v1alpha1.ProposalRefused {
		return p.asked(ctx, q)
	}
	return p.settled(ctx)
}

// vouched reports whether the apiserver's policies vouched for who wrote this revision: the object was made since they are in force, or
// this process has seen an earlier generation of it since. What a status says of it proves nothing, for a gap in admission is one for
// statuses too. After a restart a revision that nobody was asked about yet has to be edited again, if the object is older.
func (p *proposalPass) vouched() bool {
	return p.o.Spec.Proposer != "" && (p.o.CreationTimestamp.After(p.world.AdmissionSince) || p.o.Generation > p.base)
}

// baseline is the generation of a proposal that was first seen while statements count from that time on.
func (r *proposalReconciler) baseline(o *v1alpha1.PolicyProposal, since time.Time) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(o)
	seen, ok := r.seen[key]
	if !ok || seen.uid != o.UID || !seen.since.Equal(since) {
		seen = seenProposal{uid: o.UID, since: since, generation: o.Generation}
		r.seen[key] = seen
	}
	return seen.generation
}

// forget drops what was noted of a proposal that is gone.
func (r *proposalReconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.seen, key)
}

// seenProposal is the generation that was there when statements began to count.
type seenProposal struct {
	uid        types.UID
	since      time.Time
	generation int64
}

// readTarget reads it from the apiserver: what people are asked rests on it.
func (p *proposalPass) readTarget(ctx context.Context) (err error) {
	p.target, p.now, err = p.readTargetOf(ctx, p.o.Namespace, string(p.o.Spec.TargetRef.Kind), p.o.Spec.TargetRef.Name)
	return err
}

func (r *proposalReconciler) readTargetOf(ctx context.Context, namespace, kind, name string) (*unstructured.Unstructured, policy.Target, error) {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	err := r.reader.Get(ctx, types.NamespacedName{Namespace: namespace, Name: name}, o)
	if apierrors.IsNotFound(err) {
		return nil, policy.Target{}, nil
	}
	if err != nil {
		return nil, policy.Target{}, fmt.Errorf("read %s %s: %w", kind, name, err)
	}
	t, err := records.Target(o)
	return o, t, err
}

// content answers for what nobody need be asked about: it is so already, or it cannot be.
func (p *proposalPass) content(ctx context.Context) (ctrl.Result, bool, error) {
	if p.o.Spec.Delete {
		return ctrl.Result{}, false, nil
	}
	kind, content := p.o.Spec.TargetRef.Kind, records.Proposed(p.o)
	var err error
	if problems := records.ContentProblems(kind, p.o.Spec.TargetRef.Name, content); len(problems) > 0 {
		err = fmt.Errorf("%s", strings.Join(problems, "; "))
	} else {
		p.to, err = records.ContentHash(kind, content)
	}
	if err != nil {
		result, err := p.refuse(ctx, "ContentInvalid", "Nobody is asked, for what is proposed is invalid. Correct it: "+err.Error())
		return result, true, err
	}
	return ctrl.Result{}, false, nil
}

// settled looks at a revision about which no question is open.
func (p *proposalPass) settled(ctx context.Context) (ctrl.Result, error) {
	s := &p.next.Status
	change := policy.Change{To: p.to}
	switch {
	case change.Made(p.now):
		if s.State != v1alpha1.ProposalApplied {
			s.AppliedHash = p.to
		}
		message := "The target is as proposed."
		if s.ReceiptRef != nil {
			message = fmt.Sprintf("It was approved and applied. Receipt %d proves it.", s.ReceiptRef.Seq)
		}
		return p.conclude(ctx, v1alpha1.ProposalApplied, true, false, "Applied", message)
	case s.State == v1alpha1.ProposalApplied, s.State == v1alpha1.ProposalReplaced:
		return p.conclude(ctx, v1alpha1.ProposalReplaced, false, true, "TargetReplaced", "It was as proposed, and somebody with the verb govern, or another PolicyProposal, made it another since. Edit this proposal to propose it again, or delete it.")
	case s.State == v1alpha1.ProposalRefused && s.Question != nil:
		return ctrl.Result{}, p.write(ctx) // as it was; an edit asks again
	}
	if p.target != nil && p.target.GetDeletionTimestamp() != nil {
		return p.pending(ctx, false, "TargetTerminating", "The target is being deleted. People are asked when it is gone.")
	}
	if result, done, err := p.rehearse(ctx); done || err != nil {
		return result, err
	}
	return p.ask(ctx, 1)
}

// rehearse asks the apiserver whether it would take the change, before people are asked about it.
func (p *proposalPass) rehearse(ctx context.Context) (ctrl.Result, bool, error) {
	err := p.send(ctx, metav1.DryRunAll)
	switch {
	case err == nil:
		return ctrl.Result{}, false, nil
	case refusedContent(err):
		result, err := p.refuse(ctx, "ContentRefused", "Nobody is asked, for the apiserver would refuse what is proposed. Correct it: "+err.Error())
		return result, true, err
	case apierrors.IsForbidden(err):
		result, err := p.pending(ctx, true, "OperatorForbidden", "Nobody is asked, for the operator may not write it. Let a cluster-admin bind the ClusterRole ctrlrun-operator-proposals to the operator's ServiceAccount in this namespace, or see what refuses it: "+err.Error())
		return result, true, err
	}
	return ctrl.Result{}, true, err
}

// refusedContent reports whether the apiserver said that it does not take this content, ever.
func refusedContent(err error) bool {
	return errors.Is(err, errOtherContent) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// errOtherContent: something between us and the store changes it, so that what people approve is not what there is.
var errOtherContent = errors.New("what the apiserver stores is not what is proposed; does an admission webhook change it?")

// send writes the target, for exactly the version that was read.
func (p *proposalPass) send(ctx context.Context, dryRun ...string) error {
	if p.o.Spec.Delete {
		if p.target == nil {
			return nil
		}
		uid, version := p.target.GetUID(), p.target.GetResourceVersion()
		return p.client.Delete(ctx, p.target.DeepCopy(), &client.DeleteOptions{
			DryRun: dryRun, Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version},
		})
	}
	var spec map[string]any
	if err := utiljson.Unmarshal(records.Proposed(p.o), &spec); err != nil { // which keeps integers
		return err
	}
	next := p.target.DeepCopy()
	if next == nil {
		next = &unstructured.Unstructured{Object: map[string]any{}}
		next.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(string(p.o.Spec.TargetRef.Kind)))
		next.SetNamespace(p.o.Namespace)
		next.SetName(p.o.Spec.TargetRef.Name)
	}
	next.Object["spec"] = spec
	var err error
	if p.target == nil {
		err = p.client.Create(ctx, next, &client.CreateOptions{DryRun: dryRun})
	} else {
		err = p.client.Update(ctx, next, &client.UpdateOptions{DryRun: dryRun})
	}
	if err != nil {
		return err
	}
	stored, err := records.Target(next)
	if err == nil && stored.Hash != p.to {
		return errOtherContent
	}
	return err
}

const unvouched = "Nobody is asked, for this revision may have been written while the admission policies were not in force, or before the operator was started, so nobody can say who wrote it. Edit it (its reason, for instance) to propose it again."

// ask begins a round: the question goes into the status, then the Action is made by the name that stands there.
func (p *proposalPass) ask(ctx context.Context, round int64) (ctrl.Result, error) {
	if !p.vouched() {
		return p.refuse(ctx, "MadeWithoutAdmission", unvouched)
	}
	q := &v1alpha1.ProposalQuestion{
		Generation: p.o.Generation, Round: round, Action: records.QuestionName(p.o.Name, p.o.UID, p.o.Generation, round),
		From: p.now.Hash, To: p.to, TargetUID: types.UID(p.now.UID), TargetGeneration: p.now.Generation,
	}
	if reason, message := flow.Unaskable(p.world, p.proposed(records.Change(p.o, q))); reason != "" {
		return p.pending(ctx, true, reason.Condition(), message)
	}
	s := &p.next.Status
	s.Question, s.ActionRef, s.ReceiptRef = q, nil, nil
	p.say(v1alpha1.ProposalAsking, false, false, "AwaitingApproval", asksMessage(q))
	p.crash("before question")
	if err := p.write(ctx); err != nil {
		return ctrl.Result{}, err
	}
	p.crash("after question")
	return p.asked(ctx, q)
}

func asksMessage(q *v1alpha1.ProposalQuestion) string {
	return "People are asked whether to apply it. See kubectl ctrlrun approve " + q.Action + "."
}

// proposed is a change as policies decide about it.
func (p *proposalPass) proposed(change policy.Change) action.Proposal {
	resource := change.Resource()
	return action.Proposal{
		Name: policy.ChangeAction, Arguments: change.Arguments(), Resource: &resource, Environment: p.world.Environment,
		Principal: action.Principal{Agent: p.identity, User: &p.o.Spec.Proposer},
	}
}

// claimID of the operator for a question. It is the same for every process of the operator, so that one goes on where another died.
func claimID(o *v1alpha1.PolicyProposal, q *v1alpha1.ProposalQuestion) string {
	return uuid.NewSHA1(uuid.NameSpaceURL, fmt.Appendf(nil, "ctrlrun.dev/policyproposal/%s/%d/%d", o.UID, q.Generation, q.Round)).String()
}

// question reads the Action of a question from the apiserver; nil: there is none of it.
func (p *proposalPass) question(ctx context.Context, q *v1alpha1.ProposalQuestion) (*v1alpha1.Action, error) {
	a := &v1alpha1.Action{}
	if err := p.reader.Get(ctx, types.NamespacedName{Namespace: p.o.Namespace, Name: q.Action}, a); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("read the question: %w", err)
	}
	if a.Spec.Principal.Agent != p.identity || a.Spec.ClaimID != claimID(p.o, q) {
		return nil, nil
	}
	return a, nil
}

// present is the Action of the question about the proposal as it is. One that asks about other hashes is of an earlier round whose
// number was forgotten: its answer is to something else.
func (p *proposalPass) present(ctx context.Context, q *v1alpha1.ProposalQuestion) (*v1alpha1.Action, error) {
	a, err := p.question(ctx, q)
	if a == nil || err != nil {
		return nil, err
	}
	if change, err := policy.ReadChange(a.Spec.Arguments.Raw); err != nil || change != records.Change(p.o, q) {
		return nil, nil
	}
	return a, nil
}

// asked goes on with an open question.
func (p *proposalPass) asked(ctx context.Context, q *v1alpha1.ProposalQuestion) (ctrl.Result, error) {
	a, err := p.present(ctx, q)
	if err != nil {
		return ctrl.Result{}, err
	}
	s := &p.next.Status
	if a == nil || (s.ActionRef != nil && s.ActionRef.UID != a.UID) {
		if s.ActionRef != nil {
			return p.gone(ctx, q)
		}
		return p.propose(ctx, q)
	}
	s.ActionRef = &v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}
	change := records.Change(p.o, q)
	if over(a) {
		return p.answered(ctx, q, a)
	}
	switch {
	case a.Status.Execution == nil && flow.State(a.Status.State).Terminal():
		return ctrl.Result{}, p.write(ctx) // its receipt comes
	case a.Status.Execution != nil:
		return p.apply(ctx, q, a)
	case !change.Stands(p.now):
		// The answer would be about something that is not there any more.
		return ctrl.Result{}, p.close(ctx, a, false, "the target changed since people were asked")
	case a.Status.State == v1alpha1.ActionClaimable:
		if err := p.claim(ctx, a); err != nil {
			return ctrl.Result{}, err
		}
		return p.conclude(ctx, v1alpha1.ProposalAsking, false, false, "Approved", "It was approved, and is about to be applied.")
	}
	message := asksMessage(q)
	if a.Status.Message != "" {
		message = a.Status.Message + " " + message
	}
	return p.conclude(ctx, v1alpha1.ProposalAsking, false, false, "AwaitingApproval", message)
}

// over reports whether an Action is finished, its receipt included.
func over(a *v1alpha1.Action) bool { return a.Status.ReceiptRef != nil }

// propose makes the Action that the status announces.
func (p *proposalPass) propose(ctx context.Context, q *v1alpha1.ProposalQuestion) (ctrl.Result, error) {
	if !p.vouched() {
		return p.refuse(ctx, "MadeWithoutAdmission", unvouched)
	}
	change := records.Change(p.o, q)
	arguments, err := json.Marshal(change.Arguments())
	if err != nil {
		return ctrl.Result{}, err
	}
	resource := change.Resource()
	a := &v1alpha1.Action{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.o.Namespace, Name: q.Action},
		Spec: v1alpha1.ActionSpec{
			ActionType: policy.ChangeAction, Resource: &resource, Principal: v1alpha1.Principal{Agent: p.identity, User: &p.o.Spec.Proposer},
			ClaimID: claimID(p.o, q), LeaseDurationSeconds: int64(min(applyLease, p.world.Limits.MaxLease) / time.Second),
		},
	}
	a.Spec.Arguments.Raw = arguments
	p.crash("before propose")
	err = p.client.Create(ctx, a)
	p.crash("after propose")
	switch {
	case apierrors.IsAlreadyExists(err):
		if ours, err := p.present(ctx, q); err != nil || ours != nil {
			return ctrl.Result{RequeueAfter: time.Millisecond}, err // the answer to an earlier create was lost
		}
		return p.ask(ctx, q.Round+1) // somebody else's has this name
	case apierrors.IsForbidden(err):
		return p.conclude(ctx, v1alpha1.ProposalAsking, false, true, "OperatorForbidden", "Nobody is asked, for the operator may not propose the Action. Let a cluster-admin bind the ClusterRole ctrlrun-operator-proposals to the operator's ServiceAccount in this namespace, or see what refuses it: "+err.Error(), proposalRetry)
	case err != nil:
		return ctrl.Result{}, fmt.Errorf("propose: %w", err)
	}
	p.next.Status.ActionRef = &v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}
	return ctrl.Result{}, p.write(ctx)
}

// gone answers where the Action went before anybody read how it ended: it was finished, or it could not have been deleted.
func (p *proposalPass) gone(ctx context.Context, q *v1alpha1.ProposalQuestion) (ctrl.Result, error) {
	p.next.Status.State = v1alpha1.ProposalRefused
	if records.Change(p.o, q).Made(p.now) {
		return p.settled(ctx)
	}
	return p.refuse(ctx, "QuestionGone", "Its Action ended and was deleted before it was read how it ended; the receipts of the namespace say it. Edit the proposal to ask again.")
}

// answered concludes from an Action that is over.
func (p *proposalPass) answered(ctx context.Context, q *v1alpha1.ProposalQuestion, a *v1alpha1.Action) (ctrl.Result, error) {
	s, change := &p.next.Status, records.Change(p.o, q)
	s.ReceiptRef = a.Status.ReceiptRef
	again := a.Status.State == v1alpha1.ActionFailed && !change.Stands(p.now) ||
		a.Status.State == v1alpha1.ActionBlocked && a.Status.Reason == string(decision.Withdrawn)
	switch {
	case a.Status.State == v1alpha1.ActionCommitted:
		s.State, s.AppliedHash = v1alpha1.ProposalApplied, q.To
		return p.settled(ctx)
	case (policy.Change{To: p.to}).Made(p.now):
		return p.settled(ctx)
	case again:
		// Nothing was written, and the target is not what people were asked about: they are asked about what it is now.
		if p.target != nil && p.target.GetDeletionTimestamp() != nil {
			return p.pending(ctx, false, "TargetTerminating", "The target is being deleted. People are asked when it is gone.")
		}
		if result, done, err := p.rehearse(ctx); done || err != nil {
			return result, err
		}
		return p.ask(ctx, q.Round+1)
	}
	message := fmt.Sprintf("Not applied: its Action ended %s. %s Edit the proposal to ask again.", a.Status.State, a.Status.Message)
	if p.o.Status.State == v1alpha1.ProposalWithdrawing {
		message = readyMessage(p.o) + " Edit the proposal to ask again."
	}
	if a.Status.State == v1alpha1.ActionAmbiguous {
		message = fmt.Sprintf("Nobody knows whether it was applied: its Action ended Ambiguous. %s Look at the target, say what is true by kubectl ctrlrun resolve, and edit the proposal to ask again.", a.Status.Message)
	}
	reason := decision.Reason(a.Status.Reason).Condition()
	if reason == "" {
		reason = string(a.Status.State)
	}
	return p.refuse(ctx, reason, message)
}

// claim says that the operator is there to write.
func (p *proposalPass) claim(ctx context.Context, a *v1alpha1.Action) error {
	base := a.Name + "." + action.Speaker(p.identity)
	for n := 1; n < 100; n++ {
		name := base
		if n > 1 {
			name = fmt.Sprintf("%s.%d", base, n)
		}
		c := &v1alpha1.Claim{
			ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: name},
			Spec: v1alpha1.ClaimSpec{
				ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: a.Spec.ClaimID,
				ClaimableTime: *a.Status.ClaimableTime, Claimant: p.identity,
			},
		}
		p.crash("before claim")
		err := p.client.Create(ctx, c)
		p.crash("after claim")
		if !apierrors.IsAlreadyExists(err) {
			if err != nil {
				return fmt.Errorf("claim: %w", err)
			}
			return nil
		}
		have := &v1alpha1.Claim{}
		if err := p.reader.Get(ctx, client.ObjectKeyFromObject(c), have); err != nil {
			return fmt.Errorf("read claim: %w", err)
		}
		if have.Spec.ClaimID == c.Spec.ClaimID && have.Spec.ClaimableTime.Equal(&c.Spec.ClaimableTime) && have.Spec.ActionRef.UID == a.UID {
			return nil
		}
	}
	return fmt.Errorf("claim: every name of the operator's is taken")
}

// apply writes what was approved, and reports. Nothing is written before the status says that it may have been.
func (p *proposalPass) apply(ctx context.Context, q *v1alpha1.ProposalQuestion, a *v1alpha1.Action) (ctrl.Result, error) {
	if a.Status.Execution.ClaimID != a.Spec.ClaimID || a.Status.State != v1alpha1.ActionAdmitted {
		return ctrl.Result{}, p.write(ctx) // it is over; its receipt comes
	}
	reported, err := p.reported(ctx, a)
	if err != nil || reported {
		return ctrl.Result{}, err
	}
	change := records.Change(p.o, q)
	if !a.CreationTimestamp.After(p.world.AdmissionSince) {
		// In the gap since, anybody could have made this Action and what its status and ours say.
		return ctrl.Result{}, p.close(ctx, a, p.o.Status.State == v1alpha1.ProposalApplying, "the admission policies were not in force since people were asked")
	}
	if p.o.Status.State == v1alpha1.ProposalWithdrawing {
		return ctrl.Result{}, p.abstain(ctx, a, readyMessage(p.o))
	}
	begun := p.o.Status.State == v1alpha1.ProposalApplying
	switch change.Next(p.now, begun) {
	case policy.ChangeMade:
		return ctrl.Result{}, p.report(ctx, a, v1alpha1.OutcomeCommitted, "")
	case policy.ChangeStale:
		return ctrl.Result{}, p.abstain(ctx, a, "Nothing was written: the target changed since people were asked.")
	case policy.ChangeUnknown:
		return ctrl.Result{}, p.report(ctx, a, v1alpha1.OutcomeUnknown, "the target is neither what it was nor what was approved: somebody changed it while it was being applied")
	}
	if change.To != p.to && !begun {
		// The kernel's hash of what is stored is that of this very revision, or this is not what people approved.
		return ctrl.Result{}, p.abstain(ctx, a, "Nothing was written: the proposal is not what was approved.")
	}
	if p.target != nil && p.target.GetDeletionTimestamp() != nil {
		if begun {
			return ctrl.Result{RequeueAfter: time.Second}, nil
		}
		return ctrl.Result{}, p.abstain(ctx, a, "Nothing was written: the target is being deleted.")
	}
	if !begun {
		if err := p.send(ctx, metav1.DryRunAll); err != nil {
			if refusedContent(err) || apierrors.IsForbidden(err) {
				return ctrl.Result{}, p.abstain(ctx, a, "Nothing was written, for the apiserver refuses it: "+err.Error())
			}
			return ctrl.Result{}, err
		}
		p.say(v1alpha1.ProposalApplying, false, false, "Applying", "It was approved, and is being applied.")
		p.crash("before applying")
		if err := p.write(ctx); err != nil {
			return ctrl.Result{}, err
		}
		p.crash("after applying")
	}
	bounded, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	p.crash("before apply")
	err = p.send(bounded)
	p.crash("after apply")
	switch {
	case err == nil:
		return ctrl.Result{}, p.report(ctx, a, v1alpha1.OutcomeCommitted, "")
	case errors.Is(err, errOtherContent):
		return ctrl.Result{}, p.report(ctx, a, v1alpha1.OutcomeUnknown, "it was written, and "+err.Error())
	case apierrors.IsConflict(err), apierrors.IsNotFound(err), apierrors.IsAlreadyExists(err):
		return ctrl.Result{RequeueAfter: time.Millisecond}, nil // another version; look what it is
	case refusedContent(err), apierrors.IsForbidden(err):
		if begun {
			// An earlier write of it may still be under way.
			return ctrl.Result{}, p.report(ctx, a, v1alpha1.OutcomeUnknown, "the apiserver refuses it, and an earlier write of it was not answered: "+err.Error())
		}
		return ctrl.Result{}, p.report(ctx, a, v1alpha1.OutcomeNotExecuted, "the apiserver refuses it: "+err.Error())
	}
	return ctrl.Result{}, fmt.Errorf("apply: %w", err) // not answered: the next pass reads what is there
}

// abstain reports that nothing was written. That it will not be is put into the status before: another process that began would
// have had to write there, and none can from then on.
func (p *proposalPass) abstain(ctx context.Context, a *v1alpha1.Action, why string) error {
	p.say(v1alpha1.ProposalWithdrawing, false, false, "Withdrawing", why)
	if err := p.write(ctx); err != nil {
		return err
	}
	return p.report(ctx, a, v1alpha1.OutcomeNotExecuted, why)
}

func readyMessage(o *v1alpha1.PolicyProposal) string {
	if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ReadyCondition); c != nil {
		return c.Message
	}
	return ""
}

// reported tells whether the attempt has its report already, by this process or another.
func (r *proposalReconciler) reported(ctx context.Context, a *v1alpha1.Action) (bool, error) {
	err := r.reader.Get(ctx, types.NamespacedName{Namespace: a.Namespace, Name: flow.LockName(string(a.UID), a.Spec.ClaimID, r.identity)}, &v1alpha1.Outcome{})
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("read the report: %w", err)
	}
	return err == nil, nil
}

// report says how the attempt ended, or before an admission that it will not be made. The name is a lock: the first report counts.
func (r *proposalReconciler) report(ctx context.Context, a *v1alpha1.Action, result v1alpha1.OutcomeResult, text string) error {
	o := &v1alpha1.Outcome{
		ObjectMeta: metav1.ObjectMeta{Namespace: a.Namespace, Name: flow.LockName(string(a.UID), a.Spec.ClaimID, r.identity)},
		Spec: v1alpha1.OutcomeSpec{
			ActionRef: v1alpha1.ObjectReference{Name: a.Name, UID: a.UID}, ClaimID: a.Spec.ClaimID,
			Result: result, Error: records.Clip(text, 1024), Reporter: r.identity,
		},
	}
	r.crash("before report")
	err := r.client.Create(ctx, o)
	r.crash("after report")
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

// close ends a question that is not to be answered any more. What was admitted is settled by what the target is.
func (r *proposalReconciler) close(ctx context.Context, a *v1alpha1.Action, begun bool, why string) error {
	if a.Status.Execution == nil {
		return r.report(ctx, a, v1alpha1.OutcomeNotExecuted, why)
	}
	if a.Status.State != v1alpha1.ActionAdmitted {
		return nil // it is over; its receipt comes
	}
	if !begun {
		return r.report(ctx, a, v1alpha1.OutcomeNotExecuted, why+"; nothing was written")
	}
	change, err := policy.ReadChange(a.Spec.Arguments.Raw)
	if err != nil {
		return err
	}
	_, now, err := r.readTargetOf(ctx, a.Namespace, change.Kind, change.Name)
	if err != nil {
		return err
	}
	if change.Made(now) {
		return r.report(ctx, a, v1alpha1.OutcomeCommitted, "")
	}
	return r.report(ctx, a, v1alpha1.OutcomeUnknown, why+" while it was being applied")
}

// closeAll ends the open questions of a proposal that is gone, or of a former one of that name.
func (r *proposalReconciler) closeAll(ctx context.Context, key types.NamespacedName, except types.UID) error {
	list := &v1alpha1.ActionList{}
	if err := r.client.List(ctx, list, client.InNamespace(key.Namespace), client.UnsafeDisableDeepCopy); err != nil { // read, never written
		return fmt.Errorf("read actions: %w", err)
	}
	for i := range list.Items {
		a := &list.Items[i]
		name, change := proposalOf(a)
		if name != key.Name || a.Spec.Principal.Agent != r.identity || types.UID(change.ProposalUID) == except || over(a) {
			continue
		}
		fresh := &v1alpha1.Action{}
		err := r.reader.Get(ctx, client.ObjectKeyFromObject(a), fresh)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("read the question: %w", err)
		}
		if err != nil || fresh.UID != a.UID || flow.State(fresh.Status.State).Terminal() {
			continue
		}
		if reported, err := r.reported(ctx, fresh); err != nil {
			return err
		} else if reported {
			continue
		}
		// Whether anything was written is in the status that is gone.
		if err := r.close(ctx, fresh, true, "the proposal was deleted"); err != nil {
			return err
		}
	}
	return nil
}

// proposalOf is the proposal that an Action asks about; "": none.
func proposalOf(a *v1alpha1.Action) (string, policy.Change) {
	if a.Spec.ActionType != policy.ChangeAction {
		return "", policy.Change{}
	}
	change, err := policy.ReadChange(a.Spec.Arguments.Raw)
	if err != nil {
		return "", policy.Change{}
	}
	return change.Proposal, change
}

// say sets the whole status but what it refers to.
func (p *proposalPass) say(state v1alpha1.ProposalState, ready, stalled bool, reason, message string) {
	s := &p.next.Status
	s.State = state
	records.SetCondition(&s.Conditions, p.o.Generation, p.clock.Now(), v1alpha1.ReadyCondition, ready, reason, message)
	records.SetCondition(&s.Conditions, p.o.Generation, p.clock.Now(), v1alpha1.StalledCondition, stalled, reason, message)
}

func (p *proposalPass) conclude(ctx context.Context, state v1alpha1.ProposalState, ready, stalled bool, reason, message string, again ...time.Duration) (ctrl.Result, error) {
	p.say(state, ready, stalled, reason, message)
	var result ctrl.Result
	for _, d := range again {
		result.RequeueAfter = d
	}
	return result, p.write(ctx)
}

// refuse: only an edit helps.
func (p *proposalPass) refuse(ctx context.Context, reason, message string) (ctrl.Result, error) {
	return p.conclude(ctx, v1alpha1.ProposalRefused, false, true, reason, message)
}

// pending: nobody was asked yet, and people are asked when what keeps it is gone.
func (p *proposalPass) pending(ctx context.Context, stalled bool, reason, message string) (ctrl.Result, error) {
	p.next.Status.Question, p.next.Status.ActionRef = nil, nil
	return p.conclude(ctx, v1alpha1.ProposalPending, false, stalled, reason, message, proposalRetry)
}

// write writes the status if it is another one. Somebody who was faster is met in the version.
func (p *proposalPass) write(ctx context.Context) error {
	if equalStatus(p.o.Status, p.next.Status) {
		return nil
	}
	if err := p.client.Status().Update(ctx, p.next); err != nil {
		return err
	}
	p.o = p.next.DeepCopy()
	return nil
}

func (r *proposalReconciler) setup(mgr ctrl.Manager, options controller.Options, all <-chan event.GenericEvent) error {
	ofNamespace := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		namespace := o.GetNamespace()
		if namespace == "" {
			namespace = o.GetName() // a Namespace, or its Ledger
		}
		list := &v1alpha1.PolicyProposalList{}
		if err := r.client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil { // read, never written
			ctrl.LoggerFrom(ctx).Error(err, "Cannot list proposals")
			return nil
		}
		requests := make([]reconcile.Request, 0, len(list.Items))
		for i := range list.Items {
			requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
		}
		return requests
	})
	edits := builder.WithPredicates(predicate.GenerationChangedPredicate{})
	return ctrl.NewControllerManagedBy(mgr).Named("policyproposal").
		For(&v1alpha1.PolicyProposal{}, edits).
		Watches(&v1alpha1.Action{}, handler.EnqueueRequestsFromMapFunc(func(_ context.Context, o client.Object) []reconcile.Request {
			name, _ := proposalOf(o.(*v1alpha1.Action))
			if name == "" {
				return nil
			}
			return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
		})).
		// The target of one, or what says who is asked.
		Watches(&v1alpha1.ActionPolicy{}, ofNamespace, edits).
		Watches(&v1alpha1.Grant{}, ofNamespace, edits).
		Watches(&v1alpha1.Settings{}, ofNamespace, edits).
		Watches(&v1alpha1.Ledger{}, ofNamespace, builder.WithPredicates(ledgerTurns)).
		WatchesRawSource(source.Channel(all, ofNamespace)).
		WithOptions(options).
		Complete(r)
}
