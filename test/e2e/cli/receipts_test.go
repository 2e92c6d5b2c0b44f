package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/test/testenv"
)

// auditor sees everything, namespaces included.
func auditor() testenv.User {
	return testenv.User{Name: "auditor@example.com", Groups: []string{"system:masters"}}
}

// withoutAdmission takes the bindings of the validating admission policies away until the end of the spec's container, and
// returns when nothing is refused any more.
func withoutAdmission(ctx context.Context, s *cliStage) {
	GinkgoHelper()
	list := &admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}
	Expect(env.Admin().List(ctx, list)).To(Succeed())
	deletes := func(ctx context.Context) error {
		return env.Admin().Delete(ctx, &v1alpha1.Ledger{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}}, client.DryRunAll)
	}
	Expect(apierrors.IsForbidden(deletes(ctx))).To(BeTrue())
	DeferCleanup(func(ctx SpecContext) {
		for i := range list.Items {
			b := &list.Items[i]
			back := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: b.Name, Labels: b.Labels, Annotations: b.Annotations}, Spec: b.Spec}
			Expect(env.Admin().Create(ctx, back)).To(Succeed())
		}
		Eventually(func() bool { return apierrors.IsForbidden(deletes(ctx)) }).WithTimeout(time.Minute).Should(BeTrue())
	})
	for i := range list.Items {
		Expect(env.Admin().Delete(ctx, &list.Items[i])).To(Succeed())
	}
	Eventually(func() error { return deletes(ctx) }).WithTimeout(time.Minute).Should(Succeed())
}

// receipts of the namespace, in their order.
func (s *cliStage) receipts(ctx context.Context) []v1alpha1.Receipt {
	GinkgoHelper()
	list := &v1alpha1.ReceiptList{}
	Expect(env.Admin().List(ctx, list, client.InNamespace(s.namespace))).To(Succeed())
	return list.Items
}

// receiptFor finds the receipt of an action, or of a resolution of its effect.
func (s *cliStage) receiptFor(ctx context.Context, kind, actionName string) *v1alpha1.Receipt {
	GinkgoHelper()
	for _, r := range s.receipts(ctx) {
		if r.Spec.Kind == kind && r.Spec.ActionName == actionName {
			return &r
		}
	}
	Fail("no receipt of kind " + kind + " of action " + actionName)
	return nil
}

// replace deletes an object and creates it again, changed, until the end of the spec.
func replace[T client.Object](ctx context.Context, o T, change func(T)) {
	GinkgoHelper()
	tampered := o.DeepCopyObject().(T)
	change(tampered)
	remove(ctx, o.DeepCopyObject().(T))
	put(ctx, tampered)
	DeferCleanup(func(ctx SpecContext) {
		remove(ctx, tampered)
		restore(ctx, o)
	})
}

// gone deletes an object until the end of the spec.
func gone(ctx context.Context, o client.Object) {
	GinkgoHelper()
	remove(ctx, o.DeepCopyObject().(client.Object))
	DeferCleanup(func(ctx SpecContext) { restore(ctx, o) })
}

func remove(ctx context.Context, o client.Object) {
	GinkgoHelper()
	Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
	if len(o.GetFinalizers()) > 0 {
		o.SetFinalizers(nil)
		Expect(env.Admin().Update(ctx, o)).To(Succeed())
	}
	Expect(client.IgnoreNotFound(env.Admin().Delete(ctx, o))).To(Succeed())
}

func put(ctx context.Context, o client.Object) {
	GinkgoHelper()
	o.SetResourceVersion("")
	o.SetUID("")
	status := v1alpha1.ActionStatus{}
	a, isAction := o.(*v1alpha1.Action)
	if isAction {
		status = *a.Status.DeepCopy()
	}
	Expect(env.Admin().Create(ctx, o)).To(Succeed())
	if isAction {
		// An Action that was executed was admitted before: the rules of its kind hold against everybody.
		a.Status = *status.DeepCopy()
		a.Status.State, a.Status.ReceiptRef, a.Status.FinishTime = v1alpha1.ActionAdmitted, nil, nil
		Expect(env.Admin().Status().Update(ctx, a)).To(Succeed())
		a.Status = status
		Expect(env.Admin().Status().Update(ctx, a)).To(Succeed())
	}
}

