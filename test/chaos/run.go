package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/wait"
	kube "sigs.k8s.io/controller-runtime/pkg/client"
	ctrllog "sigs.k8s.io/controller-runtime/pkg/log"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/test/chaos/desk"
	"ctrlrun.dev/operator/test/chaos/judge"
	"ctrlrun.dev/operator/test/chaos/proxy"
	"ctrlrun.dev/operator/test/chaos/remote"
	"ctrlrun.dev/operator/test/testenv"
)

// Length is how long a run's storm lasts.
type Length string

const (
	// Short is for every change: two minutes or three of storm, and as many writes of the protocol crashed at as there is time.
	Short Length = "short"
	// Long gives out two or three pieces of work a second, and fails if an operator was not killed and stopped on both sides of
	// every write.
	Long Length = "long"
)

// Options of a run.
type Options struct {
	// Actions is how many proposals agents make, besides those that try again.
	Actions int
	// Seed of everything that is drawn.
	Seed   uint64
	Length Length
	// Dir takes logs, the journal and the report.
	Dir string
	// Out takes what happens, and the tables at the end.
	Out io.Writer
}

// run is one run.
type run struct {
	Options
	t    testenv.TB
	dice dice

	env     *testenv.Environment
	journal *judge.Journal
	proxy   *proxy.Proxy
	remote  *remote.Server
	desk    *desk.Desk
	faults  *faults
	crashes *crashes

	operators   map[string]*operator
	agents      map[string]*process
	agentBinary string
	namespace   string
	agentUsers  []testenv.User

	// storms are what goes on in the background of a storm, until stormy is done.
	storms   sync.WaitGroup
	stormy   context.Context
	calmDown context.CancelFunc
	overlaps atomic.Int64
	// kills is how many agents were killed.
	kills atomic.Int64

	counter atomic.Int64
	mu      sync.Mutex
	// acknowledged are the reports that agents were told are stored.
	acknowledged []judge.Acknowledged
	// left is when an agent gave up an Action and could not say so, by uid.
	left map[string]time.Time
	// troubles is the last error that each person met, and goes on after.
	troubles map[string]string
	failed   error
	began    time.Time
}

// Run is a whole run. The error says that it could not be carried out; what the judge found is in the report.
func Run(ctx context.Context, t testenv.TB, o Options) (_ *Report, err error) {
	r := &run{
		Options: o, t: t, dice: dice(o.Seed), crashes: newCrashes(dice(o.Seed)), began: time.Now(),
		operators: map[string]*operator{}, agents: map[string]*process{}, left: map[string]time.Time{}, troubles: map[string]string{},
	}
	r.faults = &faults{run: r, mood: calm}
	// The clients of the harness are as quiet as the product's: what they meet is injected.
	ctrllog.SetLogger(logr.Discard())
	r.say("seed %d, %d actions, %s; logs in %s", o.Seed, o.Actions, o.Length, o.Dir)
	report := &Report{Seed: o.Seed, Length: o.Length, Wanted: o.Actions, Start: r.began}
	stop, err := r.open(ctx)
	defer func() { err = errors.Join(err, stop()) }()
	if err != nil {
		return report, err
	}
	for _, step := range []func(context.Context, *Report) error{r.positiveControl, r.workInAStorm, r.verdict, r.loseRecords} {
		if err := step(ctx, report); err != nil {
			return report, err
		}
	}
	report.finish(r)
	return report, r.failure()
}

// open starts everything but the agents.
func (r *run) open(ctx context.Context) (stop func() error, err error) {
	var stops []func() error
	stop = func() error {
		var errs []error
		for _, s := range slices.Backward(stops) {
			errs = append(errs, s())
		}
		return errors.Join(errs...)
	}
	journal, err := os.Create(filepath.Join(r.Dir, "journal.jsonl"))
	if err != nil {
		return stop, err
	}
	stops = append(stops, journal.Close)
	r.journal = judge.NewJournal(journal)
	if r.env, err = testenv.Start(ctx, testenv.Options{Dir: r.Dir}); err != nil {
		return stop, err
	}
	stops = append(stops, r.env.Stop)
	r.proxy = proxy.New(r.faults)
	stops = append(stops, func() error { _, err := r.proxy.Close(); return err })
	if r.remote, err = remote.Start(r.behave); err != nil {
		return stop, err
	}
	stops = append(stops, r.remote.Close)
	if r.desk, err = desk.Open(r.heard); err != nil {
		return stop, err
	}
	stops = append(stops, r.desk.Shut)
	stops = append(stops, r.stopOperators)
	for _, name := range []string{"operator-a", "operator-b"} {
		o, err := r.newOperator(name)
		if err != nil {
			return stop, err
		}
		r.operators[name] = o
	}
	if err := errors.Join(r.buildAgent(ctx), r.env.Grant(ctx, "", "ctrlrun-viewer", auditor)); err != nil {
		return stop, err
	}
	r.namespace, r.agentUsers, err = r.newNamespace(ctx)
	return stop, err
}

