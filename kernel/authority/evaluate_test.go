package authority_test

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/decision"
)

// The published scenario of an escalation: what was handed on is what holds, and nothing wider can be handed on.
func TestEscalationScenario(t *testing.T) {
	w := finance(t)
	s := w.set()
	for amount, want := range map[int]decision.Reason{5000000: decision.AuthorityConstraint, 150000: decision.AuthorityGrant, 200000: decision.AuthorityGrant, 200001: decision.AuthorityConstraint} {
		r := s.Evaluate(proposal("support-agent", "stripe.refund", spec{"amount": amount}), t0)
		if r.Reason != want || r.Passed != (want == decision.AuthorityGrant) || r.Ref != delegationRef("dlg-2") || r.Root != grantRef("head-of-finance") || r.Depth != 2 {
			t.Errorf("amount %d: %s, want %s", amount, describe(r), want)
		}
	}
	wider := w.source("wider", below(delegationRef("dlg-1"), "finance-agent", "support-agent", spec{
		"actions": []string{"stripe.*"}, "expirationTime": at(time.Hour), "constraints": spec{"amount_lte": 5000000}}))
	if j := s.Judge(wider, t0); j.Refusal != authority.Containment || j.Dimension != authority.DimensionConstraints {
		t.Errorf("a wider delegation: %q in %q", j.Refusal, j.Dimension)
	}
	further := w.source("further", below(delegationRef("dlg-2"), "support-agent", "helper", spec{
		"actions": []string{"stripe.refund"}, "expirationTime": at(time.Hour), "constraints": spec{"amount_lte": 1}}))
	if j := s.Judge(further, t0); j.Refusal != authority.ParentNotDelegable || j.Dimension != "" {
		t.Errorf("a delegation by somebody who may not delegate: %q in %q", j.Refusal, j.Dimension)
	}
}

// One grant by itself: who, what, on what, where, until when, with which arguments.
func TestEvaluateGrant(t *testing.T) {
	refund := proposal("bot", "stripe.refund", nil)
	base := spec{"subject": spec{"agent": "bot"}, "actions": []string{"stripe.*"}}
	for name, tc := range map[string]struct {
		grant spec
		p     action.Proposal
		now   time.Time
		want  decision.Reason
	}{
		"a matching grant":                          {base, refund, t0, decision.AuthorityGrant},
		"another agent":                             {base, proposal("bob", "stripe.refund", nil), t0, decision.NoAuthority},
		"case counts":                               {base, proposal("Bot", "stripe.refund", nil), t0, decision.NoAuthority},
		"another action":                            {base, proposal("bot", "k8s.scale", nil), t0, decision.NoAuthority},
		"a wildcard does not cross a dot":           {base, proposal("bot", "stripe.refund.partial", nil), t0, decision.NoAuthority},
		"one of several patterns":                   {base.with(spec{"actions": []string{"k8s.*", "stripe.*"}}), refund, t0, decision.AuthorityGrant},
		"an agent pattern reaches over colons":      {base.with(spec{"subject": spec{"agent": "system:serviceaccount:pay.eu:*"}}), proposal("system:serviceaccount:pay.eu:bot", "stripe.refund", nil), t0, decision.AuthorityGrant},
		"* is any agent":                            {base.with(spec{"subject": spec{"agent": "*"}}), refund, t0, decision.AuthorityGrant},
		"a user is required, and there is none":     {base.with(spec{"subject": spec{"agent": "bot", "user": "*"}}), refund, t0, decision.NoAuthority},
		"a user is required, and it is another":     {base.with(spec{"subject": spec{"agent": "bot", "user": "ann"}}), forUser(refund, "bob"), t0, decision.NoAuthority},
		"a user is required, and it is that one":    {base.with(spec{"subject": spec{"agent": "bot", "user": "ann*"}}), forUser(refund, "anna"), t0, decision.AuthorityGrant},
		"no user is required, and there is one":     {base, forUser(refund, "ann"), t0, decision.AuthorityGrant},
		"any agent by omission":                     {base.with(spec{"subject": spec{"user": "ann"}}), forUser(refund, "ann"), t0, decision.AuthorityGrant},
		"any agent by omission, for somebody else":  {base.with(spec{"subject": spec{"user": "ann"}}), refund, t0, decision.NoAuthority},
		"a resource":                                {base.with(spec{"resources": []string{"payment:EU-*"}}), on(refund, "payment:EU-42"), t0, decision.AuthorityGrant},
		"another resource":                          {base.with(spec{"resources": []string{"payment:EU-*"}}), on(refund, "payment:US-42"), t0, decision.NoAuthority},
		"no resource where one is required":         {base.with(spec{"resources": []string{"**"}}), refund, t0, decision.NoAuthority},
		"a resource where none is required":         {base, on(refund, "payment:EU-42"), t0, decision.AuthorityGrant},
		"its environment":                           {base.with(spec{"environments": []string{"staging", "production"}}), refund, t0, decision.AuthorityGrant},
		"another environment":                       {base.with(spec{"environments": []string{"staging"}}), refund, t0, decision.NoAuthority},
		"every environment by omission":             {base, in(refund, "dev"), t0, decision.AuthorityGrant},
		"environments are exact":                    {base.with(spec{"environments": []string{"prod"}}), refund, t0, decision.NoAuthority},
		"the very moment it expires":                {base.with(spec{"expirationTime": at(0)}), refund, t0, decision.AuthorityGrant},
		"a microsecond later":                       {base.with(spec{"expirationTime": at(0)}), refund, t0.Add(time.Microsecond), decision.AuthorityExpired},
		"the moment in another offset":              {base.with(spec{"expirationTime": "2027-03-01T14:00:00+02:00"}), refund, t0, decision.AuthorityGrant},
		"expired, and not about the action":         {base.with(spec{"expirationTime": at(-time.Hour), "actions": []string{"k8s.*"}}), refund, t0, decision.NoAuthority},
		"a constraint that holds":                   {base.with(spec{"constraints": spec{"amount_lte": 5}}), proposal("bot", "stripe.refund", spec{"amount": 5}), t0, decision.AuthorityGrant},
		"a constraint that does not hold":           {base.with(spec{"constraints": spec{"amount_lte": 5}}), proposal("bot", "stripe.refund", spec{"amount": 6}), t0, decision.AuthorityConstraint},
		"a constraint on an argument that is not":   {base.with(spec{"constraints": spec{"amount_neq": 5}}), refund, t0, decision.AuthorityConstraint},
		"a constraint on an argument of text":       {base.with(spec{"constraints": spec{"amount_lte": 5}}), proposal("bot", "stripe.refund", spec{"amount": "5"}), t0, decision.AuthorityConstraint},
		"one constraint of two does not hold":       {base.with(spec{"constraints": spec{"amount_lte": 5, "amount_gte": 3}}), proposal("bot", "stripe.refund", spec{"amount": 2}), t0, decision.AuthorityConstraint},
		"expired and outside the constraints":       {base.with(spec{"constraints": spec{"amount_lte": 5}, "expirationTime": at(-time.Second)}), refund, t0, decision.AuthorityExpired},
		"an envelope lets nobody propose":           {base.with(spec{"grantType": "BreakGlass", "maxDurationSeconds": 60}), refund, t0, decision.NoAuthority},
		"that it may be delegated changes nothing":  {base.with(spec{"delegable": true, "expirationTime": at(time.Hour)}), refund, t0, decision.AuthorityGrant},
		"** is every action":                        {base.with(spec{"actions": []string{"**"}}), proposal("bot", "a.b.c.d", nil), t0, decision.AuthorityGrant},
		"k8s.* is not k8s.namespace.delete":         {base.with(spec{"actions": []string{"k8s.*"}}), proposal("bot", "k8s.namespace.delete", nil), t0, decision.NoAuthority},
		"a standard type that is written out":       {base.with(spec{"grantType": "Standard"}), refund, t0, decision.AuthorityGrant},
		"text is not an integer in an equality":     {base.with(spec{"constraints": spec{"n_eq": 1}}), proposal("bot", "stripe.refund", spec{"n": "1"}), t0, decision.AuthorityConstraint},
		"true is not 1 in an equality":              {base.with(spec{"constraints": spec{"n_eq": 1}}), proposal("bot", "stripe.refund", spec{"n": true}), t0, decision.AuthorityConstraint},
		"a second of grace beyond the offset is no": {base.with(spec{"expirationTime": "2027-03-01T13:59:59+02:00"}), refund, t0, decision.AuthorityExpired},
	} {
		t.Run(name, func(t *testing.T) {
			r := newWorld(t).grant("g", tc.grant).set().Evaluate(tc.p, tc.now)
			want := grantRef("g")
			if tc.want == decision.NoAuthority {
				want = authority.Ref{}
			}
			if r.Reason != tc.want || r.Passed != (tc.want == decision.AuthorityGrant) || r.Ref != want || r.Depth != 0 || r.BreakGlass {
				t.Errorf("%s, want %s by %q", describe(r), tc.want, want)
			}
			if r.Message == "" || !r.Passed && !strings.Contains(r.Message, "Nothing was executed.") {
				t.Errorf("the message does not say what happened: %q", r.Message)
			}
		})
	}
}

