package controllers

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/config/admission"
	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/records"
)

const (
	// admissionSettle is added to the time of the probe that found admission in force: each apiserver takes a change up by
	// itself, within about a second.
	admissionSettle = 10 * time.Second
	// probeEvery is how often admission is probed although nothing was seen to change.
	probeEvery = time.Minute
	// probeRetry is how soon after a failure.
	probeRetry = 500 * time.Millisecond

	canaryName = "ctrlrun-canary"
	canaryType = "ctrlrun.canary"
	probeName  = "ctrlrun-probe"
	probeUUID  = "00000000-0000-4000-8000-000000000000"
)

// admissionGuard watches whether the admission policies are in force: they are what says who made a statement. It compares
// what is stored with what this release ships, and asks the apiserver to do, as a dry run, what it must refuse.
type admissionGuard struct {
	namespace string // the operator's own
	identity  string // who the operator is to the apiserver
	cache     client.Reader
	reader    client.Reader
	writer    client.Client
	config    *rest.Config
	log       logr.Logger
	ledger    func(ctx context.Context) error // makes sure the own namespace has a Ledger
	changed   func()                          // called when the state changed

	expected []client.Object
	wake     chan struct{}

	mu      sync.Mutex
	since   time.Time
	record  string // that since stands for
	missing string
	from    time.Time // when it went missing
	noticed time.Time // when the last gap was noticed, if this process saw it begin
	// unproven: a probe was accepted, and none of all has been refused since.
	unproven bool
}

func newAdmissionGuard() (*admissionGuard, error) {
	g := &admissionGuard{wake: make(chan struct{}, 1), missing: "The operator has not yet seen its admission policies.", from: time.Now()}
	err := fs.WalkDir(admission.Validating, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.HasSuffix(path, "kustomization.yaml") {
			return err
		}
		data, err := admission.Validating.ReadFile(path)
		if err != nil {
			return err
		}
		objects, err := decodePolicies(data)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		g.expected = append(g.expected, objects...)
		return nil
	})
	return g, err
}

func decodePolicies(data []byte) ([]client.Object, error) {
	var objects []client.Object
	for reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data))); ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, err
		}
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return nil, err
		}
		var o client.Object
		switch kind.Kind {
		case "":
			continue
		case "ValidatingAdmissionPolicy":
			o = &admissionregistrationv1.ValidatingAdmissionPolicy{}
		case "ValidatingAdmissionPolicyBinding":
			o = &admissionregistrationv1.ValidatingAdmissionPolicyBinding{}
		default:
			return nil, fmt.Errorf("unexpected kind %q", kind.Kind)
		}
		if err := yaml.UnmarshalStrict(document, o); err != nil {
			return nil, err
		}
		objects = append(objects, o)
	}
}

// Wake makes it look again.
func (g *admissionGuard) Wake() {
	select {
	case g.wake <- struct{}{}:
	default:
	}
}

