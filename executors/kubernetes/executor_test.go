package kubeexec

import (
	"encoding/json"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/yaml"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/executors"
)

// spec reads a spec from its fields in JSON, on top of a Patch that is in order; null takes a field away.
func spec(t *testing.T, changes string) *v1alpha1.KubernetesExecutor {
	t.Helper()
	fields := map[string]any{
		"operation": "Patch", "apiVersion": "apps/v1", "kind": "Deployment", "name": "{name}", "uid": "{uid}", "timeoutSeconds": 10,
		"template": map[string]any{"spec": map[string]any{"paused": "{paused}"}},
	}
	if err := json.Unmarshal([]byte(changes), &fields); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	s := &v1alpha1.KubernetesExecutor{}
	if err := json.Unmarshal(data, s); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestNew(t *testing.T) {
	for name, c := range map[string]struct {
		changes string
		// want is in the error, or "" if there is none.
		want string
	}{
		"patch":                           {`{}`, ""},
		"patch by version":                {`{"uid": null, "resourceVersion": "{version}"}`, ""},
		"patch of whatever has the name":  {`{"uid": null}`, "uid or resourceVersion"},
		"patch without template":          {`{"template": null}`, "template"},
		"patch with nothing":              {`{"template": {}}`, "template"},
		"patch with replicas":             {`{"replicas": "3"}`, "replicas"},
		"apply that may create":           {`{"operation": "Apply", "uid": null}`, ""},
		"apply without template":          {`{"operation": "Apply", "template": null}`, "template"},
		"scale":                           {`{"operation": "Scale", "template": null, "replicas": "{n}"}`, ""},
		"scale to a number":               {`{"operation": "Scale", "template": null, "replicas": "0"}`, ""},
		"scale to no number":              {`{"operation": "Scale", "template": null, "replicas": "many"}`, "replicas"},
		"scale below zero":                {`{"operation": "Scale", "template": null, "replicas": "-1"}`, "replicas"},
		"scale beyond what there is":      {`{"operation": "Scale", "template": null, "replicas": "2147483648"}`, "replicas"},
		"scale by text":                   {`{"operation": "Scale", "template": null, "replicas": "1{n}"}`, "replicas"},
		"scale to nothing":                {`{"operation": "Scale", "template": null}`, "replicas"},
		"scale with template":             {`{"operation": "Scale", "replicas": "1"}`, "template"},
		"scale of whatever has the name":  {`{"operation": "Scale", "template": null, "replicas": "1", "uid": null}`, "uid or resourceVersion"},
		"delete":                          {`{"operation": "Delete", "template": null}`, ""},
		"delete of whatever has the name": {`{"operation": "Delete", "template": null, "uid": null}`, "uid or resourceVersion"},
		"delete with template":            {`{"operation": "Delete"}`, "template"},
		"another operation":               {`{"operation": "Create"}`, "operation"},
		"a uid that is literal":           {`{"uid": "dece4ae6"}`, "uid"},
		"a uid with text":                 {`{"uid": "x{uid}"}`, "uid"},
		"a version of two arguments":      {`{"resourceVersion": "{a}{b}"}`, "resourceVersion"},
		"no version in apiVersion":        {`{"apiVersion": "apps/"}`, "apiVersion"},
		"three parts in apiVersion":       {`{"apiVersion": "a/b/c"}`, "apiVersion"},
		"a way out of the path":           {`{"apiVersion": "../v1"}`, "apiVersion"},
		"an argument in apiVersion":       {`{"apiVersion": "{group}/v1"}`, "apiVersion"},
		"an argument in kind":             {`{"kind": "{kind}"}`, "kind"},
		"a resource as kind":              {`{"kind": "deployments/scale"}`, "kind"},
		"an argument in namespace":        {`{"namespace": "{ns}"}`, "namespace"},
		"an empty namespace":              {`{"namespace": ""}`, "namespace"},
		"another namespace":               {`{"namespace": "other"}`, ""},
		"no name":                         {`{"name": ""}`, "name"},
		"a brace in the name":             {`{"name": "a}"}`, "name"},
		"an approval":                     {`{"apiVersion": "ctrlrun.dev/v1alpha1", "kind": "Approval"}`, "ctrlrun.dev"},
		"a group below":                   {`{"apiVersion": "more.ctrlrun.dev/v1", "kind": "Thing"}`, "ctrlrun.dev"},
		"a group that ends alike":         {`{"apiVersion": "notctrlrun.dev/v1", "kind": "Thing"}`, ""},
		"no timeout":                      {`{"timeoutSeconds": 0}`, "timeoutSeconds"},
		"a long timeout":                  {`{"timeoutSeconds": 61}`, "timeoutSeconds"},
		"a template that is a list":       {`{"template": [1]}`, "template"},
		"a template with a fraction":      {`{"template": {"spec": {"x": 0.5}}}`, "template"},
		"a template with apiVersion":      {`{"template": {"apiVersion": "v1"}}`, "apiVersion"},
		"a template with kind":            {`{"template": {"kind": "x"}}`, "kind"},
		"a template with status":          {`{"template": {"status": {}}}`, "status"},
		"a template with a name":          {`{"template": {"metadata": {"name": "x"}}}`, "name"},
		"a template with a namespace":     {`{"template": {"metadata": {"namespace": "x"}}}`, "namespace"},
		"a template with a uid":           {`{"template": {"metadata": {"uid": "x"}}}`, "uid"},
		"a template with an owner":        {`{"template": {"metadata": {"ownerReferences": []}}}`, "ownerReferences"},
		"a template with finalizers":      {`{"template": {"metadata": {"finalizers": []}}}`, "finalizers"},
		"a template with labels":          {`{"template": {"metadata": {"labels": {"a": "{b}"}, "annotations": "{c}"}}}`, ""},
		"metadata from an argument":       {`{"template": {"metadata": "{m}"}}`, "metadata"},
		"a brace in a value":              {`{"template": {"spec": [{"a": "{b"}]}}`, "/spec/0/a"},
		"a key that is an argument":       {`{"template": {"spec": {"{k}": 1}}}`, "literal"},
		"an attribute of an argument":     {`{"template": {"spec": "{a.b}"}}`, "placeholder"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := New(spec(t, c.changes), "payments")
			switch {
			case c.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("the error is %v, and does not speak of %s", err, c.want)
			}
		})
	}
}

