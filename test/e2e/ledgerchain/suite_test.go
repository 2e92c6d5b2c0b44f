// Package ledgerchain tests that a chain of receipts stays one, whoever writes it, on a real kube-apiserver and etcd. No
// operator runs: what contends for the end of a chain is under the tests' control, request by request.
package ledgerchain

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers/ledger"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/records"
	"ctrlrun.dev/operator/test/testenv"
)

var env *testenv.Environment

func TestLedgerChain(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "chains of receipts")
}

var _ = BeforeSuite(func(ctx context.Context) {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(20 * time.Millisecond)
	var err error
	env, err = testenv.Start(ctx, testenv.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	// Receipts cannot be deleted. Here they have to be: that is how a cluster looks that was restored to an earlier point.
	kept := &admissionregistrationv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "ctrlrun-records-kept"}}
	Expect(env.Admin().Delete(ctx, kept)).To(Succeed())
}, NodeTimeout(2*time.Minute))

// operator is whom the apiserver lets write receipts.
func operator() client.WithWatch { return env.Client(testenv.OperatorUser()) }

// namespace is a namespace whose chain is empty.
func namespace() string {
	GinkgoHelper()
	return env.Namespace(GinkgoT(), nil)
}

// fresh is a chain from its beginning, as a process sees it that has just started.
func fresh(ns string) *ledger.Chain {
	return ledger.NewChain(ns, receipt.Start(), receipt.Link{}, operator(), operator())
}

// denied is the receipt of an action that was denied.
func denied(ns, action string) receipt.Document {
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	return receipt.Document{
		Kind: receipt.KindAction, SubjectUID: action + "-uid", ActionName: action, ActionUID: action + "-uid", ActionType: "stripe.refund",
		ClusterID: "cluster", Namespace: ns, NamespaceUID: "namespace", Environment: "production",
		Principal: &receipt.Principal{Agent: "agent"}, Result: decision.Denied, Reason: decision.UnknownAction, Message: "no policy names it",
		ProposedTime: at, FinishedTime: at,
	}
}

// identity is what the receipt of an action is about.
func identity(action string) receipt.Identity {
	return receipt.Identity{Kind: receipt.KindAction, SubjectUID: action + "-uid"}
}

// grown appends the receipts of the actions 1 to n to an empty chain, and gives their places, from index 1.
func grown(ctx context.Context, ns string, n int) []receipt.Link {
	GinkgoHelper()
	chain := fresh(ns)
	links := []receipt.Link{receipt.Start()}
	for i := 1; i <= n; i++ {
		link, _, err := chain.Append(ctx, links[i-1], denied(ns, fmt.Sprint(i)))
		Expect(err).NotTo(HaveOccurred())
		links = append(links, link)
	}
	return links
}

// stored are the receipts of a namespace, by seq.
func stored(ctx context.Context, ns string) []receipt.Entry {
	GinkgoHelper()
	list := &v1alpha1.ReceiptList{}
	Expect(env.Admin().List(ctx, list, client.InNamespace(ns))).To(Succeed())
	var entries []receipt.Entry
	for i := range list.Items {
		entries = append(entries, records.Entry(&list.Items[i]))
	}
	return entries
}

// lose deletes a receipt.
func lose(ctx context.Context, ns string, seq int64) {
	GinkgoHelper()
	o := &v1alpha1.Receipt{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: receipt.Name(ns, seq)}}
	// The apiserver learns by a watch that nothing forbids it.
	Eventually(func() error { return client.IgnoreNotFound(env.Admin().Delete(ctx, o)) }).WithContext(ctx).Should(Succeed())
}

// plant stores an entry that no Chain would have written.
func plant(ctx context.Context, ns string, e receipt.Entry, d receipt.Document) {
	GinkgoHelper()
	Expect(operator().Create(ctx, records.Receipt(ns, e, d))).To(Succeed())
}

// holds verifies that what is stored is one chain, in which nothing has two receipts, and gives what each is about.
func holds(ctx context.Context, ns string) map[receipt.Identity]receipt.Link {
	GinkgoHelper()
	entries := stored(ctx, ns)
	report := receipt.Verify(entries, receipt.Options{})
	Expect(report.Breaks).To(BeEmpty())
	seen := map[receipt.Identity]receipt.Link{}
	for _, e := range entries {
		id, err := receipt.IdentityOf(e)
		Expect(err).NotTo(HaveOccurred())
		Expect(seen).NotTo(HaveKey(id), "a second receipt at %d", e.Seq)
		seen[id] = e.Link()
	}
	return seen
}