// restore makes a chain whole again. A receipt is the same however often it is created. Of other objects the uid is another
// then, which is tampering as well: an Action stays away, as it does after a while, and an Effect has lost its status, which
// contradicts nothing.
func restore(ctx context.Context, o client.Object) {
	GinkgoHelper()
	switch o := o.(type) {
	case *v1alpha1.Receipt:
		put(ctx, o)
	case *v1alpha1.Effect:
		o.Status = nil
		put(ctx, o)
	}
}

// appended puts a receipt behind the last one, with the right link and hash, until the end of the spec.
func (s *cliStage) appended(ctx context.Context, change func(document map[string]any)) *v1alpha1.Receipt {
	GinkgoHelper()
	all := s.receipts(ctx)
	last := all[len(all)-1]
	model := s.receiptFor(ctx, "action", refundName("committed"))
	like, err := receipt.Parse(receipt.Entry{Seq: model.Spec.Seq, Hash: model.Spec.Hash, Document: model.Spec.Document})
	Expect(err).NotTo(HaveOccurred())
	document := like.Map()
	document["subject_uid"], document["action_uid"], document["action_name"] = "planted", "planted", "planted"
	change(document)
	entry, err := receipt.Build(receipt.Link{Seq: last.Spec.Seq, Hash: last.Spec.Hash}, document)
	Expect(err).NotTo(HaveOccurred())
	columns := like.Columns()
	if read, err := receipt.Parse(entry); err == nil {
		columns = read.Columns()
	}
	planted := &v1alpha1.Receipt{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: receipt.Name(s.namespace, entry.Seq)},
		Spec: v1alpha1.ReceiptSpec{
			Seq: entry.Seq, Hash: entry.Hash, Document: entry.Document, Kind: columns.Kind, Result: columns.Result, Reason: columns.Reason,
			ActionType: columns.ActionType, ActionName: columns.ActionName, Agent: columns.Agent, EffectName: columns.EffectName, Attempt: columns.Attempt,
		},
	}
	Expect(env.Admin().Create(ctx, planted)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(env.Admin().Delete(ctx, planted))).To(Succeed()) })
	return planted
}

// breaks are the lines with breaks of an answer.
func (r cliResult) breaks() []string {
	lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
	if len(lines) == 1 && lines[0] == "" {
		return nil
	}
	return lines
}

