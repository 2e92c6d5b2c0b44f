package guarantees

import (
	"slices"
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
)

// required is authority where a grant is needed, with grants by name, in JSON.
func required(t testing.TB, depth int64, grants map[string]string) *Authority {
	t.Helper()
	a := &Authority{MaxDepth: depth}
	for name, text := range grants {
		spec, err := canonical.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		a.Grants = append(a.Grants, GrantDocument{Name: name, Spec: spec})
	}
	return a
}

const refund = `{"stripe.refund":{"effect":"refund:{id}","resource":"payment:{id}","decision":"allow"},"iam.add":{"decision":"allow"}}`

// What a grant asks of an action is met, or the action is passed over; and grants give no occasion that is not theirs.
func TestPlansWithAuthority(t *testing.T) {
	const expires = `"expirationTime":"2020-01-01T00:00:00Z"`
	undrivable := " can be driven: 64 combinations of conditions were tried of each, and its effect: template has to give 64 keys; a grant has to cover it"
	for name, test := range map[string]struct {
		actions string
		depth   int64
		grants  map[string]string
		want    map[ID]string // arguments, or why not
		grant   string        // of G8
		refused decision.Reason
	}{
		"none": {refund, 3, nil, map[ID]string{
			G3: "no action that declares an `effect:` template" + undrivable,
			G6: "no grant covers an action that the policy lists, so an unknown action is indistinguishable from a known one",
			G7: "no action that can run" + undrivable, G8: "no grant declares an expirationTime", G9: "no grant is delegable", G11: `{}`,
		}, "", decision.NoAuthority},
		"constraints, a pattern of resources, and an end in the past": {refund, 3, map[string]string{
			"r": `{"subject":{"user":"alice"},"actions":["stripe.*"],"resources":["payment:EU-*"],"constraints":{"amount_lte":500,"currency_in":["EUR"]},"delegable":true,` + expires + `}`,
		}, map[ID]string{
			G3:  `{"amount":500,"currency":"EUR","id":"EU-ctrlrun-verify-id-1"}`,
			G7:  `{"amount":500,"currency":"EUR","id":"EU-ctrlrun-verify-id-13"}`,
			G8:  `{"amount":500,"currency":"EUR","id":"EU-ctrlrun-verify-id-14"}`,
			G9:  `{"amount":500,"currency":"EUR","id":"EU-ctrlrun-verify-id-18"}`,
			G14: `{"amount":500,"currency":"EUR","id":"EU-ctrlrun-verify-id-25"}`,
		}, "r", decision.NoAuthority},
		"one resource only": {refund, 3, map[string]string{"r": `{"subject":{"agent":"x"},"actions":["stripe.refund"],"resources":["payment:7"],` + expires + `}`}, map[ID]string{
			G3: "no action that declares an `effect:` template" + undrivable,
			G8: "no grant that declares an expirationTime covers an action that can be driven", G9: "no grant is delegable",
		}, "", decision.NoAuthority},
		"everything, and no depth": {refund, 0, map[string]string{"a": `{"subject":{"agent":"x"},"actions":["**"]}`, "b": `{"subject":{"agent":"y"},"actions":["iam.**"],"delegable":true,` + expires + `}`},
			map[ID]string{
				G7: `{}`, G8: `{}`, G9: "the Settings say maxDelegationDepth 0, so nothing can be handed on",
			}, "b", decision.UnknownAction},
		"another environment": {refund, 3, map[string]string{"r": `{"subject":{"agent":"x"},"actions":["**"],"environments":["staging"],"delegable":true,` + expires + `}`}, map[ID]string{
			G7: "no action that can run" + undrivable,
			G9: "no grant that is delegable covers an action that can be driven",
		}, "", decision.NoAuthority},
		"a resource that the agent names": {`{"a.b":{"effect":"x:{id}","decision":"allow"}}`, 3, map[string]string{"r": `{"subject":{"agent":"x"},"actions":["a.*"],"resources":["account:*:open"]}`}, map[ID]string{
			G3: `{"id":"ctrlrun-verify-id-1"}`, G8: "no grant declares an expirationTime", G9: "no grant is delegable",
		}, "", decision.NoAuthority},
		"only glass to break": {refund, 3, map[string]string{"g": `{"grantType":"BreakGlass","maxDurationSeconds":60,"subject":{"agent":"*"},"actions":["**"]}`}, map[ID]string{
			G7: "no action that can run" + undrivable, G9: "no grant is delegable",
		}, "", decision.NoAuthority},
	} {
		t.Run(name, func(t *testing.T) {
			a := required(t, test.depth, test.grants)
			plans, err := Plans(sources(t, test.actions), "production", a, false)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range shared(plans) {
				t.Error(s)
			}
			for _, p := range plans {
				got := p.NotApplicable
				if got == "" {
					got = text(t, p.Vectors[0].Arguments)
				}
				if want, is := test.want[p.Guarantee.ID]; is && got != want {
					t.Errorf("%s: %s; want %s", p.Guarantee.ID, got, want)
				}
				switch {
				case p.Guarantee.ID == G6 && p.RefusedBy != test.refused:
					t.Errorf("what is unknown is refused by %s, want %s", p.RefusedBy, test.refused)
				case p.Guarantee.ID == G8 && p.Grant != test.grant:
					t.Errorf("G8 is of grant %q, want %q", p.Grant, test.grant)
				}
			}
		})
	}
}