func TestFill(t *testing.T) {
	arguments := map[string]any{"s": "text", "n": big.NewInt(7), "b": true, "z": nil, "l": []any{"x"}, "o": map[string]any{"k": "{s}"}}
	for name, c := range map[string]struct {
		template, want any
		refused        bool
	}{
		"a string":                         {template: "{s}", want: "text"},
		"an integer":                       {template: "{n}", want: big.NewInt(7)},
		"a bool":                           {template: "{b}", want: true},
		"null":                             {template: "{z}", want: nil},
		"a list":                           {template: "{l}", want: []any{"x"}},
		"an argument is not filled in":     {template: "{o}", want: map[string]any{"k": "{s}"}},
		"in text":                          {template: "a-{s}-{n}", want: "a-text-7"},
		"two side by side":                 {template: "{s}{n}", want: "text7"},
		"in lists and objects":             {template: []any{map[string]any{"a": "{n}"}}, want: []any{map[string]any{"a": big.NewInt(7)}}},
		"what is no string":                {template: []any{nil, false, big.NewInt(1), ""}, want: []any{nil, false, big.NewInt(1), ""}},
		"a bool in text":                   {template: "a{b}", refused: true},
		"a list in text":                   {template: "a{l}", refused: true},
		"an argument there is not":         {template: "{missing}", refused: true},
		"an argument there is not in text": {template: "a{missing}", refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := fill(c.template, arguments)
			if (err != nil) != c.refused {
				t.Fatalf("the error is %v", err)
			}
			if diff := cmp.Diff(c.want, got, cmp.Comparer(func(a, b *big.Int) bool { return a.Cmp(b) == 0 })); err == nil && diff != "" {
				t.Error(diff)
			}
		})
	}
}