// newNamespace makes one in which two identities of agents work, two people approve and one is on call.
func (r *run) newNamespace(ctx context.Context) (string, []testenv.User, error) {
	ns := r.env.Namespace(r.t, nil)
	agents := []testenv.User{testenv.ServiceAccountUser(ns, "agent-a"), testenv.ServiceAccountUser(ns, "agent-b")}
	return ns, agents, errors.Join(
		r.env.Grant(ctx, ns, "ctrlrun-agent", agents...),
		r.env.Grant(ctx, ns, "ctrlrun-approver", testenv.User{Name: "alice"}, testenv.User{Name: "bob"}),
		r.env.Grant(ctx, ns, "ctrlrun-resolver", testenv.User{Name: "oncall"}),
		r.env.Policy(ctx, ns, policy),
		r.env.WaitForAdmission(ctx),
	)
}

// workInAStorm gives out the work while everything goes wrong, and waits until all of it has settled.
func (r *run) workInAStorm(ctx context.Context, report *Report) error {
	people, endPeople := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer endPeople()
	for name, do := range map[string]func(context.Context, string, *client.Client){"alice": r.approver, "bob": r.approver, "oncall": r.oncall} {
		c, err := r.person(name)
		if err != nil {
			return err
		}
		all.Go(func() { do(people, name, c) })
	}
	defer r.stopAgents()
	if err := r.startAgents(); err != nil {
		return err
	}
	length := 100 * time.Second
	if r.Length == Long {
		length = max(length, time.Duration(r.Actions)*400*time.Millisecond)
	}
	r.stormy, r.calmDown = context.WithCancel(ctx)
	defer r.calmDown()
	err := r.storm(ctx, length)
	report.GivenInStorm = r.desk.Given(planned)
	r.say("the storm is over: %d pieces of work of %d were given out", report.GivenInStorm, r.Actions)
	r.faults.set(calm)
	r.calmDown()
	r.storms.Wait()
	r.desk.Close()
	if err != nil {
		return err
	}
	report.Unsettled = r.settle(ctx)
	return nil
}

// feed puts work on the desk, evenly over the time.
func (r *run) feed(ctx context.Context, items []desk.Item, length time.Duration) {
	began := time.Now()
	for i, item := range items {
		if !pause(ctx, began.Add(length*time.Duration(i)/time.Duration(len(items)))) {
			break
		}
		r.desk.Add(item)
	}
}

const (
	manyAgents = 5
	workers    = 12
)

func (r *run) startAgents() error {
	for i := range manyAgents {
		if err := r.startAgent(fmt.Sprintf("%s-%d", ordinary, i+1), r.agentUsers[i%len(r.agentUsers)], workers); err != nil {
			return err
		}
	}
	for i := range r.sleepers() {
		if err := r.startAgent(fmt.Sprintf("%s-%d", sleeper, i+1), r.agentUsers[0], 1); err != nil {
			return err
		}
	}
	return nil
}

// sleepers is how many there are: enough for their share of the work within a storm, since each piece takes them a nap.
func (r *run) sleepers() int { return max(6, r.Actions/200) }

// startAgent knows an agent only once it runs: what is known is stopped at the end.
func (r *run) startAgent(name string, user testenv.User, workers int) error {
	a, err := r.newAgent(name, user, workers)
	if err != nil {
		return err
	}
	r.agents[name] = a
	return nil
}

