package client

import (
	"bytes"
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
)

// report is how an execution ended.
type report struct {
	result   v1alpha1.OutcomeResult
	output   []byte
	text     string
	returned error // by the function
}

// ResultOf is what the error of a Function is reported as. Only nil and a stated NotExecuted are certain.
func ResultOf(err error) v1alpha1.OutcomeResult {
	switch {
	case err == nil:
		return v1alpha1.OutcomeCommitted
	case IsNotExecuted(err):
		return v1alpha1.OutcomeNotExecuted
	}
	return v1alpha1.OutcomeUnknown
}

func judge(err error) report {
	said := report{result: ResultOf(err), returned: err}
	if err != nil {
		said.text = err.Error()
	}
	return said
}

const (
	// reportWindow bounds how long a report is repeated. An attempt without a report becomes Ambiguous when its lease is
	// over, so it is worth to be patient with an apiserver that restarts.
	reportWindow = 2 * time.Minute
	// refusedWindow is how long a report is repeated that the apiserver knows no right to.
	refusedWindow = 10 * time.Second
	maxOutput     = 16 << 10
	maxError      = 1024
)

// Report says how an execution that was claimed ended, by what a Function returns: a nil error is Committed, one that says so (see
// NotExecuted) is that for certain nothing happened, and every other error is that nobody knows. output is kept with it, if it can be.
//
// It uses a context of its own, so that a cancelled caller still reports. An *UnknownError says that something else settled the attempt:
// this report does not count. *NotAgentError and *NotAdmittedError say that it could not count, and was not sent.
func (call *Call) Report(ctx context.Context, output any, err error) error {
	said := judge(err)
	said.output = encodeOutput(output)
	return call.report(ctx, said)
}

func (call *Call) report(ctx context.Context, said report) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportWindow)
	defer cancel()
	if err := call.mayReport(ctx, said); err != nil {
		return err
	}
	call.said = said
	if err := call.send(ctx, said); err != nil {
		return err
	}
	call.tell(StageReported, call.action)
	return nil
}

// mayReport refuses a report that cannot count. What is known of the Action may be older than its admission, so it is read
// again before it is held against anybody; and nobody who executed loses a report because a read failed.
func (call *Call) mayReport(ctx context.Context, said report) error {
	if err := call.agentOnly(ctx); err != nil {
		return err
	}
	if call.reportable(said) {
		return nil
	}
	current := &v1alpha1.Action{}
	err := call.client.kube.Get(ctx, kube.ObjectKeyFromObject(call.action), current)
	if err != nil || current.UID != call.action.UID {
		return nil
	}
	call.action = current
	if call.reportable(said) {
		return nil
	}
	return &NotAdmittedError{Action: current, ClaimID: call.claimID}
}

// reportable: by the process that was admitted; and of an Action that nobody executes yet, that this process will not.
func (call *Call) reportable(said report) bool {
	if call.action.Status.Execution != nil {
		return call.admitted(call.action)
	}
	return said.result == v1alpha1.OutcomeNotExecuted && !call.action.Status.State.Terminal()
}

// GiveUp says that this process will not execute. It may be said of any Action, admitted or not.
func (call *Call) GiveUp(ctx context.Context, why string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reportWindow)
	defer cancel()
	call.gaveUp = true
	return call.send(ctx, report{result: v1alpha1.OutcomeNotExecuted, text: why})
}

func (call *Call) send(ctx context.Context, said report) error {
	user, err := call.client.Whoami(ctx)
	if err != nil {
		return err
	}
	outcome := call.outcome(said, user.Username)
	outcome.Name = LockName(call.action, call.claimID, user.Username)
	existing, err := call.store(ctx, outcome)
	if err != nil && !transient(err) && !Refused(err) && outcome.Spec.Output != nil {
		// The apiserver does not take the output. What happened is worth more than what it printed.
		outcome.Spec.Output = nil
		existing, err = call.store(ctx, outcome)
	}
	if err != nil {
		return refusal("report "+call.action.Name, err)
	}
	if existing == nil {
		call.statement = outcome
		return nil
	}
	return call.lostLock(ctx, outcome, existing.(*v1alpha1.Outcome), user.Username)
}

