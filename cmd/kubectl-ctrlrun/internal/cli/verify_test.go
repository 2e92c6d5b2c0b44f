package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/verify"
)

func TestMistakesInVerifyExitWithUsage(t *testing.T) {
	for name, args := range map[string][]string{
		"unknown guarantee":     {"verify", "--only", "G99"},
		"unknown output format": {"verify", "-o", "yaml"},
		"no time":               {"verify", "--timeout", "0s"},
		"an argument":           {"verify", "payments"},
		"an end nobody knows":   {"verify", "execute", "dir", "maybe"},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, "", args...).refused(t, exit.Usage)
		})
	}
}

// 1 is for a guarantee that does not hold, and never for a run that went wrong.
func TestExitCodesOfVerify(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "actions"}, "x", errors.New("no"))
	left := &verify.LeftBehindError{Namespace: "ctrlrun-verify-x", Err: forbidden}
	interrupted, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithDeadline(t.Context(), time.Now())
	defer stop()
	for name, test := range map[string]struct {
		ctx  context.Context
		err  error
		want exit.Code
		says string
	}{
		"all passes":                     {err: nil, want: 0},
		"something fails":                {err: &failedError{failed: 2}, want: 1, says: "2 guarantees failed"},
		"something fails, and is left":   {err: &failedError{failed: 1, beside: left}, want: 1, says: "kubectl delete namespace"},
		"nothing to verify":              {err: &verify.UnusableError{Err: errors.New("no policy")}, want: 2, says: "no policy"},
		"policies that are not readable": {err: forbidden, want: 2, says: "forbidden"},
		"no cluster":                     {err: exit.Errorf(exit.Failure, "no cluster"), want: 3, says: "there is no verdict"},
		"something else in a run":        {err: &begunError{err: errors.New("broken pipe")}, want: 3, says: "there is no verdict: broken pipe"},
		"a refusal in a run":             {err: &begunError{err: forbidden}, want: 3, says: "there is no verdict"},
		"left behind":                    {err: &afterError{left}, want: 3, says: "could not be removed"},
		"no answer, and left behind":     {err: &begunError{errors.Join(errors.New("EOF"), left)}, want: 3, says: "there is no verdict: EOF"},
		"no file":                        {err: &afterError{exit.With(exit.Usage, errors.New("no such directory"))}, want: 3, says: "no such directory"},
		"no file, and then too late":     {ctx: late, err: &afterError{errors.New("no such directory")}, want: 3, says: "no such directory"},
		"something fails, and no file":   {err: &failedError{failed: 1, beside: &afterError{errors.New("no such directory")}}, want: 1, says: "no such directory"},
		"interrupted":                    {ctx: interrupted, err: &begunError{err: context.Canceled}, want: 3, says: "interrupted"},
		"too late":                       {ctx: late, err: fmt.Errorf("x: %w", context.DeadlineExceeded), want: 3, says: "--timeout"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx := test.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			err := verifyCode(ctx, test.err)
			if exit.Of(err) != test.want {
				t.Errorf("exit code %d, want %d: %v", exit.Of(err), test.want, err)
			}
			if test.says != "" && !strings.Contains(err.Error(), test.says) {
				t.Errorf("%q does not say %q", err, test.says)
			}
			if after := (*afterError)(nil); errors.As(test.err, &after) && strings.Contains(err.Error(), "no verdict") {
				t.Errorf("%q says that there is no verdict, and there is one", err)
			}
		})
	}
}

// Policies of files become objects with names of their own.
func TestNamesOfPoliciesFromFiles(t *testing.T) {
	var policies []verify.Policy
	for _, test := range []struct{ name, want string }{{"a", "a"}, {"", "policy-2"}, {"a", "policy-3"}, {"policy-5", "policy-5"}, {"", "policy-5x"}} {
		got := objectNameFor(test.name, policies)
		if got != test.want {
			t.Errorf("%q becomes %q, want %q", test.name, got, test.want)
		}
		policies = append(policies, verify.Policy{Name: got})
	}
}
