package cli

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// TestPagesDoNotShareMemory proves what eachPage relies on: emptied by SetList, a list decodes its next page into memory of
// its own, so that objects taken from the page before stay what they were.
func TestPagesDoNotShareMemory(t *testing.T) {
	list := &v1alpha1.EffectList{}
	decode := func(text string) {
		t.Helper()
		if err := meta.SetList(list, nil); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(text), list); err != nil {
			t.Fatal(err)
		}
	}
	decode(`{"items":[{"metadata":{"name":"first"},"status":{"state":"Ambiguous","attempt":1,"cause":"LeaseLapsed"}}]}`)
	kept := list.Items[0]
	decode(`{"items":[{"metadata":{"name":"second"},"status":{"state":"Committed","attempt":2}}]}`)
	if kept.Name != "first" || kept.Status.State != v1alpha1.EffectAmbiguous || kept.Status.Attempt != 1 {
		t.Errorf("the first page's effect became %q %+v", kept.Name, kept.Status)
	}
	if second := list.Items[0]; second.Status.Cause != "" {
		t.Errorf("the second page's effect has the cause %q of the first's", second.Status.Cause)
	}
}