// unsettled is what has not ended: empty when all has.
func (r *run) unsettled(ctx context.Context, namespace string) ([]string, error) {
	left := []string{}
	if n := r.desk.Waiting(); n > 0 {
		left = append(left, fmt.Sprintf("%d pieces of work that nobody took", n))
	}
	for _, p := range r.desk.InFlight("") {
		left = append(left, fmt.Sprintf("work %s of %s, %s, action %s", p.Work, p.Agent, p.Stage, p.Action))
	}
	actions, effects, resolutions := &v1alpha1.ActionList{}, &v1alpha1.EffectList{}, &v1alpha1.ResolutionList{}
	for _, list := range []kube.ObjectList{actions, effects, resolutions} {
		if err := r.env.Admin().List(ctx, list, kube.InNamespace(namespace)); err != nil {
			return nil, err
		}
	}
	for i := range actions.Items {
		if a := &actions.Items[i]; a.Status.ReceiptRef == nil {
			left = append(left, fmt.Sprintf("action %s (%s, %s)", a.Name, a.Status.State, a.Status.Reason))
		}
	}
	for i := range effects.Items {
		if e := &effects.Items[i]; e.Status != nil && (e.Status.State == v1alpha1.EffectExecuting || e.Status.State == v1alpha1.EffectReserved) {
			left = append(left, fmt.Sprintf("effect %s (%s)", e.Name, e.Status.State))
		}
	}
	for i := range resolutions.Items {
		if o := &resolutions.Items[i]; len(o.Status.Conditions) == 0 {
			left = append(left, "resolution "+o.Name)
		}
	}
	return left, nil
}

// settleTime is longer than patience, the shortest lease, the time people have to answer, and a claim's.
const settleTime = 5 * time.Minute

// settle waits until everything has ended, and says what has not.
func (r *run) settle(ctx context.Context) []string {
	if err := r.proxy.Drain(ctx); err != nil {
		r.fail(err)
	}
	left := []string{}
	err := wait.PollUntilContextTimeout(ctx, time.Second, settleTime, true, func(ctx context.Context) (bool, error) {
		now, err := r.unsettled(ctx, r.namespace)
		if err == nil {
			left = now
		}
		return err == nil && len(now) == 0, nil
	})
	if err == nil {
		r.say("everything has settled")
		return left
	}
	for _, l := range left {
		r.say("not settled: %s", l)
	}
	return left
}

// verdict judges the namespace of the storm.
func (r *run) verdict(ctx context.Context, report *Report) error {
	state, err := judge.Collect(ctx, r.env.Admin(), r.namespace, r.remote.Executions())
	if err != nil {
		return err
	}
	state.Acknowledged, state.Left = r.told()
	if err := writeJSON(filepath.Join(r.Dir, "state.json"), state); err != nil {
		return err
	}
	report.Verdict = judge.Judge(state, r.journal.Injections())
	plugin, err := r.pluginVerifies(ctx, r.namespace)
	report.Plugins = append(report.Plugins, plugin)
	return err
}

func (r *run) stopAgents() {
	for _, a := range r.agents {
		r.note(a.stop())
	}
}

func (r *run) stopOperators() error {
	var errs []error
	for _, o := range r.operators {
		errs = append(errs, o.stop())
	}
	return errors.Join(errs...)
}

func (r *run) operatorNames() []string { return slices.Sorted(maps.Keys(r.operators)) }

func (r *run) anyOperator(roll *rand.Rand) string {
	names := r.operatorNames()
	return names[roll.IntN(len(names))]
}

func (r *run) anyAgent(roll *rand.Rand) string {
	return fmt.Sprintf("%s-%d", ordinary, 1+roll.IntN(manyAgents))
}

// count gives numbers that are unique in a run.
func (r *run) count() int { return int(r.counter.Add(1)) }

// say tells whoever watches.
func (r *run) say(format string, args ...any) {
	fmt.Fprintf(r.Out, "%7.1fs  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// note tells of an error of the harness that the run goes on after.
func (r *run) note(err error) {
	if err != nil && !errors.Is(err, os.ErrProcessDone) {
		r.say("note: %v", err)
	}
}

// fail tells of an error of the harness after which the run proves nothing.
func (r *run) fail(err error) {
	r.say("error: %v", err)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failed = errors.Join(r.failed, err)
}

func (r *run) failure() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}