// Where no grant covers anything, the receipt is that of a denial.
func TestAReceiptOfWhatNoGrantCovers(t *testing.T) {
	plans, err := Plans(sources(t, refund), "production", required(t, 3, nil), false)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(plans, func(p Plan) bool { return p.Guarantee.ID == G11 })
	if v := plans[at].Vectors[0]; v.Decision != decision.Deny || v.Approvals != 0 {
		t.Errorf("%v", v)
	}
}

// Each child that is wider is so in its one dimension, by the rule of authority itself; that which is narrower is within.
func TestChildren(t *testing.T) {
	const limited = `{"subject":{"agent":"a"},"actions":["stripe.*"],"resources":["payment:EU-*"],
		"constraints":{"amount_lte":500,"amount_gt":1,"currency_in":["EUR","CHF"],"kind_eq":"x"},"environments":["production"],"expirationTime":"2040-01-01T00:00:00Z","delegable":true}`
	for name, test := range map[string]struct{ grant, dimensions, constraints string }{
		"every dimension": {limited, "subject subject- actions resources resources- constraints constraints- environments environments- expires_at expires_at-",
			`{"amount_gt":1,"amount_lte":499,"currency_in":["EUR"],"kind_eq":"x"}`},
		"an end only":     {`{"subject":{"agent":"a"},"actions":["**"],"expirationTime":"2040-01-01T00:00:00Z","delegable":true}`, "subject subject- expires_at expires_at-", ""},
		"every resource":  {`{"subject":{"agent":"a"},"actions":["stripe.refund"],"resources":["**"],"expirationTime":"2040-01-01T00:00:00Z","delegable":true}`, "subject subject- actions resources- expires_at expires_at-", ""},
		"a list":          {`{"subject":{"agent":"a"},"actions":["**"],"constraints":{"currency_in":["EUR"]},"expirationTime":"2040-01-01T00:00:00Z","delegable":true}`, "subject subject- constraints constraints- expires_at expires_at-", `{"currency_in":["EUR"]}`},
		"one value":       {`{"subject":{"agent":"a"},"actions":["**"],"constraints":{"kind_eq":"x"},"expirationTime":"2040-01-01T00:00:00Z","delegable":true}`, "subject subject- constraints constraints- expires_at expires_at-", `{"kind_eq":"x"}`},
		"any other value": {`{"subject":{"agent":"a"},"actions":["**"],"constraints":{"kind_neq":"y"},"expirationTime":"2040-01-01T00:00:00Z","delegable":true}`, "subject subject- constraints constraints- expires_at expires_at-", `{"kind_neq":"y"}`},
	} {
		t.Run(name, func(t *testing.T) {
			a := required(t, 3, map[string]string{"g": test.grant})
			plans, err := Plans(sources(t, refund), "production", a, false)
			if err != nil {
				t.Fatal(err)
			}
			p := plans[slices.IndexFunc(plans, func(p Plan) bool { return p.Guarantee.ID == G9 })]
			if p.NotApplicable != "" {
				t.Fatal(p.NotApplicable)
			}
			parent := a.Grants[0].For("agent", nil)
			narrow, wider, err := Children(parent, "helper", p.Vectors[0], "production")
			if err != nil {
				t.Fatal(err)
			}
			g, _ := authority.ParseGrant(parent)
			child, findings := authority.ParseGrant(narrow.Terms)
			if d, within := authority.Contains(g, child); len(findings) > 0 || !within {
				t.Errorf("%v is wider in %s: %v", narrow.Terms, d, findings)
			}
			if got := narrow.Terms["constraints"]; test.constraints != "" && mustEncode(t, got) != test.constraints {
				t.Errorf("constraints %s, want %s", mustEncode(t, got), test.constraints)
			}
			var dimensions []string
			for _, w := range wider {
				child, findings := authority.ParseGrant(w.Terms)
				if d, _ := authority.Contains(g, child); len(findings) > 0 || d != w.Dimension {
					t.Errorf("%v is wider in %q, want %q: %v", w.Terms, d, w.Dimension, findings)
				}
				dimensions = append(dimensions, string(w.Dimension)+map[bool]string{true: "-"}[w.Omitted])
			}
			if got := strings.Join(dimensions, " "); got != test.dimensions {
				t.Errorf("%s, want %s", got, test.dimensions)
			}
		})
	}
	if _, _, err := Children(map[string]any{"actions": []any{"a.b"}}, "helper", Vector{}, "production"); err == nil {
		t.Error("what is no grant has children")
	}
}

// Of what the plan is made for, each vector is within a grant, and those of G8 and G9 within the one that is named.
func TestVectorsAreCovered(t *testing.T) {
	a := required(t, 3, map[string]string{
		"all":  `{"subject":{"agent":"x"},"actions":["**"]}`,
		"some": `{"subject":{"agent":"x"},"actions":["stripe.*"],"constraints":{"amount_lte":9},"resources":["payment:EU:*"],"expirationTime":"2020-01-01T00:00:00Z","delegable":true}`,
	})
	plans, err := Plans(sources(t, `{"stripe.refund":{"effect":"{resource}","resource":"payment:{region}:{id}","decision":"allow"}}`), "production", a, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range plans {
		if p.Guarantee.ID != G8 && p.Guarantee.ID != G9 {
			continue
		}
		if p.Grant != "some" || len(p.Vectors) != need(p.Guarantee.ID) {
			t.Fatalf("%s is of %q with %d vectors: %s", p.Guarantee.ID, p.Grant, len(p.Vectors), p.NotApplicable)
		}
		for _, v := range p.Vectors {
			if text(t, v.Arguments) == "" || !strings.HasPrefix(*v.Target, "payment:EU:ctrlrun-verify-id-") {
				t.Errorf("%s: %s", p.Guarantee.ID, *v.Target)
			}
		}
	}
}