func TestNoGrantsDenyEverything(t *testing.T) {
	r := newWorld(t).set().Evaluate(proposal("bot", "stripe.refund", nil), t0)
	if r.Passed || r.Reason != decision.NoAuthority || !strings.Contains(r.Message, "no valid grant") {
		t.Errorf("%s: %s", describe(r), r.Message)
	}
}

// What is handed on is looked at again at every use. Each case changes something after the delegations were accepted.
func TestEvaluateChain(t *testing.T) {
	long := at(240 * time.Hour)
	base := spec{"actions": []string{"stripe.*"}, "resources": []string{"payment:*"}, "constraints": spec{"amount_lte": 100000},
		"environments": []string{"production", "staging"}, "expirationTime": long, "delegable": true}
	root := base.with(spec{"subject": spec{"agent": "head"}})
	// The middle and the leaf are what they are throughout; the root, and what is around them, changes.
	build := func(t *testing.T, root spec) *world {
		w := newWorld(t)
		if root != nil {
			w.grant("root", root)
		}
		w.delegation("middle", below(grantRef("root"), "head", "manager", base))
		w.delegation("leaf", below(delegationRef("middle"), "manager", "bot", base.with(spec{"constraints": spec{"amount_lte": 25000}, "expirationTime": at(100 * time.Hour), "delegable": nil})))
		return w
	}
	leaf := authority.Result{Ref: delegationRef("leaf"), Root: grantRef("root"), Depth: 2, Reason: decision.AuthorityEscalation}
	dimension := func(d authority.Dimension) authority.Result {
		r := leaf
		r.Dimension = d
		return r
	}
	type change func(w *world)
	for name, tc := range map[string]struct {
		root   spec
		change change
		amount int
		now    time.Time
		want   authority.Result
	}{
		"nothing has changed": {root: root, want: authority.Result{Passed: true, Reason: decision.AuthorityGrant, Ref: leaf.Ref, Root: leaf.Root, Depth: 2}},
		"its own constraint":  {root: root, amount: 25001, want: authority.Result{Reason: decision.AuthorityConstraint, Ref: leaf.Ref, Root: leaf.Root, Depth: 2}},
		"it has expired": {root: root, now: t0.Add(100*time.Hour + time.Second),
			want: authority.Result{Reason: decision.AuthorityExpired, Ref: leaf.Ref, Root: leaf.Root, Depth: 2}},
		"the parent is wider now":     {root: root.with(spec{"actions": []string{"**"}}), want: authority.Result{Passed: true, Reason: decision.AuthorityGrant, Ref: leaf.Ref, Root: leaf.Root, Depth: 2}},
		"the parent's limit is lower": {root: root.with(spec{"constraints": spec{"amount_lte": 5000}}), amount: 10000, want: dimension(authority.DimensionConstraints)},
		// The whole delegation is void, not what goes beyond the new limit: it is not within its parent.
		"the parent's limit is lower, and the amount within it": {root: root.with(spec{"constraints": spec{"amount_lte": 5000}}), amount: 4000, want: dimension(authority.DimensionConstraints)},
		"the parent has one more limit":                         {root: root.with(spec{"constraints": spec{"amount_lte": 100000, "currency_eq": "EUR"}}), want: dimension(authority.DimensionConstraints)},
		"the parent is about other actions":                     {root: root.with(spec{"actions": []string{"stripe.refund"}}), want: dimension(authority.DimensionActions)},
		"the parent is about other resources":                   {root: root.with(spec{"resources": []string{"payment:EU-*"}}), want: dimension(authority.DimensionResources)},
		"the parent is for fewer environments":                  {root: root.with(spec{"environments": []string{"production"}}), want: dimension(authority.DimensionEnvironments)},
		"the parent is for certain users now":                   {root: root.with(spec{"subject": spec{"agent": "head", "user": "ann"}}), want: dimension(authority.DimensionSubject)},
		"the parent expires earlier now":                        {root: root.with(spec{"expirationTime": at(time.Hour)}), want: dimension(authority.DimensionExpiration)},
		"the parent expires earlier and has expired": {root: root.with(spec{"expirationTime": at(-time.Second)}),
			want: authority.Result{Reason: decision.AuthorityEscalation, Ref: leaf.Ref, Root: leaf.Root, Depth: 2, ExpiredParent: grantRef("root")}},
		"the root may no longer be delegated": {root: root.with(spec{"delegable": false}), want: leaf},
		"the root is for another agent now":   {root: root.with(spec{"subject": spec{"agent": "other"}}), want: authority.Result{Passed: true, Reason: decision.AuthorityGrant, Ref: leaf.Ref, Root: leaf.Root, Depth: 2}},
		"the root is gone":                    {want: authority.Result{Reason: decision.AuthorityEscalation, Ref: leaf.Ref, MissingParent: grantRef("root"), Depth: 1}},
		"the root is invalid": {change: func(w *world) {
			w.Grants = append(w.Grants, authority.GrantSource{Name: "root", Problem: "spec.actions is missing"})
		}, want: authority.Result{Reason: decision.AuthorityEscalation, Ref: leaf.Ref, MissingParent: grantRef("root"), Depth: 1}},
		"the middle is gone": {root: root, change: func(w *world) { w.Delegations = w.Delegations[1:] },
			want: authority.Result{Reason: decision.AuthorityEscalation, Ref: leaf.Ref, MissingParent: delegationRef("middle")}},
		"the middle is refused": {root: root, change: func(w *world) {
			w.Delegations[0].Accepted, w.Delegations[0].Refused = false, "MadeWithoutAdmission"
		}, want: authority.Result{Reason: decision.AuthorityEscalation, Ref: leaf.Ref, MissingParent: delegationRef("middle")}},
		"the middle is not judged": {root: root, change: func(w *world) { w.Delegations[0].Accepted = false },
			want: authority.Result{Reason: decision.AuthorityEscalation, Ref: leaf.Ref, MissingParent: delegationRef("middle")}},
		"the middle is another one of that name": {root: root, change: func(w *world) {
			w.Delegations[1].ParentUID, w.Delegations[0].UID = w.Delegations[0].UID, "another"
		}, want: authority.Result{Reason: decision.AuthorityEscalation, Ref: leaf.Ref, MissingParent: delegationRef("middle")}},
		"the middle is the one it was accepted under": {root: root, change: func(w *world) { w.Delegations[1].ParentUID = w.Delegations[0].UID },
			want: authority.Result{Passed: true, Reason: decision.AuthorityGrant, Ref: leaf.Ref, Root: leaf.Root, Depth: 2}},
		"a grant that was applied again is the same": {root: root, change: func(w *world) { w.Delegations[0].ParentUID = "former" },
			want: authority.Result{Passed: true, Reason: decision.AuthorityGrant, Ref: leaf.Ref, Root: leaf.Root, Depth: 2}},
		"the leaf is revoked": {root: root, change: func(w *world) { w.revoke("leaf") },
			want: authority.Result{Reason: decision.AuthorityRevoked, Ref: leaf.Ref, Root: leaf.Root, Depth: 2}},
		"the middle is revoked": {root: root, change: func(w *world) { w.revoke("middle") },
			want: authority.Result{Reason: decision.AuthorityRevoked, Ref: leaf.Ref, Root: leaf.Root, Depth: 2}},
		"the middle is revoked twice": {root: root, change: func(w *world) { w.revoke("middle").revoke("middle") },
			want: authority.Result{Reason: decision.AuthorityRevoked, Ref: leaf.Ref, Root: leaf.Root, Depth: 2}},
		"a former one of that name is revoked": {root: root, change: func(w *world) {
			w.revoke("leaf")
			w.Revocations[0].DelegationUID = "former"
		}, want: authority.Result{Passed: true, Reason: decision.AuthorityGrant, Ref: leaf.Ref, Root: leaf.Root, Depth: 2}},
		"a revocation does not reach a grant": {root: root, change: func(w *world) { w.revoke("root") },
			want: authority.Result{Passed: true, Reason: decision.AuthorityGrant, Ref: leaf.Ref, Root: leaf.Root, Depth: 2}},
		"revoked comes before not contained": {root: root.with(spec{"constraints": spec{"amount_lte": 5000}}), change: func(w *world) { w.revoke("leaf") },
			want: authority.Result{Reason: decision.AuthorityRevoked, Ref: leaf.Ref, Root: leaf.Root, Depth: 2}},
		"gone comes before revoked": {change: func(w *world) { w.revoke("leaf") },
			want: authority.Result{Reason: decision.AuthorityEscalation, Ref: leaf.Ref, MissingParent: grantRef("root"), Depth: 1}},
		"the limit of depth is lower": {root: root, change: func(w *world) { w.MaxDepth = 1 },
			want: authority.Result{Reason: decision.AuthorityEscalation, Ref: leaf.Ref, Root: leaf.Root, Depth: 2, DepthExceeded: true}},
		"the limit of depth is just enough": {root: root, change: func(w *world) { w.MaxDepth = 2 },
			want: authority.Result{Passed: true, Reason: decision.AuthorityGrant, Ref: leaf.Ref, Root: leaf.Root, Depth: 2}},
		"no depth at all": {root: root, change: func(w *world) { w.MaxDepth = 0 },
			want: authority.Result{Reason: decision.AuthorityEscalation, Ref: leaf.Ref, Root: leaf.Root, Depth: 2, DepthExceeded: true}},
		"not contained comes before too deep": {root: root.with(spec{"constraints": spec{"amount_lte": 5000}}), change: func(w *world) { w.MaxDepth = 1 },
			want: dimension(authority.DimensionConstraints)},
		"too deep comes before not delegable": {root: root.with(spec{"delegable": nil}), change: func(w *world) { w.MaxDepth = 1 },
			want: authority.Result{Reason: decision.AuthorityEscalation, Ref: leaf.Ref, Root: leaf.Root, Depth: 2, DepthExceeded: true}},
		"the root is an envelope now": {root: root.with(spec{"grantType": "BreakGlass", "maxDurationSeconds": 60, "delegable": nil, "expirationTime": nil}),
			want: authority.Result{Reason: decision.AuthorityEscalation, Ref: leaf.Ref, Root: leaf.Root, Depth: 2, BreakGlass: true}},
	} {
		t.Run(name, func(t *testing.T) {
			w := build(t, tc.root)
			if tc.change != nil {
				tc.change(w)
			}
			if tc.amount == 0 {
				tc.amount = 1000
			}
			if tc.now.IsZero() {
				tc.now = t0
			}
			got := w.set().Evaluate(on(proposal("bot", "stripe.refund", spec{"amount": tc.amount}), "payment:EU-1"), tc.now)
			message := got.Message
			got.Message, got.UID, got.Until = "", "", nil
			if !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%s\nwant %s\n(%s)", describe(got), describe(tc.want), message)
			}
			if got.Reason != decision.AuthorityConstraint && strings.Contains(message, "1000") {
				t.Errorf("the message tells an argument: %q", message)
			}
		})
	}
}

