package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/cmd/kubectl-ctrlrun/internal/cli/exit"
	"ctrlrun.dev/operator/kernel/authority"
	"ctrlrun.dev/operator/kernel/canonical"
)

func aGrant(t *testing.T, name, spec string) v1alpha1.Grant {
	t.Helper()
	var o v1alpha1.Grant
	parse(t, spec, &o.Spec)
	o.Name, o.UID = name, types.UID("uid-"+name)
	return o
}

func parse(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

// aDelegation hands on everything of a parent that says agent boss, action a.*, and ends in 2126.
func aDelegation(t *testing.T, name, parent, delegator, agent string) v1alpha1.Delegation {
	t.Helper()
	kind, parentName, _ := strings.Cut(parent, "/")
	var o v1alpha1.Delegation
	parse(t, fmt.Sprintf(`{"parentRef":{"kind":%q,"name":%q},"subject":{"agent":%q},"actions":["a.*"],"expirationTime":"2126-01-01T00:00:00Z","delegable":true,"delegator":{"agent":%q}}`,
		kind, parentName, agent, delegator), &o.Spec)
	o.Name, o.UID = name, types.UID("uid-"+name)
	o.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.AcceptedCondition, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAccepted}}
	return o
}

func refusedFor(o v1alpha1.Delegation, reason string) v1alpha1.Delegation {
	o.Status.Conditions = []metav1.Condition{{Type: v1alpha1.AcceptedCondition, Status: metav1.ConditionFalse, Reason: reason}}
	return o
}

func aRevocation(delegation, revoker string) v1alpha1.Revocation {
	return v1alpha1.Revocation{
		ObjectMeta: metav1.ObjectMeta{Name: delegation + "." + revoker},
		Spec:       v1alpha1.RevocationSpec{DelegationRef: v1alpha1.ObjectReference{Name: delegation, UID: types.UID("uid-" + delegation)}, Revoker: revoker},
	}
}

const rootGrant = `{"subject":{"agent":"boss"},"actions":["a.*"],"expirationTime":"2126-01-01T00:00:00Z","delegable":true}`

// family is a grant with a chain of three below it, one beside that is revoked, and one that was refused.
func family(t *testing.T) *authorities {
	t.Helper()
	return unite(
		[]v1alpha1.Grant{aGrant(t, "root", rootGrant)},
		[]v1alpha1.Delegation{
			aDelegation(t, "one", "Grant/root", "boss", "x"),
			aDelegation(t, "two", "Delegation/one", "x", "y"),
			aDelegation(t, "three", "Delegation/two", "y", "z"),
			aDelegation(t, "cut", "Grant/root", "boss", "c"),
			aDelegation(t, "below-cut", "Delegation/cut", "c", "x"),
			refusedFor(aDelegation(t, "no", "Grant/root", "x", "w"), "NotTheSubject"),
		},
		[]v1alpha1.Revocation{aRevocation("cut", "rosa")}, 3, time.Time{})
}

var noon = time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC)

