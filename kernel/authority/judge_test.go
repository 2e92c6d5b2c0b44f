package authority_test

import (
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/decision"
)

// hall is a root and one delegation of it, both delegable.
func hall(t testing.TB, root spec) (*world, spec) {
	content := spec{"actions": []string{"stripe.*", "k8s.scale"}, "resources": []string{"payment:EU-*"}, "constraints": spec{"amount_lte": 1000, "currency_in": []any{"EUR", "CHF"}},
		"environments": []string{"production", "staging"}, "expirationTime": at(10 * time.Hour), "delegable": true}
	w := newWorld(t).grant("root", content.with(spec{"subject": spec{"agent": "head-*", "user": "ann*"}}).with(root))
	w.delegation("mid", below(grantRef("root"), "head-1", "manager", content).with(spec{"subject": spec{"agent": "manager", "user": "anna"}}))
	return w, content
}

// Each refusal by its word, and their order: where two apply, the one that is looked for first is reported.
func TestJudgeRefusals(t *testing.T) {
	ann := spec{"agent": "head-1", "user": "ann"}
	anna := spec{"agent": "manager", "user": "anna"}
	_, content := hall(t, nil)
	good := content.with(spec{"subject": spec{"agent": "bot", "user": "anna"}, "parentRef": spec{"kind": "Grant", "name": "root"}, "delegator": ann, "delegable": nil})
	leaf := good.with(spec{"parentRef": spec{"kind": "Delegation", "name": "mid"}, "delegator": anna})
	wide := spec{"actions": []string{"**"}}
	for name, tc := range map[string]struct {
		root      spec
		change    func(w *world)
		spec      spec
		problem   string
		now       time.Duration
		want      authority.Refusal
		dimension authority.Dimension
		depth     int
	}{
		"one step":                                  {spec: good, depth: 1},
		"two steps":                                 {spec: leaf, depth: 2},
		"malformed":                                 {spec: good, problem: "spec.actions is missing", want: authority.Malformed},
		"the parent does not exist":                 {spec: good.with(spec{"parentRef": spec{"kind": "Grant", "name": "mid"}}), want: authority.UnknownParent},
		"the parent is the delegation itself":       {spec: leaf.with(spec{"parentRef": spec{"kind": "Delegation", "name": "new"}}), want: authority.UnknownParent},
		"the parent is an invalid grant":            {spec: good, change: func(w *world) { w.Grants[0].Problem = "it is" }, want: authority.UnknownParent},
		"the parent was refused":                    {spec: leaf, change: func(w *world) { w.Delegations[0].Accepted, w.Delegations[0].Refused = false, "Containment" }, want: authority.UnknownParent},
		"the parent cannot be read":                 {spec: leaf, change: func(w *world) { w.Delegations[0].Problem = "it cannot" }, want: authority.UnknownParent},
		"unknown before everything below":           {spec: good.with(wide).with(spec{"parentRef": spec{"kind": "Grant", "name": "gone"}, "breakGlass": true, "reason": "x"}), want: authority.UnknownParent},
		"breakGlass below an ordinary grant":        {spec: good.with(spec{"breakGlass": true, "reason": "x"}), want: authority.BreakGlassMismatch},
		"breakGlass below a delegation":             {spec: leaf.with(spec{"breakGlass": true, "reason": "x"}), want: authority.BreakGlassMismatch},
		"breakGlass before not delegable":           {root: spec{"delegable": nil}, spec: good.with(spec{"breakGlass": true, "reason": "x"}), want: authority.BreakGlassMismatch},
		"the parent is not delegable":               {root: spec{"delegable": false}, spec: good, want: authority.ParentNotDelegable},
		"not delegable before not valid":            {root: spec{"delegable": false, "expirationTime": at(-time.Hour)}, spec: good, want: authority.ParentNotDelegable},
		"the parent has expired":                    {root: spec{"expirationTime": at(-time.Second)}, spec: good, want: authority.ParentNotValid},
		"the parent expires at this very moment":    {root: spec{"expirationTime": at(0)}, spec: good.with(spec{"expirationTime": at(0)}), depth: 1},
		"the parent is a delegation that expired":   {root: spec{"expirationTime": at(20 * time.Hour)}, spec: leaf, now: 10*time.Hour + time.Second, want: authority.ParentNotValid},
		"a grandparent has expired":                 {root: spec{"expirationTime": at(-time.Second)}, spec: leaf, want: authority.ParentNotValid},
		"the parent is revoked":                     {spec: leaf, change: func(w *world) { w.revoke("mid") }, want: authority.ParentNotValid},
		"a grandparent is no longer delegable":      {root: spec{"delegable": false}, spec: leaf, want: authority.ParentNotValid},
		"a grandparent is gone":                     {spec: leaf, change: func(w *world) { w.Grants = nil }, want: authority.ParentNotValid},
		"the parent is not within its own parent":   {root: spec{"constraints": spec{"amount_lte": 999}}, spec: leaf, want: authority.ParentNotValid},
		"the parent runs into itself":               {spec: leaf, change: func(w *world) { w.Delegations[0].Delegation.Parent = delegationRef("mid") }, want: authority.ParentNotValid},
		"not valid before not the subject":          {root: spec{"expirationTime": at(-time.Second)}, spec: good.with(spec{"delegator": spec{"agent": "x"}}), want: authority.ParentNotValid},
		"another agent delegates":                   {spec: good.with(spec{"delegator": spec{"agent": "bot", "user": "ann"}}), want: authority.NotTheSubject},
		"the agent without its user delegates":      {spec: good.with(spec{"delegator": spec{"agent": "head-1"}}), want: authority.NotTheSubject},
		"the agent for another user delegates":      {spec: good.with(spec{"delegator": spec{"agent": "head-1", "user": "bob"}}), want: authority.NotTheSubject},
		"whom the child is for does not count":      {spec: leaf.with(spec{"delegator": spec{"agent": "bot", "user": "anna"}}), want: authority.NotTheSubject},
		"not the subject before depth":              {spec: good.with(spec{"delegator": spec{"agent": "x"}}), change: func(w *world) { w.MaxDepth = 0 }, want: authority.NotTheSubject},
		"no depth at all":                           {spec: good, change: func(w *world) { w.MaxDepth = 0 }, want: authority.MaxDepth},
		"one step too deep":                         {spec: leaf, change: func(w *world) { w.MaxDepth = 1 }, want: authority.MaxDepth},
		"the parent is too deep already":            {spec: leaf, change: func(w *world) { w.MaxDepth = 0 }, want: authority.MaxDepth},
		"depth before containment":                  {spec: good.with(wide), change: func(w *world) { w.MaxDepth = 0 }, want: authority.MaxDepth},
		"subject omitted: no agent":                 {spec: good.with(spec{"subject": spec{"user": "anna"}}), want: authority.Containment, dimension: authority.DimensionSubject},
		"subject omitted: no user":                  {spec: good.with(spec{"subject": spec{"agent": "bot"}}), want: authority.Containment, dimension: authority.DimensionSubject},
		"subject widened: agents":                   {spec: good.with(spec{"subject": spec{"agent": "b*", "user": "anna"}}), want: authority.Containment, dimension: authority.DimensionSubject},
		"subject widened: users":                    {spec: good.with(spec{"subject": spec{"agent": "bot", "user": "anna*"}}), want: authority.Containment, dimension: authority.DimensionSubject},
		"subject widened: another user":             {spec: good.with(spec{"subject": spec{"agent": "bot", "user": "bob"}}), want: authority.Containment, dimension: authority.DimensionSubject},
		"subject widened: users, where none is set": {root: spec{"subject": spec{"agent": "head-*"}}, spec: good.with(spec{"subject": spec{"agent": "bot", "user": "a*"}}), want: authority.Containment, dimension: authority.DimensionSubject},
		"subject free: any user, where none is set": {root: spec{"subject": spec{"agent": "head-*"}}, spec: good.with(spec{"subject": spec{"agent": "bot"}}), depth: 1},
		"actions widened":                           {spec: good.with(spec{"actions": []string{"stripe.refund", "stripe.**"}}), want: authority.Containment, dimension: authority.DimensionActions},
		"actions added":                             {spec: good.with(spec{"actions": []string{"stripe.refund", "dns.edit"}}), want: authority.Containment, dimension: authority.DimensionActions},
		"actions narrowed":                          {spec: good.with(spec{"actions": []string{"stripe.re*", "k8s.scale"}}), depth: 1},
		"resources widened":                         {spec: good.with(spec{"resources": []string{"payment:*"}}), want: authority.Containment, dimension: authority.DimensionResources},
		"resources omitted":                         {spec: good.with(spec{"resources": nil}), want: authority.Containment, dimension: authority.DimensionResources},
		"resources narrowed":                        {spec: good.with(spec{"resources": []string{"payment:EU-4*", "payment:EU-1"}}), depth: 1},
		"resources free":                            {root: spec{"resources": nil}, spec: good.with(spec{"resources": []string{"x:y"}}), depth: 1},
		"resources free and omitted":                {root: spec{"resources": nil}, spec: good.with(spec{"resources": nil}), depth: 1},
		"constraints widened":                       {spec: good.with(spec{"constraints": spec{"amount_lte": 1001, "currency_in": []any{"EUR"}}}), want: authority.Containment, dimension: authority.DimensionConstraints},
		"constraints widened in a list":             {spec: good.with(spec{"constraints": spec{"amount_lte": 1, "currency_in": []any{"EUR", "USD"}}}), want: authority.Containment, dimension: authority.DimensionConstraints},
		"constraints omitted, one of them":          {spec: good.with(spec{"constraints": spec{"currency_in": []any{"EUR"}}}), want: authority.Containment, dimension: authority.DimensionConstraints},
		"constraints omitted, all of them":          {spec: good.with(spec{"constraints": nil}), want: authority.Containment, dimension: authority.DimensionConstraints},
		"constraints with another operator":         {spec: good.with(spec{"constraints": spec{"amount_lt": 5, "currency_in": []any{"EUR"}}}), want: authority.Containment, dimension: authority.DimensionConstraints},
		"constraints added":                         {spec: good.with(spec{"constraints": spec{"amount_lte": 1000, "amount_gte": 1, "currency_in": []any{"CHF"}}}), depth: 1},
		"environments widened":                      {spec: good.with(spec{"environments": []string{"staging", "dev"}}), want: authority.Containment, dimension: authority.DimensionEnvironments},
		"environments omitted":                      {spec: good.with(spec{"environments": nil}), want: authority.Containment, dimension: authority.DimensionEnvironments},
		"environments narrowed":                     {spec: good.with(spec{"environments": []string{"staging"}}), depth: 1},
		"environments free":                         {root: spec{"environments": nil}, spec: good.with(spec{"environments": []string{"dev"}}), depth: 1},
		"expiration later":                          {spec: good.with(spec{"expirationTime": at(10*time.Hour + time.Second)}), want: authority.Containment, dimension: authority.DimensionExpiration},
		"expiration omitted":                        {spec: good.with(spec{"expirationTime": nil}), want: authority.Containment, dimension: authority.DimensionExpiration},
		"expiration earlier":                        {spec: good.with(spec{"expirationTime": at(time.Hour)}), depth: 1},
		"the delegator's credential is over":        {spec: good.with(spec{"delegator": spec{"agent": "head", "expiresTime": at(-11 * time.Hour)}}), now: time.Second, want: authority.PrincipalExpired},
		"several dimensions, the first of them":     {spec: good.with(spec{"resources": nil, "constraints": nil, "environments": nil, "expirationTime": nil}), want: authority.Containment, dimension: authority.DimensionResources},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := hall(t, tc.root)
			if tc.change != nil {
				tc.change(w)
			}
			d := w.source("new", tc.spec)
			d.Problem = tc.problem
			for _, there := range []string{"without it in the set", "with it in the set"} {
				j := w.set().Judge(d, t0.Add(tc.now))
				if j.Refusal != tc.want || j.Dimension != tc.dimension || j.Depth != tc.depth || j.Accepted() != (tc.want == "") {
					t.Errorf("%s: %q in %q at %d, want %q in %q at %d (%s)", there, j.Refusal, j.Dimension, j.Depth, tc.want, tc.dimension, tc.depth, j.Message)
				}
				if j.Accepted() && (j.Root != grantRef("root") || j.ParentUID == "") || !j.Accepted() && (!j.Root.IsZero() || j.ParentUID != "") {
					t.Errorf("%s: root %q and the uid %q of the parent", there, j.Root, j.ParentUID)
				}
				if j.Message == "" || !j.Accepted() && !strings.HasPrefix(j.Message, `Delegation "new" is refused: `) {
					t.Errorf("%s: the message is %q", there, j.Message)
				}
				w.Delegations = append(w.Delegations, d)
			}
		})
	}
}

