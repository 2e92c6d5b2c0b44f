package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"k8s.io/cli-runtime/pkg/genericiooptions"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
)

func perform(t *testing.T, r *running, script string) (printed string, output any, end error) {
	t.Helper()
	var out, errOut bytes.Buffer
	a := &app{streams: genericiooptions.IOStreams{In: strings.NewReader("not for the command"), Out: &out, ErrOut: &errOut}}
	command, err := a.newCommand(r, []string{"sh", "-c", script})
	if err != nil {
		t.Fatal(err)
	}
	action := &v1alpha1.Action{}
	action.Name = "refund-1"
	action.Status.Effect = &v1alpha1.ActionEffect{Name: "refund-1", Key: "refund:1", Attempt: 2}
	output, end = command.execute(context.Background(), client.Execution{
		Action: action, CanonicalArguments: []byte(`{"amount":5}`), Token: "tok", LeaseRemaining: time.Minute,
	})
	return out.String(), output, end
}

func TestHowACommandEndsIsWhatIsReported(t *testing.T) {
	for name, test := range map[string]struct {
		script      string
		notExecuted int
		want        v1alpha1.OutcomeResult
	}{
		"exit 0":                              {"exit 0", 0, v1alpha1.OutcomeCommitted},
		"exit 1":                              {"exit 1", 0, v1alpha1.OutcomeUnknown},
		"the code that states nothing":        {"exit 75", 75, v1alpha1.OutcomeNotExecuted},
		"another code":                        {"exit 74", 75, v1alpha1.OutcomeUnknown},
		"that code without the flag":          {"exit 75", 0, v1alpha1.OutcomeUnknown},
		"a signal":                            {"kill -9 $$", 0, v1alpha1.OutcomeUnknown},
		"the signal that would be that code":  {"kill -15 $$", 143, v1alpha1.OutcomeUnknown},
		"success, though something failed on": {"echo oops >&2; exit 0", 1, v1alpha1.OutcomeCommitted},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, end := perform(t, &running{notExecuted: test.notExecuted}, test.script)
			if got := client.ResultOf(end); got != test.want {
				t.Errorf("reported %s (%v), want %s", got, end, test.want)
			}
		})
	}
}

func TestACommandThatCannotStartExecutedNothing(t *testing.T) {
	a := &app{streams: genericiooptions.NewTestIOStreamsDiscard()}
	command := &command{app: a, running: &running{}, path: write(t, "not-executable", "#!/bin/sh\n")}
	_, end := command.execute(context.Background(), client.Execution{Action: &v1alpha1.Action{}, LeaseRemaining: time.Minute})
	if got := client.ResultOf(end); got != v1alpha1.OutcomeNotExecuted {
		t.Errorf("reported %s", got)
	}
}

func TestACommandGetsTheArgumentsAndTheToken(t *testing.T) {
	out, _, _ := perform(t, &running{}, `cat; echo " $CTRLRUN_IDEMPOTENCY_TOKEN $CTRLRUN_ACTION $CTRLRUN_EFFECT_KEY $CTRLRUN_ATTEMPT $CTRLRUN_LEASE_SECONDS"`)
	if want := "{\"amount\":5} tok refund-1 refund:1 2 60\n"; out != want {
		t.Errorf("got %q, want %q", out, want)
	}
}

func TestOutputIsKeptOnlyWhenAsked(t *testing.T) {
	script := `printf '{"id":"re_1"}'`
	out, output, _ := perform(t, &running{}, script)
	if output != nil || out != `{"id":"re_1"}` {
		t.Errorf("recorded %q, passed on %q", output, out)
	}
	out, output, _ = perform(t, &running{recordOutput: true}, script)
	if text, ok := output.(json.RawMessage); !ok || string(text) != `{"id":"re_1"}` || out != `{"id":"re_1"}` {
		t.Errorf("recorded %q, passed on %q", output, out)
	}
}

func TestTooMuchOutputPassesThroughAndIsNotKept(t *testing.T) {
	out, output, end := perform(t, &running{recordOutput: true}, `head -c 200000 /dev/zero | tr '\0' a`)
	if output != nil || len(out) != 200000 || end != nil {
		t.Errorf("recorded %v, passed on %d bytes, reported %v", output, len(out), end)
	}
}
