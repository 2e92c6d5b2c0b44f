package observe

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	sdk "ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/test/testenv"
)

var _ = Describe("An agent with the Go SDK, where nothing is enforced,", func() {
	request := func(payment string, amount int) sdk.Proposal {
		return sdk.Proposal{ActionType: "stripe.refund", Arguments: map[string]any{"payment_id": payment, "amount": amount}}
	}
	It("executes what would have been denied, asked about or blocked, and hears what it did", func() {
		s := observing()
		c, err := sdk.New(env.Config(s.agent), s.ns)
		Expect(err).NotTo(HaveOccurred())
		payment := unique("txn")
		var tokens []string
		execute := func(end error) sdk.Function {
			return func(_ context.Context, x sdk.Execution) (any, error) {
				Expect(x.LeaseRemaining).To(BeNumerically(">", time.Minute))
				tokens = append(tokens, x.Token)
				return nil, end
			}
		}
		for _, amount := range []int{denied, asked, allowed} { // the second and third of one effect
			r, err := c.Protect(ctx, request(payment, amount), execute(nil))
			Expect(err).NotTo(HaveOccurred())
			Expect(r.Action.Status.State).To(Equal(v1alpha1.ActionObserved))
			Expect(sdk.EndOf(r.Action)).To(Equal(v1alpha1.ActionCommitted))
		}
		Expect(tokens).To(HaveLen(3))
		Expect(tokens[0]).NotTo(BeEmpty())
		Expect(tokens[1:]).To(HaveEach(BeEmpty()), "what is not reserved has no token")

		r, err := c.Protect(ctx, request(unique("txn"), denied), execute(sdk.NotExecuted(errors.New("the provider said no"))))
		var ended *sdk.EndedError
		Expect(errors.As(err, &ended)).To(BeTrue(), "%v", err)
		Expect(err).To(MatchError(ContainSubstring("Observed, Failed")))
		Expect(sdk.EndOf(r.Action)).To(Equal(v1alpha1.ActionFailed))

		r, err = c.Protect(ctx, request(payment, allowed), execute(errors.New("the connection broke")))
		var unknown *sdk.UnknownError
		Expect(errors.As(err, &unknown)).To(BeTrue(), "%v", err)
		Expect(sdk.EndOf(r.Action)).To(Equal(v1alpha1.ActionAmbiguous))
		Expect(tokens).To(HaveLen(5))
		s.chainHolds()
	})

	It("is still told what was refused, without executing", func() {
		s := observing()
		c, err := sdk.New(env.Config(s.agent), s.ns)
		Expect(err).NotTo(HaveOccurred())
		_, err = c.Protect(ctx, sdk.Proposal{ActionType: "mail.send", Arguments: map[string]any{"to": "somebody"}}, func(context.Context, sdk.Execution) (any, error) {
			Fail("it executes")
			return nil, nil
		})
		var ended *sdk.EndedError
		Expect(errors.As(err, &ended)).To(BeTrue(), "%v", err)
		Expect(ended.Action.Status.State).To(Equal(v1alpha1.ActionDenied))
	})
})

// result is how a command ended.
type result struct {
	code           int
	stdout, stderr string
}

// run runs the plugin as a user, in the scene's namespace.
func (s *scene) run(u testenv.User, args ...string) result {
	GinkgoHelper()
	plugin := filepath.Join(env.Root, "bin", "kubectl-ctrlrun")
	Expect(plugin).To(BeAnExistingFile(), "`make build` puts it there")
	bounded, cancel := context.WithTimeout(ctx, 2*time.Minute)
	DeferCleanup(cancel)
	cmd := exec.CommandContext(bounded, plugin, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+env.KubeconfigIn(u, s.ns))
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exited *exec.ExitError
	Expect(err == nil || errors.As(err, &exited)).To(BeTrue(), "%v", err)
	r := result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
	AddReportEntry(strings.Join(args, " "), r, ReportEntryVisibilityFailureOrVerbose)
	return r
}

