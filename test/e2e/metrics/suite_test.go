// Package metrics tests that what docs/metrics.md promises is what the built operator serves, beside real actions on a real
// kube-apiserver and etcd; and that the commands people are told to run exist in the built plugin.
package metrics

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/klog/v2/textlogger"
	ctrl "sigs.k8s.io/controller-runtime"

	"ctrlrun.dev/operator/test/testenv"
)

var (
	env      *testenv.Environment
	operator *testenv.OperatorProcess
)

func TestMetrics(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "metrics")
}

var _ = BeforeSuite(func(ctx context.Context) {
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	ctrl.SetLogger(textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(GinkgoWriter))))
	var err error
	env, err = testenv.Start(ctx, testenv.Options{})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(env.Stop()).To(Succeed()) })
	operator, err = env.StartOperatorProcess()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(operator.Stop)
	Expect(operator.WaitReady(ctx)).To(Succeed())
	Expect(env.WaitForAdmission(ctx)).To(Succeed())
}, NodeTimeout(2*time.Minute))

var _ = ReportAfterEach(func(report SpecReport) {
	if env == nil || !report.Failed() {
		return
	}
	log, err := env.OperatorLog()
	Expect(err).NotTo(HaveOccurred())
	GinkgoWriter.Printf("the end of the operator's log:\n%s\n", log)
})

// scene makes a namespace whose policy allows small refunds and asks people about large ones, and gives its agent.
func scene(ctx context.Context) (ns string, agent testenv.User) {
	GinkgoHelper()
	ns = env.Namespace(GinkgoT(), nil)
	agent = testenv.ServiceAccountUser(ns, "refund-agent")
	Expect(env.Grant(ctx, ns, "ctrlrun-agent", agent)).To(Succeed())
	Expect(env.Policy(ctx, ns, `{"actions":{"stripe.refund":{"effect":"refund:{payment_id}","rules":[
		{"when":{"amount_gte":0,"amount_lte":500},"decision":"allow"},{"decision":"approve"}]}}}`)).To(Succeed())
	return ns, agent
}

// scrape gives what the operator serves.
func scrape(ctx context.Context, g Gomega) string {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, operator.Metrics, nil)
	g.Expect(err).NotTo(HaveOccurred())
	response, err := http.DefaultClient.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close() // it was only read
	g.Expect(response.StatusCode).To(Equal(http.StatusOK))
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return string(body)
}

// family is one metric: its type, and the names of its labels.
type family struct {
	Type   string
	Labels []string
}

var (
	typeLine   = regexp.MustCompile(`^# TYPE (\w+) (\w+)$`)
	sampleLine = regexp.MustCompile(`^(\w+?)(?:_bucket|_sum|_count)?(?:\{(.*)\})? \S+$`)
	label      = regexp.MustCompile(`(\w+)="(?:[^"\\]|\\.)*"`)
	documented = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (counter|gauge|histogram) \\| ((?:`\\w+` ?)*) ?\\| ")
)

// families of a scrape; without the labels by which histograms and summaries have several lines.
func families(exposition string) map[string]family {
	GinkgoHelper()
	all := map[string]family{}
	for line := range strings.Lines(exposition) {
		line = strings.TrimSpace(line)
		if m := typeLine.FindStringSubmatch(line); m != nil {
			all[m[1]] = family{Type: m[2]}
			continue
		}
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		m := sampleLine.FindStringSubmatch(line)
		Expect(m).NotTo(BeNil(), line)
		name := m[1]
		if all[name].Type == "" {
			// A metric whose own name ends like part of a histogram.
			name, _, _ = strings.Cut(strings.Fields(line)[0], "{")
		}
		f, ok := all[name]
		Expect(ok).To(BeTrue(), "%s has no type", line)
		labels := []string{}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if l[1] != "le" && l[1] != "quantile" {
				labels = append(labels, l[1])
			}
		}
		slices.Sort(labels)
		if f.Labels != nil {
			Expect(labels).To(Equal(f.Labels), "%s has other labels than the line before", line)
		}
		f.Labels = labels
		all[name] = f
	}
	return all
}

// promised are the metrics of docs/metrics.md.
func promised() map[string]family {
	GinkgoHelper()
	page, err := os.ReadFile(filepath.Join(env.Root, "docs", "metrics.md"))
	Expect(err).NotTo(HaveOccurred())
	all := map[string]family{}
	for _, m := range documented.FindAllStringSubmatch(string(page), -1) {
		labels := append([]string{}, strings.Fields(strings.ReplaceAll(m[3], "`", ""))...)
		slices.Sort(labels)
		all[m[1]] = family{Type: m[2], Labels: labels}
	}
	return all
}
