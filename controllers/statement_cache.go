package controllers

import (
	"context"
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"ctrlrun.dev/operator/api/v1alpha1"
)

// Statements stay for as long as their Action does, which is long after anybody asks for them. There is no more of one in
// memory than what tells which it is and whether it counts:
//
//   - what many of them say alike is there once, and what a name says already is a part of that name;
//   - which Action they are about is found by buckets: an index with an entry for each Action takes as much as a statement;
//   - a long output or error is cut off an Outcome, and read from the apiserver by whoever gets that Outcome.

// statementCache is the cache of an operator. What it gets is whole.
type statementCache struct {
	cache.Cache
	// reader is the apiserver itself.
	reader client.Reader
}

// newStatementCache implements cache.NewCacheFunc.
func newStatementCache(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
	c, err := cache.New(cfg, o)
	if err != nil {
		return nil, err
	}
	reader, err := client.New(cfg, client.Options{HTTPClient: o.HTTPClient, Scheme: o.Scheme, Mapper: o.Mapper})
	if err != nil {
		return nil, fmt.Errorf("build the reader of whole outcomes: %w", err)
	}
	return &statementCache{Cache: c, reader: reader}, nil
}

// shortened reads from a cache without making whole what is cut. What it gives must never be written.
func shortened(c cache.Cache) client.Reader {
	if s, ok := c.(*statementCache); ok {
		return s.Cache
	}
	return c
}

// Get implements client.Reader. An Outcome that is cut is read from the apiserver, which may hold none any more, or another
// one of that name: both are later than what is cached.
func (s *statementCache) Get(ctx context.Context, key client.ObjectKey, into client.Object, options ...client.GetOption) error {
	if err := s.Cache.Get(ctx, key, into, options...); err != nil {
		return err
	}
	outcome, ok := into.(*v1alpha1.Outcome)
	if !ok || !isCut(outcome) {
		return nil
	}
	*outcome = v1alpha1.Outcome{} // nothing of it may be left under what is read
	return s.reader.Get(ctx, key, outcome)
}

// List implements client.Reader. By byActionUID it finds the statements about an Action; Outcomes are cut, in each list.
func (s *statementCache) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(options)
	if o.FieldSelector == nil {
		return s.Cache.List(ctx, into, options...)
	}
	uid, found := o.FieldSelector.RequiresExactMatch(byActionUID)
	if !found {
		return s.Cache.List(ctx, into, options...)
	}
	if len(o.FieldSelector.Requirements()) > 1 || o.Limit > 0 {
		return fmt.Errorf("statements are looked up by the uid of their action alone")
	}
	copied := o.UnsafeDisableDeepCopy == nil || !*o.UnsafeDisableDeepCopy
	o.FieldSelector, o.UnsafeDisableDeepCopy = fields.OneTermEqualSelector(byActionBucket, bucketOf(uid)), new(true)
	if err := s.Cache.List(ctx, into, &o); err != nil {
		return err
	}
	var all []runtime.Object
	if err := meta.EachListItem(into, func(item runtime.Object) error {
		if ref, ok := actionRef(item); !ok || string(ref.UID) != uid {
			return nil
		}
		if copied {
			item = item.DeepCopyObject()
		}
		all = append(all, item)
		return nil
	}); err != nil {
		return err
	}
	return meta.SetList(into, all)
}

// byActionBucket is the index by which byActionUID is answered.
const (
	byActionBucket = "actionBucket"
	buckets        = 4096
)

// bucketSeed keeps whoever chooses what a statement names from choosing its bucket.
var bucketSeed = maphash.MakeSeed()

func bucketOf(uid string) string {
	return strconv.FormatUint(maphash.String(bucketSeed, uid)%buckets, 16)
}

// indexStatements lets statements be looked up by their Action.
func indexStatements(ctx context.Context, indexer client.FieldIndexer) error {
	for _, o := range []client.Object{&v1alpha1.Approval{}, &v1alpha1.Claim{}, &v1alpha1.Outcome{}} {
		if err := indexer.IndexField(ctx, o, byActionBucket, func(o client.Object) []string {
			ref, _ := actionRef(o)
			return []string{bucketOf(string(ref.UID))}
		}); err != nil {
			return err
		}
	}
	return nil
}

func actionRef(o runtime.Object) (v1alpha1.ObjectReference, bool) {
	switch o := o.(type) {
	case *v1alpha1.Approval:
		return o.Spec.ActionRef, true
	case *v1alpha1.Claim:
		return o.Spec.ActionRef, true
	case *v1alpha1.Outcome:
		return o.Spec.ActionRef, true
	}
	return v1alpha1.ObjectReference{}, false
}

// longest is how many bytes of output and error an Outcome keeps in memory.
const longest = 256

