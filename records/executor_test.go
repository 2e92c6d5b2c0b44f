package records_test

import (
	"encoding/json"
	"strings"
	"testing"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/records"
)

// What people read is what is executed: no key is there twice in other letters, and none means nothing.
func TestExecutorSpecsAreReadStrictly(t *testing.T) {
	job := func(pod string) string {
		return `{"actionTypes":["t"],"serviceAccountName":"a","job":{"timeoutSeconds":60,"template":{"spec":` + pod + `}}}`
	}
	for name, c := range map[string]struct{ spec, want string }{
		"in order":                       {job(`{"hostNetwork":false,"containers":[{"name":"main","image":"i"}]}`), ""},
		"a key in other letters":         {job(`{"hostNetwork":false,"HostNetwork":true,"containers":[{"name":"main","image":"i"}]}`), "HostNetwork"},
		"another image in other letters": {job(`{"containers":[{"name":"main","image":"i","Image":"evil"}]}`), "Image"},
		"an unknown key":                 {job(`{"containers":[{"name":"main","image":"i","immage":"j"}]}`), "immage"},
		"another way in other letters":   {`{"actionTypes":["t"],"serviceAccountName":"a","http":{"method":"POST","url":"http://a/","timeoutSeconds":1,"committed":[200]},"HTTP":{"url":"http://b/"}}`, "HTTP"},
	} {
		t.Run(name, func(t *testing.T) {
			o := &v1alpha1.Executor{}
			if err := json.Unmarshal([]byte(`{"spec":`+c.spec+`}`), o); err != nil {
				t.Fatal(err)
			}
			x := records.Executor(o, func(*v1alpha1.Executor) error { return nil })
			if (c.want == "") != (x.Invalid == "") || !strings.Contains(x.Invalid, c.want) {
				t.Errorf("it is invalid for %q, want %q", x.Invalid, c.want)
			}
		})
	}
}