// A narrowed parent does not stop whom another grant lets pass.
func TestAnotherGrantIsEnough(t *testing.T) {
	w := finance(t)
	w.Delegations[1].Delegation.Parent = grantRef("gone")
	w.grant("support", spec{"subject": spec{"agent": "support-agent"}, "actions": []string{"stripe.refund"}, "constraints": spec{"amount_lte": 5000}})
	s := w.set()
	for amount, want := range map[int]authority.Ref{4000: grantRef("support"), 10000: delegationRef("dlg-2")} {
		r := s.Evaluate(proposal("support-agent", "stripe.refund", spec{"amount": amount}), t0)
		if r.Ref != want || r.Passed != (amount == 4000) {
			t.Errorf("amount %d: %s", amount, describe(r))
		}
	}
}

// All reasons of all candidates are collected, the gravest is reported, and of those the first name. Each case is tried in
// many orders.
func TestPrecedence(t *testing.T) {
	const (
		escalation = iota
		revoked
		expired
		constraint
		elsewhere
		granted
		unreadable
		kinds
	)
	shape := spec{"actions": []string{"a.b"}, "expirationTime": at(time.Hour), "delegable": true}
	build := func(t *testing.T, have []bool) *world {
		w := newWorld(t)
		w.grant("root", shape.with(spec{"subject": spec{"agent": "boss"}}))
		for _, suffix := range []string{"-2", "-1"} {
			if have[escalation] {
				w.delegation("escalation"+suffix, below(grantRef("gone"), "boss", "bot", shape))
			}
			if have[revoked] {
				w.delegation("revoked"+suffix, below(grantRef("root"), "boss", "bot", shape)).revoke("revoked" + suffix)
			}
			if have[expired] {
				w.grant("expired"+suffix, shape.with(spec{"subject": spec{"agent": "bot"}, "expirationTime": at(-time.Hour)}))
			}
			if have[constraint] {
				w.grant("constraint"+suffix, shape.with(spec{"subject": spec{"agent": "b*"}, "constraints": spec{"n_lt": 1}}))
			}
			if have[elsewhere] {
				w.grant("elsewhere"+suffix, shape.with(spec{"subject": spec{"agent": "bot"}, "actions": []string{"x"}}))
			}
			if have[granted] {
				w.grant("granted"+suffix, shape.with(spec{"subject": spec{"agent": "*"}}))
			}
			if have[unreadable] {
				w.Delegations = append(w.Delegations, authority.DelegationSource{Name: "unreadable" + suffix, UID: "u" + suffix, Problem: "spec.actions: it is blank", Accepted: true})
			}
		}
		return w
	}
	names := map[int]authority.Ref{escalation: delegationRef("escalation-1"), revoked: delegationRef("revoked-1"), expired: grantRef("expired-1"),
		constraint: grantRef("constraint-1"), granted: grantRef("granted-1"), unreadable: delegationRef("unreadable-1")}
	reasons := map[int]decision.Reason{escalation: decision.AuthorityEscalation, revoked: decision.AuthorityRevoked, expired: decision.AuthorityExpired,
		constraint: decision.AuthorityConstraint, granted: decision.AuthorityGrant, unreadable: decision.AuthorityUnreadable}
	order := []int{unreadable, granted, escalation, revoked, expired, constraint}
	random := rand.New(rand.NewPCG(1, 2))
	for mask := range 1 << kinds {
		have := make([]bool, kinds)
		for i := range have {
			have[i] = mask&(1<<i) != 0
		}
		want, wantRef := decision.NoAuthority, authority.Ref{}
		for _, kind := range order {
			if have[kind] {
				want, wantRef = reasons[kind], names[kind]
				break
			}
		}
		w := build(t, have)
		for range 4 {
			w.shuffle(random)
			r := w.set().Evaluate(proposal("bot", "a.b", spec{"n": 1}), t0)
			if r.Reason != want || r.Ref != wantRef || r.Passed != (want == decision.AuthorityGrant) {
				t.Fatalf("with %v: %s, want %s by %q", have, describe(r), want, wantRef)
			}
		}
	}
}

