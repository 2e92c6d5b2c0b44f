package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/verify"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/guarantees"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/records"
)

const verifyLong = `Check on this cluster what ctrlrun guarantees, with your own policies.

The ActionPolicies and Settings of the namespace, its Grants if they are required, and its environment, are copied into a scratch
namespace; with -f the policies are those of files. The copies of Grants are for the agent there. There agents, people and rivals act as ServiceAccounts with the shipped roles, against the operator that
runs. Nothing of yours is written, and no remote system is called: what executes is this program. The scratch namespace is
removed afterwards, also after an error or Ctrl-C. Its Ledger stays, as every Ledger does. Of a namespace in observe mode, where
nothing is enforced, nothing is verified.

Each guarantee has a control: something like it that must work. Where everything is refused, refusals prove nothing, and the
guarantee fails. One that your documents give no occasion for, or that cannot be driven from outside, is not applicable and is not
counted.

`

const verifyExits = `Exit code 0: all that is applicable passes. 1: something fails. 2: there is nothing to verify, or no right to do so; nothing was
driven. 3: it could not be found out: no operator answers, or it was interrupted. Also if all passes, and the report could not be
written or the scratch namespace not removed.`

// verification is what the flags of verify say.
type verification struct {
	files   []string
	only    []string
	output  string
	junit   string
	timeout time.Duration
}

const (
	textFormat  = "text"
	junitFormat = "junit"
)

func (a *app) verifyCommand() *cobra.Command {
	var v verification
	var lines []string
	for _, g := range guarantees.All() {
		lines = append(lines, fmt.Sprintf("  %-4s %-33s %s", g.ID, g.Title, g.Invariant))
	}
	cmd := &cobra.Command{
		Use:     "verify [-f FILE...] [--only G1,G3]",
		Short:   "Check the guarantees with your own policies, in a scratch namespace",
		Long:    verifyLong + strings.Join(lines, "\n") + "\n\n" + verifyExits,
		Example: "  kubectl ctrlrun verify -n payments\n  kubectl ctrlrun verify -f deploy/policies/ -o junit > verify.xml\n  kubectl ctrlrun verify --only G3,G5 -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			selected, err := v.check()
			if err != nil {
				return usage(err)
			}
			// A terminal that is closed is no reason to leave a namespace behind.
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGHUP)
			defer stop()
			// Nor is somebody who stops reading, such as head. While the signal is taken such a write is an error instead of the end of this
			// process, and the run goes on to its end. Not signal.Ignore: the processes started here would inherit that.
			pipe := make(chan os.Signal, 1)
			signal.Notify(pipe, syscall.SIGPIPE)
			defer signal.Stop(pipe)
			ctx, cancel := context.WithTimeout(ctx, v.timeout)
			defer cancel()
			return verifyCode(ctx, a.verify(ctx, v, selected))
		},
	}
	cmd.Flags().StringArrayVarP(&v.files, "filename", "f", nil, "a policy document or ActionPolicy manifest, a directory of them, or - for stdin; may be repeated")
	cmd.Flags().StringSliceVar(&v.only, "only", nil, "check these guarantees only, such as G1,G3; the report is partial")
	cmd.Flags().StringVarP(&v.output, "output", "o", textFormat, "output format: text, json or junit")
	cmd.Flags().StringVar(&v.junit, "junit", "", "write this file too, as JUnit")
	cmd.Flags().DurationVar(&v.timeout, "timeout", 5*time.Minute, "how long it may take")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions([]string{textFormat, jsonFormat, junitFormat}, cobra.ShellCompDirectiveNoFileComp))
	cmd.AddCommand(verifyContend(a), verifyExecute())
	return cmd
}

func (v *verification) check() (map[guarantees.ID]bool, error) {
	switch v.output {
	case textFormat, jsonFormat, junitFormat:
	default:
		return nil, fmt.Errorf("unknown output format %q: use text, json or junit", v.output)
	}
	if v.timeout <= 0 {
		return nil, fmt.Errorf("--timeout %s is no time: give more", v.timeout)
	}
	return guarantees.Select(v.only)
}