var _ = Describe("the evidence of a cluster", Ordered, func() {
	var s *cliStage
	var operator *testenv.OperatorProcess

	BeforeAll(func(ctx SpecContext) {
		s = newCLIStage()
		var err error
		operator, err = env.StartOperatorProcess()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(operator.Stop)
		Expect(operator.WaitReady(ctx)).To(Succeed())
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		Expect(s.run(s.agent, refund("committed", "5", "--", "true")...).Code).To(Equal(0))
		Expect(s.run(s.agent, refund("retried", "5", "--not-executed-exit", "75", "--", "sh", "-c", "exit 75")...).Code).To(Equal(7))
		Expect(s.run(s.agent, refund("retried", "5", "--", "true")...).Code).To(Equal(0))
		Expect(s.run(s.agent, refund("denied", "9000", "--", "true")...).Code).To(Equal(3))
	}, NodeTimeout(2*time.Minute))

	AfterEach(reportOperatorLog)

	It("is never called broken while actions run", func(ctx SpecContext) {
		// Every way an effect can go, again and again, while its chain is verified.
		stop := make(chan struct{})
		var agents sync.WaitGroup
		for n, script := range []string{"true", "exit 75", "exit 1"} {
			agents.Go(func() {
				defer GinkgoRecover()
				for i := 0; ; i++ {
					select {
					case <-stop:
						return
					default:
						id := fmt.Sprintf("busy_%d_%d", n, i/2) // each key twice: another attempt, or a refusal
						cmd := s.command(s.agent, refund(id, "5", "--not-executed-exit", "75", "--", "sh", "-c", script)...)
						_ = cmd.Run() // how it ends is the script's business
						if script == "exit 1" && i%2 == 0 {
							resolve := s.command(s.resolver, "resolve", refundName(id), "--not-executed", "--reason", "busy", "--evidence", "none", "--yes")
							_ = resolve.Run()
						}
					}
				}
			})
		}
		before := len(s.receipts(ctx))
		for range 25 {
			r := s.run(auditor(), "receipts", "verify")
			if r.Code != 0 {
				close(stop)
				agents.Wait()
				Fail(fmt.Sprintf("exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr))
			}
		}
		close(stop)
		agents.Wait()
		Expect(len(s.receipts(ctx))).To(BeNumerically(">", before+10), "too little happened meanwhile to prove anything")
	})

	It("tells the story of an effect", func() {
		By("an attempt that nobody knows the end of, and the person who found out")
		name := refundName("told")
		wait := s.start(s.agent, refund("told", "2000", "--", "sh", "-c", "exit 1")...)
		asked := s.awaiting(name)
		Expect(s.run(s.approver, "approve", name, "--yes", "--hash", asked.Status.ActionHash, "--reason", "looked at it").Code).To(Equal(0))
		Expect(wait().Code).To(Equal(6))
		unresolved := s.run(s.view, "receipts", "--effect", "refund:told")
		Expect(unresolved.Code).To(Equal(0), unresolved.Stderr)
		Expect(unresolved.Stderr).To(ContainSubstring("kubectl ctrlrun resolve " + name))
		Expect(s.run(s.agent, refund("told", "2000", "--", "true")...).Code).To(Equal(6))
		Expect(s.run(s.resolver, "resolve", name, "--not-executed", "--reason", "not in the log", "--evidence", "https://example.com/log", "--yes").Code).To(Equal(0))

		By("another attempt that is executing while its story is told")
		started := filepath.Join(s.dir, "started")
		wait = s.start(s.agent, refund("told", "5", "--", "sh", "-c", "touch "+started+"; sleep 3")...)
		Eventually(started).WithTimeout(20 * time.Second).Should(BeAnExistingFile())
		during := s.run(s.view, "receipts", "--effect", "refund:told")
		Expect(during.Stdout).To(MatchRegexp(`Now: +Executing, attempt 2`))
		Expect(during.Stdout).To(MatchRegexp(`State: +Executing; there is no receipt of it yet`))
		Expect(wait().Code).To(Equal(0))

		for _, by := range []string{"refund:told", name, "effect/" + name} {
			r := s.run(s.view, "receipts", "--effect", by)
			Expect(r.Code).To(Equal(0), r.Stderr)
			for _, line := range []string{
				`Key: +refund:told`, `Now: +Committed, attempt 2`,
				`Attempt 1: +stripe.refund by action ` + name + `\n`, `Proposed: .* by ` + s.agent.Name,
				`Decided: +approve, rule\[1\] of ActionPolicy cli, version 7`,
				`Approved: +\S+Z +by ` + s.approver.Name + `: "looked at it"`,
				`Ended: +\S+Z +ambiguous, reported_unknown, as reported by ` + s.agent.Name,
				`Resolved: +\S+Z +not executed by ` + s.resolver.Name + `: "not in the log", evidence https://example.com/log`,
				`Attempt 2: `, `Ended: +\S+Z +committed`, `Refused: .* blocked, ambiguous`,
			} {
				Expect(r.Stdout).To(MatchRegexp(line))
			}
		}

		var told struct {
			Namespace, Key, Name string
			Now                  struct {
				State   string
				Attempt int
			}
			Attempts []struct {
				Attempt   int
				Agent     string
				Approvals []struct {
					Approver, Reason string
					Time             time.Time
				}
				Events []struct {
					Seq, Resolves                                                 int64
					Kind, Result, Reason, Reporter, Resolver, Statement, Evidence string
				}
			}
			Refused []struct{ ActionName, Result, Reason string }
		}
		r := s.run(s.view, "receipts", "--effect", "refund:told", "-o", "json")
		Expect(json.Unmarshal([]byte(r.Stdout), &told)).To(Succeed(), r.Stdout+r.Stderr)
		Expect(told.Now.State).To(Equal("Committed"))
		Expect(told.Attempts).To(HaveLen(2))
		first := told.Attempts[0]
		Expect(first.Approvals).To(HaveLen(1))
		Expect(first.Approvals[0].Approver).To(Equal(s.approver.Name))
		Expect(first.Events).To(HaveLen(2))
		Expect(first.Events[1].Resolves).To(Equal(first.Events[0].Seq))
		Expect(first.Events[1].Evidence).To(Equal("https://example.com/log"))
		Expect(told.Refused).To(HaveLen(1))

		Expect(s.run(s.view, "receipts", "--effect", "refund:nobody").Code).To(Equal(1))
		Expect(s.run(s.view, "receipts", "--effect", "refund:told", "-o", "wide").Code).To(Equal(2))
		Expect(s.run(s.view, "receipts", "--effect", "refund:told", "--last", "2").Code).To(Equal(2))
	})

	It("is exported as it is, in parts and as a whole", func(ctx SpecContext) {
		stored := s.receipts(ctx)
		all := s.run(s.view, "receipts", "export")
		Expect(all.Code).To(Equal(0), all.Stderr)
		lines := strings.SplitAfter(all.Stdout, "\n")
		Expect(lines).To(HaveLen(len(stored) + 1))
		for i, o := range stored {
			line, err := receipt.Line(receipt.Entry{Seq: o.Spec.Seq, Hash: o.Spec.Hash, Document: o.Spec.Document})
			Expect(err).NotTo(HaveOccurred())
			Expect(lines[i]).To(Equal(string(line) + "\n"))
		}

		By("going on after what is there")
		part := s.run(s.view, "receipts", "export", "--since-seq", "2")
		Expect(part.Stdout).To(Equal(strings.Join(lines[2:], "")))
		rest := filepath.Join(s.dir, "rest.jsonl")
		Expect(os.WriteFile(rest, []byte(part.Stdout), 0o600)).To(Succeed())
		from := fmt.Sprintf("2:%s", stored[1].Spec.Hash)
		Expect(s.run(s.agent, "receipts", "verify", "-f", rest, "--from", from).Code).To(Equal(0))
		last := fmt.Sprint(stored[len(stored)-1].Spec.Seq)
		nothing := s.run(s.view, "receipts", "export", "--since-seq", last)
		Expect(nothing.Code).To(Equal(0), nothing.Stderr)
		Expect(nothing.Stdout).To(BeEmpty())

		By("into a file that is there in full or not at all")
		file := filepath.Join(s.dir, "all.jsonl")
		Expect(os.WriteFile(file, []byte("what was there before"), 0o600)).To(Succeed())
		failed := s.run(s.agent, "receipts", "export", "--output-file", file)
		Expect(failed.Code).To(Equal(9), failed.Stderr)
		Expect(os.ReadFile(file)).To(BeEquivalentTo("what was there before"))
		r := s.run(s.view, "receipts", "export", "--output-file", file)
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(r.Stdout).To(BeEmpty())
		Expect(os.ReadFile(file)).To(BeEquivalentTo(all.Stdout))
		Expect(filepath.Glob(filepath.Join(s.dir, ".all.jsonl*"))).To(BeEmpty())

		By("with the chains of other namespaces, each verified by itself")
		other := newCLIStage()
		Eventually(func() int { return other.run(other.agent, refund("other", "9000", "--", "true")...).Code }).
			WithTimeout(30 * time.Second).Should(Equal(3))
		everything := filepath.Join(s.dir, "everything.jsonl")
		Expect(s.run(auditor(), "receipts", "export", "-A", "--output-file", everything).Code).To(Equal(0))
		data, err := os.ReadFile(everything)
		Expect(err).NotTo(HaveOccurred())
		var before receipt.Document
		for _, text := range strings.Split(strings.TrimSpace(string(data)), "\n") {
			entry, err := receipt.ParseLine([]byte(text))
			Expect(err).NotTo(HaveOccurred())
			document, err := receipt.Parse(entry)
			Expect(err).NotTo(HaveOccurred())
			if document.Namespace == before.Namespace {
				Expect(document.Seq).To(Equal(before.Seq + 1))
			} else {
				Expect(document.Namespace > before.Namespace).To(BeTrue(), "%s after %s", document.Namespace, before.Namespace)
			}
			before = document
		}
		for _, args := range [][]string{{"-f", everything}, {"-A"}} {
			verified := s.run(auditor(), append([]string{"receipts", "verify"}, args...)...)
			Expect(verified.Code).To(Equal(0), verified.Stdout+verified.Stderr)
			Expect(verified.Stdout).To(MatchRegexp(`(?m)^` + s.namespace + ` intact: `))
			Expect(verified.Stdout).To(MatchRegexp(`(?m)^` + other.namespace + ` intact: `))
		}
	})

	It("prints the schema of what it writes", func(ctx SpecContext) {
		r := s.run(s.view, "receipts", "schema")
		Expect(r.Code).To(Equal(0), r.Stderr)
		Expect(json.Valid([]byte(r.Stdout))).To(BeTrue())
		Expect(r.Stdout).To(ContainSubstring(receipt.Schema))
	})

	Describe("when a cluster-admin tampers with it", Ordered, func() {
		var committed *v1alpha1.Receipt
		seqOf := func(o *v1alpha1.Receipt) string { return fmt.Sprint(o.Spec.Seq) }
		// verify says what is broken, and that nothing is once the spec has put it back.
		verify := func(code int, breaks ...string) cliResult {
			GinkgoHelper()
			r := s.run(auditor(), "receipts", "verify")
			Expect(r.Code).To(Equal(code), r.Stdout+r.Stderr)
			Expect(r.breaks()).To(ConsistOf(breaks), r.Stderr)
			return r
		}

		BeforeAll(func(ctx SpecContext) {
			// What was said about its head is written a second later; then nobody writes any more.
			all := s.receipts(ctx)
			last := all[len(all)-1].Spec
			Eventually(func() string { return strings.TrimSpace(s.run(s.view, "receipts", "head").Stdout) }).
				WithTimeout(20 * time.Second).Should(Equal(fmt.Sprintf("%d:%s", last.Seq, last.Hash)))
			Expect(operator.Stop()).To(Succeed())
			withoutAdmission(ctx, s)
			committed = s.receiptFor(ctx, "action", refundName("committed"))
			Expect(s.run(auditor(), "receipts", "verify").Code).To(Equal(0))
		}, NodeTimeout(2*time.Minute))

		It("sees a copy that is not what the document says", func(ctx SpecContext) {
			replace(ctx, committed.DeepCopy(), func(o *v1alpha1.Receipt) { o.Spec.Result = "failed" })
			r := verify(1, "mirror_mismatch "+seqOf(committed))
			Expect(r.Stderr).To(ContainSubstring(`result is "failed", the document says "committed"`))
			all := s.run(auditor(), "receipts", "verify", "-A")
			Expect(all.Code).To(Equal(1))
			Expect(all.Stdout).To(ContainSubstring("mirror_mismatch " + seqOf(committed) + " " + s.namespace + "\n"))
			Expect(all.Stdout).To(ContainSubstring(s.namespace + " broken: 1 break, "))
		})

		It("sees a receipt under another name", func(ctx SpecContext) {
			gone(ctx, committed.DeepCopy())
			other := committed.DeepCopy()
			other.Name = s.namespace + "-x"
			other.ResourceVersion, other.UID = "", ""
			Expect(env.Admin().Create(ctx, other)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(env.Admin().Delete(ctx, other)).To(Succeed()) })
			verify(1, "name_mismatch "+seqOf(committed))
		})

		It("sees a document that was altered, and blames nothing else", func(ctx SpecContext) {
			replace(ctx, committed.DeepCopy(), func(o *v1alpha1.Receipt) {
				o.Spec.Document = strings.Replace(o.Spec.Document, `"result":"committed"`, `"result":"failed"`, 1)
			})
			verify(1, "content_altered "+seqOf(committed))
			told := s.run(s.view, "receipts", "--effect", "refund:committed")
			Expect(told.Stdout).To(ContainSubstring("ALTERED"))
			Expect(told.Stderr).To(ContainSubstring("receipt " + seqOf(committed) + " is altered"))
		})

		It("sees a document of another namespace", func(ctx SpecContext) {
			planted := s.appended(ctx, func(document map[string]any) {
				document["namespace_uid"], document["effect_name"], document["effect_key"], document["effect_uid"] = "other", nil, nil, nil
				document["attempt"], document["token"] = nil, nil
			})
			verify(1, "origin_mismatch "+seqOf(planted))
		})

		It("sees a namespace that is another one", func(ctx SpecContext) {
			ns := &corev1.Namespace{}
			Expect(env.Admin().Get(ctx, client.ObjectKey{Name: s.namespace}, ns)).To(Succeed())
			Expect(env.Admin().Delete(ctx, ns)).To(Succeed())
			Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(ns), ns)).To(Succeed())
			ns.Spec.Finalizers = nil
			Expect(env.Admin().SubResource("finalize").Update(ctx, ns)).To(Succeed())
			Eventually(func() bool {
				return apierrors.IsNotFound(env.Admin().Get(ctx, client.ObjectKeyFromObject(ns), &corev1.Namespace{}))
			}).Should(BeTrue())
			Expect(env.Admin().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})).To(Succeed())
			// Nothing here empties a namespace, so the chain of the earlier one is still there, as after a restore.
			r := verify(1, "origin_mismatch 1")
			Expect(r.Stderr).To(ContainSubstring("nobody accepted the chain for it"))
		})
	})
})

