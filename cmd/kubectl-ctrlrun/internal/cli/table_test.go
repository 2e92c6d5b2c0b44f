package cli

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

// TestAWatchKeepsItsColumns proves that rows that come later stand below the header, also after a flush.
func TestAWatchKeepsItsColumns(t *testing.T) {
	var out bytes.Buffer
	a := &app{streams: genericiooptions.IOStreams{Out: &out}}
	rows := a.table("NAME", "STATE")
	rows.row("refund-txn-1-x65u2jfxzep2glb2dhvo", "Pending")
	rows.flush()
	rows.row("short", "Admitted")
	rows.flush()
	lines := strings.Split(out.String(), "\n")
	column := strings.Index(lines[0], "STATE")
	if strings.Index(lines[1], "Pending") != column || strings.Index(lines[2], "Admitted") != column {
		t.Errorf("the columns are not below each other:\n%s", out.String())
	}
}

// TestTypesInRules proves which rules give a right on action types.
func TestTypesInRules(t *testing.T) {
	rule := func(group, resource, verb string, names ...string) authorizationv1.ResourceRule {
		return authorizationv1.ResourceRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: names}
	}
	for name, test := range map[string]struct {
		rules []authorizationv1.ResourceRule
		want  []string
	}{
		"none":             {nil, []string{}},
		"another group":    {[]authorizationv1.ResourceRule{rule("apps", "actiontypes", "approve")}, []string{}},
		"another resource": {[]authorizationv1.ResourceRule{rule("ctrlrun.dev", "approvals", "approve")}, []string{}},
		"another verb":     {[]authorizationv1.ResourceRule{rule("ctrlrun.dev", "actiontypes", "resolve")}, []string{}},
		"some types":       {[]authorizationv1.ResourceRule{rule("ctrlrun.dev", "actiontypes", "approve", "stripe.*"), rule("ctrlrun.dev", "*", "*", "iam.grant", "stripe.*")}, []string{"iam.grant", "stripe.*"}},
		"every type":       {[]authorizationv1.ResourceRule{rule("ctrlrun.dev", "actiontypes", "approve", "stripe.*"), rule("*", "*", "*")}, []string{"*"}},
	} {
		if got := typesIn(test.rules, "approve"); !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}