func (w *world) shuffle(random *rand.Rand) {
	random.Shuffle(len(w.Grants), func(i, j int) { w.Grants[i], w.Grants[j] = w.Grants[j], w.Grants[i] })
	random.Shuffle(len(w.Delegations), func(i, j int) { w.Delegations[i], w.Delegations[j] = w.Delegations[j], w.Delegations[i] })
	random.Shuffle(len(w.Revocations), func(i, j int) { w.Revocations[i], w.Revocations[j] = w.Revocations[j], w.Revocations[i] })
}

// A fault of something that is about something else is no reason.
func TestOnlyTheShapeGivesReasons(t *testing.T) {
	w := finance(t).revoke("dlg-1")
	for name, p := range map[string]action.Proposal{
		"another agent":  proposal("other", "stripe.refund", spec{"amount": 1}),
		"another action": proposal("support-agent", "k8s.scale", spec{"amount": 1}),
	} {
		if r := w.set().Evaluate(p, t0); r.Reason != decision.NoAuthority || !r.Ref.IsZero() {
			t.Errorf("%s: %s", name, describe(r))
		}
	}
}

// One accepted delegation that cannot be used denies everything of everybody, and is named.
func TestUnreadable(t *testing.T) {
	content := spec{"actions": []string{"a"}, "expirationTime": at(time.Hour), "delegable": true}
	for name, tc := range map[string]struct {
		build func(w *world)
		ref   authority.Ref
		cycle authority.Ref
	}{
		"content": {func(w *world) {
			w.Delegations = append(w.Delegations, authority.DelegationSource{Name: "bad", Accepted: true, Problem: "spec.actions is missing"})
		}, delegationRef("bad"), authority.Ref{}},
		"content, and it is revoked": {func(w *world) {
			w.Delegations = append(w.Delegations, authority.DelegationSource{Name: "bad", UID: "uid-bad", Accepted: true, Problem: "spec.actions is missing"})
			w.revoke("bad")
		}, delegationRef("bad"), authority.Ref{}},
		"a cycle of one": {func(w *world) { w.delegation("bad", below(delegationRef("bad"), "x", "x", content)) }, delegationRef("bad"), delegationRef("bad")},
		"a cycle of three, and one that leads into it": {func(w *world) {
			w.delegation("c", below(delegationRef("b"), "x", "x", content))
			w.delegation("b", below(delegationRef("d"), "x", "x", content))
			w.delegation("d", below(delegationRef("c"), "x", "x", content))
			w.delegation("a", below(delegationRef("d"), "x", "x", content))
		}, delegationRef("a"), delegationRef("b")},
		"a cycle that is longer than the limit of depth": {func(w *world) {
			w.MaxDepth = 1
			w.delegation("c", below(delegationRef("b"), "x", "x", content))
			w.delegation("b", below(delegationRef("d"), "x", "x", content))
			w.delegation("d", below(delegationRef("c"), "x", "x", content))
		}, delegationRef("b"), delegationRef("b")},
		"a cycle where no depth is allowed at all": {func(w *world) {
			w.MaxDepth = 0
			w.delegation("c", below(delegationRef("c"), "x", "x", content)).revoke("c")
		}, delegationRef("c"), delegationRef("c")},
		"two of one name": {func(w *world) {
			w.delegation("two", below(grantRef("everybody"), "x", "x", content))
			w.delegation("two", below(grantRef("everybody"), "x", "y", content))
			w.delegation("two", below(grantRef("everybody"), "x", "z", content))
		}, delegationRef("two"), authority.Ref{}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t).grant("everybody", spec{"subject": spec{"agent": "*"}, "actions": []string{"**"}})
			p := proposal("bot", "a", nil)
			if r := w.set().Evaluate(p, t0); !r.Passed {
				t.Fatalf("without it: %s", describe(r))
			}
			tc.build(w)
			random := rand.New(rand.NewPCG(3, 4))
			for range 5 {
				w.shuffle(random)
				r := w.set().Evaluate(p, t0)
				if r.Passed || r.Reason != decision.AuthorityUnreadable || r.Ref != tc.ref || r.CycleAt != tc.cycle || r.DepthExceeded {
					t.Fatalf("%s, want unreadable by %q, cycle at %q", describe(r), tc.ref, tc.cycle)
				}
				if !strings.Contains(r.Message, tc.ref.String()) || !strings.Contains(r.Message, "everything is denied") {
					t.Errorf("the message does not say what to do: %q", r.Message)
				}
			}
		})
	}
}