// verifyCode gives an error of verify its exit code: 2 is for what was not begun, and everything else that is no verdict is 3. 1 is
// never an error of verify itself.
func verifyCode(ctx context.Context, err error) error {
	var failed *failedError
	var begun *begunError
	var after *afterError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &failed):
		return exit.With(exit.Code(verify.Failed), err)
	case errors.As(err, &after): // there is a verdict
	case !errors.As(err, &begun) && notBegun(err):
		return exit.With(exit.Code(verify.Unusable), err)
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("it was not over in time, and there is no verdict: give more with --timeout: %w", err)
	case ctx.Err() != nil:
		err = fmt.Errorf("interrupted, and there is no verdict: %w", err)
	default:
		err = fmt.Errorf("there is no verdict: %w", err)
	}
	return exit.With(exit.Code(verify.Broken), err)
}

// notBegun reports whether an error says that there is nothing to verify, or no right to.
func notBegun(err error) bool {
	var unusable *verify.UnusableError
	return errors.As(err, &unusable) || exit.Of(err) == exit.Usage || exit.Of(err) == exit.Refused
}

// begunError is an error of a run that had begun: a request that is refused in it is no right that is known to be missing.
type begunError struct{ err error }

func (e *begunError) Error() string { return e.err.Error() }

func (e *begunError) Unwrap() error { return e.err }

// failedError says that a guarantee does not hold. The report is on stdout.
type failedError struct {
	failed int
	beside error // what went wrong afterwards, or nil
}

func (e *failedError) Error() string {
	text := count(e.failed, "guarantee") + " failed"
	if e.beside != nil {
		text += "\n" + e.beside.Error()
	}
	return text
}

// afterError is what went wrong after a run that came to its end: its report could not be written, or its namespace not removed.
type afterError struct{ err error }

func (e *afterError) Error() string { return e.err.Error() }

func (e *afterError) Unwrap() error { return e.err }

func (a *app) verify(ctx context.Context, v verification, selected map[guarantees.ID]bool) error {
	s, err := a.connect(ctx)
	if err != nil {
		return err
	}
	config, err := a.config.ToRESTConfig()
	if err != nil {
		return err
	}
	config.UserAgent, config.QPS, config.Burst = "kubectl-ctrlrun/"+a.version, 100, 200
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program, to start it again: %w", err)
	}
	o := verify.Options{
		Config: config, Kube: s.kube, Namespace: s.Namespace(), Selected: selected, Version: a.versionText(), Executable: self,
		Command: a.quietly, Note: a.note,
	}
	if len(s.observing(ctx, listScope(s, false))) > 0 || observeIn(v.files, s.Namespace()) {
		a.bannerObserve([]string{s.Namespace()})
		return &verify.UnusableError{Err: fmt.Errorf("namespace %s is in observe mode, where every action runs, so there is no guarantee to verify: set spec.mode of its Settings to Enforce, or verify the policies in a namespace that enforces", s.Namespace())}
	}
	if err := a.verifyInput(ctx, s, v.files, &o); err != nil {
		return err
	}
	report, err := verify.Run(ctx, o)
	var silent *verify.SilentError
	var unusable *verify.UnusableError
	switch {
	case errors.As(err, &silent):
		err = fmt.Errorf("%w\n%s", err, s.silence(context.WithoutCancel(ctx)))
	case errors.As(err, &unusable):
		return err
	}
	if report == nil {
		return &begunError{err: err}
	}
	err = errors.Join(a.printVerification(report, v), err)
	if report.ExitCode() == verify.Failed {
		// What failed is worth more than what went wrong afterwards, which is said too.
		return &failedError{failed: report.Summary.Failed, beside: err}
	}
	if err != nil {
		return &afterError{err: err}
	}
	return nil
}

