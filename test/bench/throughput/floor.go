package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/google/uuid"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"ctrlrun.dev/operator/test/testenv"
)

// The floor is what the apiserver and etcd take for one object, whatever is built on them: creates of a custom resource of
// a group that nobody watches and no admission policy names, with a schema of one string.
const (
	floorNamespace = "floor"
	floorGroup     = "floor.example.com"
	floorResource  = "records"
	floorRole      = "create-records"
)

func createFloor(ctx context.Context, env *testenv.Environment) error {
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: floorResource + "." + floorGroup},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: floorGroup, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "Record", ListKind: "RecordList", Plural: floorResource, Singular: "record"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"payload": {Type: "string"}},
				}},
			}},
		},
	}
	if err := env.Admin().Create(ctx, crd); err != nil {
		return err
	}
	if err := env.Admin().Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Namespace: floorNamespace, Name: floorRole},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{floorGroup}, Resources: []string{floorResource}, Verbs: []string{"create"}}},
	}); err != nil {
		return err
	}
	probe := &unstructured.Unstructured{}
	probe.SetGroupVersionKind(schema.GroupVersionKind{Group: floorGroup, Version: "v1", Kind: "Record"})
	probe.SetNamespace(floorNamespace)
	probe.SetName("probe")
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		err := env.Admin().Create(ctx, probe.DeepCopy())
		if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return false, nil // it is not served yet
		}
		return err == nil, err
	})
}

// creator creates records, one after the other.
type creator struct {
	web  *web
	body []byte // of any of them, with mark where the name belongs
}

// mark is as long as a UUID.
const mark = "xxxxxxxx-name-goes-here-xxxxxxxxxxxx"

// sized makes the body of a record that has so many bytes.
func sized(size int) ([]byte, error) {
	body := func(payload string) ([]byte, error) {
		return json.Marshal(map[string]any{
			"apiVersion": floorGroup + "/v1", "kind": "Record",
			"metadata": map[string]any{"namespace": floorNamespace, "name": mark}, "payload": payload,
		})
	}
	empty, err := body("")
	if err != nil {
		return nil, err
	}
	if len(empty) > size {
		return nil, fmt.Errorf("a record has %d bytes at least, and is to have %d", len(empty), size)
	}
	return body(strings.Repeat("x", size-len(empty)))
}

func (c *creator) once(ctx context.Context) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	body := bytes.Replace(c.body, []byte(mark), []byte(uuid.NewString()), 1)
	s := sample{began: time.Now()}
	_, err := c.web.do(ctx, http.MethodPost, "/apis/"+floorGroup+"/v1/namespaces/"+floorNamespace+"/"+floorResource, body)
	s.ended = time.Now()
	return s, err
}
