package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
)

const whyLong = `Say what would happen to an action if it were proposed now, and why, step by step. It writes nothing.

It shows what the decision rests on: environment and settings, what each Grant and Delegation says about it, the policy with
each rule that was passed over, the effect and what is known of it, who is asked, and what would happen. The rules are the
operator's own. It exits 0 whenever it prints an answer, also for deny.

--as is the agent, which is you if it is left out: on this command it is not kubectl's impersonation, and needs no right of its own.
--for is the user on whose behalf it acts. What is not about the agent and its action is left out, unless --all is given.

` + argumentsHelp

// whySchema names the answer of why -o json: members are added, never renamed or removed.
const whySchema = "ctrlrun.dev/why/v1alpha1"

type whyAnswer struct {
	Schema        string          `json:"schema"`
	Namespace     string          `json:"namespace"`
	ActionType    string          `json:"actionType"`
	Agent         string          `json:"agent"`
	User          *string         `json:"user"`
	Arguments     json.RawMessage `json:"arguments"`
	Resource      *string         `json:"resource"` // that is hashed: the policy's, if it has a template for it
	Environment   string          `json:"environment"`
	Settings      whySettings     `json:"settings"`
	Authority     *whyAuthority   `json:"authority"` // null: grants and delegations may not be read
	Policy        whyPolicy       `json:"policy"`
	Effect        *whyEffect      `json:"effect"`    // null: no effect key
	Approvals     *whyApprovals   `json:"approvals"` // null: nobody is asked
	Executor      *whyExecutor    `json:"executor"`  // null: its agent would execute it, or nobody
	WouldHappen   whyEnd          `json:"wouldHappen"`
	NotVisible    []string        `json:"notVisible,omitempty"`    // what may not be read, so that the answer may be another one
	HeldAtPresent string          `json:"heldAtPresent,omitempty"` // why nothing at all is decided at present
}

// whyExecutor would execute it for the operator.
type whyExecutor struct {
	Name string `json:"name"`
	Hash string `json:"hash"`
}

type whySettings struct {
	Mode      string `json:"mode"`
	Authority string `json:"authority"`
}

type whyAuthority struct {
	Passed     bool         `json:"passed"`
	Reason     string       `json:"reason"`
	By         string       `json:"by,omitempty"`
	Root       string       `json:"root,omitempty"`
	BreakGlass bool         `json:"breakGlass,omitempty"`
	Until      *time.Time   `json:"until,omitempty"`
	Message    string       `json:"message"`
	Verdicts   []whyVerdict `json:"verdicts"`
}

// whyVerdict is what one grant or delegation by itself says.
type whyVerdict struct {
	Name     string `json:"name"` // KIND/NAME
	Passes   bool   `json:"passes"`
	Reason   string `json:"reason"`
	Mismatch string `json:"mismatch,omitempty"` // the first dimension in which it is about something else
	Inert    string `json:"inert,omitempty"`    // why it lets nobody propose anything
	Message  string `json:"message"`
}

type whyPolicy struct {
	Decision   string    `json:"decision"`
	Reason     string    `json:"reason"`
	Policy     string    `json:"policy,omitempty"`
	Generation int64     `json:"generation,omitempty"`
	Rules      []whyRule `json:"rules,omitempty"` // up to and with the one that decides
	Hash       string    `json:"actionHash,omitempty"`
	Message    string    `json:"message,omitempty"`
}

type whyRule struct {
	Rule     string         `json:"rule"`
	Decision string         `json:"decision"`
	When     map[string]any `json:"when,omitempty"`
	Matches  bool           `json:"matches"`
	Why      string         `json:"why,omitempty"` // why it does not match
}

type whyEffect struct {
	Key     string `json:"key"`
	Name    string `json:"name"`
	State   string `json:"state,omitempty"` // none: it was never attempted, or is not visible
	Attempt int64  `json:"attempt,omitempty"`
	Action  string `json:"action,omitempty"`
}