func (a *app) versionText() string {
	if a.version == "" {
		return "unreleased"
	}
	return a.version
}

// quietly makes an executor like `run` does. What the command prints is no part of the answer.
func (a *app) quietly(notExecutedExit int, words []string) (client.Function, error) {
	quiet := *a
	quiet.streams.Out, quiet.streams.ErrOut = io.Discard, io.Discard
	c, err := quiet.newCommand(&running{notExecuted: notExecutedExit}, words)
	if err != nil {
		return nil, err
	}
	return c.execute, nil
}

// printVerification prints the report, and writes the file too: one that fails takes nothing from the other.
func (a *app) printVerification(report *verify.Report, v verification) error {
	var errs []error
	if err := a.printReport(report, v.output); err != nil {
		errs = append(errs, fmt.Errorf("print the report: %w", err))
	}
	if v.junit != "" {
		if err := inPlace(v.junit, func(w io.Writer) error { return report.WriteJUnit(w, display) }); err != nil {
			errs = append(errs, fmt.Errorf("write the report to %s: %w", v.junit, err))
		}
	}
	return errors.Join(errs...)
}

func (a *app) printReport(report *verify.Report, format string) error {
	switch format {
	case jsonFormat:
		return report.WriteJSON(a.streams.Out)
	case junitFormat:
		return report.WriteJUnit(a.streams.Out, display)
	}
	return report.WriteText(a.streams.Out, display)
}

// verifyInput reads what is copied: it is all that verify asks of the user's namespace.
func (a *app) verifyInput(ctx context.Context, s *session, files []string, o *verify.Options) error {
	var err error
	if len(files) > 0 {
		o.Policies, err = a.verifyFilesOf(s, files)
	} else {
		o.Policies, err = s.verifyPolicies(ctx)
	}
	if err != nil {
		return err
	}
	if o.Settings, err = s.verifySettings(ctx); err != nil {
		return err
	}
	if o.Grants, err = s.verifyGrants(ctx, o.Settings); err != nil {
		return err
	}
	o.Environment = v1alpha1.DefaultEnvironment
	namespace := &corev1.Namespace{}
	switch err := s.kube.Get(ctx, kube.ObjectKey{Name: s.Namespace()}, namespace); {
	case apierrors.IsForbidden(err):
		a.note("you may not read namespace %s, so its environment is taken to be %s", s.Namespace(), o.Environment)
	case apierrors.IsNotFound(err) && len(files) > 0: // policies that are not applied yet
	case err != nil:
		return explain(err)
	default:
		o.Environment = records.Environment(namespace)
	}
	return nil
}

func (s *session) verifyPolicies(ctx context.Context) ([]verify.Policy, error) {
	if err := s.namespaceThere(ctx); err != nil {
		return nil, &verify.UnusableError{Err: err}
	}
	list := &v1alpha1.ActionPolicyList{}
	if err := s.kube.List(ctx, list, kube.InNamespace(s.Namespace()), notCanary); err != nil {
		return nil, explain(err)
	}
	var policies []verify.Policy
	for i := range list.Items {
		o := &list.Items[i]
		if o.DeletionTimestamp != nil {
			continue // it decides nothing any more
		}
		version := ""
		if o.Spec.Version != nil {
			version = *o.Spec.Version
		}
		value, err := canonical.Parse(o.Spec.Raw)
		if err != nil {
			return nil, &verify.UnusableError{Err: fmt.Errorf("the policy %s is not valid, and denies every action it names: spec: %w", o.Name, err)}
		}
		spec, _ := value.(map[string]any)
		p, err := verify.NewPolicy(o.Name, o.Namespace+"/"+o.Name, version, o.Generation, spec["actions"])
		if err != nil {
			return nil, err
		}
		policies = append(policies, p)
	}
	if len(policies) == 0 {
		return nil, &verify.UnusableError{Err: fmt.Errorf("namespace %s has no ActionPolicy, so there is nothing to verify: kubectl ctrlrun init writes a first one, or give files with -f", s.Namespace())}
	}
	return policies, nil
}

