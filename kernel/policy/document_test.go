package policy_test

import (
	"fmt"
	"strings"
	"testing"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/policy"
)

// v2 is a document with the given lines as the entry of action "a".
func v2(lines ...string) string {
	return "schema: ctrlrun.policy/v2\nactions:\n  a:\n    " + strings.Join(lines, "\n    ") + "\n"
}

// object is an ActionPolicy manifest with the given lines as the entry of action "a".
func object(lines ...string) string {
	return "apiVersion: ctrlrun.dev/v1alpha1\nkind: ActionPolicy\nmetadata: {name: p, namespace: n, creationTimestamp: 2026-01-01T00:00:00Z, labels: {x: NO, f: 1.0}}\n" +
		"spec:\n  version: \"git-1\"\n  actions:\n    a:\n      " + strings.Join(lines, "\n      ") + "\n"
}

func TestParseAccepts(t *testing.T) {
	for name, text := range map[string]string{
		"no actions deny everything":           "schema: ctrlrun.policy/v1\nactions: {}\n",
		"a plain decision":                     "schema: ctrlrun.policy/v1\nactions: {a: {decision: deny}}\n",
		"every key of v2":                      v2(`effect: "e:{id}"`, `resource: "r:{id}"`, `mcp: {not_executed_on_error: true}`, `rules:`, `- when: {id_eq: "x"}`, `  decision: deny`),
		"an empty mcp":                         v2(`effect: "e:{id}"`, `mcp: {}`, `decision: allow`),
		"every key of an ActionPolicy":         object(`effect: "e:{id}"`, `resource: "r:{id}"`, `approvalTTLSeconds: 60`, `approvalsRequired: 10`, `approverGroups: [finance, "no"]`, `maxAttempts: 1`, `resolutionsRequired: 10`, `decision: approve`),
		"as many groups as there may be":       object(`effect: "e:{id}"`, `decision: approve`, `approverGroups: [`+strings.Repeat(`"`+strings.Repeat("ü", 256)+`",`, 16)+`]`),
		"status of an exported manifest":       object(`effect: "e:{id}"`, `decision: allow`) + "status: {observedGeneration: 1, since: 2026-01-01}\n",
		"JSON with surrogate escapes and tabs": "{\n\t\"schema\": \"ctrlrun.policy/v1\",\n\t\"actions\": {\"\\ud83d\\ude00\": {\"decision\": \"deny\"}}\n}",
		"an alias":                             "schema: ctrlrun.policy/v1\nactions:\n  a: &e {decision: deny}\n  b: *e\n",
		"a document marker":                    "---\nschema: ctrlrun.policy/v1\nactions: {}\n",
		"an integer beyond 64 bits":            v2(`effect: "e:{id}"`, `rules:`, `- {when: {n_gte: 123456789012345678901234567890}, decision: allow}`),
		"hexadecimal is the same everywhere":   v2(`effect: "e:{id}"`, `rules:`, `- {when: {n_eq: 0x1F}, decision: allow}`),
		"quoted words are text":                v2(`effect: "e:{id}"`, `rules:`, `- {when: {c_in: ["NO", 'on', "010", "500.0", "2026-01-01", "null", ""]}, decision: allow}`),
		"null is an operand":                   v2(`effect: "e:{id}"`, `rules:`, `- {when: {c_eq: null}, decision: allow}`),
		"a block scalar is text":               v2(`effect: |-`, `  e:{id}`, `decision: allow`),
	} {
		t.Run(name, func(t *testing.T) {
			doc, findings, err := policy.ParseYAML("p.yaml", []byte(text))
			if err != nil || len(findings) != 0 {
				t.Fatalf("findings %v, error %v, want none for\n%s", findings, err, text)
			}
			if doc.Schema == "" || doc.Actions == nil {
				t.Errorf("document = %+v", doc)
			}
		})
	}
}

func TestParseKeepsWhatWasWritten(t *testing.T) {
	doc, findings, err := policy.ParseYAML("p.yaml", []byte(object(`effect: "e:{id}"`, `approvalTTLSeconds: 61`, `approvalsRequired: 2`, `maxAttempts: 3`, `resolutionsRequired: 4`, `approverGroups: [finance, board]`,
		`mcp: {not_executed_on_error: true}`, `rules:`, `- {when: {n_lt: 0}, decision: deny}`, `- decision: approve`)))
	if err != nil || len(findings) != 0 {
		t.Fatal(findings, err)
	}
	e := doc.Actions["a"]
	got := fmt.Sprintln(doc.Schema, doc.Name, doc.Namespace, doc.Version, e.Effect, e.ApprovalTTLSeconds, e.ApprovalsRequired, e.MaxAttempts, e.ResolutionsRequired, e.ApproverGroups, e.NotExecutedOnError,
		len(e.Rules), e.Rules[0].HasWhen, e.Rules[0].Decision, e.Rules[1].HasWhen, e.Rules[1].Decision)
	if want := fmt.Sprintln("ctrlrun.dev/v1alpha1", "p", "n", "git-1", "e:{id}", 61, 2, 3, 4, []string{"finance", "board"}, true, 2, true, "deny", false, "approve"); got != want {
		t.Errorf("document = %s, want %s", got, want)
	}
}

func TestParseRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		line int
		path string
		says string
	}{
		"nothing":                            {"", 1, "", "empty"},
		"a comment only":                     {"# nothing\n", 1, "", "empty"},
		"a marker only":                      {"---\n", 1, "", "empty"},
		"null":                               {"null\n", 1, "", "empty"},
		"a list":                             {"- a\n", 1, "", "a list"},
		"no YAML":                            {"schema: [\n", 1, "", "not YAML"},
		"a tab":                              {"schema: ctrlrun.policy/v1\nactions:\n\ta: {}\n", 3, "", "not YAML"},
		"text that is not UTF-8":             {"schema: \xff\n", 1, "", "UTF-8"},
		"two documents":                      {"schema: ctrlrun.policy/v1\nactions: {}\n---\nschema: ctrlrun.policy/v1\nactions: {}\n", 3, "", "second YAML document"},
		"a document cut off by a marker":     {"schema: ctrlrun.policy/v1\nactions: {}\n---\n", 3, "", "second YAML document"},
		"no schema":                          {"actions: {}\n", 1, "", "schema is missing"},
		"a schema that is unknown":           {"schema: ctrlrun.policy/v9\nactions: {}\n", 1, "schema", "not one of"},
		"a schema in other case":             {"schema: ctrlrun.policy/V1\nactions: {}\n", 1, "schema", "not one of"},
		"a schema that is a number":          {"schema: 1\nactions: {}\n", 1, "schema", "not one of"},
		"no actions":                         {"schema: ctrlrun.policy/v1\n", 1, "", "actions is missing"},
		"blank actions":                      {"schema: ctrlrun.policy/v1\nactions:\n", 2, "actions", "blank"},
		"actions in a list":                  {"schema: ctrlrun.policy/v1\nactions: [a]\n", 2, "actions", "a list"},
		"an unknown key at the top":          {"schema: ctrlrun.policy/v1\nactions: {}\nversion: x\n", 3, "version", "unknown key"},
		"an action without name":             {"schema: ctrlrun.policy/v1\nactions:\n  \"\": {decision: allow}\n", 3, `actions[""]`, "empty"},
		"a blank entry":                      {"schema: ctrlrun.policy/v1\nactions:\n  a.b:\n", 3, `actions["a.b"]`, "blank"},
		"an entry that is text":              {"schema: ctrlrun.policy/v1\nactions:\n  a: allow\n", 3, `actions["a"]`, "text"},
		"neither decision nor rules":         {v2(`effect: "x"`), 3, `actions["a"]`, "neither"},
		"both decision and rules":            {v2(`decision: allow`, `rules: [{decision: deny}]`), 3, `actions["a"]`, "both"},
		"an unknown key of an entry":         {v2(`decision: allow`, `efect: "x"`), 5, `actions["a"].efect`, "did you mean effect?"},
		"a decision that is none":            {v2(`decision: maybe`), 4, `actions["a"].decision`, "allow, approve or deny"},
		"a decision in other case":           {v2(`decision: Allow`), 4, `actions["a"].decision`, "allow, approve or deny"},
		"a decision that is a bool":          {v2(`decision: true`), 4, `actions["a"].decision`, "a boolean"},
		"a blank decision":                   {v2(`decision:`), 4, `actions["a"].decision`, "blank"},
		"blank rules":                        {v2(`rules:`), 4, `actions["a"].rules`, "blank"},
		"no rules":                           {v2(`rules: []`), 4, `actions["a"].rules`, "no rules"},
		"rules in a mapping":                 {v2(`rules: {decision: allow}`), 4, `actions["a"].rules`, "a mapping"},
		"a rule that is text":                {v2(`rules: [allow]`), 4, `actions["a"].rules[0]`, "text"},
		"a rule without decision":            {v2(`rules:`, `- when: {a_eq: 1}`), 5, `actions["a"].rules[0]`, "no decision"},
		"a condition beside when":            {v2(`rules:`, `- decision: deny`, `  amount_lte: 5`), 6, `actions["a"].rules[0].amount_lte`, "below when"},
		"an unknown key of a rule":           {v2(`rules:`, `- decision: deny`, `  wehn: {a_eq: 1}`), 6, `actions["a"].rules[0].wehn`, "did you mean when?"},
		"a blank when is no catch-all":       {v2(`rules:`, `- when:`, `  decision: allow`), 5, `actions["a"].rules[0].when`, "blank"},
		"an empty when":                      {v2(`rules:`, `- when: {}`, `  decision: allow`), 5, `actions["a"].rules[0].when`, "empty"},
		"when in a list":                     {v2(`rules:`, `- when: [a_eq]`, `  decision: allow`), 5, `actions["a"].rules[0].when`, "a list"},
		"an unknown operator":                {v2(`rules:`, `- when:`, `    amount_max: 3`, `  decision: allow`), 6, `actions["a"].rules[0].when.amount_max`, "_lte"},
		"a reserved name":                    {v2(`rules:`, `- when:`, `    agent_eq: x`, `  decision: allow`), 6, `actions["a"].rules[0].when.agent_eq`, "reserved"},
		"a condition with a dot":             {v2(`rules:`, `- when: {a.b_max: 1}`, `  decision: allow`), 5, `actions["a"].rules[0].when["a.b_max"]`, "_lte"},
		"a float operand":                    {v2(`rules:`, `- when: {n_lte: 20.0}`, `  decision: allow`), 5, `actions["a"].rules[0].when.n_lte`, "floating-point"},
		"a float with exponent":              {v2(`rules:`, `- when: {n_lte: 1e3}`, `  decision: allow`), 5, `actions["a"].rules[0].when.n_lte`, "floating-point"},
		"infinity":                           {v2(`rules:`, `- when: {n_eq: .inf}`, `  decision: allow`), 5, `actions["a"].rules[0].when.n_eq`, "floating-point"},
		"a float inside a list":              {v2(`rules:`, `- when: {n_in: [1, 1.5]}`, `  decision: allow`), 5, `actions["a"].rules[0].when.n_in[1]`, "floating-point"},
		"a date":                             {v2(`rules:`, `- when: {d_eq: 2026-01-01}`, `  decision: allow`), 5, `actions["a"].rules[0].when.d_eq`, "date"},
		"text under a comparison":            {v2(`rules:`, `- when: {n_lte: "5"}`, `  decision: allow`), 5, `actions["a"].rules[0].when.n_lte`, "a string"},
		"a duplicate key":                    {v2(`decision: deny`, `decision: allow`), 5, `actions["a"].decision`, "twice"},
		"a duplicate key in JSON":            {`{"schema":"ctrlrun.policy/v1","actions":{"a":{"decision":"deny"},"\u0061":{"decision":"allow"}}}`, 1, `actions["a"]`, "twice"},
		"a number as key":                    {"schema: ctrlrun.policy/v1\nactions:\n  1: {decision: allow}\n", 3, "actions", "not text"},
		"true as key":                        {"schema: ctrlrun.policy/v1\nactions:\n  true: {decision: allow}\n", 3, "actions", "not text"},
		"null as key":                        {"schema: ctrlrun.policy/v1\nactions:\n  ~: {decision: allow}\n", 3, "actions", "not text"},
		"a date as key":                      {"schema: ctrlrun.policy/v1\nactions:\n  2026-01-01: {decision: allow}\n", 3, "actions", "not text"},
		"a list as key":                      {"schema: ctrlrun.policy/v1\nactions:\n  [a]: {decision: allow}\n", 3, "actions", "key is text"},
		"a merge key":                        {"schema: ctrlrun.policy/v1\nactions:\n  a: &e {decision: deny}\n  b: {<<: *e}\n", 4, `actions["b"]`, "merge"},
		"an explicit tag":                    {v2(`decision: !!binary YWxsb3c=`), 4, `actions["a"].decision`, "tag"},
		"a tag of one's own":                 {v2(`decision: !x allow`), 4, `actions["a"].decision`, "tag"},
		"an effect template in v1":           {"schema: ctrlrun.policy/v1\nactions:\n  a:\n    decision: allow\n    effect: x\n", 5, `actions["a"].effect`, "ctrlrun.policy/v2"},
		"mcp in v1":                          {"schema: ctrlrun.policy/v1\nactions:\n  a:\n    decision: allow\n    mcp: {}\n", 5, `actions["a"].mcp`, "ctrlrun.policy/v2"},
		"a key of ActionPolicy in v2":        {v2(`decision: approve`, `approvalsRequired: 2`), 5, `actions["a"].approvalsRequired`, "convert"},
		"a malformed effect template":        {v2(`decision: allow`, `effect: "refund:{payment.id}"`), 5, `actions["a"].effect`, "placeholder"},
		"a malformed resource template":      {v2(`decision: allow`, `resource: "payment:{{id}}"`), 5, `actions["a"].resource`, "escape"},
		"an empty template":                  {v2(`decision: allow`, `effect: ""`), 5, `actions["a"].effect`, "empty"},
		"a blank template":                   {v2(`decision: allow`, `effect:`), 5, `actions["a"].effect`, "blank"},
		"a template that is a mapping":       {v2(`decision: allow`, `effect: {payment_id}`), 5, `actions["a"].effect`, "a mapping"},
		"mcp with an unknown key":            {v2(`decision: allow`, `mcp: {notExecutedOnError: true}`), 5, `actions["a"].mcp.notExecutedOnError`, "did you mean not_executed_on_error?"},
		"mcp with text":                      {v2(`decision: allow`, `mcp: {not_executed_on_error: "true"}`), 5, `actions["a"].mcp.not_executed_on_error`, "true or false"},
		"mcp that is a bool":                 {v2(`decision: allow`, `mcp: true`), 5, `actions["a"].mcp`, "a boolean"},
		"an alias inside its anchor":         {"schema: ctrlrun.policy/v1\nactions: &x\n  a: *x\n", 3, "", "nested"},
		"a manifest of another kind":         {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\n", 1, "", "another kind"},
		"a manifest of another version":      {"apiVersion: ctrlrun.dev/v1\nkind: ActionPolicy\nmetadata: {name: x}\n", 1, "", "another kind"},
		"a manifest without name":            {"apiVersion: ctrlrun.dev/v1alpha1\nkind: ActionPolicy\nspec: {actions: {}}\n", 1, "metadata", "name"},
		"a manifest without spec":            {"apiVersion: ctrlrun.dev/v1alpha1\nkind: ActionPolicy\nmetadata: {name: x}\n", 1, "spec", "spec"},
		"a manifest without actions":         {"apiVersion: ctrlrun.dev/v1alpha1\nkind: ActionPolicy\nmetadata: {name: x}\nspec: {version: x}\n", 4, "spec", "actions is missing"},
		"a manifest with a schema":           {"apiVersion: ctrlrun.dev/v1alpha1\nkind: ActionPolicy\nmetadata: {name: x}\nschema: ctrlrun.policy/v2\nspec: {actions: {}}\n", 4, "schema", "policy document"},
		"an unknown key of spec":             {"apiVersion: ctrlrun.dev/v1alpha1\nkind: ActionPolicy\nmetadata: {name: x}\nspec: {action: {}, actions: {}}\n", 4, "spec.action", "did you mean actions?"},
		"a version that is a number":         {"apiVersion: ctrlrun.dev/v1alpha1\nkind: ActionPolicy\nmetadata: {name: x}\nspec: {version: 3, actions: {}}\n", 4, "spec.version", "an integer"},
		"a version that is too long":         {"apiVersion: ctrlrun.dev/v1alpha1\nkind: ActionPolicy\nmetadata: {name: x}\nspec: {version: " + strings.Repeat("x", 129) + ", actions: {}}\n", 4, "spec.version", "shorten"},
		"a time to live below a minute":      {object(`decision: approve`, `approvalTTLSeconds: 59`), 9, `spec.actions["a"].approvalTTLSeconds`, "60 to 604800"},
		"a time to live beyond a week":       {object(`decision: approve`, `approvalTTLSeconds: 604801`), 9, `spec.actions["a"].approvalTTLSeconds`, "60 to 604800"},
		"no approval required":               {object(`decision: approve`, `approvalsRequired: 0`), 9, `spec.actions["a"].approvalsRequired`, "1 to 10"},
		"eleven approvals required":          {object(`decision: approve`, `approvalsRequired: 11`), 9, `spec.actions["a"].approvalsRequired`, "1 to 10"},
		"a bool for a number":                {object(`decision: approve`, `approvalsRequired: true`), 9, `spec.actions["a"].approvalsRequired`, "a boolean"},
		"no resolution required":             {object(`effect: "{id}"`, `decision: allow`, `resolutionsRequired: 0`), 10, `spec.actions["a"].resolutionsRequired`, "1 to 10"},
		"eleven resolutions required":        {object(`effect: "{id}"`, `decision: allow`, `resolutionsRequired: 11`), 10, `spec.actions["a"].resolutionsRequired`, "1 to 10"},
		"a text for resolutions":             {object(`effect: "{id}"`, `decision: allow`, `resolutionsRequired: "2"`), 10, `spec.actions["a"].resolutionsRequired`, "text"},
		"blank resolutions":                  {object(`effect: "{id}"`, `decision: allow`, `resolutionsRequired:`), 10, `spec.actions["a"].resolutionsRequired`, "blank"},
		"resolutions in snake case":          {object(`effect: "{id}"`, `decision: allow`, `resolutions_required: 2`), 10, `spec.actions["a"].resolutions_required`, "did you mean resolutionsRequired?"},
		"resolutions in v2":                  {v2(`decision: allow`, `resolutionsRequired: 2`), 5, `actions["a"].resolutionsRequired`, "convert"},
		"groups that are a text":             {object(`decision: approve`, `approverGroups: finance`), 9, `spec.actions["a"].approverGroups`, "a list of names"},
		"groups that are blank":              {object(`decision: approve`, `approverGroups:`), 9, `spec.actions["a"].approverGroups`, "blank"},
		"no groups":                          {object(`decision: approve`, `approverGroups: []`), 9, `spec.actions["a"].approverGroups`, "whoever may approve"},
		"more groups than the API takes":     {object(`decision: approve`, `approverGroups: [`+strings.Repeat("x,", 17)+`]`), 9, `spec.actions["a"].approverGroups`, "16"},
		"a group that is a number":           {object(`decision: approve`, `approverGroups: [finance, 7]`), 9, `spec.actions["a"].approverGroups[1]`, "name of a group"},
		"a group without a name":             {object(`decision: approve`, `approverGroups: [""]`), 9, `spec.actions["a"].approverGroups[0]`, "1 to 256"},
		"a group that is null":               {object(`decision: approve`, `approverGroups: [null]`), 9, `spec.actions["a"].approverGroups[0]`, ""},
		"a group with too long a name":       {object(`decision: approve`, `approverGroups: ["`+strings.Repeat("ü", 257)+`"]`), 9, `spec.actions["a"].approverGroups[0]`, "256"},
		"groups in snake case":               {object(`decision: approve`, `approver_groups: [finance]`), 9, `spec.actions["a"].approver_groups`, "did you mean approverGroups?"},
		"groups in v2":                       {v2(`decision: approve`, `approverGroups: [finance]`), 5, `actions["a"].approverGroups`, "convert"},
		"no attempt allowed":                 {object(`decision: allow`, `maxAttempts: 0`), 9, `spec.actions["a"].maxAttempts`, "from 1"},
		"an attempt limit beyond 64 bits":    {object(`decision: allow`, `maxAttempts: 18446744073709551617`), 9, `spec.actions["a"].maxAttempts`, "from 1"},
		"snake case in an ActionPolicy":      {object(`decision: allow`, `max_attempts: 1`), 9, `spec.actions["a"].max_attempts`, "did you mean maxAttempts?"},
		"an operand the API would change":    {object(`effect: "{n}"`, `rules:`, `- {when: {n_in: [1, 9223372036854775808]}, decision: allow}`), 10, `spec.actions["a"].rules[0].when.n_in`, "64 bits"},
		"a template the API has no room for": {object(`decision: allow`, `effect: "{a}`+strings.Repeat("x", 512)+`"`), 9, `spec.actions["a"].effect`, "512"},
		"more rules than the API takes":      {object(`decision: allow`, `rules: [`+strings.Repeat(`{when: {a_eq: 1}, decision: deny},`, 17)+`]`), 9, `spec.actions["a"].rules`, "16"},
	} {
		t.Run(name, func(t *testing.T) {
			doc, findings, err := policy.ParseYAML("p.yaml", []byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			if !policy.HasErrors(findings) || doc.Schema != "" || doc.Actions != nil {
				t.Fatalf("accepted as %+v with %v:\n%s", doc, findings, tc.text)
			}
			for _, f := range findings {
				if f.File != "p.yaml" || f.Line < 1 || f.Message == "" {
					t.Errorf("the finding %+v lacks file, line or message", f)
				}
				if !f.Warning && f.Line == tc.line && f.Path == tc.path && strings.Contains(f.Message, tc.says) ||
					name == "an alias inside its anchor" && strings.Contains(f.Message, tc.says) {
					return
				}
			}
			t.Errorf("findings %v, want one at line %d, path %s, that says %q", findings, tc.line, tc.path, tc.says)
		})
	}
}

func TestParseWarns(t *testing.T) {
	rule := func(when string, more ...string) string {
		return v2(append([]string{`effect: "e:{id}"`, `rules:`, `- when: {` + when + `}`, `  decision: allow`}, more...)...)
	}
	for name, tc := range map[string]struct {
		text string
		line int
		path string
		says string
	}{
		"NO":                                 {rule(`country_eq: NO`), 6, `actions["a"].rules[0].when.country_eq`, "boolean false"},
		"on":                                 {rule(`state_eq: on`), 6, `actions["a"].rules[0].when.state_eq`, "boolean true"},
		"y":                                  {rule(`axis_in: [x, y]`), 6, `actions["a"].rules[0].when.axis_in[1]`, "boolean true"},
		"an octal number of old":             {rule(`n_eq: 010`), 6, `actions["a"].rules[0].when.n_eq`, "octal number 8"},
		"a leading zero":                     {rule(`n_eq: 089`), 6, `actions["a"].rules[0].when.n_eq`, "floating-point"},
		"an octal number of now":             {rule(`n_eq: 0o17`), 6, `actions["a"].rules[0].when.n_eq`, "text"},
		"an underscore":                      {rule(`n_eq: 1_000`), 6, `actions["a"].rules[0].when.n_eq`, "number 1000"},
		"an underscore in a fraction":        {rule(`n_eq: 1_000.5`), 6, `actions["a"].rules[0].when.n_eq`, "floating-point"},
		"a binary number":                    {rule(`n_eq: 0b101`), 6, `actions["a"].rules[0].when.n_eq`, "number"},
		"a number to the base 60":            {rule(`n_eq: 1:30`), 6, `actions["a"].rules[0].when.n_eq`, "base 60"},
		"on as an action":                    {"schema: ctrlrun.policy/v2\nactions:\n  on: {decision: deny}\n", 3, "actions", "boolean true"},
		"y as a key of an operand":           {rule(`p_eq: {y: 1}`), 6, `actions["a"].rules[0].when.p_eq`, "boolean true"},
		"v1 has no effect":                   {"schema: ctrlrun.policy/v1\nactions: {a: {decision: allow}}\n", 1, "schema", "running twice"},
		"an action that runs without effect": {v2(`rules:`, `- {when: {a_eq: 1}, decision: approve}`), 3, `actions["a"]`, "running twice"},
		"an effect without argument":         {v2(`effect: "daily"`, `decision: allow`), 4, `actions["a"].effect`, "one and the same"},
		"a name that looks like a pattern":   {"schema: ctrlrun.policy/v2\nactions:\n  stripe.*: {decision: deny}\n", 3, `actions["stripe.*"]`, "exactly"},
		"a rule behind a catch-all":          {rule(`n_eq: 1`, `- decision: deny`, `- {when: {n_eq: 2}, decision: allow}`), 9, `actions["a"].rules[2]`, "never matches"},
		"a second catch-all":                 {rule(`n_eq: 1`, `- decision: deny`, `- decision: allow`), 9, `actions["a"].rules[2]`, "rules[1]"},
		"a rule behind the same conditions":  {rule(`n_eq: 1`, `- {when: {n_eq: 1}, decision: deny}`), 8, `actions["a"].rules[1]`, "same conditions"},
		"bounds that exclude each other":     {rule(`n_gte: 5, n_lt: 5`), 6, `actions["a"].rules[0].when`, "never matches"},
		"an empty list":                      {rule(`n_in: []`), 6, `actions["a"].rules[0].when.n_in`, "never matches"},
		"an upper bound alone":               {rule(`amount_lte: 500`), 6, `actions["a"].rules[0].when`, "amount_gte: 0"},
		"an upper bound alone, later":        {rule(`amount_gte: 0, amount_lte: 500`, `- {when: {amount_lt: 5000}, decision: approve}`), 8, `actions["a"].rules[1].when`, "negative"},
		"approvals that are never asked for": {object(`effect: "{id}"`, `decision: allow`, `approvalsRequired: 2`), 10, `spec.actions["a"].approvalsRequired`, "nobody"},
		"resolutions of nothing":             {object(`decision: deny`, `resolutionsRequired: 2`), 9, `spec.actions["a"].resolutionsRequired`, "add effect"},
		"a group that is a word":             {object(`effect: "{id}"`, `decision: approve`, `approverGroups: [no]`), 10, `spec.actions["a"].approverGroups[0]`, "boolean false"},
		"groups that are never asked":        {object(`effect: "{id}"`, `decision: allow`, `approverGroups: [finance]`), 10, `spec.actions["a"].approverGroups`, "nobody"},
		"attempts that are never counted":    {object(`decision: deny`, `maxAttempts: 2`), 9, `spec.actions["a"].maxAttempts`, "no effect"},
	} {
		t.Run(name, func(t *testing.T) {
			doc, findings, err := policy.ParseYAML("p.yaml", []byte(tc.text))
			if err != nil || policy.HasErrors(findings) || doc.Actions == nil {
				t.Fatalf("refused: %v, %v\n%s", findings, err, tc.text)
			}
			if len(findings) != 1 {
				t.Fatalf("findings = %v, want one\n%s", findings, tc.text)
			}
			f := findings[0]
			if f.Line != tc.line || f.Path != tc.path || !strings.Contains(f.Message, tc.says) {
				t.Errorf("finding = %d %s: %s, want line %d, path %s, and %q", f.Line, f.Path, f.Message, tc.line, tc.path, tc.says)
			}
			if !strings.HasPrefix(f.String(), fmt.Sprintf("p.yaml:%d: warning: ", tc.line)) {
				t.Errorf("String = %q", f)
			}
		})
	}
}

func TestParseDoesNotWarn(t *testing.T) {
	for name, text := range map[string]string{
		"an upper bound that denies":        v2(`effect: "{n}"`, `rules:`, `- {when: {n_lt: 0}, decision: deny}`, `- {when: {n_lte: 5}, decision: allow}`),
		"both bounds":                       v2(`effect: "{n}"`, `rules:`, `- {when: {n_gte: 0, n_lte: 5}, decision: allow}`),
		"an upper bound with listed values": v2(`effect: "{n}"`, `rules:`, `- {when: {n_in: [1, 9], n_lte: 5}, decision: allow}`),
		"an action that is always denied":   v2(`decision: deny`),
		"words that contain a word":         v2(`effect: "{n}"`, `rules:`, `- {when: {c_in: [NOR, one, yess, oN, nO]}, decision: allow}`),
	} {
		t.Run(name, func(t *testing.T) {
			_, findings, err := policy.ParseYAML("p.yaml", []byte(text))
			if err != nil || len(findings) > 0 {
				t.Errorf("findings = %v, %v, want none", findings, err)
			}
		})
	}
}

func TestScalarsAreReadByTheCoreSchema(t *testing.T) {
	for token, want := range map[string]string{
		"010": "10", "+5": "5", "-0": "0", "0x1F": "31", "0o17": "15", "1_000": `"1_000"`, "NO": `"NO"`, "~": "null", "True": "true", "tRue": `"tRue"`,
		"18446744073709551617": "18446744073709551617", "0b1": `"0b1"`, "-0x1": `"-0x1"`, "1:30": `"1:30"`, `"5"`: `"5"`, "": "null", "'~'": `"~"`, "a b": `"a b"`, "!!str 5": `"5"`,
	} {
		doc, findings, err := policy.ParseYAML("p.yaml", []byte(v2(`effect: "{x}"`, `rules:`, `- when:`, `    x_eq: `+token, `  decision: allow`)))
		if err != nil || policy.HasErrors(findings) {
			t.Errorf("%q: %v, %v", token, findings, err)
			continue
		}
		operand, err := canonical.Encode(doc.Actions["a"].Rules[0].When.List()[0].Operand())
		if err != nil || string(operand) != want {
			t.Errorf("%q was read as %s, %v, want %s", token, operand, err, want)
		}
	}
}

func TestEveryErrorIsReportedInOrder(t *testing.T) {
	_, findings, err := policy.ParseYAML("p.yaml", []byte(v2(`decision: maybe`, `effect: "{"`, `why: x`)+"  b: {}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range findings {
		lines = append(lines, fmt.Sprint(f.Line))
	}
	if got := strings.Join(lines, ","); got != "4,5,6,7" {
		t.Errorf("findings at lines %s, want 4,5,6,7: %v", got, findings)
	}
}

func TestAliasesCannotMultiply(t *testing.T) {
	var b strings.Builder
	b.WriteString("schema: ctrlrun.policy/v1\nactions:\n  a0: &a0 [x,x,x,x,x,x,x,x,x]\n")
	for i := range 30 {
		fmt.Fprintf(&b, "  a%d: &a%d [%s]\n", i+1, i+1, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d,", i), 9), ","))
	}
	_, findings, err := policy.ParseYAML("p.yaml", []byte(b.String()))
	if err != nil || !policy.HasErrors(findings) {
		t.Errorf("accepted: %v, %v", findings, err)
	}
}

func TestWhatIsTooLargeIsNotRead(t *testing.T) {
	text := "schema: ctrlrun.policy/v1\nactions: {}\n"
	text += strings.Repeat("#", policy.MaxDocumentBytes-len(text))
	if _, findings, err := policy.ParseYAML("p.yaml", []byte(text)); err != nil || len(findings) > 0 {
		t.Errorf("the largest document: %v, %v", findings, err)
	}
	if _, _, err := policy.ParseYAML("p.yaml", []byte(text+"#")); err == nil {
		t.Error("a document beyond the limit was read")
	}
}

func TestParseActions(t *testing.T) {
	good := map[string]any{"decision": "allow", "effect": "{id}"}
	for name, tc := range map[string]struct {
		actions any
		valid   string
		path    string
	}{
		"nothing wrong":             {map[string]any{"a": good}, "a", ""},
		"Go integers of an object":  {map[string]any{"a": map[string]any{"effect": "{id}", "decision": "approve", "approvalsRequired": int64(2)}}, "a", ""},
		"no mapping":                {[]any{}, "", "actions"},
		"nothing":                   {nil, "", "actions"},
		"a float":                   {map[string]any{"a": good, "b": map[string]any{"rules": []any{map[string]any{"when": map[string]any{"n_lte": 1.0}, "decision": "allow"}}}}, "a", `actions["b"].rules[0].when.n_lte`},
		"a null when":               {map[string]any{"a": good, "stripe.refund": map[string]any{"rules": []any{map[string]any{"decision": "deny"}, map[string]any{"when": nil, "decision": "allow"}}}}, "a", `actions["stripe.refund"].rules[1].when`},
		"a value of a foreign type": {map[string]any{"a": good, "b": map[string]any{"decision": struct{}{}}}, "a", `actions["b"].decision`},
		"more than the API takes": {func() any {
			m := map[string]any{}
			for i := range policy.MaxActions + 1 {
				m[fmt.Sprint("a", i)] = map[string]any{"decision": "deny"}
			}
			return m
		}(), "*", "actions"},
	} {
		t.Run(name, func(t *testing.T) {
			entries, findings := policy.ParseActions(tc.actions)
			if policy.HasErrors(findings) != (tc.path != "") {
				t.Fatalf("findings = %v, want an error at %q", findings, tc.path)
			}
			if tc.path != "" && findings[0].Path != tc.path {
				t.Errorf("findings = %v, want the error at %s", findings, tc.path)
			}
			if tc.valid != "*" && strings.Join(keys(entries), ",") != tc.valid {
				t.Errorf("valid entries = %v, want %s", keys(entries), tc.valid)
			}
		})
	}
}

func keys(m map[string]policy.Entry) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	return out
}

func TestConvert(t *testing.T) {
	doc, findings, err := policy.ParseYAML("p.yaml", []byte(`
schema: ctrlrun.policy/v2
actions:
  stripe.refund:
    rules:
    - when: {amount_gte: 0, amount_lte: 50000, country_in: ["NO", "SE"]}
      decision: allow
    - decision: deny
    effect: "refund:{payment_id}"
  "on": {decision: deny}
`))
	if err != nil || policy.HasErrors(findings) {
		t.Fatal(findings, err)
	}
	got, err := policy.Convert(doc, "payments", "team-a")
	if err != nil {
		t.Fatal(err)
	}
	const want = `apiVersion: ctrlrun.dev/v1alpha1
kind: ActionPolicy
metadata:
  name: "payments"
  namespace: "team-a"
spec:
  actions:
    "on":
      decision: deny
    stripe.refund:
      effect: "refund:{payment_id}"
      rules:
      - when: {amount_gte: 0, amount_lte: 50000, country_in: ["NO", "SE"]}
        decision: allow
      - decision: deny
`
	if string(got) != want {
		t.Errorf("Convert =\n%s\nwant\n%s", got, want)
	}
}

// Groups are text, whatever they look like, and who may approve is not lost on the way.
func TestConvertKeepsWhoIsAsked(t *testing.T) {
	doc, findings, err := policy.ParseYAML("p.yaml", []byte(object(`effect: "e:{id}"`, `decision: approve`, `approvalsRequired: 2`, `approverGroups: ["no", oidc:finance, "7"]`)))
	if err != nil || len(findings) > 0 {
		t.Fatal(findings, err)
	}
	got, err := policy.Convert(doc, "payments", "team-a")
	if err != nil || !strings.Contains(string(got), "approvalsRequired: 2\n") || !strings.Contains(string(got), `approverGroups: ["no", "oidc:finance", "7"]`) {
		t.Fatalf("Convert = %s, %v", got, err)
	}
	back, findings, err := policy.ParseYAML("p.yaml", got)
	if err != nil || len(findings) > 0 || !back.Actions["a"].Equal(doc.Actions["a"]) {
		t.Errorf("it reads back as %+v: %v, %v", back.Actions["a"], findings, err)
	}
}

func TestConvertRefuses(t *testing.T) {
	parse := func(text string) policy.Document {
		doc, findings, err := policy.ParseYAML("p.yaml", []byte(text))
		if err != nil || policy.HasErrors(findings) {
			t.Fatal(findings, err)
		}
		return doc
	}
	empty := parse("schema: ctrlrun.policy/v1\nactions: {}\n")
	for name, tc := range map[string]struct {
		doc             policy.Document
		name, namespace string
	}{
		"no name":                   {empty, "", ""},
		"a name that is none":       {empty, "Payments", ""},
		"a namespace that is none":  {empty, "payments", "a.b"},
		"an operand beyond 64 bits": {parse(v2(`rules: [{when: {n_eq: 9223372036854775808}, decision: deny}]`)), "payments", ""},
		"a name too long for YAML":  {parse("schema: ctrlrun.policy/v1\nactions:\n  ? " + strings.Repeat("a", 2000) + "\n  : {decision: deny}\n"), "payments", ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := policy.Convert(tc.doc, tc.name, tc.namespace); err == nil || got != nil {
				t.Errorf("Convert = %s, %v, want a refusal", got, err)
			}
		})
	}
}

func FuzzParseYAML(f *testing.F) {
	for _, seed := range []string{
		v2(`effect: "e:{id}"`, `rules:`, `- when: {n_gte: 0, n_lte: 5, c_in: [NO, "x"]}`, `  decision: allow`, `- decision: deny`),
		object(`effect: "e:{id}"`, `decision: approve`, `approvalsRequired: 2`),
		"schema: ctrlrun.policy/v1\nactions: &x\n  a: *x\n", "a: !!binary x", "? [a]\n: b", "<<: {a: 1}", "- 1\n- 2026-01-01", "---\n---\n", "%YAML 1.1\n---\na: 1",
		`{"schema":"ctrlrun.policy/v1","actions":{"\ud83d\ude00":{"decision":"deny"}}}`, "a: |\n  x\n", "\"\\u2028\": 1e9",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		doc, findings, err := policy.ParseYAML("p.yaml", data)
		if err != nil {
			t.Fatal(err)
		}
		for _, finding := range findings {
			if finding.Line < 1 || finding.Message == "" {
				t.Fatalf("the finding %+v lacks line or message", finding)
			}
		}
		if policy.HasErrors(findings) {
			if doc.Actions != nil {
				t.Fatal("an invalid document has actions")
			}
			return
		}
		if doc.Schema == "" || doc.Actions == nil {
			t.Fatalf("no document and no error: %v", findings)
		}
		set := policy.NewSet([]policy.Source{doc.Source("p")})
		for name := range doc.Actions {
			p := action.Proposal{Name: name, Arguments: map[string]any{}, Principal: action.Principal{Agent: "x"}, Environment: "production"}
			if e, err := set.Evaluate(p); err == nil && !e.Decision.Valid() {
				t.Fatalf("evaluation without decision: %+v", e)
			}
		}
		text, err := policy.Convert(doc, "p", "")
		if err != nil {
			return
		}
		back, findings, err := policy.ParseYAML("q.yaml", text)
		if err != nil || policy.HasErrors(findings) {
			t.Fatalf("the converted policy is refused: %v, %v\n%s", findings, err, text)
		}
		for _, finding := range findings {
			if strings.Contains(finding.Message, "other readers") {
				t.Fatalf("the converted policy reads differently elsewhere: %v\n%s", finding, text)
			}
		}
		for name, entry := range doc.Actions {
			if !entry.Equal(back.Actions[name]) {
				t.Fatalf("the entry of %q changed in conversion:\n%s", name, text)
			}
		}
	})
}