// Start looks whenever something changed, and probes from time to time. It does so on every replica.
func (g *admissionGuard) Start(ctx context.Context) error {
	for {
		next := probeEvery
		err := g.look(ctx)
		switch gap := (*gapError)(nil); {
		case ctx.Err() != nil:
			return nil
		case errors.As(err, &gap):
			g.lose(err)
			_ = g.publish(ctx) // again with the next look, which is soon
			next = probeRetry
		case err != nil:
			// The apiserver did not answer, or not yet. That says nothing about the policies, and what could have changed
			// meanwhile shows in their uids and generations.
			g.log.V(1).Info("Admission could not be looked at", "err", err.Error())
			next = probeRetry
		case g.publish(ctx) != nil:
			next = 2 * time.Second // the Ledger was written meanwhile, most likely
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-g.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (g *admissionGuard) NeedLeaderElection() bool { return false }

// publish tells people, on the Ledger of the operator's namespace, whether statements that are made now count. Nothing is
// decided by the condition.
func (g *admissionGuard) publish(ctx context.Context) error {
	g.mu.Lock()
	missing, unproven := g.missing, g.unproven
	g.mu.Unlock()
	l := &v1alpha1.Ledger{}
	if err := g.reader.Get(ctx, types.NamespacedName{Name: g.namespace}, l); err != nil || l.Status == nil {
		return client.IgnoreNotFound(err) // there is none before admission was in force for the first time
	}
	reason, message := "InForce", "The admission policies are those of this release, and refuse what they must."
	if missing != "" {
		reason, message = decision.AdmissionMissing.Condition(), missing
	}
	before := l.DeepCopy()
	records.SetCondition(&l.Status.Conditions, l.Generation, time.Now(), v1alpha1.AdmissionInForceCondition, missing == "", reason, message)
	if unproven {
		l.Status.AdmissionRecord = "" // so that the next process moves admissionSince too, if this one dies
	}
	if equalStatus(before.Status, l.Status) {
		return nil
	}
	return g.writer.Status().Update(ctx, l)
}

// gapError is evidence that admission is, or was, not in force.
type gapError struct {
	message string
	// accepted: the apiserver did what it must refuse. No uid or generation tells of it when it is over.
	accepted bool
}

func (e *gapError) Error() string { return e.message }

func gap(format string, args ...any) error { return &gapError{message: fmt.Sprintf(format, args...)} }

func (g *admissionGuard) lose(cause error) {
	g.mu.Lock()
	if e := (*gapError)(nil); errors.As(cause, &e) && e.accepted {
		g.unproven = true
	}
	first := g.missing == ""
	if first {
		g.from = time.Now()
	}
	g.missing = cause.Error()
	g.mu.Unlock()
	if first {
		g.log.Error(cause, "Admission is missing; every namespace holds")
		g.changed()
	}
}

// look compares and probes, and moves admissionSince where something was away or is another now.
func (g *admissionGuard) look(ctx context.Context) error {
	record, err := g.compare(ctx)
	if err != nil {
		return err
	}
	g.mu.Lock()
	replaced := g.record != "" && g.record != record
	g.mu.Unlock()
	if replaced {
		// It was away for a moment, or is another one: nothing is decided before it has been probed.
		g.lose(gap("the admission policies were changed or made anew, and are being probed"))
	}
	if err := g.canaries(ctx); err != nil {
		return err
	}
	probed, err := g.probe(ctx)
	if err != nil {
		return err
	}
	// What is compared again after the probes was in force while they ran.
	if again, err := g.compare(ctx); err != nil || again != record {
		return cmp.Or(err, gap("the policies changed while they were probed"))
	}
	if err := g.ledger(ctx); err != nil {
		return err
	}
	l := &v1alpha1.Ledger{}
	if err := g.reader.Get(ctx, types.NamespacedName{Name: g.namespace}, l); err != nil || l.Status == nil {
		return fmt.Errorf("the Ledger %s, which remembers since when admission is in force, cannot be read: %w", g.namespace, err)
	}
	g.mu.Lock()
	lost := g.unproven || (g.missing != "" && g.record != "") // this process saw it missing
	g.mu.Unlock()
	if l.Status.AdmissionSince != nil && l.Status.AdmissionRecord == record && !lost {
		g.accept(l.Status.AdmissionSince.Time, record)
		return nil
	}
	since := probed.Add(admissionSettle)
	if l.Status.AdmissionSince != nil && l.Status.AdmissionSince.After(since) {
		since = l.Status.AdmissionSince.Time
	}
	t := metav1.NewMicroTime(since)
	l.Status.AdmissionSince, l.Status.AdmissionRecord = &t, record
	if err := g.writer.Status().Update(ctx, l); err != nil {
		return fmt.Errorf("remember since when admission is in force: %w", err)
	}
	g.log.Info("Statements count from now on", "admissionSince", since.UTC().Format(time.RFC3339))
	g.accept(since, record)
	return nil
}

func (g *admissionGuard) accept(since time.Time, record string) {
	g.mu.Lock()
	moved := !g.since.Equal(since)
	changed := g.missing != "" || moved
	if moved {
		g.noticed = time.Time{}
		if !g.since.IsZero() && g.missing != "" {
			g.noticed = g.from
		}
	}
	g.since, g.record, g.missing, g.unproven = since, record, "", false
	g.mu.Unlock()
	if changed {
		g.changed()
	}
}

// Since is the time after which a statement must have been created to count.
func (g *admissionGuard) Since() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.since
}

// Noticed is when the gap was noticed that ended with Since; the zero time if no process that saw it is left.
func (g *admissionGuard) Noticed() time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.noticed
}

// Hold implements guard.
func (g *admissionGuard) Hold() *flow.Hold {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.missing == "" {
		return nil
	}
	return &flow.Hold{Reason: decision.AdmissionMissing, Since: g.from, Message: "The admission policies are not in force, so nobody can say who makes a statement: " + g.missing + ". Nothing is decided until they are: kubectl apply --server-side --force-conflicts -k config/admission"}
}

// compare gives a fingerprint of the stored policies and bindings, or says what is not as this release ships it.
func (g *admissionGuard) compare(ctx context.Context) (string, error) {
	sum := sha256.New()
	for _, want := range g.expected {
		have := want.DeepCopyObject().(client.Object)
		if err := g.cache.Get(ctx, types.NamespacedName{Name: want.GetName()}, have); err != nil {
			if apierrors.IsNotFound(err) {
				return "", gap("%s %s is missing", kindOf(want), want.GetName())
			}
			return "", err
		}
		wanted, err := specOf(want)
		if err != nil {
			return "", err
		}
		stored, err := specOf(have)
		if err != nil {
			return "", err
		}
		if wanted != stored {
			return "", gap("%s %s is not the one of this release", kindOf(want), want.GetName())
		}
		fmt.Fprintf(sum, "%s/%s/%s/%d\n", kindOf(want), have.GetName(), have.GetUID(), have.GetGeneration())
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func kindOf(o client.Object) string {
	if _, ok := o.(*admissionregistrationv1.ValidatingAdmissionPolicy); ok {
		return "ValidatingAdmissionPolicy"
	}
	return "ValidatingAdmissionPolicyBinding"
}

// specOf is the spec as text that two equal ones share. Tools that render YAML fold long lines their own way, so empty
// lines do not count.
func specOf(o client.Object) (string, error) {
	var spec any
	switch o := o.(type) {
	case *admissionregistrationv1.ValidatingAdmissionPolicy:
		p := o.Spec.DeepCopy()
		defaultMatch(p.MatchConstraints)
		spec = p
	case *admissionregistrationv1.ValidatingAdmissionPolicyBinding:
		p := o.Spec.DeepCopy()
		defaultMatch(p.MatchResources)
		spec = p
	default:
		return "", fmt.Errorf("unexpected kind %T", o)
	}
	text, err := json.Marshal(spec)
	return emptyLines.ReplaceAllString(string(text), `\n`), err
}

var emptyLines = regexp.MustCompile(`(\\n)+`)

// defaultMatch fills in what the apiserver does.
func defaultMatch(m *admissionregistrationv1.MatchResources) {
	if m == nil {
		return
	}
	if m.MatchPolicy == nil {
		equivalent := admissionregistrationv1.Equivalent
		m.MatchPolicy = &equivalent
	}
	if m.NamespaceSelector == nil {
		m.NamespaceSelector = &metav1.LabelSelector{}
	}
	if m.ObjectSelector == nil {
		m.ObjectSelector = &metav1.LabelSelector{}
	}
	for i := range m.ResourceRules {
		if m.ResourceRules[i].Scope == nil {
			all := admissionregistrationv1.AllScopes
			m.ResourceRules[i].Scope = &all
		}
	}
}

// canaries are the two objects the probes need: an absent object answers "not found", which proves nothing.
func (g *admissionGuard) canaries(ctx context.Context) error {
	labels := map[string]string{v1alpha1.CanaryLabel: "true"}
	action := &v1alpha1.Action{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: canaryName, Labels: labels},
		Spec:       v1alpha1.ActionSpec{ActionType: canaryType, LeaseDurationSeconds: 30, Principal: v1alpha1.Principal{Agent: g.identity}},
	}
	action.Spec.Arguments.Raw = []byte("{}")
	now := metav1.NewMicroTime(time.Unix(0, 0))
	effect := &v1alpha1.Effect{
		ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: canaryName, Labels: labels},
		Spec:       v1alpha1.EffectSpec{Key: canaryName},
		Status: &v1alpha1.EffectStatus{
			State: v1alpha1.EffectCommitted, Attempt: 1, ActionType: canaryType, Token: probeUUID,
			Holder: &v1alpha1.EffectHolder{Name: canaryName, UID: probeUUID}, LeaseExpirationTime: &now,
		},
	}
	for _, o := range []client.Object{action, effect} {
		have := o.DeepCopyObject().(client.Object)
		err := g.reader.Get(ctx, client.ObjectKeyFromObject(o), have)
		if err == nil {
			continue
		}
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("read canary: %w", err)
		}
		if err := g.writer.Create(ctx, o); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create canary: %w", err)
		}
	}
	return nil
}