// What its parent's verdict will be nobody knows, so there is none of the child before.
func TestJudgeWaitsForTheParent(t *testing.T) {
	w, content := hall(t, nil)
	w.Delegations[0].Accepted = false
	d := w.source("new", below(delegationRef("mid"), "manager", "bot", content))
	j := w.set().Judge(d, t0)
	if !j.Waits || j.Accepted() || j.Refusal != "" || j.Message == "" {
		t.Errorf("%+v", j)
	}
	w.Delegations[0].Refused = "MaxDepth"
	if j := w.set().Judge(d, t0); j.Waits || j.Refusal != authority.UnknownParent {
		t.Errorf("below a refused parent: %+v", j)
	}
	own := w.source("new", below(delegationRef("new"), "manager", "bot", content))
	w.Delegations = append(w.Delegations, own)
	if j := w.set().Judge(own, t0); j.Waits || j.Refusal != authority.UnknownParent {
		t.Errorf("below itself: %+v", j)
	}
}

// A delegation whose status tells of a revocation stays revoked where the Revocation is gone.
func TestRevokedStaysRevoked(t *testing.T) {
	w := finance(t)
	agent := proposal("finance-agent", "stripe.refund", spec{"amount": 1})
	if r := w.set().Evaluate(agent, t0); !r.Passed {
		t.Fatal(describe(r))
	}
	for i := range w.Delegations {
		w.Delegations[i].Revoked = w.Delegations[i].Name == "dlg-1"
	}
	if r := w.set().Evaluate(agent, t0); r.Passed || r.Reason != decision.AuthorityRevoked || !strings.Contains(r.Message, "Revocation that is gone") {
		t.Error(describe(r))
	}
}