// store creates an outcome. It is more patient than with other statements: nobody else can say what happened.
func (call *Call) store(ctx context.Context, outcome *v1alpha1.Outcome) (kube.Object, error) {
	return call.client.createOrRead(ctx, reportWindow, patiently(), outcome)
}

// patiently is transient, and counts as transient, for a while since the first, also that the apiserver knows no right to it, or not
// who this is: one that has just started knows neither yet.
func patiently() func(error) bool {
	var first time.Time
	return func(err error) bool {
		if !unknownHere(err) {
			return transient(err)
		}
		if first.IsZero() {
			first = time.Now()
		}
		return time.Since(first) < refusedWindow
	}
}

// LockName is the one name a report of an attempt may have. Creating it ends the attempt, whoever does.
func LockName(object *v1alpha1.Action, claimID, username string) string {
	return StatementName(string(object.UID)+"."+claimID, username)
}

func (call *Call) outcome(said report, reporter string) *v1alpha1.Outcome {
	outcome := &v1alpha1.Outcome{
		ObjectMeta: metav1.ObjectMeta{Namespace: call.action.Namespace},
		Spec: v1alpha1.OutcomeSpec{
			ActionRef: v1alpha1.ObjectReference{Name: call.action.Name, UID: call.action.UID},
			ClaimID:   call.claimID,
			Result:    said.result,
			Error:     cut(said.text, maxError),
			Reporter:  reporter,
		},
	}
	if output, ok := storableOutput(said.output); ok {
		outcome.Spec.Output = &apiextensionsv1.JSON{Raw: output}
	}
	return outcome
}

// encodeOutput is the output of a function as JSON, or nothing if it is none. A value that cannot be written, or panics over it, changes
// nothing about what was done.
func encodeOutput(output any) (text []byte) {
	if output == nil {
		return nil
	}
	defer func() {
		if recover() != nil {
			text = nil
		}
	}()
	text, err := marshal(output)
	if err != nil || string(bytes.TrimSpace(text)) == "null" {
		return nil
	}
	return text
}

// storableOutput is the output as it can be stored: strict JSON, every number an int64, not too large. Anything else is left
// out, for a report must not fail over what it carries along.
func storableOutput(output []byte) ([]byte, bool) {
	if len(output) == 0 {
		return nil, false
	}
	value, err := canonical.Parse(output)
	if err != nil {
		return nil, false
	}
	if _, ok := action.CheckStored(value); !ok {
		return nil, false
	}
	encoded, err := canonical.Encode(value)
	return encoded, err == nil && len(encoded) <= maxOutput
}

// lostLock judges an Outcome that was there before this report.
func (call *Call) lostLock(ctx context.Context, mine, first *v1alpha1.Outcome, reporter string) error {
	if first.Spec.Reason == v1alpha1.OutcomeReasonLeaseLapsed {
		late := mine.DeepCopy()
		late.Name, late.ResourceVersion, late.UID = "late."+mine.Name, "", ""
		_, err := call.store(ctx, late)
		why := "its lease was declared over before the report came; the report was left for whoever resolves the effect"
		if err != nil {
			why = "its lease was declared over before the report came, and the late report could not be left"
		}
		return &UnknownError{Action: call.action, Why: why, Err: err, Returned: call.said.returned}
	}
	if first.Spec.Reporter != reporter {
		why := fmt.Sprintf("an Outcome of %s has the place of this report", first.Spec.Reporter)
		return &UnknownError{Action: call.action, Why: why, Returned: call.said.returned}
	}
	if first.Spec.Result != mine.Spec.Result {
		return &UnknownError{Action: call.action, Why: contradiction(first.Spec.Result, mine.Spec.Result), Returned: call.said.returned}
	}
	call.statement = first
	return nil
}

// contradiction says what a second, different report changes: nothing. NotExecuted has freed the effect, so that whoever knows
// better must keep it from being tried again.
func contradiction(first, now v1alpha1.OutcomeResult) string {
	text := fmt.Sprintf("%s was reported before, and now %s; the first report counts", first, now)
	if first == v1alpha1.OutcomeNotExecuted {
		text += ". Its effect is free and may be attempted again: if it did happen, stop whatever tries again"
	}
	return text
}

// cut shortens text to at most n bytes, at a character.
func cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	for n > 0 && text[n]&0xc0 == 0x80 {
		n--
	}
	return text[:n]
}
