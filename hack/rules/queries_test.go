package rules

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// TestRulesUseWhatExists: metrics and labels of the alerts are those that docs/metrics.md promises. A test of the operator
// holds that page to what is really served.
func TestRulesUseWhatExists(t *testing.T) {
	known := metrics(t)
	for _, r := range alerts(t) {
		for _, problem := range check(parse(t, r.Expr), known) {
			t.Errorf("%s: %s", r.Alert, problem)
		}
	}
}

func TestDashboardUsesWhatExists(t *testing.T) {
	type panel struct {
		ID      int
		Type    string
		Title   string
		Targets []struct {
			RefID        string
			Expr         string
			LegendFormat string
		}
		Panels []panel
	}
	var dashboard struct {
		UID, Title string
		Templating struct {
			List []struct {
				Name, Type, Definition string
				Query                  any
			}
		}
		Panels []panel
	}
	decoder := json.NewDecoder(strings.NewReader(read(t, "config/prometheus/dashboard.json")))
	if err := decoder.Decode(&dashboard); err != nil {
		t.Fatal(err)
	}
	known := metrics(t)
	// What Grafana puts in place of its variables before Prometheus sees a query.
	replace := []string{"$__rate_interval", "5m"}
	for _, v := range dashboard.Templating.List {
		replace = append(replace, "$"+v.Name, "x")
		if v.Type != "query" {
			continue
		}
		call := regexp.MustCompile(`^label_values\(([a-z_]+), ([a-z]+)\)$`).FindStringSubmatch(v.Definition)
		if call == nil {
			t.Errorf("variable %s is %q, want label_values(METRIC, LABEL)", v.Name, v.Definition)
			continue
		}
		for _, problem := range check(parse(t, fmt.Sprintf("count by (%s) (%s)", call[2], call[1])), known) {
			t.Errorf("variable %s: %s", v.Name, problem)
		}
	}
	variables := strings.NewReplacer(replace...)
	ids, queries := map[int]bool{}, 0
	var walk func([]panel)
	walk = func(panels []panel) {
		for _, p := range panels {
			if ids[p.ID] {
				t.Errorf("panel %q has an id that another has", p.Title)
			}
			ids[p.ID] = true
			if p.Type != "row" && len(p.Targets) == 0 {
				t.Errorf("panel %q asks nothing", p.Title)
			}
			for _, target := range p.Targets {
				queries++
				expr := parse(t, variables.Replace(target.Expr))
				for _, problem := range check(expr, known) {
					t.Errorf("panel %q: %s", p.Title, problem)
				}
				for _, name := range regexp.MustCompile(`{{\s*(\w+)\s*}}`).FindAllStringSubmatch(target.LegendFormat, -1) {
					if !slices.Contains(grouping(expr), name[1]) {
						t.Errorf("panel %q: the legend names %s, which %s has not", p.Title, name[1], target.Expr)
					}
				}
			}
			walk(p.Panels)
		}
	}
	walk(dashboard.Panels)
	if queries == 0 || dashboard.UID == "" {
		t.Errorf("dashboard %q has %d queries", dashboard.UID, queries)
	}
	// Every metric of the operator is somewhere: one that nobody looks at need not be measured.
	text := read(t, "config/prometheus/dashboard.json")
	for name := range known {
		if strings.HasPrefix(name, "ctrlrun_") && !strings.Contains(text, name) {
			t.Errorf("no panel shows %s", name)
		}
	}
}

