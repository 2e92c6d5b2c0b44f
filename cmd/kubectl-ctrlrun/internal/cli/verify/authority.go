package verify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kube "sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/client"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/guarantees"
	"ctrlrun.dev/operator/kernel/timeline"
)

const (
	// inTime is how long a grant of G8 holds at the first try; each further one has twice as long.
	inTime = 6 * time.Second
	// near is how near its end nothing is concluded: the cluster's clock is known to the second only.
	near = 2 * time.Second
)

// lets checks that an Action was let pass by one grant or delegation, and that the timeline says so.
func (s *stage) lets(o *v1alpha1.Action, kind v1alpha1.ParentKind, name string) error {
	expected := fmt.Sprintf("action %s is let pass by the %s %s", o.Name, kind, name)
	if by := o.Status.Authority; by == nil || by.Kind != kind || by.Name != name {
		return s.fail(expected, "it is let pass by %s; %s", authorityOf(o), standing(o))
	}
	key := map[v1alpha1.ParentKind]string{v1alpha1.ParentGrant: "grant", v1alpha1.ParentDelegation: "delegation"}[kind]
	told := slices.ContainsFunc(o.Status.Timeline, func(e v1alpha1.TimelineEvent) bool {
		return e.Type == string(timeline.AuthorityResolved) && string(e.Data[key]) == name
	})
	if !told {
		return s.fail(fmt.Sprintf("the timeline of %s says %s, by %s", o.Name, timeline.AuthorityResolved, name), "it does not")
	}
	return nil
}

func authorityOf(o *v1alpha1.Action) string {
	if o.Status.Authority == nil {
		return "nothing"
	}
	return fmt.Sprintf("the %s %s", o.Status.Authority.Kind, o.Status.Authority.Name)
}

// actsAs proposes an Action in somebody's own name, lets people approve it if they are asked, and executes it.
func (s *stage) actsAs(ctx context.Context, who *identity, part string, v guarantees.Vector) (*v1alpha1.Action, *remote, error) {
	r, err := s.remoteFor(part)
	if err != nil {
		return nil, nil, err
	}
	execute, err := s.command(r, Commit)
	if err != nil {
		return nil, nil, err
	}
	call, err := who.Propose(ctx, s.request(part, v))
	if err != nil {
		return nil, nil, err
	}
	if err := s.settle(ctx, call.Action().Name, v); err != nil {
		return nil, nil, err
	}
	o, err := s.execute(ctx, call, execute)
	return o, r, err
}

// expired: G8. A copy of the grant is for the rival alone, and holds for some seconds. Until then the rival proposes by it, and
// afterwards nobody does.
func expired(ctx context.Context, s *stage) (any, error) {
	document, err := s.run.document(s.plan.Grant)
	if err != nil {
		return nil, err
	}
	for try := range guarantees.Tries {
		v := s.plan.Vectors[try]
		end := s.now().Add(inTime<<try + time.Duration(2*v.Approvals)*time.Second).Truncate(time.Second)
		name := s.unused(fmt.Sprintf("g8-%d", try+1))
		o, err := s.grant(ctx, name, document.For(s.rival.username, &end))
		if err != nil {
			return nil, err
		}
		if err := s.inForce(ctx, o); err != nil {
			return nil, err
		}
		s.control = true
		before, r, err := s.actsAs(ctx, s.rival, fmt.Sprintf("before-%d", try+1), v)
		late := s.now().Add(near).After(end)
		var f *finding
		if err != nil && (!late || !errors.As(err, &f)) {
			return nil, err
		}
		if late && (err != nil || before.Status.State != v1alpha1.ActionCommitted) {
			continue // this machine was too slow: it says nothing of the grant
		}
		if err := s.ends(ctx, before, v1alpha1.ActionCommitted, "", decision.Committed); err != nil {
			return nil, err
		}
		if err := s.lets(before, v1alpha1.ParentGrant, name); err != nil {
			return nil, err
		}
		if err := s.calls(r, 1, before.Name); err != nil {
			return nil, err
		}
		s.control = false
		if err := s.passes(ctx, o, end); err != nil {
			return nil, err
		}
		after, r, err := s.actsAs(ctx, s.rival, "after", s.plan.Vectors[guarantees.Tries])
		if err != nil {
			return nil, err
		}
		if err := s.calls(r, 0, after.Name); err != nil {
			return nil, err
		}
		return map[string]any{"grant": s.plan.Grant, "expirationTime": end.UTC().Format(time.RFC3339)},
			s.ends(ctx, after, v1alpha1.ActionDenied, decision.AuthorityExpired, decision.Denied)
	}
	return nil, fmt.Errorf("no action was decided within %s: this machine, or the cluster, is too slow to see a grant expire", inTime<<(guarantees.Tries-1))
}

