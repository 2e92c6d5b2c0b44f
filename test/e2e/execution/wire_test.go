package execution

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"regexp"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/controllers"
)

// wire is what may happen to a request: it does not arrive, its answer does not, or it arrives late.
type wire struct {
	// write of an Effect that it happens to, by its body; the first of them.
	write *regexp.Regexp
	how   string
	// times it happened.
	times atomic.Int64
}

var errLost = errors.New("lost on the wire")

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// wrap is before every connection of the operator.
func (w *wire) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) { return w.send(next, r) })
}

func (w *wire) send(next http.RoundTripper, r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodPut || r.Body == nil {
		return next.RoundTrip(r)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if !w.write.Match(body) || !w.times.CompareAndSwap(0, 1) {
		return next.RoundTrip(r)
	}
	switch w.how {
	case "its answer is lost":
		if response, err := next.RoundTrip(r); err == nil {
			_ = response.Body.Close()
		}
	case "it arrives late":
		late := r.Clone(ctx)
		late.Body = io.NopCloser(bytes.NewReader(body))
		time.AfterFunc(150*time.Millisecond, func() {
			if response, err := next.RoundTrip(late); err == nil {
				_ = response.Body.Close()
			}
		})
	}
	return nil, errLost
}

var _ = Describe("an operator that executes, on a wire that loses", Serial, func() {
	begin := regexp.MustCompile(`"state":"Executing".*"nonce":"|"nonce":".*"state":"Executing"`)
	settle := regexp.MustCompile(`"nonce":".*"state":"Committed"|"state":"Committed".*"nonce":"`)

	DescribeTable("executes once, and says so",
		func(write *regexp.Regexp, how string) {
			withoutOperator()
			w := &wire{write: write, how: how}
			operator = startOperatorBehind(w.wrap, controllers.Options{})
			s := newScene()
			s.executes(s.executor("refunds"))
			payment := unique("txn")
			a := s.reaches(s.refund(payment, 100), v1alpha1.ActionCommitted, "")
			Expect(w.times.Load()).To(Equal(int64(1)))
			Expect(s.effect(a).Status.Attempt).To(Equal(int64(1)))
			Expect(s.receipt(a).Output).To(ContainSubstring(payment))
			Consistently(func() []request { return s.provider.of(payment) }).WithTimeout(300 * time.Millisecond).Should(HaveLen(1))
		},
		Entry("when its beginning is lost", begin, "it is lost"),
		Entry("when the answer to its beginning is lost", begin, "its answer is lost"),
		Entry("when its beginning arrives after it was repeated", begin, "it arrives late"),
		Entry("when its end is lost", settle, "it is lost"),
		Entry("when the answer to its end is lost", settle, "its answer is lost"),
		Entry("when its end arrives after it was repeated", settle, "it arrives late"),
	)

	// Only an Effect has a nonce, and only the second of its writes has who goes on.
	suspends := regexp.MustCompile(`"nonce":".*"suspension":\{`)
	continues := regexp.MustCompile(`"nonce":".*"suspension":\{.*"continued":\[`)

	DescribeTable("is asked back, and goes on once",
		func(write *regexp.Regexp, how string) {
			withoutOperator()
			w := &wire{write: write, how: how}
			operator = startOperatorBehind(w.wrap, controllers.Options{})
			s := newScene()
			s.executes(s.executor("refunds"))
			payment := unique("txn")
			s.provider.asksBack(payment, 1, created)
			a := s.askedBack(s.refund(payment, 100), 1)
			s.goesOn(a)
			a = s.reaches(a, v1alpha1.ActionCommitted, "")
			Expect(w.times.Load()).To(Equal(int64(1)))
			Expect(s.receipt(a).Rounds).To(Equal(int64(1)))
			Expect(s.receipt(a).RefusedCount).To(BeZero())
			Consistently(func() []request { return s.provider.of(payment) }).WithTimeout(300 * time.Millisecond).Should(HaveLen(2))
		},
		Entry("when that it was asked is lost", suspends, "it is lost"),
		Entry("when the answer to that is lost", suspends, "its answer is lost"),
		Entry("when that arrives after it was repeated", suspends, "it arrives late"),
		Entry("when that somebody goes on is lost", continues, "it is lost"),
		Entry("when the answer to that somebody goes on is lost", continues, "its answer is lost"),
		Entry("when that somebody goes on arrives after it was repeated", continues, "it arrives late"),
	)
})
