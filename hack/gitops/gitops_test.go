// Package gitops tests how Flux and Argo CD judge the kinds that are kept in Git, on objects that were recorded from an apiserver
// with the operator running (testdata). Flux judges with the library that is run here; of Argo CD the interpreter is run, with the
// libraries that Argo CD opens.
package gitops

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fluxcd/cli-utils/pkg/kstatus/status"
	kustomizev1 "github.com/fluxcd/kustomize-controller/api/v1"
	lua "github.com/yuin/gopher-lua"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	yamlutil "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"
)

const samples = "../../config/samples"

// recorded are the objects of testdata, what Flux and Argo CD must take them for, and what whoever looks there must be told.
var recorded = map[string]struct {
	flux status.Status
	argo string
	says string
}{
	"actionpolicy-created.yaml":    {status.InProgressStatus, "Progressing", "has not judged this generation"},
	"actionpolicy-inforce.yaml":    {status.CurrentStatus, "Healthy", "Generation 1 is in force."},
	"actionpolicy-warned.yaml":     {status.CurrentStatus, "Healthy", "Warnings: 1."},
	"actionpolicy-edited.yaml":     {status.InProgressStatus, "Progressing", "has not judged this generation"},
	"actionpolicy-invalid.yaml":    {status.FailedStatus, "Degraded", "PolicyInvalid: "},
	"actionpolicy-conflict.yaml":   {status.FailedStatus, "Degraded", "PolicyConflict: "},
	"actionpolicy-mended.yaml":     {status.CurrentStatus, "Healthy", "is in force."},
	"grant-created.yaml":           {status.InProgressStatus, "Progressing", "has not judged this generation"},
	"grant-inforce.yaml":           {status.CurrentStatus, "Healthy", "Generation 1 is in force."},
	"grant-edited.yaml":            {status.InProgressStatus, "Progressing", "has not judged this generation"},
	"grant-expired.yaml":           {status.CurrentStatus, "Healthy", "Generation 1 is in force."},
	"grant-invalid.yaml":           {status.FailedStatus, "Degraded", "GrantInvalid: "},
	"policyproposal-created.yaml":  {status.InProgressStatus, "Progressing", "has not judged this generation"},
	"policyproposal-asking.yaml":   {status.InProgressStatus, "Progressing", "kubectl ctrlrun approve"},
	"policyproposal-applied.yaml":  {status.CurrentStatus, "Healthy", "It was approved and applied. Receipt"},
	"policyproposal-edited.yaml":   {status.InProgressStatus, "Progressing", "has not judged this generation"},
	"policyproposal-denied.yaml":   {status.FailedStatus, "Degraded", "ApprovalDenied: "},
	"policyproposal-invalid.yaml":  {status.FailedStatus, "Degraded", "ContentInvalid: "},
	"policyproposal-replaced.yaml": {status.FailedStatus, "Degraded", "TargetReplaced: "},
	"settings-created.yaml":        {status.InProgressStatus, "Progressing", "has not judged this generation"},
	"settings-inforce.yaml":        {status.CurrentStatus, "Healthy", "Generation 1 is in force."},
	"settings-edited.yaml":         {status.InProgressStatus, "Progressing", "has not judged this generation"},
}

func TestEveryRecordedObjectIsJudged(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		if _, ok := recorded[filepath.Base(path)]; !ok {
			t.Errorf("nothing judges %s", path)
		}
	}
	if len(paths) != len(recorded) {
		t.Errorf("%d objects are recorded, %d are judged", len(paths), len(recorded))
	}
}

func TestFlux(t *testing.T) {
	for name, want := range recorded {
		t.Run(name, func(t *testing.T) {
			o := record(t, name)
			got, err := status.Compute(o)
			if err != nil {
				t.Fatal(err)
			}
			if got.Status != want.flux {
				t.Errorf("Flux takes it for %s (%s), want %s", got.Status, got.Message, want.flux)
			}
			if _, reason, ok := strings.Cut(got.Message, "("); o.GetKind() == "ActionPolicy" && got.Status == status.FailedStatus && (!ok || !strings.HasPrefix(reason, "policy_")) {
				t.Errorf("Flux does not say why the actions are denied: %q", got.Message)
			}
		})
	}
}

func TestArgoCD(t *testing.T) {
	for name, want := range recorded {
		t.Run(name, func(t *testing.T) {
			o := record(t, name)
			health, message := argoHealth(t, script(t, o.GetKind()), o)
			if health != want.argo || !strings.Contains(message, want.says) {
				t.Errorf("Argo CD takes it for %s: %s; want %s: %s", health, message, want.argo, want.says)
			}
		})
	}
}