// What was refused, or has no verdict, does neither good nor harm, whatever is in it.
func TestWithoutVerdict(t *testing.T) {
	content := spec{"actions": []string{"**"}, "expirationTime": at(time.Hour), "delegable": true}
	w := newWorld(t).grant("root", content.with(spec{"subject": spec{"agent": "boss"}}))
	for _, source := range []authority.DelegationSource{
		w.source("unjudged", below(grantRef("root"), "boss", "bot", content)),
		w.source("self", below(delegationRef("self"), "boss", "bot", content)),
		{Name: "malformed", Problem: "spec.actions is missing"},
	} {
		w.Delegations = append(w.Delegations, source)
		source.Name, source.Refused = source.Name+"-refused", "Containment"
		w.Delegations = append(w.Delegations, source)
	}
	s := w.set()
	if r := s.Evaluate(proposal("bot", "a", nil), t0); r.Passed || r.Reason != decision.NoAuthority {
		t.Errorf("the agent of a delegation without verdict: %s", describe(r))
	}
	if r := s.Evaluate(proposal("boss", "a", nil), t0); !r.Passed {
		t.Errorf("the agent of a grant beside them: %s", describe(r))
	}
	for _, v := range s.Explain(proposal("bot", "a", nil), t0) {
		want := authority.NotJudged
		switch {
		case v.Ref.Kind == authority.KindGrant:
			want = ""
		case strings.HasSuffix(v.Ref.Name, "-refused"):
			want = authority.Refused
		}
		if v.Inert != want || v.Passed {
			t.Errorf("%s is %q, want %q", v.Ref, v.Inert, want)
		}
	}
}