func TestGrantsAreATreeWithTheStateOfEach(t *testing.T) {
	var got []string
	for _, item := range family(t).answer(grantFilter{}, noon).Items {
		got = append(got, strings.Repeat("  ", item.indent)+item.Kind+"/"+item.Name+" "+item.State+" "+item.text)
	}
	want := []string{
		"Grant/root InForce in force",
		"  Delegation/cut Revoked revoked by rosa",
		"    Delegation/below-cut Revoked revoked by rosa (Delegation/cut)",
		"  Delegation/no Refused refused NotTheSubject",
		"  Delegation/one InForce in force",
		"    Delegation/two InForce in force",
		"      Delegation/three InForce in force",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestStatesOfGrants(t *testing.T) {
	orphan := aDelegation(t, "orphan", "Grant/gone", "boss", "x")
	pending := aDelegation(t, "pending", "Grant/root", "boss", "x")
	pending.Status.Conditions = nil
	wide := aDelegation(t, "wide", "Grant/narrow", "boss", "x")
	loop := []v1alpha1.Delegation{aDelegation(t, "l1", "Delegation/l2", "x", "x"), aDelegation(t, "l2", "Delegation/l1", "x", "x")}
	grants := []v1alpha1.Grant{
		aGrant(t, "root", rootGrant),
		aGrant(t, "narrow", strings.Replace(rootGrant, "a.*", "a.b", 1)),
		aGrant(t, "old", `{"subject":{"agent":"boss"},"actions":["a.b"],"expirationTime":"2025-01-01T00:00:00Z"}`),
		aGrant(t, "bad", `{"subject":{"agent":"boss"},"actions":["a.?"]}`),
		aGrant(t, "glass", `{"subject":{"agent":"boss"},"actions":["a.b"],"grantType":"BreakGlass","maxDurationSeconds":60}`),
	}
	x := unite(grants, append([]v1alpha1.Delegation{orphan, pending, wide}, loop...), nil, 3, time.Time{})
	answer := x.answer(grantFilter{}, noon)
	got := map[string]string{}
	for _, item := range answer.Items {
		if _, twice := got[item.Name]; twice {
			t.Errorf("%s is shown twice", item.Name)
		}
		got[item.Name] = item.State
	}
	want := map[string]string{
		"root": standsInForce, "narrow": standsInForce, "old": standsExpired, "bad": standsInvalid, "glass": standsEnvelope,
		"orphan": standsBroken, "pending": standsNotJudged, "wide": standsBroken, "l1": standsUnreadable, "l2": standsUnreadable,
	}
	for name, state := range want {
		if got[name] != state {
			t.Errorf("%s is %q, want %q", name, got[name], state)
		}
	}
	if len(got) != len(want) || answer.Unreadable != "Delegation/l1" {
		t.Errorf("%d shown, unreadable %q", len(got), answer.Unreadable)
	}
}

// What was accepted while nobody checked who makes what counts for nothing.
func TestADelegationFromBeforeAdmissionIsRefused(t *testing.T) {
	x := unite([]v1alpha1.Grant{aGrant(t, "root", rootGrant)}, []v1alpha1.Delegation{aDelegation(t, "one", "Grant/root", "boss", "x")}, nil, 3, noon)
	for _, item := range x.answer(grantFilter{}, noon).Items {
		if item.Name == "one" && (item.State != standsRefused || item.Refusal != "MadeWithoutAdmission") {
			t.Errorf("%s, %s", item.State, item.Refusal)
		}
	}
}

func TestAFilterShowsWhatIsAboutItAndWhatThatHangsBelow(t *testing.T) {
	for name, test := range map[string]struct {
		filter grantFilter
		want   map[string]bool // shown, and whether it matches
	}{
		"agent":          {grantFilter{agent: "y"}, map[string]bool{"root": false, "one": false, "two": true}},
		"action":         {grantFilter{action: "b.c"}, map[string]bool{}},
		"user":           {grantFilter{agent: "boss", user: "alice"}, map[string]bool{"root": true}},
		"nobody's agent": {grantFilter{agent: "stranger"}, map[string]bool{}},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string]bool{}
			for _, item := range family(t).answer(test.filter, noon).Items {
				got[item.Name] = item.Matches
			}
			if fmt.Sprint(got) != fmt.Sprint(test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func names(list []*v1alpha1.Delegation) string {
	var out []string
	for _, o := range list {
		out = append(out, o.Name)
	}
	return strings.Join(out, " ")
}

func TestWhatASearchRevokes(t *testing.T) {
	for name, test := range map[string]struct {
		r             revoking
		todo, already string
		refused       int
	}{
		"one":                         {revoking{name: "two"}, "two", "", 0},
		"one that was revoked":        {revoking{name: "cut"}, "", "cut", 0},
		"one that was refused":        {revoking{name: "no"}, "", "", 1},
		"one that is not there":       {revoking{name: "nobody"}, "", "", 0},
		"under a grant, deepest last": {revoking{under: "Grant/root"}, "one below-cut two three", "cut", 1},
		"under a delegation":          {revoking{under: "Delegation/one"}, "two three", "", 0},
		"created by":                  {revoking{createdBy: "x"}, "two", "", 1},
		"created by, for somebody":    {revoking{createdBy: "x", user: "alice"}, "", "", 0},
		"everything of one agent":     {revoking{agent: "x"}, "one below-cut two", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			ref, _ := parseRef(test.r.under)
			got := family(t).choose(&test.r, ref)
			if names(got.todo) != test.todo || names(got.already) != test.already || got.refused != test.refused {
				t.Errorf("todo %q, already %q, refused %d", names(got.todo), names(got.already), got.refused)
			}
		})
	}
}

// A name that was given again is another delegation: what was said of the first does not cut it, and --under does not run in circles.
func TestASearchGoesByUIDAndEndsInACycle(t *testing.T) {
	x := unite(nil, []v1alpha1.Delegation{aDelegation(t, "l1", "Delegation/l2", "x", "x"), aDelegation(t, "l2", "Delegation/l1", "x", "x")},
		[]v1alpha1.Revocation{{Spec: v1alpha1.RevocationSpec{DelegationRef: v1alpha1.ObjectReference{Name: "l2", UID: "another"}}}}, 3, time.Time{})
	got := x.choose(&revoking{under: "Delegation/l1"}, authority.Ref{Kind: authority.KindDelegation, Name: "l1"})
	if names(got.todo) != "l2" || len(got.already) > 0 {
		t.Errorf("todo %q, already %q", names(got.todo), names(got.already))
	}
}

// A Revocation can only take away, so the operator goes by it before its verdict and whatever that says.
func TestARevocationCountsWhateverItsVerdictSays(t *testing.T) {
	r := aRevocation("one", "rosa")
	r.Status.Conditions = []metav1.Condition{{Type: v1alpha1.AcceptedCondition, Status: metav1.ConditionFalse, Reason: "DelegationNotFound"}}
	x := unite([]v1alpha1.Grant{aGrant(t, "root", rootGrant)}, []v1alpha1.Delegation{aDelegation(t, "one", "Grant/root", "boss", "x")}, []v1alpha1.Revocation{r}, 3, time.Time{})
	if got := x.choose(&revoking{name: "one"}, authority.Ref{}); names(got.already) != "one" || len(got.todo) > 0 {
		t.Errorf("todo %q, already %q", names(got.todo), names(got.already))
	}
}

// The status of a delegation says that it was revoked, whoever has deleted the Revocation.
func TestADelegationStaysRevokedWithoutItsRevocation(t *testing.T) {
	one := aDelegation(t, "one", "Grant/root", "boss", "x")
	one.Status.Conditions = append(one.Status.Conditions, metav1.Condition{Type: v1alpha1.RevokedCondition, Status: metav1.ConditionTrue, Reason: "Revoked"})
	x := unite([]v1alpha1.Grant{aGrant(t, "root", rootGrant)}, []v1alpha1.Delegation{one, aDelegation(t, "two", "Delegation/one", "x", "y")}, nil, 3, time.Time{})
	got := map[string]string{}
	for _, item := range x.answer(grantFilter{}, noon).Items {
		got[item.Name] = item.State + " " + item.text
	}
	for _, name := range []string{"one", "two"} {
		if got[name] != standsRevoked+" revoked" {
			t.Errorf("%s is %q", name, got[name])
		}
	}
	if chosen := x.choose(&revoking{name: "one"}, authority.Ref{}); names(chosen.already) != "one" {
		t.Errorf("todo %q, already %q", names(chosen.todo), names(chosen.already))
	}
}

func TestEachMisuseOfRevokeHasAMessageOfItsOwn(t *testing.T) {
	seen := map[string]string{}
	for name, args := range map[string][]string{
		"nothing":                {},
		"two names":              {"a", "b"},
		"name and under":         {"a", "--under", "Grant/x"},
		"name and created-by":    {"a", "--created-by", "x"},
		"name and agent":         {"a", "--agent", "x"},
		"under and created-by":   {"--under", "Grant/x", "--created-by", "x"},
		"under and agent":        {"--under", "Grant/x", "--agent", "x"},
		"created-by and agent":   {"--created-by", "x", "--agent", "x"},
		"for without created-by": {"--agent", "x", "--for", "alice"},
		"a grant":                {"Grant/x"},
		"under another kind":     {"--under", "Action/x"},
		"another dry run":        {"x", "--dry-run=server"},
		"too long a reason":      {"x", "--reason", strings.Repeat("r", 1025)},
		"another format":         {"x", "-o", "xml"},
	} {
		r := run(t, "", append([]string{"revoke"}, args...)...)
		r.refused(t, exit.Usage)
		first, _, _ := strings.Cut(r.stderr, "\n")
		if other, twice := seen[first]; twice {
			t.Errorf("%s and %s are told the same: %s", name, other, first)
		}
		seen[first] = name
	}
}

func TestReferences(t *testing.T) {
	for arg, want := range map[string]string{
		"Grant/a": "Grant/a", "grant/a": "Grant/a", "grants/a": "Grant/a", "grant.ctrlrun.dev/a": "Grant/a",
		"Delegation/b.c": "Delegation/b.c", "delegation.ctrlrun.dev/b": "Delegation/b", "c": "/c",
	} {
		if got, err := parseRef(arg); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v", arg, got, err)
		}
	}
	x := unite([]v1alpha1.Grant{aGrant(t, "both", rootGrant), aGrant(t, "g", rootGrant)},
		[]v1alpha1.Delegation{aDelegation(t, "both", "Grant/g", "boss", "x"), aDelegation(t, "d", "Grant/g", "boss", "x")}, nil, 3, time.Time{})
	for name, want := range map[string]string{"g": "Grant/g", "d": "Delegation/d"} {
		if got, err := x.resolve(authority.Ref{Name: name}, "ns"); err != nil || got.String() != want {
			t.Errorf("%s: %s, %v", name, got, err)
		}
	}
	if _, err := x.resolve(authority.Ref{Name: "both"}, "ns"); exit.Of(err) != exit.Usage {
		t.Errorf("ambiguous: %v", err)
	}
	if _, err := x.resolve(authority.Ref{Name: "none"}, "ns"); exit.Of(err) != exit.Failure {
		t.Errorf("absent: %v", err)
	}
}

const someTerms = `{"subject":{"agent":"x"},"actions":["a.b"],"expirationTime":"2126-01-01T00:00:00Z","constraints":{"amount_lte":5}}`

func TestTermsAreReadBareAndAsSpec(t *testing.T) {
	a := &app{streams: genericiooptions.NewTestIOStreamsDiscard()}
	want, err := canonical.Parse([]byte(someTerms))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"JSON":     someTerms,
		"YAML":     "subject: {agent: x}\nactions: [a.b]\nexpirationTime: 2126-01-01T00:00:00Z\nconstraints: {amount_lte: 5}\n",
		"spec":     "spec:\n  subject: {agent: x}\n  actions: [a.b]\n  expirationTime: \"2126-01-01T00:00:00Z\"\n  constraints: {amount_lte: 5}\n",
		"manifest": "apiVersion: ctrlrun.dev/v1alpha1\nkind: Grant\nmetadata: {name: x}\nspec: " + someTerms + "\n",
	} {
		got, err := a.readTerms(write(t, "terms", text))
		if err != nil || !canonical.Equal(got, want) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestTermsThatAreRefused(t *testing.T) {
	a := &app{streams: genericiooptions.NewTestIOStreamsDiscard()}
	for name, test := range map[string]struct {
		text, says string
		code       exit.Code
	}{
		"a list":            {"[1]", "mapping", exit.Usage},
		"no YAML":           {"a: [", "", exit.Usage},
		"a fraction":        {`{"subject":{"agent":"x"},"actions":["a.b"],"constraints":{"amount_lte":1.5}}`, "", exit.Usage},
		"duplicate key":     {`{"actions":["a.b"],"actions":["a.c"]}`, "", exit.Usage},
		"beside the spec":   {"spec: {}\nactions: [a.b]\n", "beside spec", exit.Usage},
		"a parent":          {`{"parentRef":{"kind":"Grant","name":"x"}}`, "--parent names it", exit.Failure},
		"a delegator":       {`{"delegator":{"agent":"eve"}}`, "it is you", exit.Failure},
		"an id":             {`{"id":"x","subject":{"agent":"x"},"actions":["a.b"]}`, "remove id", exit.Failure},
		"an unknown key":    {`{"subject":{"agent":"x"},"action":["a.b"]}`, "did you mean actions?", exit.Failure},
		"a grant's own key": {`{"subject":{"agent":"x"},"actions":["a.b"],"grantType":"Standard"}`, "belongs to a Grant", exit.Failure},
		"nobody":            {`{"actions":["a.b"]}`, "subject is missing", exit.Failure},
		"delegable, no end": {`{"subject":{"agent":"x"},"actions":["a.b"],"delegable":true}`, "add expirationTime", exit.Failure},
		"several mistakes":  {`{"subject":{"agent":"x"},"actions":["a.?"],"environments":["a*"]}`, "environments[0]", exit.Failure},
	} {
		t.Run(name, func(t *testing.T) {
			terms, err := a.readTerms(write(t, "terms", test.text))
			if err == nil {
				_, err = newDelegation("ns", &delegating{file: "terms"}, authority.Ref{Kind: authority.KindGrant, Name: "g"}, terms, "me")
			}
			if err == nil || exit.Of(err) != test.code || !strings.Contains(err.Error(), test.says) {
				t.Errorf("exit %d, %v", exit.Of(err), err)
			}
		})
	}
}

// What is judged here is judged as the operator will: the refusal and its dimension are named before anything is created.
func TestADelegationIsJudgedBeforeItIsCreated(t *testing.T) {
	root := authority.Ref{Kind: authority.KindGrant, Name: "root"}
	for name, test := range map[string]struct {
		parent   authority.Ref
		delegate delegating
		terms    string
		me       string
		want     string
	}{
		"within":            {root, delegating{}, someTerms, "boss", ""},
		"wider":             {root, delegating{}, strings.Replace(someTerms, "a.b", "b.c", 1), "boss", "Containment (actions)"},
		"without end":       {root, delegating{}, `{"subject":{"agent":"x"},"actions":["a.b"]}`, "boss", "Containment (expires_at)"},
		"by somebody else":  {root, delegating{}, someTerms, "eve", "NotTheSubject"},
		"of nothing":        {authority.Ref{Kind: authority.KindGrant, Name: "none"}, delegating{}, someTerms, "boss", "UnknownParent"},
		"of what is cut":    {authority.Ref{Kind: authority.KindDelegation, Name: "cut"}, delegating{}, someTerms, "c", "ParentNotValid"},
		"too deep":          {authority.Ref{Kind: authority.KindDelegation, Name: "three"}, delegating{}, someTerms, "z", "MaxDepth"},
		"of no envelope":    {root, delegating{breakGlass: true, reason: "r"}, someTerms, "boss", "BreakGlassMismatch"},
		"for many at once":  {root, delegating{}, strings.Replace(someTerms, `"x"`, `"x*"`, 1), "boss", "Containment (subject)"},
		"for a person only": {root, delegating{}, strings.Replace(someTerms, "agent", "user", 1), "boss", "Containment (subject)"},
	} {
		t.Run(name, func(t *testing.T) {
			value, err := canonical.Parse([]byte(test.terms))
			if err != nil {
				t.Fatal(err)
			}
			o, err := newDelegation("ns", &test.delegate, test.parent, value.(map[string]any), test.me)
			if err != nil {
				t.Fatal(err)
			}
			o.Name = "new"
			got := ""
			if j := family(t).judge(o, noon); !j.Accepted() {
				got = judgedReason(j)
			}
			if got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

func TestTheNameOfADelegationFits(t *testing.T) {
	for _, agent := range []string{"x", "system:serviceaccount:payments:refund-agent", strings.Repeat("long-", 60), "", "***"} {
		for _, parent := range []string{"refunds", strings.Repeat("p", 253), strings.Repeat("a.", 100) + "b"} {
			name := delegationName(authority.Ref{Name: parent}, agent)
			if len(name) > 96 || strings.HasSuffix(name, ".") || strings.HasPrefix(name, ".") || strings.Contains(name, "..") {
				t.Errorf("%q of %q and %q", name, parent, agent)
			}
		}
	}
}

// A rerun takes what is there for its own only if that says the same and may still hold.
func TestARerunFindsItsOwnDelegation(t *testing.T) {
	mine := aDelegation(t, "one", "Grant/root", "boss", "x")
	said, err := saidBy(&mine)
	if err != nil {
		t.Fatal(err)
	}
	stamped := aDelegation(t, "one", "Grant/root", "boss", "x")
	stamped.Spec.Raw = []byte(strings.Replace(string(stamped.Spec.Raw), `{"agent":"boss"}`, `{"agent":"boss","claims":{"groups":["a"]}}`, 1))
	revoked := aDelegation(t, "one", "Grant/root", "boss", "x")
	revoked.Status.Conditions = append(revoked.Status.Conditions, metav1.Condition{Type: v1alpha1.RevokedCondition, Status: metav1.ConditionTrue})
	other, refusal := aDelegation(t, "one", "Grant/root", "boss", "y"), refusedFor(mine, "NotTheSubject")
	for name, test := range map[string]struct {
		o    *v1alpha1.Delegation
		want bool
	}{
		"the same":      {&mine, true},
		"stamped":       {&stamped, true},
		"for another":   {&other, false},
		"refused":       {&refusal, false},
		"revoked since": {&revoked, false},
	} {
		if got := sameDelegation(said, test.o); got != test.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