// shorten makes transforms of statements that come into the cache.
type shorten struct {
	texts  known[string]
	claims known[*v1alpha1.IdentityClaims]
}

func (s *shorten) outcome(o any) (any, error) {
	if o, ok := o.(*v1alpha1.Outcome); ok {
		s.meta(&o.TypeMeta, &o.ObjectMeta)
		s.reference(&o.Spec.ActionRef, o.Name)
		o.Spec.ClaimID = within(o.Name, o.Spec.ClaimID)
		o.Spec.Result, o.Spec.Reason = v1alpha1.OutcomeResult(s.text(string(o.Spec.Result))), s.text(o.Spec.Reason)
		o.Spec.Reporter, o.Spec.Claims = s.text(o.Spec.Reporter), s.identity(o.Spec.Claims)
		s.verdict(&o.Status)
		if long := len(o.Spec.Error); long > longest || o.Spec.Output != nil && long+len(o.Spec.Output.Raw) > longest {
			cut(o)
		}
	}
	return o, nil
}

func (s *shorten) approval(o any) (any, error) {
	if o, ok := o.(*v1alpha1.Approval); ok {
		s.meta(&o.TypeMeta, &o.ObjectMeta)
		s.reference(&o.Spec.ActionRef, o.Name)
		o.Spec.ActionType, o.Spec.Decision = s.text(o.Spec.ActionType), v1alpha1.ApprovalDecision(s.text(string(o.Spec.Decision)))
		o.Spec.Approver, o.Spec.Claims = s.text(o.Spec.Approver), s.identity(o.Spec.Claims)
		o.Status.RulesHash = s.text(o.Status.RulesHash)
		s.verdict(&o.Status.StatementStatus)
	}
	return o, nil
}

func (s *shorten) claim(o any) (any, error) {
	if o, ok := o.(*v1alpha1.Claim); ok {
		s.meta(&o.TypeMeta, &o.ObjectMeta)
		s.reference(&o.Spec.ActionRef, o.Name)
		o.Spec.ClaimID = within(o.Name, o.Spec.ClaimID)
		o.Spec.Claimant, o.Spec.Claims = s.text(o.Spec.Claimant), s.identity(o.Spec.Claims)
		s.verdict(&o.Status)
	}
	return o, nil
}

func (s *shorten) meta(t *metav1.TypeMeta, o *metav1.ObjectMeta) {
	t.Kind, t.APIVersion = s.text(t.Kind), s.text(t.APIVersion)
	o.Namespace, o.ManagedFields = s.text(o.Namespace), nil
}

func (s *shorten) reference(ref *v1alpha1.ObjectReference, name string) {
	ref.UID = types.UID(within(name, string(ref.UID)))
}

func (s *shorten) verdict(status *v1alpha1.StatementStatus) {
	for i := range status.Conditions {
		c := &status.Conditions[i]
		c.Type, c.Status, c.Reason = s.text(c.Type), metav1.ConditionStatus(s.text(string(c.Status))), s.text(c.Reason)
	}
}

// text is the one copy of what many statements say.
func (s *shorten) text(text string) string {
	if text == "" {
		return ""
	}
	return s.texts.one(text, func() string { return strings.Clone(text) })
}

// identity is the one copy of what is known of a speaker. Nothing that is cached is ever changed.
func (s *shorten) identity(c *v1alpha1.IdentityClaims) *v1alpha1.IdentityClaims {
	if c == nil {
		return nil
	}
	return s.claims.one(fmt.Sprintf("%q", *c), func() *v1alpha1.IdentityClaims { return c })
}

// within is text as a part of name, if it is one.
func within(name, text string) string {
	if i := strings.Index(name, text); i >= 0 {
		return name[i : i+len(text)]
	}
	return text
}

// cut takes output and error off an Outcome. An output without a byte is no JSON and comes from no apiserver: it is the mark.
func cut(o *v1alpha1.Outcome) {
	o.Spec.Output, o.Spec.Error = &apiextensionsv1.JSON{}, ""
}

// isCut says that an Outcome is not whole.
func isCut(o *v1alpha1.Outcome) bool { return o.Spec.Output != nil && len(o.Spec.Output.Raw) == 0 }

// known values by what they say.
type known[T any] struct {
	mu sync.Mutex
	by map[string]T
}

// mostKnown bounds it: speakers choose some of what they say.
const mostKnown = 4096

func (k *known[T]) one(text string, first func() T) T {
	k.mu.Lock()
	defer k.mu.Unlock()
	if one, ok := k.by[text]; ok {
		return one
	}
	if k.by == nil || len(k.by) >= mostKnown {
		k.by = map[string]T{} // what is cached keeps what it has
	}
	one := first()
	k.by[strings.Clone(text)] = one
	return one
}