// What the apiserver never returns, and a health check must survive all the same: it runs on whatever is there, and an error in it
// is an error of the whole Application.
func TestArgoCDOnPartialObjects(t *testing.T) {
	for name, text := range map[string]string{
		"no status":              `{"metadata":{"generation":1}}`,
		"no generation observed": `{"metadata":{"generation":1},"status":{"conditions":[{"type":"Ready","status":"True","reason":"InForce","message":"x"}]}}`,
		"no conditions":          `{"metadata":{"generation":1},"status":{"observedGeneration":1}}`,
		"conditions of others":   `{"metadata":{"generation":1},"status":{"observedGeneration":1,"conditions":[{"type":"Expired","status":"True","reason":"x","message":"y"}]}}`,
		"not ready, not stalled": `{"metadata":{"generation":1},"status":{"observedGeneration":1,"conditions":[{"type":"Ready","status":"False","reason":"x","message":"y"}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			o := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
				t.Fatal(err)
			}
			if health, message := argoHealth(t, script(t, "ActionPolicy"), o); health != "Progressing" || message == "" {
				t.Errorf("Argo CD takes it for %s: %s", health, message)
			}
		})
	}
}

// One text for all kinds: whoever corrects one corrects the others.
func TestOneHealthCheckForAllKinds(t *testing.T) {
	for _, kind := range []string{"Settings", "PolicyProposal", "Grant"} {
		if script(t, "ActionPolicy") != script(t, kind) {
			t.Errorf("the health check of %s differs", kind)
		}
	}
}

// The sample is what Flux accepts: it has no key that Flux does not know, waits for health, and acts with the rights of the
// namespace.
func TestFluxSample(t *testing.T) {
	found := 0
	for _, document := range documents(t, filepath.Join(samples, "flux", "policies.yaml")) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &o.Object); err != nil {
			t.Fatal(err)
		}
		if o.GetKind() != kustomizev1.KustomizationKind {
			continue
		}
		found++
		k := &kustomizev1.Kustomization{}
		text, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			t.Fatal(err)
		}
		if strict, err := json.UnmarshalStrict(text, k); err != nil || len(strict) > 0 {
			t.Fatal(err, strict)
		}
		if k.APIVersion != kustomizev1.GroupVersion.String() || !k.Spec.Wait || !k.Spec.Prune || k.Spec.ServiceAccountName == "" || k.Spec.Timeout == nil {
			t.Errorf("got %+v", k.Spec)
		}
	}
	if found != 1 {
		t.Errorf("the sample has %d Kustomizations", found)
	}
}

func record(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	o := &unstructured.Unstructured{}
	// As the apiserver's JSON is read: integers stay integers.
	text, err := yaml.YAMLToJSON(data)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	return o
}

func documents(t *testing.T, path string) [][]byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]byte
	for r := yamlutil.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := r.Read()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, document)
	}
}

// script is the health check of a kind, under the key by which Argo CD looks for it.
func script(t *testing.T, kind string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(samples, "argocd", "argocd-cm.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	cm := &corev1.ConfigMap{}
	if err := yaml.UnmarshalStrict(data, cm); err != nil {
		t.Fatal(err)
	}
	text := cm.Data["resource.customizations.health.ctrlrun.dev_"+kind]
	if cm.Name != "argocd-cm" || text == "" {
		t.Fatalf("there is no health check of %s", kind)
	}
	return text
}

// argoHealth runs a health check as Argo CD does: nothing is open but the base and the table library, the object is the global
// obj, and a table with status and message comes back.
func argoHealth(t *testing.T, script string, o *unstructured.Unstructured) (health, message string) {
	t.Helper()
	state := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer state.Close()
	for name, open := range map[string]lua.LGFunction{lua.BaseLibName: lua.OpenBase, lua.TabLibName: lua.OpenTable} {
		if err := state.CallByParam(lua.P{Fn: state.NewFunction(open), Protect: true}, lua.LString(name)); err != nil {
			t.Fatal(err)
		}
	}
	state.SetGlobal("obj", luaValue(t, state, o.Object))
	if err := state.DoString(script); err != nil {
		t.Fatal(err)
	}
	table, ok := state.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the health check returns a %s", state.Get(-1).Type())
	}
	return lua.LVAsString(table.RawGetString("status")), lua.LVAsString(table.RawGetString("message"))
}

func luaValue(t *testing.T, state *lua.LState, value any) lua.LValue {
	t.Helper()
	switch v := value.(type) {
	case nil:
		return lua.LNil
	case bool:
		return lua.LBool(v)
	case string:
		return lua.LString(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	case []any:
		table := state.NewTable()
		for _, element := range v {
			table.Append(luaValue(t, state, element))
		}
		return table
	case map[string]any:
		table := state.NewTable()
		for key, member := range v {
			table.RawSetString(key, luaValue(t, state, member))
		}
		return table
	}
	t.Fatalf("an object holds a %T", value)
	return nil
}