// A chain holds until the first of it expires.
func TestUntil(t *testing.T) {
	w := newWorld(t)
	content := spec{"actions": []string{"a"}, "delegable": true}
	w.grant("forever", spec{"subject": spec{"agent": "eve"}, "actions": []string{"a"}})
	w.grant("root", content.with(spec{"subject": spec{"agent": "boss"}, "expirationTime": at(3 * time.Hour)}))
	w.delegation("d", below(grantRef("root"), "boss", "bot", content.with(spec{"expirationTime": at(2 * time.Hour)})))
	w.delegation("e", below(delegationRef("d"), "bot", "sub", content.with(spec{"expirationTime": at(2 * time.Hour)})))
	s := w.set()
	for agent, want := range map[string]time.Duration{"eve": 0, "boss": 3 * time.Hour, "bot": 2 * time.Hour, "sub": 2 * time.Hour} {
		r := s.Evaluate(proposal(agent, "a", nil), t0)
		if !r.Passed || (r.Until == nil) != (want == 0) || r.Until != nil && !r.Until.Equal(t0.Add(want)) {
			t.Errorf("%s until %v, want %v", agent, r.Until, want)
		}
	}
	r := s.Evaluate(proposal("sub", "a", nil), t0.Add(2*time.Hour+time.Second))
	if r.Reason != decision.AuthorityEscalation || r.ExpiredParent != delegationRef("d") {
		t.Errorf("after the parent's end: %s", describe(r))
	}
}

// Where several ancestors have expired, the one whose time ran out first is named.
func TestFirstExpiredAncestor(t *testing.T) {
	w := newWorld(t)
	content := spec{"actions": []string{"a"}, "delegable": true}
	w.grant("root", content.with(spec{"subject": spec{"agent": "boss"}, "expirationTime": at(1 * time.Hour)}))
	w.delegation("d", below(grantRef("root"), "boss", "bot", content.with(spec{"expirationTime": at(2 * time.Hour)})))
	w.delegation("e", below(delegationRef("d"), "bot", "sub", content.with(spec{"expirationTime": at(9 * time.Hour)})))
	s := w.set()
	for now, want := range map[time.Duration]authority.Ref{30 * time.Minute: {}, 90 * time.Minute: grantRef("root"), 3 * time.Hour: grantRef("root")} {
		r := s.Evaluate(proposal("sub", "a", nil), t0.Add(now))
		if r.Reason != decision.AuthorityEscalation || r.ExpiredParent != want {
			t.Errorf("after %v: %s", now, describe(r))
		}
	}
}

func glass(t testing.TB) *world {
	w := newWorld(t)
	w.grant("emergency", spec{"subject": spec{"agent": "sre-*"}, "actions": []string{"k8s.**"}, "constraints": spec{"replicas_lte": 10}, "grantType": "BreakGlass", "maxDurationSeconds": 3600})
	return w
}

func opening(agent string, changes spec) spec {
	return below(grantRef("emergency"), "ann", agent, spec{"actions": []string{"k8s.scale"}, "constraints": spec{"replicas_lte": 5},
		"expirationTime": at(0), "breakGlass": true, "reason": "the shop is down"}).with(changes)
}