type whyApprovals struct {
	Required int `json:"required"`
	// May are those whom Roles let approve; null: no Role can be read.
	May []able `json:"may"`
}

// whyEnd is what would happen.
type whyEnd struct {
	State         string `json:"state"` // of the Action
	Reason        string `json:"reason,omitempty"`
	BlockedReason string `json:"blockedReason,omitempty"` // in observe mode: why enforcing would not have let it run
	Message       string `json:"message"`
}

func (a *app) whyCommand() *cobra.Command {
	var file, as, user, resource string
	var all bool
	var out outputFlag
	cmd := &cobra.Command{
		Use:     "why TYPE [--as AGENT] [--for USER] [k=v | k:=json]...",
		Short:   "Explain what would happen to an action, and why",
		Long:    whyLong,
		Example: "  kubectl ctrlrun why stripe.refund --as system:serviceaccount:payments:refund-agent payment_id=txn_1 amount:=200000 -n payments",
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Errorf(exit.Usage, "name the action type, such as stripe.refund")
			}
			if err := errors.Join(out.check(), checkType(args[0])); err != nil {
				return usage(err)
			}
			arguments, err := a.arguments(file, args[1:])
			if err != nil {
				return err
			}
			text, err := client.CanonicalArguments(arguments)
			if err != nil {
				return usage(err)
			}
			s, err := a.connect(cmd.Context())
			if err != nil {
				return err
			}
			asked := &flow.Action{Name: whyName, UID: whyName, Type: args[0], Arguments: text, Agent: as, Lease: 5 * time.Minute, ClaimID: whyName}
			if as == "" {
				asked.Agent = s.user.Username
			}
			if cmd.Flags().Changed("for") {
				asked.User = &user
			}
			if resource != "" {
				asked.Resource = &resource
			}
			answer, err := s.why(cmd.Context(), asked)
			if err != nil {
				return err
			}
			return out.print(a, answer, func() { a.printWhy(answer, all) })
		},
	}
	cmd.Flags().StringVarP(&file, "filename", "f", "", "arguments as a JSON object, or - for stdin")
	// kubectl's flag of that name is another one: here it says whom to explain, and needs no right to be them.
	cmd.Flags().StringVar(&as, "as", "", "the agent that would propose it (default: you); no impersonation")
	cmd.Flags().StringVar(&user, "for", "", "the user on whose behalf it would act")
	cmd.Flags().StringVar(&resource, "resource", "", "the resource acted on, TYPE:ID; a template of the policy overrides it")
	cmd.Flags().BoolVar(&all, "all", false, "also show the grants and delegations that are about something else")
	out.addTo(cmd)
	return cmd
}

// whyName stands for the Action that is never made.
const whyName = "why"

// whyWorld is what the operator would decide by.
type whyWorld struct {
	world      flow.World
	notVisible []string
	ruled      ruling
}

func (s *session) whyWorld(ctx context.Context) (*whyWorld, error) {
	w := &whyWorld{}
	hidden := func(what string) { w.notVisible = append(w.notVisible, what) }
	environment, known, err := s.environment(ctx)
	if err != nil {
		return nil, err
	}
	if !known {
		hidden("the namespace: its environment is taken to be " + environment)
	}
	if w.ruled, err = s.ruling(ctx); err != nil {
		return nil, err
	}
	if w.ruled.unread {
		hidden("the Settings: authority is taken to be not required, and the mode Enforce")
	}
	var policies v1alpha1.ActionPolicyList
	if err := s.kube.List(ctx, &policies, kube.InNamespace(s.Namespace())); err != nil {
		return nil, explain(err)
	}
	var sources []policy.Source
	for i := range policies.Items {
		if o := &policies.Items[i]; records.InForce(o) {
			source, _ := records.Policy(o)
			sources = append(sources, source)
		}
	}
	w.world = flow.World{
		Namespace: s.Namespace(), Environment: environment, Limits: w.ruled.Limits, Policies: policy.NewSet(sources), Required: w.ruled.Required, Observe: w.ruled.Observe,
	}
	var executors v1alpha1.ExecutorList
	switch err := s.kube.List(ctx, &executors, kube.InNamespace(s.Namespace())); {
	case apierrors.IsForbidden(err):
		hidden("the Executors: the operator may execute it itself, or refuse to")
	case err != nil && !missingKind(err):
		return nil, explain(err)
	}
	for i := range executors.Items {
		if o := &executors.Items[i]; records.InForce(o) {
			w.world.Executors = append(w.world.Executors, records.Executor(o, judgedExecutor))
		}
	}
	found, err := s.authorities(ctx, w.ruled.MaxDepth)
	switch {
	case err == nil:
		w.world.Authority = found.set
		for _, kind := range found.unread {
			hidden(kind + ": what was revoked a moment ago is not seen")
		}
	case exit.Of(err) != exit.Refused:
		return nil, err
	case w.ruled.Required:
		return nil, err // without them there is no answer
	default:
		hidden("grants and delegations")
	}
	return w, nil
}

