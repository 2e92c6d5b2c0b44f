package flow_test

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// aSource is a policy object of that name.
func aSource(t *testing.T, name, version, actions string) policy.Source {
	t.Helper()
	v, err := canonical.Parse([]byte(actions))
	if err != nil {
		t.Fatal(err)
	}
	source, _ := policy.NewSource(name, version, 1, v)
	return source
}

func TestRulesHash(t *testing.T) {
	const (
		refund = `"stripe.refund":{"effect":"refund:{payment_id}","rules":[{"when":{"amount_lte":5},"decision":"allow"},{"decision":"deny"}]}`
		payout = `"stripe.payout":{"decision":"deny"}`
	)
	limits := flow.Limits{ApprovalTTL: time.Minute, MaxLease: time.Hour, FinishedTTL: time.Hour}
	hash := func(limits flow.Limits, environment string, sources ...policy.Source) string {
		t.Helper()
		h, err := flow.RulesHash(flow.World{Policies: policy.NewSet(sources), Limits: limits, Environment: environment})
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	base := hash(limits, "production", aSource(t, "all", "v1", "{"+refund+","+payout+"}"))
	// Fixed for ever: receipts name it.
	if want := "sha256:9926ea7af7ef7a7f2c11b37b220b278e530300c7957ed1446567261d1a63ff59"; base != want {
		t.Errorf("%s, want %s", base, want)
	}
	keeps := limits
	keeps.FinishedTTL = time.Minute
	for name, same := range map[string]string{
		"another order of keys":      hash(limits, "production", aSource(t, "all", "v1", "{"+payout+","+refund+"}")),
		"another version":            hash(limits, "production", aSource(t, "all", "v2", "{"+refund+","+payout+"}")),
		"moved to another file":      hash(limits, "production", aSource(t, "a", "v1", "{"+refund+"}"), aSource(t, "b", "", "{"+payout+"}")),
		"the same twice":             hash(limits, "production", aSource(t, "a", "v1", "{"+refund+","+payout+"}"), aSource(t, "b", "", "{"+payout+"}")),
		"how long things are kept":   hash(keeps, "production", aSource(t, "all", "v1", "{"+refund+","+payout+"}")),
		"another name of the policy": hash(limits, "production", aSource(t, "renamed", "v1", "{"+refund+","+payout+"}")),
	} {
		if same != base {
			t.Errorf("%s: decides the same, and has another hash", name)
		}
	}
	longer := limits
	longer.ApprovalTTL = time.Hour
	shorter := limits
	shorter.MaxLease = time.Minute
	seen := map[string]string{"": base}
	for name, other := range map[string]string{
		"the order of rules":   hash(limits, "production", aSource(t, "all", "v1", `{"stripe.refund":{"effect":"refund:{payment_id}","rules":[{"decision":"deny"},{"when":{"amount_lte":5},"decision":"allow"}]},`+payout+"}")),
		"an operand":           hash(limits, "production", aSource(t, "all", "v1", "{"+strings.Replace(refund, ":5", ":6", 1)+","+payout+"}")),
		"a template":           hash(limits, "production", aSource(t, "all", "v1", "{"+strings.Replace(refund, "refund:{", "refunds:{", 1)+","+payout+"}")),
		"an action less":       hash(limits, "production", aSource(t, "all", "v1", "{"+refund+"}")),
		"the environment":      hash(limits, "staging", aSource(t, "all", "v1", "{"+refund+","+payout+"}")),
		"the time to answer":   hash(longer, "production", aSource(t, "all", "v1", "{"+refund+","+payout+"}")),
		"the longest lease":    hash(shorter, "production", aSource(t, "all", "v1", "{"+refund+","+payout+"}")),
		"a conflict":           hash(limits, "production", aSource(t, "a", "v1", "{"+refund+","+payout+"}"), aSource(t, "b", "", `{"stripe.payout":{"decision":"allow"}}`)),
		"an invalid policy":    hash(limits, "production", aSource(t, "all", "v1", "{"+refund+`,"stripe.payout":{"decision":"maybe"}}`)),
		"no policy whatsoever": hash(limits, "production"),
	} {
		for known, h := range seen {
			if h == other {
				t.Errorf("%s: has the hash of %q", name, known)
			}
		}
		seen[name] = other
	}
}

func TestRulesDue(t *testing.T) {
	s := flow.Snapshot{Now: noon, World: aWorld()}
	s.World.RulesHash = "rules"
	payments := flow.RulesObject{Kind: flow.PolicyRules, Name: "payments", UID: "p", Generation: 3, Hash: "own", Version: "git-1"}
	settings := flow.RulesObject{Kind: flow.SettingsRules, Name: "default", UID: "s", Generation: 1}
	told := func(generation int64) flow.RuleOnRecord {
		return flow.RuleOnRecord{Kind: flow.PolicyRules, Name: "payments", Generation: generation, Seq: 7}
	}
	for name, tc := range map[string]struct {
		told    flow.RulesOnRecord
		present []flow.RulesObject
		want    []string
	}{
		"new":                              {nil, []flow.RulesObject{payments, settings}, []string{"POLICY_IN_FORCE p/3", "SETTINGS_IN_FORCE s/1"}},
		"edited":                           {flow.RulesOnRecord{"p": told(2)}, []flow.RulesObject{payments}, []string{"POLICY_IN_FORCE p/3"}},
		"told":                             {flow.RulesOnRecord{"p": told(3)}, []flow.RulesObject{payments}, nil},
		"told by one who is later":         {flow.RulesOnRecord{"p": told(4)}, []flow.RulesObject{payments}, nil},
		"removed":                          {flow.RulesOnRecord{"p": told(3)}, nil, []string{"POLICY_REMOVED p/0"}},
		"replaced by another of that name": {flow.RulesOnRecord{"other": told(9)}, []flow.RulesObject{payments}, []string{"POLICY_IN_FORCE p/3", "POLICY_REMOVED other/0"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, d := range flow.RulesDue(s, tc.told, tc.present) {
				got = append(got, d.Event+" "+strings.TrimPrefix(d.Identity().String(), receipt.KindEvent+"/"))
				if _, err := d.Entry(receipt.Start()); err != nil {
					t.Errorf("nobody can read it: %v", err)
				}
				// Once it is on record it is not due any more.
				d.Seq = 12
				now := maps.Clone(tc.told)
				if now == nil {
					now = flow.RulesOnRecord{}
				}
				if !now.Add(d) {
					t.Errorf("it is about an object that decides: %+v", d)
				}
				for _, again := range flow.RulesDue(s, now, tc.present) {
					if again.Identity() == d.Identity() {
						t.Errorf("%s is due again", d.Identity())
					}
				}
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("due are %v, want %v", got, tc.want)
			}
		})
	}
}

// What happened without an action has an identity that every operator computes alike, and a document its reader takes.
func TestEventDocuments(t *testing.T) {
	s := flow.Snapshot{Now: noon, World: aWorld()}
	gap := flow.GapDocument(s, noon, noon.Add(-time.Hour), noon.Add(-time.Minute))
	skew := flow.SkewDocument(s, flow.Skew{Ahead: -3 * time.Second, Bound: 500 * time.Millisecond, Threshold: 2 * time.Second, Measured: noon})
	for _, tc := range []struct {
		document receipt.Document
		kind     timeline.Type
		data     map[string]string
	}{
		{gap, timeline.AdmissionGap, map[string]string{"admission_since": "2026-07-01T12:00:00.000Z", "previous_admission_since": "2026-07-01T11:00:00.000Z", "noticed": "2026-07-01T11:59:00.000Z"}},
		{skew, timeline.ClockSkewDetected, map[string]string{
			"skew_us": "-3000000", "bound_us": "500000", "threshold_us": "2000000", "direction": "behind", "measured_at": "2026-07-01T12:00:00.000Z"}},
	} {
		if tc.document.Event != string(tc.kind) || !maps.Equal(tc.document.Data, tc.data) {
			t.Errorf("%s %v, want %s %v", tc.document.Event, tc.document.Data, tc.kind, tc.data)
		}
		if id := tc.document.Identity(); id.SubjectUID != "namespace" || id.Ordinal != noon.UnixMicro() || id.Kind != receipt.KindEvent {
			t.Errorf("identity %v", id)
		}
		if _, err := tc.document.Entry(receipt.Start()); err != nil {
			t.Error(err)
		}
	}
}