var _ = Describe("the evidence of a cluster whose admin tampers with what refers to it", Ordered, func() {
	var t *cliStage
	var committed, retried, resolved *v1alpha1.Receipt
	seqOf := func(o *v1alpha1.Receipt) string { return fmt.Sprint(o.Spec.Seq) }
	verify := func(code int, breaks ...string) cliResult {
		GinkgoHelper()
		r := t.run(auditor(), "receipts", "verify")
		Expect(r.Code).To(Equal(code), r.Stdout+r.Stderr)
		Expect(r.breaks()).To(ConsistOf(breaks), r.Stderr)
		return r
	}
	effect := func(ctx context.Context, id string) *v1alpha1.Effect {
		GinkgoHelper()
		o := &v1alpha1.Effect{}
		Expect(env.Admin().Get(ctx, client.ObjectKey{Namespace: t.namespace, Name: refundName(id)}, o)).To(Succeed())
		return o
	}

	BeforeAll(func(ctx SpecContext) {
		t = newCLIStage()
		operator, err := env.StartOperatorProcess()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(operator.Stop)
		Expect(operator.WaitReady(ctx)).To(Succeed())
		Expect(env.WaitForAdmission(ctx)).To(Succeed())
		Expect(t.run(t.agent, refund("committed", "5", "--", "true")...).Code).To(Equal(0))
		Expect(t.run(t.agent, refund("removed", "5", "--", "true")...).Code).To(Equal(0))
		for _, id := range []string{"retried", "again"} {
			Expect(t.run(t.agent, refund(id, "5", "--not-executed-exit", "75", "--", "sh", "-c", "exit 75")...).Code).To(Equal(7))
			Expect(t.run(t.agent, refund(id, "5", "--", "true")...).Code).To(Equal(0))
		}
		Expect(t.run(t.agent, refund("resolved", "5", "--", "sh", "-c", "exit 1")...).Code).To(Equal(6))
		Expect(t.run(t.resolver, "resolve", refundName("resolved"), "--committed", "--reason", "r", "--yes").Code).To(Equal(0))
		all := t.receipts(ctx)
		last := all[len(all)-1].Spec
		Eventually(func() string { return strings.TrimSpace(t.run(t.view, "receipts", "head").Stdout) }).
			WithTimeout(20 * time.Second).Should(Equal(fmt.Sprintf("%d:%s", last.Seq, last.Hash)))
		Expect(operator.Stop()).To(Succeed())
		withoutAdmission(ctx, t)
		committed = t.receiptFor(ctx, "action", refundName("committed"))
		retried = t.receiptFor(ctx, "action", refundName("retried")+".2")
		resolved = t.receiptFor(ctx, "resolution", refundName("resolved"))
		Expect(t.run(auditor(), "receipts", "verify").Code).To(Equal(0))
	}, NodeTimeout(2*time.Minute))

	It("sees an Action that refers to the receipt of another", func(ctx SpecContext) {
		replace(ctx, t.action(refundName("committed")), func(o *v1alpha1.Action) {
			o.Status.ReceiptRef = &v1alpha1.ReceiptReference{Name: retried.Name, Seq: retried.Spec.Seq, Hash: retried.Spec.Hash}
		})
		verify(1, "reference_broken "+seqOf(retried))
	})

	It("sees the end of the chain gone, and what is about it", func(ctx SpecContext) {
		gone(ctx, resolved.DeepCopy())
		verify(1, "head_mismatch "+seqOf(resolved), "effect_mismatch "+seqOf(t.receiptFor(ctx, "action", refundName("resolved"))))
	})

	It("sees a receipt gone in the middle, and whatever refers to it", func(ctx SpecContext) {
		removed := t.receiptFor(ctx, "action", refundName("removed"))
		gone(ctx, removed.DeepCopy())
		next := fmt.Sprint(removed.Spec.Seq + 1)
		verify(1, "missing "+seqOf(removed), "link_broken "+next, "reference_broken "+seqOf(removed), "effect_mismatch 0")
	})

	It("sees an Effect gone that was attempted", func(ctx SpecContext) {
		gone(ctx, effect(ctx, "retried"))
		r := verify(1, "effect_mismatch "+seqOf(retried))
		Expect(r.Stderr).To(ContainSubstring("there is no such Effect"))
	})

	It("sees an Effect that says something else", func(ctx SpecContext) {
		replace(ctx, effect(ctx, "committed"), func(o *v1alpha1.Effect) {
			o.Status.State, o.Status.Cause = v1alpha1.EffectAmbiguous, v1alpha1.CauseReportedUnknown
		})
		verify(1, "effect_mismatch "+seqOf(committed))
	})

	It("sees an Effect that went back to an earlier attempt", func(ctx SpecContext) {
		replace(ctx, effect(ctx, "again"), func(o *v1alpha1.Effect) {
			o.Status.State, o.Status.Attempt = v1alpha1.EffectExecuting, 1
		})
		verify(1, "effect_mismatch "+seqOf(t.receiptFor(ctx, "action", refundName("again")+".2")))
	})

	It("sees a settled Effect that nobody ever wrote a receipt for", func(ctx SpecContext) {
		forged := effect(ctx, "removed")
		forged.ObjectMeta = metav1.ObjectMeta{Namespace: t.namespace, Name: refundName("forged")}
		forged.Spec.Key = "refund:forged"
		forged.Status.Holder = &v1alpha1.EffectHolder{Name: "forged", UID: "forged"}
		Expect(env.Admin().Create(ctx, forged)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(env.Admin().Delete(ctx, forged)).To(Succeed()) })
		r := verify(1, "effect_mismatch 0")
		Expect(r.Stderr).To(ContainSubstring("no receipt says so"))
	})

	It("refuses to interpret what it does not know, and names it; its bytes verify", func(ctx SpecContext) {
		for name, change := range map[string]func(map[string]any){
			"a kind":   func(document map[string]any) { document["kind"] = "later" },
			"a key":    func(document map[string]any) { document["later"] = big.NewInt(1) },
			"no value": func(document map[string]any) { document["result"] = "later" },
		} {
			By(name)
			planted := t.appended(ctx, change)
			seq := seqOf(planted)
			r := verify(2)
			Expect(r.Stderr).To(ContainSubstring("receipt " + seq + " cannot be interpreted"))
			told := t.run(auditor(), "receipts", "--effect", planted.Spec.EffectName)
			Expect(told.Code).To(Equal(1))
			Expect(told.Stderr).To(ContainSubstring("receipt " + seq + " cannot be interpreted"))
			Expect(told.Stdout).To(BeEmpty())
			Expect(t.run(auditor(), "receipts").Code).To(Equal(0), "columns need no interpretation")
			file := filepath.Join(t.dir, "later.jsonl")
			Expect(t.run(auditor(), "receipts", "export", "--output-file", file).Code).To(Equal(0))
			Expect(t.run(auditor(), "receipts", "verify", "-f", file, "--head", seq+":"+planted.Spec.Hash).Code).To(Equal(0))
			Expect(env.Admin().Delete(ctx, planted)).To(Succeed())
		}
	})
})