// An apiserver reads the body of an Apply as YAML. Every character is read as it was approved, in a key too.
func TestYAMLReadsTheSame(t *testing.T) {
	for from := rune(0); from <= 0x10000; from += 256 { // beyond, all are alike
		texts := []any{}
		keys := map[string]any{}
		for r := from; r < from+256; r++ {
			if !utf8.ValidRune(r) {
				continue
			}
			texts = append(texts, string(r), "a"+string(r)+"b", " "+string([]rune{r, r})+" ")
			keys["k"+string(r)] = true
		}
		want := map[string]any{"texts": texts, "keys": keys}
		body, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]any{}
		if err := yaml.UnmarshalStrict(forYAML(body), &got); err != nil {
			t.Fatalf("from %U on: %v", from, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("from %U on: %s", from, cmp.Diff(want, got))
		}
	}
}

// What an action says has to be the name, the uid, the version of an object; what it says otherwise is not in the error.
func TestArguments(t *testing.T) {
	for name, c := range map[string]struct{ changes, arguments, want string }{
		"no JSON":                      {`{}`, `{`, "arguments"},
		"no object":                    {`{}`, `["confidential"]`, "arguments"},
		"no name":                      {`{}`, `{"uid": "confidential", "paused": true}`, "name"},
		"a name that is an object":     {`{}`, `{"name": {"confidential": 1}, "uid": "u", "paused": true}`, "name"},
		"a name that leads elsewhere":  {`{}`, `{"name": "confidential/status", "uid": "u", "paused": true}`, "name"},
		"a name that leads up":         {`{}`, `{"name": "..", "uid": "confidential", "paused": true}`, "name"},
		"an escape in a name":          {`{}`, `{"name": "confidential%2Fscale", "uid": "u", "paused": true}`, "name"},
		"no uid":                       {`{}`, `{"name": "confidential", "paused": true}`, "uid"},
		"an empty uid":                 {`{}`, `{"name": "confidential", "uid": "", "paused": true}`, "uid"},
		"a uid that is null":           {`{}`, `{"name": "confidential", "uid": null, "paused": true}`, "uid"},
		"a uid that is a number":       {`{}`, `{"name": "confidential", "uid": 7, "paused": true}`, "uid"},
		"any version":                  {`{"resourceVersion": "{v}"}`, `{"name": "confidential", "uid": "u", "v": "0", "paused": true}`, "resourceVersion"},
		"any version, written long":    {`{"resourceVersion": "{v}"}`, `{"name": "confidential", "uid": "u", "v": "00", "paused": true}`, "resourceVersion"},
		"a version that is text":       {`{"resourceVersion": "{v}"}`, `{"name": "confidential", "uid": "u", "v": "latest", "paused": true}`, "resourceVersion"},
		"a template without argument":  {`{}`, `{"name": "confidential", "uid": "u"}`, "paused"},
		"replicas below zero":          {`{"operation": "Scale", "template": null, "replicas": "{n}"}`, `{"name": "confidential", "uid": "u", "n": -4711}`, "replicas"},
		"replicas that are a list":     {`{"operation": "Scale", "template": null, "replicas": "{n}"}`, `{"name": "confidential", "uid": "u", "n": [1]}`, "replicas"},
		"more replicas than there are": {`{"operation": "Scale", "template": null, "replicas": "{n}"}`, `{"name": "confidential", "uid": "u", "n": 4294967297}`, "replicas"},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := New(spec(t, c.changes), "payments")
			if err != nil {
				t.Fatal(err)
			}
			_, err = e.object(executors.Call{Arguments: []byte(c.arguments)})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Fatalf("the error is %v, and does not speak of %s", err, c.want)
			}
			for _, secret := range []string{"confidential", "4711", "4294967297"} {
				if strings.Contains(err.Error(), secret) {
					t.Errorf("the error says an argument: %v", err)
				}
			}
		})
	}
}

// Fields that an earlier Executor of the type set stay those of the type; whatever else sets them conflicts.
func TestFieldManager(t *testing.T) {
	call := func(namespace, actionType string) executors.Call {
		return executors.Call{Namespace: namespace, ActionType: actionType}
	}
	seen := map[string]bool{}
	for _, c := range []executors.Call{
		call("a", "deploy.restart"), call("b", "deploy.restart"), call("a", "deploy.scale"),
		call("a", strings.Repeat("x", 200)), call("a", strings.Repeat("x", 201)), call("a", "é"),
	} {
		m := fieldManager(c)
		if m == "" || len(m) > 128 || seen[m] || strings.ContainsFunc(m, func(r rune) bool { return r > '~' }) {
			t.Errorf("%q", m)
		}
		seen[m] = true
	}
}