// unused is the name of a grant that is no copy's.
func (s *stage) unused(name string) string {
	for {
		if _, taken := s.grants[name]; !taken {
			return name
		}
		name += "x"
	}
}

// passes returns when a grant has expired by the clock of the operator, which says so in its status, or at the latest some time after.
func (s *stage) passes(ctx context.Context, o *v1alpha1.Grant, end time.Time) error {
	for latest := end.Add(patience); s.now().Before(latest); {
		if err := s.viewer.kube().Get(ctx, kube.ObjectKeyFromObject(o), o); err != nil {
			return fmt.Errorf("read the grant %s: %w", o.Name, err)
		}
		if meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ExpiredCondition) {
			return nil
		}
		if !pause(ctx, 100*time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}

// document is one of the grants of the namespace.
func (r *run) document(name string) (guarantees.GrantDocument, error) {
	for _, g := range r.Grants {
		if g.Name == name {
			return g.document, nil
		}
	}
	return guarantees.GrantDocument{}, fmt.Errorf("there is no grant %s", name)
}

// handedOn is what G9 tells beside the verdict.
type handedOn struct {
	Grant string `json:"grant"`
	// Exercised are the dimensions in which a delegation was refused that was wider; in the others the grant has no limit.
	Exercised     []authority.Dimension `json:"dimensionsExercised"`
	Unconstrained []authority.Dimension `json:"dimensionsUnconstrained"`
	// Delegations is how many were refused.
	Delegations int `json:"delegationsRefused"`
}

// escalation: G9. The agent hands on what it was granted, each time wider in one dimension: nobody gets anything. Then it hands on
// less, and that agent proposes by it.
func escalation(ctx context.Context, s *stage) (any, error) {
	v := s.plan.Vectors[0]
	helper, err := s.person(ctx, "delegate", "ClusterRole", agentRole, authorizationv1.ResourceAttributes{Verb: "create", Resource: "actions"})
	if err != nil {
		return nil, err
	}
	narrow, wider, err := guarantees.Children(s.grants[s.plan.Grant], helper.username, v, s.run.Environment)
	if err != nil {
		return nil, err
	}
	detail := handedOn{Grant: s.plan.Grant, Delegations: len(wider), Exercised: []authority.Dimension{}, Unconstrained: []authority.Dimension{}}
	for _, child := range wider {
		if err := s.tooWide(ctx, child); err != nil {
			return nil, err
		}
		if !slices.Contains(detail.Exercised, child.Dimension) {
			detail.Exercised = append(detail.Exercised, child.Dimension)
		}
	}
	for _, d := range authority.Dimensions() {
		if !slices.Contains(detail.Exercised, d) {
			detail.Unconstrained = append(detail.Unconstrained, d)
		}
	}
	without, r, err := s.actsAs(ctx, helper, "without", v)
	if err != nil {
		return nil, err
	}
	if err := s.calls(r, 0, without.Name); err != nil {
		return nil, err
	}
	if err := s.ends(ctx, without, v1alpha1.ActionDenied, decision.NoAuthority, decision.Denied); err != nil {
		return nil, err
	}
	s.control = true
	o, err := s.delegate(ctx, "g9-narrower", narrow)
	if client.Refused(err) {
		return nil, s.fail("a delegation that is narrower than the grant in everything is accepted", "it is not created: %v", err)
	}
	if err != nil {
		return nil, err
	}
	if c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.AcceptedCondition); c.Status != metav1.ConditionTrue {
		return nil, s.fail("a delegation that is narrower than the grant in everything is accepted", "%s, in %q: %s", c.Reason, o.Status.Dimension, c.Message)
	}
	within, r, err := s.actsAs(ctx, helper, "within", v)
	if err != nil {
		return nil, err
	}
	if err := s.ends(ctx, within, v1alpha1.ActionCommitted, "", decision.Committed); err != nil {
		return nil, err
	}
	if err := s.lets(within, v1alpha1.ParentDelegation, o.Name); err != nil {
		return nil, err
	}
	return detail, s.calls(r, 1, within.Name)
}