// A delegation that is accepted holds at the moment at which it was judged.
func TestAcceptedHolds(t *testing.T) {
	w, content := hall(t, nil)
	d := w.source("new", below(delegationRef("mid"), "manager", "bot", content).with(spec{
		"delegator": spec{"agent": "manager", "user": "anna"}, "subject": spec{"agent": "bot", "user": "anna"}}))
	j := w.set().Judge(d, t0)
	if !j.Accepted() {
		t.Fatal(j.Message)
	}
	d.Accepted, d.ParentUID = true, j.ParentUID
	w.Delegations = append(w.Delegations, d)
	r := w.set().Evaluate(on(forUser(proposal("bot", "stripe.refund", spec{"amount": 1, "currency": "EUR"}), "anna"), "payment:EU-1"), t0)
	if !r.Passed || r.Depth != j.Depth || r.Root != j.Root {
		t.Error(describe(r))
	}
}

func TestJudgeBreakGlass(t *testing.T) {
	for name, tc := range map[string]struct {
		changes   spec
		want      authority.Refusal
		dimension authority.Dimension
	}{
		"somebody whom the envelope is not for":  {spec{}, "", ""},
		"as long as it may":                      {spec{"expirationTime": at(0)}, "", ""},
		"a second longer":                        {spec{"expirationTime": at(time.Second)}, authority.BreakGlassTooLong, ""},
		"it does not say so":                     {spec{"breakGlass": false}, authority.BreakGlassMismatch, ""},
		"it says nothing":                        {spec{"breakGlass": nil}, authority.BreakGlassMismatch, ""},
		"wider actions":                          {spec{"actions": []string{"**"}}, authority.Containment, authority.DimensionActions},
		"without the constraint":                 {spec{"constraints": nil}, authority.Containment, authority.DimensionConstraints},
		"for several agents":                     {spec{"subject": spec{"agent": "sre-*"}}, authority.Containment, authority.DimensionSubject},
		"not contained comes before too long":    {spec{"actions": []string{"**"}, "expirationTime": at(time.Hour)}, authority.Containment, authority.DimensionActions},
		"for an agent the envelope is not about": {spec{"subject": spec{"agent": "bot"}}, authority.Containment, authority.DimensionSubject},
	} {
		t.Run(name, func(t *testing.T) {
			w := glass(t)
			j := w.set().Judge(w.source("open", opening("sre-1", tc.changes)), t0)
			if j.Refusal != tc.want || j.Dimension != tc.dimension {
				t.Errorf("%q in %q: %s", j.Refusal, j.Dimension, j.Message)
			}
		})
	}
	t.Run("what was opened is handed on by its subject only", func(t *testing.T) {
		w := glass(t).delegation("open", opening("sre-1", spec{"delegable": true}))
		content := spec{"actions": []string{"k8s.scale"}, "constraints": spec{"replicas_lte": 5}, "expirationTime": at(0)}
		for delegator, want := range map[string]authority.Refusal{"sre-1": "", "ann": authority.NotTheSubject} {
			if j := w.set().Judge(w.source("helper", below(delegationRef("open"), delegator, "helper", content)), t0); j.Refusal != want {
				t.Errorf("by %s: %q: %s", delegator, j.Refusal, j.Message)
			}
		}
	})
	t.Run("no depth, no opening", func(t *testing.T) {
		w := glass(t)
		w.MaxDepth = 0
		if j := w.set().Judge(w.source("open", opening("sre-1", nil)), t0); j.Refusal != authority.MaxDepth {
			t.Errorf("%q: %s", j.Refusal, j.Message)
		}
	})
}

// The words stand in conditions, and none of them is a reason of evaluation.
func TestRefusals(t *testing.T) {
	want := "Malformed PrincipalExpired UnknownParent BreakGlassMismatch ParentNotDelegable ParentNotValid NotTheSubject MaxDepth Containment BreakGlassTooLong"
	var got []string
	for _, r := range authority.Refusals() {
		got = append(got, r.Condition())
		if strings.HasPrefix(string(r), "authority_") || strings.ToLower(string(r)) != string(r) {
			t.Errorf("%q is no word of its own", r)
		}
	}
	if strings.Join(got, " ") != want {
		t.Errorf("the refusals are %v", got)
	}
}
