package verify

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
	"time"
)

type suites struct {
	XMLName xml.Name `xml:"testsuites"`
	Suites  []suite  `xml:"testsuite"`
}

type suite struct {
	Name      string     `xml:"name,attr"`
	Tests     int        `xml:"tests,attr"`
	Failures  int        `xml:"failures,attr"`
	Errors    int        `xml:"errors,attr"`
	Skipped   int        `xml:"skipped,attr"`
	Time      string     `xml:"time,attr"`
	Timestamp string     `xml:"timestamp,attr"`
	Cases     []testcase `xml:"testcase"`
}

type testcase struct {
	Class   string   `xml:"classname,attr"`
	Name    string   `xml:"name,attr"`
	Time    string   `xml:"time,attr"`
	Skipped *message `xml:"skipped"`
	Failure *message `xml:"failure"`
}

type message struct {
	Message string `xml:"message,attr"`
	Type    string `xml:"type,attr,omitempty"`
	Text    string `xml:",chardata"`
}

// WriteJUnit writes the report as one JUnit suite. Escape is that of WriteText.
func (r *Report) WriteJUnit(w io.Writer, escape func(string) string) error {
	s := suite{
		Name: "ctrlrun.verify", Tests: len(r.Guarantees), Failures: r.Summary.Failed, Skipped: r.Summary.NotApplicable + r.Summary.Skipped,
		Time: seconds(r.Finish.Sub(r.Start)), Timestamp: r.Start.UTC().Format("2006-01-02T15:04:05"),
	}
	for _, g := range r.Guarantees {
		c := testcase{Class: "ctrlrun.guarantees", Name: string(g.ID) + " " + g.Title, Time: seconds(g.duration)}
		switch g.Status {
		case NotApplicable, Skipped:
			c.Skipped = &message{Message: *g.Reason}
		case Fail:
			var text strings.Builder
			g.Counterexample.write(&text, escape)
			c.Failure = &message{Message: *g.Reason, Type: string(g.ID), Text: text.String()}
		}
		s.Cases = append(s.Cases, c)
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	enc := xml.NewEncoder(w)
	enc.Indent("", "  ")
	if err := enc.Encode(suites{Suites: []suite{s}}); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f", d.Seconds()) }