// verifyFilesOf are the policies of files, as objects of the namespace: those of other namespaces are left out.
func (a *app) verifyFilesOf(s *session, paths []string) ([]verify.Policy, error) {
	files, err := a.readPolicies(paths, within)
	if err != nil {
		return nil, &verify.UnusableError{Err: err}
	}
	var policies []verify.Policy
	for _, file := range files {
		if _, err := policySet([]policyFile{file}); err != nil {
			return nil, &verify.UnusableError{Err: err}
		}
		if of := file.document.Namespace; of != "" && of != s.Namespace() {
			a.note("%s is of namespace %s and was left out", file.label(), of)
			continue
		}
		actions, _ := policy.NewSet([]policy.Source{file.document.Source(file.label())}).Rules()
		p, err := verify.NewPolicy(objectNameFor(file.document.Name, policies), file.label(), file.document.Version, 0, actions)
		if err != nil {
			return nil, err
		}
		policies = append(policies, p)
	}
	if len(policies) == 0 {
		return nil, &verify.UnusableError{Err: fmt.Errorf("there is no policy in %s, so there is nothing to verify", strings.Join(paths, ", "))}
	}
	return policies, nil
}

// objectNameFor is the name of an object that none of the policies has.
func objectNameFor(name string, policies []verify.Policy) string {
	taken := func(p verify.Policy) bool { return p.Name == name }
	if name == "" || slices.ContainsFunc(policies, taken) {
		name = fmt.Sprintf("policy-%d", len(policies)+1)
	}
	for slices.ContainsFunc(policies, taken) {
		name += "x"
	}
	return name
}

func (s *session) verifySettings(ctx context.Context) (*verify.Settings, error) {
	o := &v1alpha1.Settings{}
	err := s.kube.Get(ctx, s.key(v1alpha1.SettingsName), o)
	switch {
	case apierrors.IsNotFound(err) && !missingKind(err):
		return nil, nil
	case err != nil:
		return nil, explain(err)
	}
	return verify.NewSettings(o), nil
}

// verifyGrants are the grants of the namespace, where principals need one. Where they do not, no grant decides anything.
func (s *session) verifyGrants(ctx context.Context, settings *verify.Settings) ([]verify.Grant, error) {
	grants := []verify.Grant{}
	if settings == nil || settings.Authority != v1alpha1.AuthorityRequired {
		return grants, nil
	}
	list := &v1alpha1.GrantList{}
	if err := s.kube.List(ctx, list, kube.InNamespace(s.Namespace()), notCanary); err != nil {
		return nil, explain(err)
	}
	for i := range list.Items {
		o := &list.Items[i]
		if o.DeletionTimestamp != nil {
			continue
		}
		g, err := verify.NewGrant(o)
		if err != nil {
			return nil, err
		}
		grants = append(grants, g)
	}
	return grants, nil
}

// verifyContend is a process of a race; verify starts it.
func verifyContend(a *app) *cobra.Command {
	return &cobra.Command{
		Use: "contend", Hidden: true, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return verify.Contend(cmd.Context(), a.streams.In, a.streams.Out)
		},
	}
}

// verifyExecute is what executes an action; verify starts it.
func verifyExecute() *cobra.Command {
	return &cobra.Command{
		Use: "execute DIR END", Hidden: true, Args: cobra.ExactArgs(2),
		RunE: func(_ *cobra.Command, args []string) error {
			end, err := verify.ParseEnd(args[1])
			if err != nil {
				return usage(err)
			}
			code, err := verify.Execute(args[0], end)
			if err == nil && code != 0 {
				err = fmt.Errorf("the action ends as %s", end)
			}
			return exit.With(exit.Code(code), err)
		},
	}
}