// dateKeeper remembers the Date of the last response.
type dateKeeper struct {
	mu   sync.Mutex
	date time.Time
}

func (d *dateKeeper) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err == nil {
			if date, parseErr := http.ParseTime(response.Header.Get("Date")); parseErr == nil {
				d.mu.Lock()
				d.date = date
				d.mu.Unlock()
			}
		}
		return response, err
	})
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (f roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// probe asks for what must be refused, each breaking exactly one rule, and gives the apiserver's time of the last refusal.
func (g *admissionGuard) probe(ctx context.Context) (time.Time, error) {
	dates := &dateKeeper{}
	own, err := g.probeClient(dates, "")
	if err != nil {
		return time.Time{}, err
	}
	foreign, err := g.probeClient(dates, "system:serviceaccount:"+g.namespace+":"+probeName)
	if err != nil {
		return time.Time{}, err
	}
	canary := &v1alpha1.Effect{}
	if err := g.reader.Get(ctx, types.NamespacedName{Namespace: g.namespace, Name: canaryName}, canary); err != nil {
		return time.Time{}, err
	}
	canaryAction := &v1alpha1.Action{}
	if err := g.reader.Get(ctx, types.NamespacedName{Namespace: g.namespace, Name: canaryName}, canaryAction); err != nil {
		return time.Time{}, err
	}
	hash := "sha256:" + strings.Repeat("0", 64)
	forgedAction := &v1alpha1.Action{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: probeName}, Spec: v1alpha1.ActionSpec{ActionType: canaryType, Principal: v1alpha1.Principal{Agent: "somebody-else"}, LeaseDurationSeconds: 30}}
	forgedAction.Spec.Arguments.Raw = []byte("{}")
	reference := v1alpha1.ObjectReference{Name: canaryName, UID: canaryAction.UID}
	forgedApproval := &v1alpha1.Approval{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: canaryName + "." + action.Speaker(g.identity)}, Spec: v1alpha1.ApprovalSpec{ActionRef: reference, ActionType: canaryType, ActionHash: hash, Decision: v1alpha1.Approved, Approver: "somebody-else"}}
	forgedOutcome := &v1alpha1.Outcome{ObjectMeta: metav1.ObjectMeta{Namespace: g.namespace, Name: string(canaryAction.UID) + "." + probeUUID + "." + action.Speaker(g.identity)}, Spec: v1alpha1.OutcomeSpec{ActionRef: reference, ClaimID: probeUUID, Result: v1alpha1.OutcomeUnknown, Reporter: "somebody-else"}}
	foreignEffect := canary.DeepCopy()
	foreignEffect.Status.History = append(foreignEffect.Status.History, v1alpha1.EffectHistory{Attempt: 1, Result: "probe"})
	foreignStatus := canaryAction.DeepCopy()
	foreignStatus.Status.Message = "probe"

	probes := []struct {
		policy string
		ask    func() error
	}{
		{"ctrlrun-actions", func() error { return own.Create(ctx, forgedAction, client.DryRunAll) }},
		{"ctrlrun-approvals", func() error { return own.Create(ctx, forgedApproval, client.DryRunAll) }},
		{"ctrlrun-outcomes", func() error { return own.Create(ctx, forgedOutcome, client.DryRunAll) }},
		{"ctrlrun-records", func() error { return foreign.Update(ctx, foreignEffect, client.DryRunAll) }},
		{"ctrlrun-status", func() error {
			return foreign.Status().Update(ctx, foreignStatus, &client.SubResourceUpdateOptions{UpdateOptions: client.UpdateOptions{DryRun: []string{metav1.DryRunAll}}})
		}},
		{"ctrlrun-records-kept", func() error { return foreign.Delete(ctx, canary.DeepCopy(), client.DryRunAll) }},
	}
	for _, p := range probes {
		if err := refusedByPolicy(p.ask(), p.policy); err != nil {
			return time.Time{}, err
		}
	}
	dates.mu.Lock()
	defer dates.mu.Unlock()
	if dates.date.IsZero() {
		return time.Time{}, errors.New("the apiserver gives no Date, so the time of the probes is unknown")
	}
	return dates.date, nil
}

// refusedByPolicy says what is wrong unless the policy itself refused. A bare "forbidden" can be RBAC, which proves nothing.
func refusedByPolicy(err error, policy string) error {
	if err == nil {
		return &gapError{message: fmt.Sprintf("the apiserver accepted what the policy %s must refuse", policy), accepted: true}
	}
	prefix := fmt.Sprintf("ValidatingAdmissionPolicy '%s' with binding '%s' denied request: ", policy, policy)
	if status := (apierrors.APIStatus)(nil); errors.As(err, &status) && status.Status().Details != nil {
		if slices.ContainsFunc(status.Status().Details.Causes, func(c metav1.StatusCause) bool { return strings.HasPrefix(c.Message, prefix) }) {
			return nil
		}
	}
	return fmt.Errorf("the probe of the policy %s was answered otherwise: %w", policy, err)
}

func (g *admissionGuard) probeClient(dates *dateKeeper, impersonate string) (client.Client, error) {
	config := rest.CopyConfig(g.config)
	if impersonate != "" {
		config.Impersonate = rest.ImpersonationConfig{UserName: impersonate}
	}
	config.Wrap(dates.wrap)
	return client.New(config, client.Options{Scheme: g.writer.Scheme(), Mapper: g.writer.RESTMapper()})
}
