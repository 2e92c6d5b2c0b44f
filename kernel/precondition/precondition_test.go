package precondition_test

import (
	"math/big"
	"testing"

	"ctrlrun.dev/operator/kernel/precondition"
)

func replicas(change func(*precondition.Part)) []precondition.Part {
	p := precondition.Part{
		Ref: precondition.Ref{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Pointer: "/spec/replicas"},
		UID: "d1", Value: big.NewInt(3),
	}
	if change != nil {
		change(&p)
	}
	return []precondition.Part{p}
}

// The fingerprint stands in receipts: it never changes. It is computed here by sha256sum over
// {"schema":"ctrlrun.precondition/v1","state":{"objects":[{"api_version":"apps/v1","kind":"Deployment","name":"web","pointer":"/spec/replicas","uid":"d1","value":3}]}}
func TestFingerprint(t *testing.T) {
	const want = "sha256:5832d924e64c4bd0c8a372979434787434b6233cfba1e5534f532ab55b2d60cc"
	got, err := precondition.Fingerprint(replicas(nil))
	if err != nil || got != want {
		t.Fatalf("the fingerprint is %s, %v, want %s", got, err, want)
	}
	for what, change := range map[string]func(*precondition.Part){
		"the version":      func(p *precondition.Part) { p.APIVersion = "apps/v2" },
		"the kind":         func(p *precondition.Part) { p.Kind = "StatefulSet" },
		"the name":         func(p *precondition.Part) { p.Name = "db" },
		"the pointer":      func(p *precondition.Part) { p.Pointer = "/status/replicas" },
		"the uid":          func(p *precondition.Part) { p.UID = "d2" },
		"the value":        func(p *precondition.Part) { p.Value = big.NewInt(4) },
		"the value's type": func(p *precondition.Part) { p.Value = "3" },
		"no value":         func(p *precondition.Part) { p.Value = nil },
	} {
		if other, err := precondition.Fingerprint(replicas(change)); err != nil || other == want {
			t.Errorf("with another %s it is %s, %v", what, other, err)
		}
	}
}

func TestFingerprintRefusals(t *testing.T) {
	for what, parts := range map[string][]precondition.Part{
		"nothing":                nil,
		"a fraction":             replicas(func(p *precondition.Part) { p.Value = 0.5 }),
		"text that is not UTF-8": replicas(func(p *precondition.Part) { p.Value = "\xff" }),
	} {
		if got, err := precondition.Fingerprint(parts); err == nil {
			t.Errorf("%s has the fingerprint %s", what, got)
		}
	}
}

func TestRef(t *testing.T) {
	for text, want := range map[string]precondition.Ref{
		"apps/v1/Deployment/web#/spec/replicas": {APIVersion: "apps/v1", Kind: "Deployment", Name: "web", Pointer: "/spec/replicas"},
		"v1/ConfigMap/limits#/data/max#amount":  {APIVersion: "v1", Kind: "ConfigMap", Name: "limits", Pointer: "/data/max#amount"},
	} {
		got, err := precondition.ParseRef(text)
		if err != nil || got != want || got.String() != text {
			t.Errorf("%s reads as %+v, %v, which reads %s", text, got, err, got)
		}
	}
	for _, text := range []string{"", "v1/ConfigMap/limits", "v1/ConfigMap/limits#", "v1/ConfigMap/limits#data", "ConfigMap/limits#/data", "a/b/v1/ConfigMap/limits#/data", "v1//limits#/data", "/v1/ConfigMap/limits#/data"} {
		if got, err := precondition.ParseRef(text); err == nil {
			t.Errorf("%q reads as %+v", text, got)
		}
	}
}

// Whatever is read reads the same once it is written.
func FuzzParseRef(f *testing.F) {
	for _, text := range []string{"apps/v1/Deployment/web#/spec/replicas", "v1/ConfigMap/limits#/data/max", "v1/x/#/", "#", "a/b/c/d#/e#/f"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ref, err := precondition.ParseRef(text)
		if err != nil {
			return
		}
		if ref.String() != text {
			t.Errorf("%q reads as %+v, which reads %q", text, ref, ref)
		}
	})
}