// judgedExecutor is what the operator has found wrong with an Executor: how it would execute is not looked at here.
func judgedExecutor(o *v1alpha1.Executor) error {
	if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ReadyCondition); c != nil && c.Reason == v1alpha1.ReasonExecutorInvalid {
		return errors.New(c.Message)
	}
	return nil
}

// why answers by the operator's own rules: the policy and the grants are asked for their part, and flow for the whole.
func (s *session) why(ctx context.Context, asked *flow.Action) (*whyAnswer, error) {
	w, err := s.whyWorld(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	asked.Created, asked.State = now, flow.Pending
	wanted := now.Add(time.Hour)
	asked.NotAfter = &wanted // what an Executor executes needs one; it is said with the answer
	answer := &whyAnswer{
		Schema: whySchema, Namespace: s.Namespace(), ActionType: asked.Type, Agent: asked.Agent, User: asked.User, Arguments: asked.Arguments,
		Resource: asked.Resource, Environment: w.world.Environment, NotVisible: w.notVisible,
		Settings: whySettings{Mode: string(v1alpha1.ModeEnforce), Authority: string(v1alpha1.AuthorityNotRequired)},
	}
	if w.ruled.Observe {
		answer.Settings.Mode = string(v1alpha1.ModeObserve)
	}
	if w.ruled.Required {
		answer.Settings.Authority = string(v1alpha1.AuthorityRequired)
	}
	if missing := s.admission(ctx).missing; missing != "" {
		answer.HeldAtPresent = missing
	}
	snapshot := flow.Snapshot{
		Now: now, World: w.world, Action: flow.ActionRead{Presence: flow.Fresh, Action: asked},
		Answers: flow.AnswersRead{Presence: flow.Fresh}, Claims: flow.ClaimsRead{Presence: flow.Fresh}, Lock: flow.OutcomeRead{Presence: flow.Absent},
		Effect: flow.EffectRead{Presence: flow.Absent},
	}
	value, err := canonical.Parse(asked.Arguments)
	if err != nil {
		return nil, err
	}
	arguments, _ := value.(map[string]any)
	proposal := action.Proposal{
		Name: asked.Type, Arguments: arguments, Principal: action.Principal{Agent: asked.Agent, User: asked.User}, Resource: asked.Resource, Environment: w.world.Environment,
	}
	evaluation, err := w.world.Policies.Evaluate(proposal)
	if err != nil {
		// What cannot be built is refused before anybody is asked; flow says in which words.
		answer.Policy = whyPolicy{Decision: string(decision.Deny), Reason: string(decision.ResourceError), Message: err.Error()}
	} else {
		answer.takePolicy(evaluation)
		proposal = evaluation.Proposal
		if w.world.Authority != nil {
			answer.Authority = whyAuthorityOf(w.world.Authority, proposal, now)
		}
		if key := evaluation.EffectKey; key != nil {
			if snapshot.Effect, err = s.whyEffect(ctx, answer, *key); err != nil {
				return nil, err
			}
		}
	}
	step, err := s.foresee(ctx, answer, &snapshot)
	if err != nil {
		return nil, err
	}
	answer.conclude(step)
	if write, ok := step.(flow.WriteAction); ok && write.Status.State == flow.AwaitingApproval && write.Status.Ask != nil {
		people, unread, nothing := s.able(ctx, "approve", asked.Type)
		for _, what := range unread {
			answer.NotVisible = append(answer.NotVisible, what+": the list of who may approve may be too short")
		}
		answer.Approvals = &whyApprovals{Required: write.Status.Ask.Required, May: people}
		if !nothing && people == nil {
			answer.Approvals.May = []able{}
		}
	}
	return answer, nil
}

func (w *whyAnswer) takePolicy(e policy.Evaluation) {
	w.Resource = e.Proposal.Resource
	w.Policy = whyPolicy{Decision: string(e.Decision), Reason: string(e.Reason), Hash: e.Hash, Message: e.Message}
	if e.Policy != nil {
		w.Policy.Policy, w.Policy.Generation = e.Policy.Name, e.Policy.Generation
	}
	if e.Entry == nil || e.Entry.Decision != "" || e.Reason == decision.EffectKeyError || e.Reason == decision.ArgumentsTooLarge {
		return
	}
	for i, rule := range e.Entry.Rules {
		line := whyRule{Rule: string(decision.Rule(i)), Decision: string(rule.Decision), When: rule.When.Canonical(), Matches: decision.Rule(i) == e.Reason}
		if !line.Matches {
			line.Why = rule.When.Explain(e.Proposal.Arguments)
		}
		w.Policy.Rules = append(w.Policy.Rules, line)
		if line.Matches {
			return
		}
	}
}

func whyAuthorityOf(set *authority.Set, p action.Proposal, now time.Time) *whyAuthority {
	r := set.Evaluate(p, now)
	answer := &whyAuthority{
		Passed: r.Passed, Reason: string(r.Reason), By: r.Ref.String(), Root: r.Root.Name, BreakGlass: r.BreakGlass, Until: r.Until, Message: r.Message, Verdicts: []whyVerdict{},
	}
	for _, v := range set.Explain(p, now) {
		answer.Verdicts = append(answer.Verdicts, whyVerdict{
			Name: v.Ref.String(), Passes: v.Passed, Reason: string(v.Reason), Mismatch: string(v.Mismatch), Inert: string(v.Inert), Message: v.Message,
		})
	}
	return answer
}

// concerns reports whether a verdict is about this agent and action, or about everything.
func (v whyVerdict) concerns() bool {
	switch {
	case v.Passes, v.Reason == string(decision.AuthorityUnreadable):
		return true
	case v.Inert != "":
		return false
	}
	return v.Mismatch != string(authority.DimensionSubject) && v.Mismatch != string(authority.DimensionActions)
}

// whyEffect reads the record of the effect. Whoever may not read it is told so.
func (s *session) whyEffect(ctx context.Context, answer *whyAnswer, key string) (flow.EffectRead, error) {
	name := action.EffectName(key)
	answer.Effect = &whyEffect{Key: key, Name: name}
	o := &v1alpha1.Effect{}
	err := s.kube.Get(ctx, s.key(name), o)
	switch {
	case apierrors.IsForbidden(err):
		answer.NotVisible = append(answer.NotVisible, "the effect: whether it has happened already is not known")
		return flow.EffectRead{Presence: flow.Absent}, nil
	case apierrors.IsNotFound(err) && !missingKind(err):
		return flow.EffectRead{Presence: flow.Absent}, nil
	case err != nil:
		return flow.EffectRead{}, explain(err)
	}
	record := records.Effect(o)
	if status := record.Status; status != nil {
		answer.Effect.State, answer.Effect.Attempt = string(status.State), status.Attempt
		if status.Holder != nil {
			answer.Effect.Action = status.Holder.Name
		}
	}
	return flow.EffectRead{Presence: flow.Fresh, Record: record}, nil
}

// maxForeseen bounds the steps that are gone through: a proposal takes a handful.
const maxForeseen = 16

// foresee goes on with what flow would do, as if each write had been made, until the Action is decided. What it asks for is read
// from the cluster.
func (s *session) foresee(ctx context.Context, answer *whyAnswer, snapshot *flow.Snapshot) (flow.Step, error) {
	for range maxForeseen {
		switch step := flow.Next(*snapshot).(type) {
		case flow.Read:
			switch step.Object {
			case flow.TheHolder:
				holder, err := s.whyHolder(ctx, step.Name, snapshot.Effect.Record)
				if err != nil {
					return nil, err
				}
				snapshot.Holder = holder
			case flow.TheChain:
				// Whether a resolution is on record yet delays, and decides nothing.
				snapshot.Chain = flow.ChainRead{Read: true, Identity: step.Identity, Found: &receipt.Document{}}
			default:
				return step, nil
			}
		case flow.WriteEffect:
			status := step.Status
			snapshot.Effect = flow.EffectRead{Presence: flow.Fresh, Record: &effect.Record{Name: step.Name, UID: whyName, Key: step.Key, Status: &status}}
		default:
			return step, nil
		}
	}
	return flow.Wait{Why: "it goes round in circles"}, nil
}

func (s *session) whyHolder(ctx context.Context, name string, record *effect.Record) (flow.ActionRead, error) {
	o := &v1alpha1.Action{}
	err := s.kube.Get(ctx, s.key(name), o)
	switch {
	case apierrors.IsNotFound(err) && !missingKind(err), err == nil && record != nil && record.Status.Holder != nil && string(o.UID) != record.Status.Holder.UID:
		return flow.ActionRead{Presence: flow.Absent}, nil
	case err != nil:
		return flow.ActionRead{}, explain(err)
	}
	return flow.ActionRead{Presence: flow.Fresh, Action: records.Action(o)}, nil
}

// conclude says what the last step means.
func (w *whyAnswer) conclude(step flow.Step) {
	write, ok := step.(flow.WriteAction)
	if !ok {
		w.WouldHappen = whyEnd{State: string(flow.Pending), Message: "It would stay Pending, for a reason that is only known once it is proposed."}
		return
	}
	status := write.Status
	end := whyEnd{State: string(status.State), Reason: string(status.Reason), Message: status.Message}
	switch status.State {
	case flow.AwaitingApproval:
		end.Message = fmt.Sprintf("People would be asked: %d must say yes to this exact hash, within %s.", status.Ask.Required, status.Ask.Expiration.Sub(status.Ask.Requested))
	case flow.Admitted:
		end.Message = "It would be admitted: the process that proposed it may execute it, once."
		if x := status.Executor; x != nil {
			end.Message = fmt.Sprintf("It would be admitted, and the operator would execute it, by Executor %s.", x.Name)
		}
		if would := status.WouldHave; would != nil {
			end.BlockedReason = string(would.Blocked)
			end.Message = "It would be admitted, for in observe mode nothing is enforced."
			if would.Blocked != "" {
				end.Message += " Enforce mode would have " + wouldHaveText(string(would.Decision), string(would.Reason), string(would.Blocked)) + "."
			}
		}
	}
	if x := status.Executor; x != nil {
		w.Executor = &whyExecutor{Name: x.Name, Hash: x.Hash}
	}
	w.WouldHappen = end
}

func (a *app) printWhy(w *whyAnswer, all bool) {
	for _, what := range w.NotVisible {
		a.note("you may not read %s", displayLine(what))
	}
	f := a.fields()
	f.row("Namespace", w.Namespace)
	f.row("Environment", w.Environment)
	f.row("Mode", w.Settings.Mode)
	f.row("Authority", w.Settings.Authority)
	f.gap()
	f.row("Action", w.ActionType)
	f.row("Agent", w.Agent)
	if w.User != nil {
		f.row("On behalf of", *w.User)
	}
	f.row("Resource", orNone(w.Resource))
	f.row("Arguments", prettyJSON(w.Arguments))
	f.row("Hash", w.Policy.Hash)
	f.gap()
	w.authorityRows(f, all)
	f.gap()
	w.policyRows(f)
	f.gap()
	if e := w.Effect; e != nil {
		f.row("Effect", e.Name)
		f.row("Effect key", e.Key)
		f.row("Known of it", e.text())
	} else {
		f.row("Effect", "<none>: nothing keeps this action from running twice")
	}
	if x := w.Executor; x != nil {
		f.row("Executed by", fmt.Sprintf("the operator, by Executor %s\n%s\nIt has to be proposed with a time after which it is not wanted any more: --not-after", x.Name, x.Hash))
	}
	if w.Approvals != nil {
		f.row("People asked", w.Approvals.text(w.Agent, w.User))
	}
	f.gap()
	f.row("Held at present", w.HeldAtPresent)
	end := w.WouldHappen.State
	if w.WouldHappen.Reason != "" {
		end += ", " + w.WouldHappen.Reason
	}
	f.row("What would happen", end+"\n"+w.WouldHappen.Message)
	f.flush()
}

func (w *whyAnswer) authorityRows(f fields, all bool) {
	by := w.Authority
	if by == nil {
		f.row("Grants", "not asked")
		return
	}
	hidden := 0
	for _, v := range by.Verdicts {
		if !all && !v.concerns() {
			hidden++
			continue
		}
		mark := "no"
		if v.Passes {
			mark = "yes"
		}
		f.row(v.Name, mark+": "+oneLine(v.Message))
	}
	if hidden > 0 {
		f.row("Others", fmt.Sprintf("%d that are about something else, or let nobody propose; --all shows them", hidden))
	}
	text := by.Reason + ": " + by.Message
	if by.BreakGlass {
		text += "\nBREAK GLASS"
	}
	if by.Until != nil {
		text += "\nuntil " + by.Until.UTC().Format(time.RFC3339)
	}
	if w.Settings.Authority != string(v1alpha1.AuthorityRequired) {
		text += "\nIt decides nothing, for authority is not required here."
	}
	f.row("Grants say", text)
}

func (w *whyAnswer) policyRows(f fields) {
	for _, rule := range w.Policy.Rules {
		text := rule.Decision
		if len(rule.When) > 0 {
			when, err := canonical.Encode(rule.When)
			if err == nil {
				text += " when " + string(when)
			}
		}
		if rule.Matches {
			text += ": matches"
		} else {
			text += ": " + rule.Why
		}
		f.row(rule.Rule, text)
	}
	text := w.Policy.Decision + ", " + w.Policy.Reason
	if w.Policy.Policy != "" {
		text += fmt.Sprintf(" of ActionPolicy %s, generation %d", w.Policy.Policy, w.Policy.Generation)
	}
	if w.Policy.Message != "" {
		text += "\n" + w.Policy.Message
	}
	f.row("Policy says", text)
}

func (e *whyEffect) text() string {
	if e.State == "" {
		return "nothing: no attempt is on record"
	}
	text := fmt.Sprintf("%s, attempt %d", e.State, e.Attempt)
	if e.Action != "" {
		text += ", of action " + e.Action
	}
	return text
}

func (p *whyApprovals) text(agent string, user *string) string {
	lines := []string{fmt.Sprintf("%d", p.Required)}
	for _, one := range p.May {
		line := one.Subject + " may approve, by " + strings.Join(one.By, ", ")
		switch {
		case slices.Contains([]string{"User " + agent, "User " + orNone(user)}, one.Subject):
			line = one.Subject + " asks: their own yes does not count"
		case !one.Create:
			line += ", only if another binding gives create on approvals"
		}
		lines = append(lines, line)
	}
	switch {
	case p.May == nil:
		lines = append(lines, "who may approve is not visible to you")
	case len(p.May) == 0:
		lines = append(lines, "nobody that can be seen may approve it")
	}
	return strings.Join(lines, "\n")
}
