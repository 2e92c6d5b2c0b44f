package records_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/records"
)

// What people read is what is executed: no key is there twice in other letters, and none means nothing.
func TestExecutorSpecsAreReadStrictly(t *testing.T) {
	job := func(pod string) string {
		return `{"actionTypes":["t"],"serviceAccountName":"a","job":{"timeoutSeconds":60,"template":{"spec":` + pod + `}}}`
	}
	looks := func(observe string) string {
		return `{"actionTypes":["t"],"serviceAccountName":"a","observe":` + observe + `}`
	}
	const asks = `"http":{"method":"GET","url":"http://a/","timeoutSeconds":1}`
	const runs = `"job":{"timeoutSeconds":60,"template":{"spec":{"containers":[{"name":"main","image":"i"}]}}}`
	for name, c := range map[string]struct{ spec, want string }{
		"a request that looks":           {looks(`{` + asks + `}`), ""},
		"a Job that looks":               {looks(`{` + runs + `}`), ""},
		"both look":                      {looks(`{` + asks + `,` + runs + `}`), "either http or job"},
		"neither looks":                  {looks(`{"eager":true}`), "either http or job"},
		"a Job that looks, in letters":   {looks(`{"job":{"timeoutSeconds":60,"template":{"spec":{"containers":[{"name":"main","image":"i","Image":"evil"}]}}}}`), "Image"},
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

// How long an answer is waited for is what the way of asking says.
func TestTheTimeOfALook(t *testing.T) {
	for want, observe := range map[time.Duration]string{
		2 * time.Second:   `{"http":{"method":"GET","url":"http://a/","timeoutSeconds":2}}`,
		500 * time.Second: `{"eager":true,"job":{"timeoutSeconds":500,"template":{"spec":{"containers":[{"name":"main","image":"i"}]}}}}`,
	} {
		o := &v1alpha1.Executor{}
		if err := json.Unmarshal([]byte(`{"spec":{"actionTypes":["t"],"serviceAccountName":"a","observe":`+observe+`}}`), o); err != nil {
			t.Fatal(err)
		}
		x := records.Executor(o, func(*v1alpha1.Executor) error { return nil })
		if x.Observes == nil || x.Observes.Timeout != want || x.Observes.Eager != (want > time.Minute) || !x.OnlyObserves {
			t.Errorf("%s is %+v", observe, x)
		}
	}
}