// TestCheckRefuses is the control of the tests above.
func TestCheckRefuses(t *testing.T) {
	known := metrics(t)
	for expr, want := range map[string]string{
		`max(ctrlrun_actions{state="Pending"})`:                                                 "",
		`histogram_quantile(0.9, sum by (le, pod) (rate(ctrlrun_decision_seconds_bucket[5m])))`: "",
		`rate(ctrlrun_decision_seconds_count[5m])`:                                              "",
		`sum by (namespace) (ctrlrun_chain_seq) > on (namespace) group_left ctrlrun_chain_seq`:  "",
		`max(ctrlrun_action)`:                          "no metric ctrlrun_action",
		`ctrlrun_decision_seconds`:                     "no metric ctrlrun_decision_seconds",
		`ctrlrun_actions_bucket`:                       "no metric ctrlrun_actions_bucket",
		`ctrlrun_actions{agent="x"}`:                   "no label agent",
		`ctrlrun_actions{le="1"}`:                      "no label le",
		`sum by (agent) (ctrlrun_actions)`:             "no label agent",
		`ctrlrun_actions * on (agent) ctrlrun_effects`: "no label agent",
		`{state="Pending"}`:                            "without the name of a metric",
		`{__name__=~"ctrlrun_.*"}`:                     "without the name of a metric",
		`sum(ctrlrun_leases_lapsed_total)`:             "is a counter",
		`rate(ctrlrun_actions[5m])`:                    "is a gauge",
		`max(ctrlrun_actions) + sum(increase(ctrlrun_effects_ambiguous_total{causes="x"}[5m]))`: "no label causes",
		`absent(ctrlrun_admissions_held)`:     "no metric ctrlrun_admissions_held",
		`count(ctrlrun_actions) or vector(0)`: "",
		`max_over_time(ctrlrun_freshness_age_seconds[5m]) > 10 and ctrlrun_admission_held == bool`: "unparsable",
	} {
		e, err := language.ParseExpr(expr)
		if want == "unparsable" {
			if err == nil {
				t.Errorf("%s is parsed", expr)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", expr, err)
			continue
		}
		problems := check(e, known)
		if want == "" && len(problems) > 0 || want != "" && (len(problems) != 1 || !strings.Contains(problems[0], want)) {
			t.Errorf("%s: got %q, want %q", expr, problems, want)
		}
	}
}

// metric as docs/metrics.md has it.
type metric struct {
	typ    string
	labels []string
}

// metrics are the rows of docs/metrics.md that begin with the name and the type of a metric.
func metrics(t *testing.T) map[string]metric {
	t.Helper()
	row := regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) \\| ((?:`[a-z]+` ?)*) ?\\| ")
	known := map[string]metric{}
	for _, m := range row.FindAllStringSubmatch(read(t, "docs/metrics.md"), -1) {
		known[m[1]] = metric{typ: m[2], labels: strings.Fields(strings.ReplaceAll(m[3], "`", ""))}
	}
	if len(known) < 20 {
		t.Fatalf("docs/metrics.md has %d metrics", len(known))
	}
	return known
}

// targetLabels are those that Prometheus adds to what a ServiceMonitor finds.
var targetLabels = []string{"job", "instance", "namespace", "pod", "service", "endpoint", "container"}

// check says what an expression names that does not exist, and where it takes one type of metric for another.
func check(expr parser.Expr, known map[string]metric) []string {
	var problems []string
	available := append([]string(nil), targetLabels...)
	complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	parser.Inspect(expr, func(node parser.Node, path []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		if selector.Name == "" {
			complain("%s selects without the name of a metric", selector)
			return nil
		}
		m, ok := resolve(selector.Name, known)
		if !ok {
			complain("there is no metric %s", selector.Name)
			return nil
		}
		own := append(append([]string(nil), targetLabels...), m.labels...)
		available = append(available, m.labels...)
		for _, matcher := range selector.LabelMatchers {
			if matcher.Name != labels.MetricName && !slices.Contains(own, matcher.Name) {
				complain("%s has no label %s", selector.Name, matcher.Name)
			}
		}
		counts := slices.ContainsFunc(path, func(n parser.Node) bool {
			call, ok := n.(*parser.Call)
			return ok && slices.Contains([]string{"rate", "irate", "increase"}, call.Func.Name)
		})
		if counts == (m.typ == "gauge") {
			complain("%s is a %s", selector.Name, m.typ)
		}
		return nil
	})
	for _, name := range grouping(expr) {
		if len(problems) == 0 && !slices.Contains(available, name) {
			complain("no metric of %s has a label %s: no label %s", expr, name, name)
		}
	}
	return problems
}

// resolve finds the metric that a series belongs to: a histogram has three.
func resolve(series string, known map[string]metric) (metric, bool) {
	if m, ok := known[series]; ok && m.typ != "histogram" {
		return m, true
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		name, ok := strings.CutSuffix(series, suffix)
		if m, exists := known[name]; ok && exists && m.typ == "histogram" {
			if suffix == "_bucket" {
				m.labels = append(slices.Clone(m.labels), "le")
			}
			return m, true
		}
	}
	return metric{}, false
}

// grouping are the labels that an expression groups or matches by.
func grouping(expr parser.Expr) []string {
	var names []string
	parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
		switch n := node.(type) {
		case *parser.AggregateExpr:
			names = append(names, n.Grouping...)
		case *parser.BinaryExpr:
			if n.VectorMatching != nil {
				names = append(append(names, n.VectorMatching.MatchingLabels...), n.VectorMatching.Include...)
			}
		}
		return nil
	})
	return names
}