func TestBreakGlass(t *testing.T) {
	scale := proposal("sre-1", "k8s.scale", spec{"replicas": 3})
	w := glass(t)
	if r := w.set().Evaluate(scale, t0); r.Passed || r.Reason != decision.NoAuthority {
		t.Fatalf("an envelope that nobody opened: %s", describe(r))
	}
	// It was created an hour ago, so it ends right now.
	w.delegation("open", opening("sre-1", spec{"delegable": true}))
	w.delegation("helper", below(delegationRef("open"), "sre-1", "helper", spec{"actions": []string{"k8s.scale"}, "constraints": spec{"replicas_lte": 2}, "expirationTime": at(0)}))
	s := w.set()
	r := s.Evaluate(scale, t0)
	if !r.Passed || !r.BreakGlass || r.Ref != delegationRef("open") || r.Root != grantRef("emergency") || r.Depth != 1 || r.Until == nil || !strings.Contains(r.Message, "glass") {
		t.Errorf("an envelope that was opened: %s", describe(r))
	}
	if r := s.Evaluate(proposal("helper", "k8s.scale", spec{"replicas": 2}), t0); !r.Passed || !r.BreakGlass || r.Depth != 2 {
		t.Errorf("what was handed on out of an envelope: %s", describe(r))
	}
	if r := s.Evaluate(scale, t0.Add(time.Second)); r.Passed || r.Reason != decision.AuthorityExpired {
		t.Errorf("after its end: %s", describe(r))
	}
	if r := s.Evaluate(proposal("sre-1", "k8s.scale", spec{"replicas": 6}), t0); r.Passed || r.Reason != decision.AuthorityConstraint {
		t.Errorf("beyond its constraints: %s", describe(r))
	}
	if r := w.revoke("open").set().Evaluate(proposal("helper", "k8s.scale", spec{"replicas": 2}), t0); r.Passed || r.Reason != decision.AuthorityRevoked {
		t.Errorf("after it was revoked: %s", describe(r))
	}
	// The envelope is looked at again at every use.
	for name, tc := range map[string]struct {
		seconds int
		kind    string
		want    authority.Dimension
	}{
		"it may be open for less":      {3599, "BreakGlass", authority.DimensionExpiration},
		"it is no envelope any longer": {0, "Standard", ""},
		"it is for others by now":      {3600, "BreakGlass", authority.DimensionSubject},
	} {
		w := newWorld(t)
		subject, agent := "sre-*", "sre-9"
		switch {
		case tc.want == authority.DimensionSubject:
			subject = "sre-1"
		case tc.kind == "Standard":
			agent = "robot" // a grant itself would let the other propose
		}
		content := spec{"subject": spec{"agent": subject}, "actions": []string{"k8s.**"}, "constraints": spec{"replicas_lte": 10}, "grantType": tc.kind}
		if tc.seconds > 0 {
			content["maxDurationSeconds"] = tc.seconds
		} else {
			content["expirationTime"], content["delegable"] = at(time.Hour), true
		}
		w.grant("emergency", content).delegation("open", opening(agent, nil))
		if r := w.set().Evaluate(proposal(agent, "k8s.scale", spec{"replicas": 3}), t0); r.Passed || r.Ref != delegationRef("open") || r.Reason != decision.AuthorityEscalation || r.Dimension != tc.want {
			t.Errorf("%s: %s", name, describe(r))
		}
	}
}

// Everything has a verdict of its own, in the order of refs, and together they are what Evaluate answers.
func TestExplain(t *testing.T) {
	w := finance(t)
	w.grant("invalid-soon", spec{"subject": spec{"agent": "x"}, "actions": []string{"x"}})
	w.Grants[1].Problem = "spec.actions is missing"
	w.grant("glass", spec{"subject": spec{"agent": "x"}, "actions": []string{"x"}, "grantType": "BreakGlass", "maxDurationSeconds": 60})
	w.grant("other", spec{"subject": spec{"agent": "support-agent"}, "actions": []string{"stripe.refund"}, "resources": []string{"a:b"}})
	w.grant("elsewhere", spec{"subject": spec{"agent": "support-agent"}, "actions": []string{"stripe.refund"}, "environments": []string{"dev"}})
	w.grant("nothing", spec{"subject": spec{"agent": "support-agent"}, "actions": []string{"x"}})
	s := w.set()
	p := proposal("support-agent", "stripe.refund", spec{"amount": 100})
	got := map[string]authority.Verdict{}
	var order []string
	for _, v := range s.Explain(p, t0) {
		got[v.Ref.String()] = v
		order = append(order, v.Ref.String())
		if v.Message == "" {
			t.Errorf("%s has no message", v.Ref)
		}
	}
	if len(order) != 8 || !slices.IsSorted(order) {
		t.Errorf("explained are %v", order)
	}
	for ref, want := range map[string]struct {
		reason   decision.Reason
		mismatch authority.Dimension
		inert    authority.Inert
	}{
		"Delegation/dlg-1":      {decision.NoAuthority, authority.DimensionSubject, ""},
		"Delegation/dlg-2":      {decision.AuthorityGrant, "", ""},
		"Grant/head-of-finance": {decision.NoAuthority, authority.DimensionSubject, ""},
		"Grant/invalid-soon":    {decision.NoAuthority, "", authority.Invalid},
		"Grant/glass":           {decision.NoAuthority, "", authority.Envelope},
		"Grant/other":           {decision.NoAuthority, authority.DimensionResources, ""},
		"Grant/elsewhere":       {decision.NoAuthority, authority.DimensionEnvironments, ""},
		"Grant/nothing":         {decision.NoAuthority, authority.DimensionActions, ""},
	} {
		if v := got[ref]; v.Reason != want.reason || v.Mismatch != want.mismatch || v.Inert != want.inert {
			t.Errorf("%s: %s, mismatch %q, inert %q", ref, v.Reason, v.Mismatch, v.Inert)
		}
	}
	if !strings.Contains(got["Grant/invalid-soon"].Message, "spec.actions is missing") {
		t.Errorf("an invalid grant does not say why: %q", got["Grant/invalid-soon"].Message)
	}
	// What comes nearest is named where nothing matches.
	r := s.Evaluate(in(proposal("support-agent", "k8s.scale", nil), "dev"), t0)
	if r.Reason != decision.NoAuthority || !strings.Contains(r.Message, "Delegation/dlg-2") {
		t.Errorf("%s: %s", describe(r), r.Message)
	}
}

