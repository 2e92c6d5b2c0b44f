package records_test

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/records"
)

// TestContentHashIsThatOfWhatIsStored proves that what people approve, and what is stored, have one hash.
func TestContentHashIsThatOfWhatIsStored(t *testing.T) {
	hash := func(kind v1alpha1.ProposalTargetKind, spec string) string {
		t.Helper()
		h, err := records.ContentHash(kind, []byte(spec))
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	proposed := hash(v1alpha1.TargetGrant, `{"actions":["a"],"subject":{"agent":"b"}}`)
	if proposed != hash(v1alpha1.TargetGrant, `{"subject":{"agent":"b"},"grantType":"Standard","actions":["a"]}`) {
		t.Error("what the apiserver fills in moves the hash")
	}
	if proposed == hash(v1alpha1.TargetGrant, `{"actions":["a"],"grantType":"BreakGlass","subject":{"agent":"b"}}`) {
		t.Error("another type of grant has the same hash")
	}
	stored := &unstructured.Unstructured{Object: map[string]any{
		"kind": "Grant", "metadata": map[string]any{"name": "g", "uid": "u", "generation": int64(2)},
		"spec": map[string]any{"grantType": "Standard", "actions": []any{"a"}, "subject": map[string]any{"agent": "b"}},
	}}
	target, err := records.Target(stored)
	if err != nil || !target.Present || target.Hash != proposed || target.UID != "u" || target.Generation != 2 {
		t.Errorf("got %+v, %v", target, err)
	}
	if target, err := records.Target(nil); err != nil || target.Present {
		t.Errorf("nothing is %+v, %v", target, err)
	}
	for name, text := range map[string]string{"a fraction": `{"a":1.5}`, "a key twice": `{"a":1,"a":2}`, "no JSON": `{`} {
		if _, err := records.ContentHash(v1alpha1.TargetActionPolicy, []byte(text)); err == nil {
			t.Errorf("%s was hashed", name)
		}
	}
}

func TestProposedContent(t *testing.T) {
	o := &v1alpha1.PolicyProposal{}
	o.Spec.Content = &apiextensionsv1.JSON{Raw: []byte(`{}`)}
	if string(records.Proposed(o)) != "{}" {
		t.Errorf("got %q", records.Proposed(o))
	}
	o.Spec.Delete = true
	if records.Proposed(o) != nil {
		t.Error("a deletion has content")
	}
	for name, test := range map[string]struct {
		kind    v1alpha1.ProposalTargetKind
		content string
		wrong   bool
	}{
		"a policy":              {v1alpha1.TargetActionPolicy, `{"actions":{"a":{"decision":"allow"}}}`, false},
		"a misspelt key":        {v1alpha1.TargetActionPolicy, `{"actions":{"a":{"decision":"allow","efect":"x"}}}`, true},
		"no actions":            {v1alpha1.TargetActionPolicy, `{}`, true},
		"a grant":               {v1alpha1.TargetGrant, `{"actions":["a"],"subject":{"agent":"b"}}`, false},
		"a grant of no pattern": {v1alpha1.TargetGrant, `{"actions":["a?"],"subject":{"agent":"b"}}`, true},
		"another kind":          {"Settings", `{}`, true},
	} {
		if problems := records.ContentProblems(test.kind, "p", []byte(test.content)); (len(problems) > 0) != test.wrong {
			t.Errorf("%s: %q", name, problems)
		}
	}
}

func TestQuestionNamesAreShortAndDiffer(t *testing.T) {
	long := strings.Repeat("a", 59) + "." + strings.Repeat("b", 100)
	name := records.QuestionName(long, "0123456789abcdef", 12, 3)
	if name != strings.Repeat("a", 59)+"-01234567-12-3" || len(name) > 100 {
		t.Errorf("got %q", name)
	}
	if a, b := records.QuestionName("p", "u", 1, 2), records.QuestionName("p", "u", 1, 3); a == b {
		t.Error("two rounds have one name")
	}
}