// delegationPolicy is the admission policy that says what a Delegation looks like: it is for one agent.
const delegationPolicy = "ctrlrun-delegations"

// tooWide hands on more than the agent has, which has to be refused for that: by the operator, or, where it is for more than one agent,
// by the apiserver already.
func (s *stage) tooWide(ctx context.Context, child guarantees.Child) error {
	how := map[bool]string{true: "omitting", false: "wider"}[child.Omitted]
	o, err := s.delegate(ctx, "g9-"+how+"-"+strings.ReplaceAll(string(child.Dimension), "_", "-"), child)
	if child.Dimension == authority.DimensionSubject && client.Refused(err) && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+delegationPolicy+"'") {
		return nil
	}
	if client.Refused(err) {
		return s.fail("a delegation that is too wide in "+string(child.Dimension)+" is judged by the operator", "it is not created: %v", err)
	}
	if err != nil {
		return err
	}
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.AcceptedCondition)
	if c.Status != metav1.ConditionFalse || c.Reason != authority.Containment.Condition() || o.Status.Dimension != string(child.Dimension) {
		return s.fail(fmt.Sprintf("the delegation %s is refused: %s, in %s", o.Name, authority.Containment.Condition(), child.Dimension),
			"%s=%s, %s, in %q: %s", c.Type, c.Status, c.Reason, o.Status.Dimension, c.Message)
	}
	return nil
}

// delegate makes a Delegation below the grant, as the agent, and waits for the verdict.
func (s *stage) delegate(ctx context.Context, name string, child guarantees.Child) (*v1alpha1.Delegation, error) {
	text, err := canonical.Encode(child.Terms)
	if err != nil {
		return nil, fmt.Errorf("delegation %s: %w", name, err)
	}
	o := &v1alpha1.Delegation{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name}}
	if err := json.Unmarshal(text, &o.Spec); err != nil {
		return nil, fmt.Errorf("delegation %s: %w", name, err)
	}
	o.Spec.ParentRef = v1alpha1.ParentReference{Kind: v1alpha1.ParentGrant, Name: s.plan.Grant}
	o.Spec.Delegator = v1alpha1.Principal{Agent: s.agent.username}
	own := func(kube.Object) bool { return true } // nobody else makes any here
	if err := s.agent.CreateStatement(ctx, o, name, own); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(patience); ; {
		if err := s.agent.kube().Get(ctx, kube.ObjectKeyFromObject(o), o); err != nil {
			return nil, fmt.Errorf("read the verdict about delegation %s: %w", name, err)
		}
		if meta.FindStatusCondition(o.Status.Conditions, v1alpha1.AcceptedCondition) != nil {
			return o, nil
		}
		if time.Now().After(deadline) || !pause(ctx, 50*time.Millisecond) {
			return nil, silent(ctx, fmt.Sprintf("delegation %s has not been judged for %s", name, patience))
		}
	}
}