var _ = Describe("kubectl ctrlrun, where nothing is enforced,", func() {
	banner := func(s *scene) string { return "OBSERVE MODE: nothing is enforced in namespace " + s.ns + "\n" }

	It("says so first to whoever may read Settings, and exits by what was done", func() {
		s := observing()
		name := unique("txn")
		r := s.run(s.agent, "run", "stripe.refund", "payment_id="+name, "amount:=9000", "--", "true")
		Expect(r.code).To(Equal(0), r.stderr)
		Expect(r.stderr).To(HavePrefix(banner(s)))
		Expect(r.stderr).To(ContainSubstring("Observe mode: nothing is enforced"), "the Action says so too")
		r = s.run(s.agent, "run", "stripe.refund", "payment_id="+name, "amount:=1", "--", "true")
		Expect(r.code).To(Equal(0), "a duplicate runs: %s", r.stderr)
		r = s.run(s.agent, "run", "stripe.refund", "payment_id="+unique("txn"), "amount:=1", "--not-executed-exit", "75", "--", "sh", "-c", "exit 75")
		Expect(r.code).To(Equal(7), r.stderr)
		r = s.run(s.agent, "run", "stripe.refund", "payment_id="+unique("txn"), "amount:=1", "--", "false")
		Expect(r.code).To(Equal(6), r.stderr)
		effects := &v1alpha1.EffectList{}
		Expect(env.Admin().List(ctx, effects, kube.InNamespace(s.ns), kube.MatchingFields{"status.state": "Ambiguous"})).To(Succeed())
		Expect(effects.Items).To(HaveLen(1))
		resolved := s.run(s.resolver, "resolve", effects.Items[0].Name, "--committed", "--reason", "the provider says so", "--yes")
		Expect(resolved.code).To(Equal(0), resolved.stderr)
		s.ran(refund(unique("txn"), asked), v1alpha1.OutcomeCommitted)

		r = s.run(s.viewer, "stats", "-o", "json")
		Expect(r.code).To(Equal(0), r.stderr)
		Expect(r.stderr).To(HavePrefix(banner(s)))
		var got struct {
			Actions  int64
			Results  map[string]int64
			Observed struct {
				Actions, WouldHaveRun                                              int64
				WouldHaveBeenDenied, WouldHaveNeededApproval, WouldHaveBeenBlocked struct {
					Actions int64
					Percent float64
					Reasons map[string]int64
				}
				Executions map[string]int64
			}
		}
		Expect(json.Unmarshal([]byte(r.stdout), &got)).To(Succeed())
		Expect(got.Actions).To(Equal(int64(5)))
		Expect(got.Results["observed"]).To(Equal(int64(5)))
		Expect(got.Observed.WouldHaveRun).To(Equal(int64(2)))
		Expect(got.Observed.WouldHaveBeenDenied.Reasons).To(Equal(map[string]int64{"rule[2]": 1}))
		Expect(got.Observed.WouldHaveBeenDenied.Percent).To(Equal(20.0))
		Expect(got.Observed.WouldHaveNeededApproval.Reasons).To(Equal(map[string]int64{"rule[1]": 1}))
		Expect(got.Observed.WouldHaveBeenBlocked.Reasons).To(Equal(map[string]int64{"duplicate": 1}))
		Expect(got.Observed.Executions).To(Equal(map[string]int64{"committed": 3, "failed": 1, "ambiguous": 1}))

		r = s.run(s.viewer, "stats")
		Expect(r.code).To(Equal(0), r.stderr)
		Expect(r.stdout).To(And(MatchRegexp(`Would have been denied: +1 of 5, 20%  \(rule\[2\] 1\)\n`), ContainSubstring("Observed actions ran")))

		By("and says nothing where it is enforced")
		s.enforce()
		r = s.run(s.viewer, "stats")
		Expect(r.code).To(Equal(0), r.stderr)
		Expect(r.stderr).NotTo(ContainSubstring("OBSERVE MODE"))
	})

	It("verifies nothing: exit code 2, nothing printed and nothing made", func() {
		s := observing()
		namespaces := func() int {
			list := &corev1.NamespaceList{}
			Expect(env.Admin().List(ctx, list)).To(Succeed())
			return len(list.Items)
		}
		before := namespaces()
		verify := func(args ...string) {
			GinkgoHelper()
			r := s.run(s.owner, append([]string{"verify"}, args...)...)
			Expect(r.code).To(Equal(2), r.stderr)
			Expect(r.stdout).To(BeEmpty())
			Expect(r.stderr).To(HavePrefix(banner(s)))
			Expect(r.stderr).To(ContainSubstring("no guarantee to verify"))
			Expect(namespaces()).To(Equal(before))
		}
		verify()
		report := filepath.Join(GinkgoT().TempDir(), "verify.xml")
		verify("-o", "json", "--junit", report)
		Expect(report).NotTo(BeAnExistingFile())

		By("files that say so")
		s.enforce()
		dir := GinkgoT().TempDir()
		for file, text := range map[string]string{
			"policy.yaml":   "apiVersion: ctrlrun.dev/v1alpha1\nkind: ActionPolicy\nmetadata: {name: p}\nspec: {actions: {note.write: {decision: allow}}}\n",
			"settings.yaml": "apiVersion: ctrlrun.dev/v1alpha1\nkind: Settings\nmetadata: {name: default}\nspec: {mode: Observe}\n",
		} {
			Expect(os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600)).To(Succeed())
		}
		verify("-f", dir)
	})
})
