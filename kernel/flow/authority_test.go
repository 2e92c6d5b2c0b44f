package flow_test

import (
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// grants are a set of grants, by name, in JSON.
func grants(t *testing.T, specs map[string]string) *authority.Set {
	t.Helper()
	d := authority.Documents{MaxDepth: 3}
	for name, spec := range specs {
		v, err := canonical.Parse([]byte(spec))
		if err != nil {
			t.Fatal(err)
		}
		g, findings := authority.NewGrantSource(name, name+"-uid", 1, v)
		if len(findings) > 0 {
			t.Fatal(findings)
		}
		d.Grants = append(d.Grants, g)
	}
	return authority.NewSet(d)
}

func requiring(set *authority.Set) func(*flow.Snapshot) {
	return func(s *flow.Snapshot) { s.World.Required, s.World.Authority = true, set }
}

// Authority and policy both have to let an action pass, and a refusal of the first hides what the second would say.
func TestAuthorityComposition(t *testing.T) {
	mine := map[string]string{"refunders": `{"subject":{"agent":"` + alice + `"},"actions":["stripe.*"],"constraints":{"amount_lte":100}}`}
	small := map[string]string{"refunders": `{"subject":{"agent":"` + alice + `"},"actions":["stripe.*"],"constraints":{"amount_lte":99}}`}
	over := map[string]string{"refunders": `{"subject":{"agent":"` + alice + `"},"actions":["stripe.*"],"expirationTime":"2026-07-01T11:59:59Z"}`}
	for name, tc := range map[string]struct {
		grants map[string]string
		policy string
		want   string
	}{
		"granted and allowed":          {mine, allowing, "reserve: Executing 1"},
		"granted and to be approved":   {mine, approving, "pin a1: AwaitingApproval"},
		"granted and denied":           {mine, denying, "end a1: Denied decision"},
		"granted, and no policy":       {mine, `{}`, "end a1: Denied unknown_action"},
		"not granted and allowed":      {nil, allowing, "end a1: Denied no_authority"},
		"not granted and denied":       {nil, denying, "end a1: Denied no_authority"},
		"not granted, and no policy":   {nil, `{}`, "end a1: Denied no_authority"},
		"beyond a constraint":          {small, allowing, "end a1: Denied authority_constraint"},
		"after the end of the grant":   {over, approving, "end a1: Denied authority_expired"},
		"what has no key is denied so": {nil, `{"stripe.refund":{"effect":"refund:{missing}","decision":"allow"}}`, "end a1: Denied effect_key_error"},
	} {
		t.Run(name, func(t *testing.T) {
			step := flow.Next(aPass(anAction("a1").Obj()).Policy(tc.policy).Effect(flow.Absent, nil).Read().With(requiring(grants(t, tc.grants))).Obj())
			if got := told(step); !strings.HasPrefix(got, tc.want) {
				t.Fatalf("the step is %s, want %s", got, tc.want)
			}
			write, ok := step.(flow.WriteAction)
			if !ok {
				return
			}
			granted := tc.grants != nil && !write.Status.Reason.OfAuthority() && write.Status.Reason != decision.EffectKeyError
			if (write.Status.Authority != nil) != granted {
				t.Errorf("its status names the authority %+v", write.Status.Authority)
			}
			if write.Status.Reason.OfAuthority() && (write.Status.Policy != nil || write.Status.Decision != decision.Deny || write.Status.DecisionReason != write.Status.Reason) {
				t.Errorf("authority refused it, and the status says %+v", write.Status)
			}
		})
	}
	t.Run("nothing is required", func(t *testing.T) {
		expect(t, aPass(anAction("a1").Obj()).Policy(allowing).Effect(flow.Absent, nil).Read().With(func(s *flow.Snapshot) { s.World.Authority = grants(t, nil) }), "reserve: Executing 1")
	})
}

// What authority says comes before what policy says, and instead of it where it refuses.
func TestAuthorityInTheTimeline(t *testing.T) {
	const proposed = "ACTION_PROPOSED action_type=stripe.refund agent=" + alice
	world := func(s *flow.Snapshot) { s.World.RulesHash = "rules" }
	set := grants(t, map[string]string{"refunders": `{"subject":{"agent":"` + alice + `"},"actions":["**"]}`})
	step := flow.Next(aPass(anAction("a1").Obj()).Policy(denying).Read().With(world).With(requiring(set)).Obj())
	wantStory(t, story(t, step), proposed, "AUTHORITY_RESOLVED grant=refunders reason=authority_grant",
		"POLICY_EVALUATED decision=deny reason=decision rules_hash=rules", "ACTION_DENIED reason=decision")
	step = flow.Next(aPass(anAction("a1").Obj()).Policy(denying).Read().With(world).With(requiring(grants(t, nil))).Obj())
	wantStory(t, story(t, step), proposed, "AUTHORITY_DENIED reason=no_authority", "ACTION_DENIED reason=no_authority")
}

// Nobody is asked for longer than the principal may propose, and an approval that came does not help afterwards.
func TestAuthorityEndsWhileItWaits(t *testing.T) {
	a := anAction("a1").Asked(1).Obj()
	until := requiring(grants(t, map[string]string{"refunders": `{"subject":{"agent":"` + alice + `"},"actions":["**"],"expirationTime":"2026-07-01T12:05:00Z"}`}))
	first := flow.Next(aPass(a).Policy(approving).Read().With(until).Obj()).(flow.WriteAction)
	a.Status = first.Status
	wait, ok := flow.Next(aPass(a).Policy(approving).Read().With(until).Obj()).(flow.Wait)
	if want := noon.Add(5*time.Minute + time.Millisecond); !ok || !wait.Until.Equal(want) {
		t.Errorf("it waits until %s, want %s, when the grant is over", wait.Until, want)
	}
	expect(t, aPass(a).Policy(approving).Read().With(until).At(noon.Add(5*time.Minute+time.Second)), "end a1: Denied authority_expired")
}

// The hash of what decides counts grants where they are required, and nowhere else.
func TestRulesHashCountsGrants(t *testing.T) {
	one := grants(t, map[string]string{"a": `{"subject":{"agent":"x"},"actions":["stripe.*"]}`})
	other := grants(t, map[string]string{"a": `{"subject":{"agent":"x"},"actions":["stripe.**"]}`})
	hash := func(set *authority.Set, required bool) string {
		w := aWorld()
		w.Authority, w.Required = set, required
		h, err := flow.RulesHash(w)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	if hash(one, false) != hash(other, false) {
		t.Error("grants that decide nothing are part of the hash")
	}
	if hash(one, true) == hash(other, true) || hash(one, true) == hash(one, false) {
		t.Error("grants that decide are no part of the hash")
	}
}

// A verdict on a delegation is read back from its receipt as it was given, and a delegation nobody vouched for is refused.
func TestDelegationReceipts(t *testing.T) {
	delegation := func(created time.Time, amount string) authority.DelegationSource {
		v, err := canonical.Parse([]byte(`{"parentRef":{"kind":"Grant","name":"refunders"},"subject":{"agent":"bob"},"actions":["stripe.refund"],"constraints":{"amount_lte":` + amount + `},"delegator":{"agent":"` + alice + `"}}`))
		if err != nil {
			t.Fatal(err)
		}
		d, findings := authority.NewDelegationSource("to-bob", "d-uid", created, v)
		if len(findings) > 0 {
			t.Fatal(findings)
		}
		return d
	}
	w := aWorld()
	w.Authority = grants(t, map[string]string{"refunders": `{"subject":{"agent":"` + alice + `"},"actions":["stripe.*"],"constraints":{"amount_lte":100},"delegable":true,"expirationTime":"2026-07-02T00:00:00Z"}`})
	s := flow.Snapshot{Now: noon, World: w}
	for name, tc := range map[string]struct {
		d         authority.DelegationSource
		event     timeline.Type
		refusal   string
		dimension string
		depth     int64
	}{
		"without what its parent limits": {delegation(noon, "50"), timeline.DelegationRejected, "containment", "expires_at", 0},
		"wider":                          {delegation(noon, "500"), timeline.DelegationRejected, "containment", "constraints", 0},
		"made without admission":         {delegation(noon.Add(-2*time.Hour), "50"), timeline.DelegationRejected, "made_without_admission", "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			doc := flow.DelegationDocument(s, tc.d, flow.JudgeDelegation(s, tc.d))
			if doc.Event != string(tc.event) {
				t.Errorf("the event is %s, want %s", doc.Event, tc.event)
			}
			if _, err := doc.Entry(receipt.Link{Hash: receipt.Genesis}); err != nil {
				t.Errorf("the receipt is refused: %v", err)
			}
			refusal, dimension, _, depth := flow.DelegationVerdict(doc)
			if refusal != tc.refusal || dimension != tc.dimension || depth != tc.depth {
				t.Errorf("the verdict reads %q %q %d, want %q %q %d", refusal, dimension, depth, tc.refusal, tc.dimension, tc.depth)
			}
		})
	}
	d := delegation(noon, "50")
	until := noon.Add(time.Hour)
	d.Delegation.Expiration = &until
	j := flow.JudgeDelegation(s, d)
	doc := flow.DelegationDocument(s, d, j)
	refusal, _, parent, depth := flow.DelegationVerdict(doc)
	if !j.Accepted() || doc.Event != string(timeline.DelegationCreated) || refusal != "" || parent != "refunders-uid" || depth != 1 {
		t.Errorf("accepted: %+v, told as %+v", j, doc)
	}
	if _, err := doc.Entry(receipt.Link{Hash: receipt.Genesis}); err != nil {
		t.Errorf("the receipt is refused: %v", err)
	}
	end := flow.RevocationDocument(s, authority.Revocation{Name: "to-bob.carol", DelegationName: "to-bob", DelegationUID: "d-uid", Revoker: "carol"}, "no longer needed")
	if end.Identity() == doc.Identity() || end.SubjectUID != doc.SubjectUID {
		t.Errorf("the end of a delegation is %+v, its verdict %+v", end.Identity(), doc.Identity())
	}
}

// The credential of whoever asks counts until its last moment, before authority and before policy, and nobody is asked for
// longer. What was admitted by then goes on.
func TestPrincipalExpires(t *testing.T) {
	end := noon.Add(2 * time.Minute)
	a := anAction("a1").Obj()
	a.Expires = &end
	p := func(at time.Duration) *snapshotBuilder {
		return aPass(a).Policy(approving).Read().Effect(flow.Absent, nil).At(noon.Add(at))
	}
	pinned := expect(t, p(2*time.Minute), "pin a1: AwaitingApproval").(flow.WriteAction).Status
	refused := expect(t, p(2*time.Minute+time.Millisecond).With(requiring(grants(t, nil))), "end a1: Denied principal_expired").(flow.WriteAction).Status
	if refused.Policy != nil || refused.Decision != decision.Deny {
		t.Errorf("its status says %+v", refused)
	}
	for _, e := range refused.Timeline {
		if e.Type == timeline.PolicyEvaluated || e.Type == timeline.AuthorityDenied || e.Type == timeline.ApprovalRequested {
			t.Errorf("it tells %s", e.Type)
		}
	}
	a.Status = pinned
	if wait, ok := flow.Next(p(time.Second).Obj()).(flow.Wait); !ok || !wait.Until.Equal(end.Add(time.Millisecond)) {
		t.Errorf("it waits %+v, want until the credential ends", wait)
	}
	admitted := anAction("a1").Admitted(1).Obj()
	admitted.Expires = &end
	expect(t, aPass(admitted).Effect(flow.Cached, aRecord(admitted).Obj()).Lock(anOutcome(admitted, flow.ReportCommitted).Obj()).At(noon.Add(3*time.Minute)), "settle: Committed 1")
}