func TestStanding(t *testing.T) {
	w := finance(t).revoke("dlg-2")
	w.grant("glass", spec{"subject": spec{"agent": "x"}, "actions": []string{"x"}, "grantType": "BreakGlass", "maxDurationSeconds": 60})
	w.grant("over", spec{"subject": spec{"agent": "x"}, "actions": []string{"x"}, "expirationTime": at(-time.Hour)})
	for _, v := range w.set().Standing(t0) {
		want := map[string]decision.Reason{"Delegation/dlg-1": decision.AuthorityGrant, "Delegation/dlg-2": decision.AuthorityRevoked, "Grant/glass": decision.NoAuthority,
			"Grant/head-of-finance": decision.AuthorityGrant, "Grant/over": decision.AuthorityExpired}[v.Ref.String()]
		if v.Reason != want || v.Passed != (want == decision.AuthorityGrant) || v.Message == "" || strings.Contains(v.Message, "executed") {
			t.Errorf("%s stands as %s, want %s: %s", v.Ref, v.Reason, want, v.Message)
		}
	}
}

func TestBelow(t *testing.T) {
	w := finance(t)
	content := spec{"actions": []string{"a"}, "expirationTime": at(time.Hour), "delegable": true}
	w.Delegations = append(w.Delegations, w.source("unjudged", below(delegationRef("dlg-2"), "x", "x", content)))
	w.delegation("loop-a", below(delegationRef("loop-b"), "x", "x", content))
	w.delegation("loop-b", below(delegationRef("loop-a"), "x", "x", content))
	w.delegation("orphan", below(grantRef("gone"), "x", "x", content))
	s := w.set()
	for ref, want := range map[authority.Ref][]authority.Ref{
		grantRef("head-of-finance"): {delegationRef("dlg-1"), delegationRef("dlg-2"), delegationRef("unjudged")},
		delegationRef("dlg-1"):      {delegationRef("dlg-2"), delegationRef("unjudged")},
		delegationRef("unjudged"):   nil,
		delegationRef("loop-a"):     {delegationRef("loop-b")},
		grantRef("gone"):            {delegationRef("orphan")},
		grantRef("dlg-1"):           nil,
	} {
		if got := s.Below(ref); !slices.Equal(got, want) {
			t.Errorf("below %s are %v, want %v", ref, got, want)
		}
	}
}

// The rules' hash moves with what grants say, and with nothing else.
func TestRules(t *testing.T) {
	base := spec{"subject": spec{"agent": "bot"}, "actions": []string{"a", "b.*"}, "environments": []string{"x", "y"}, "constraints": spec{"n_lte": 5, "m_eq": "z"},
		"expirationTime": "2027-03-01T12:00:00Z", "delegable": true}
	hash := func(w *world) string {
		t.Helper()
		return rulesHash(t, w.set())
	}
	want := hash(newWorld(t).grant("g", base))
	same := newWorld(t).grant("g", base.with(spec{"actions": []string{"b.*", "a", "a"}, "environments": []string{"y", "x"}, "expirationTime": "2027-03-01T14:00:00+02:00", "grantType": "Standard"}))
	same.Grants = append(same.Grants, authority.GrantSource{Name: "invalid", Problem: "it is"})
	same.delegation("d", below(grantRef("g"), "bot", "sub", base)).revoke("d")
	if got := hash(same); got != want {
		t.Error("the hash moves with layout, invalid grants, delegations or revocations")
	}
	deeper := newWorld(t).grant("g", base)
	deeper.MaxDepth = 4
	seen := map[string]string{want: "the grant itself"}
	for name, w := range map[string]*world{
		"depth":       deeper,
		"no grant":    newWorld(t),
		"name":        newWorld(t).grant("h", base),
		"agent":       newWorld(t).grant("g", base.with(spec{"subject": spec{"agent": "bob"}})),
		"user":        newWorld(t).grant("g", base.with(spec{"subject": spec{"user": "bot"}})),
		"actions":     newWorld(t).grant("g", base.with(spec{"actions": []string{"a"}})),
		"resources":   newWorld(t).grant("g", base.with(spec{"resources": []string{"a"}})),
		"constraint":  newWorld(t).grant("g", base.with(spec{"constraints": spec{"n_lte": 6, "m_eq": "z"}})),
		"environment": newWorld(t).grant("g", base.with(spec{"environments": []string{"x"}})),
		"expiration":  newWorld(t).grant("g", base.with(spec{"expirationTime": "2027-03-01T12:00:01Z"})),
		"delegable":   newWorld(t).grant("g", base.with(spec{"delegable": false})),
		"type":        newWorld(t).grant("g", base.with(spec{"expirationTime": nil, "delegable": nil, "grantType": "BreakGlass", "maxDurationSeconds": 60})),
		"duration":    newWorld(t).grant("g", base.with(spec{"expirationTime": nil, "delegable": nil, "grantType": "BreakGlass", "maxDurationSeconds": 61})),
	} {
		got := hash(w)
		if other, taken := seen[got]; taken {
			t.Errorf("%s has the hash of %s", name, other)
		}
		seen[got] = name
	}
}

// Sets are read by several at once and keep nothing of what they are asked.
func TestSetIsNotChanged(t *testing.T) {
	w := finance(t)
	s := w.set()
	p := proposal("support-agent", "stripe.refund", spec{"amount": 100})
	want := s.Evaluate(p, t0)
	*want.Until = want.Until.Add(time.Hour)
	w.Delegations[1].Accepted = false
	w.Grants[0].Problem = "changed"
	s.Judge(w.Delegations[1], t0)
	s.Explain(p, t0)
	if got := s.Evaluate(p, t0); !got.Passed || got.Until.Equal(*want.Until) {
		t.Error("the set was changed through what went in or came out")
	}
}
