package client

import (
	"testing"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// Every kind of this API can be read, whichever of them a program asks for.
func TestTheMapperKnowsEveryKind(t *testing.T) {
	mapper, types := newMapper(), newScheme().KnownTypes(v1alpha1.GroupVersion)
	known := 0
	for kind := range types {
		if _, object := types[kind+"List"]; !object {
			continue
		}
		known++
		if _, err := mapper.RESTMapping(v1alpha1.GroupVersion.WithKind(kind).GroupKind(), v1alpha1.GroupVersion.Version); err != nil {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if known < 15 {
		t.Errorf("the API has %d kinds", known)
	}
}
