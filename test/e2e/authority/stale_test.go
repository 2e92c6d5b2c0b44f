package authority

import (
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"ctrlrun.dev/operator/api/v1alpha1"
	"ctrlrun.dev/operator/kernel/decision"
)

// stalled holds up what an operator's watches of a resource receive, from when it is told to. The connection stays open, as
// when something between the two swallows packets.
type stalled struct {
	resource string
	mu       sync.Mutex
	moving   *sync.Cond
	held     bool
}

func newStalled(resource string) *stalled {
	s := &stalled{resource: resource}
	s.moving = sync.NewCond(&s.mu)
	DeferCleanup(s.hold, false)
	return s
}

func (s *stalled) hold(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held = yes
	s.moving.Broadcast()
}

func (s *stalled) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(r *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(r)
		if err == nil && strings.HasSuffix(r.URL.Path, "/"+s.resource) && r.URL.Query().Get("watch") != "" {
			response.Body = &held{response.Body, s}
		}
		return response, err
	})
}

type held struct {
	io.ReadCloser
	by *stalled
}

func (h *held) Read(p []byte) (int, error) {
	n, err := h.ReadCloser.Read(p)
	h.by.mu.Lock()
	for h.by.held {
		h.by.moving.Wait()
	}
	h.by.mu.Unlock()
	return n, err
}

var _ = Describe("An operator that does not hear of", Serial, func() {
	DescribeTable("a cut decides nothing by what it knows, 10 seconds later",
		func(resource string, cut func(s *scene, d *v1alpha1.Delegation), want refusal) {
			withoutOperator()
			watch := newStalled(resource)
			deaf, err := startWrapped(watch.wrap)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(deaf.Stop)
			s := newScene()
			s.grant("refunds", s.refunds(nil))
			d := s.chainOf(1)[0]
			s.executed(s.night, s.refund(s.night, allowed))

			watch.hold(true)
			cut(s, d)
			cutAt := time.Now()
			var all []*v1alpha1.Action
			Eventually(func() string {
				if n := len(all); n == 0 || s.get(all[n-1]).Status.State != v1alpha1.ActionPending {
					all = append(all, s.refund(s.night, allowed, unclaimed))
				}
				return s.get(all[len(all)-1]).Status.Reason
			}).WithPolling(200 * time.Millisecond).Should(Equal(string(decision.CachesStale)))
			for _, a := range all {
				// Within those seconds it may still be let pass: that is what the proof promises, and no more. The apiserver
				// rounds the time of a creation down.
				if a.CreationTimestamp.Sub(cutAt) >= 11*time.Second {
					Expect(s.get(a).Status.State).To(Equal(v1alpha1.ActionPending), "let pass by what was cut long ago")
				}
			}
			late := s.refund(s.night, allowed)
			Consistently(func() v1alpha1.ActionState { return s.get(late).Status.State }).WithTimeout(2 * time.Second).Should(Equal(v1alpha1.ActionPending))
			s.noEffect(late)

			By("and decides by what there is once it hears again")
			watch.hold(false)
			for _, a := range append(all, late) {
				s.refusedSince(a, want)
			}
			s.chainHolds()
		},
		Entry("a Grant that was deleted", "grants", func(s *scene, _ *v1alpha1.Delegation) { s.deleteGrant("refunds") },
			refusal{decision.AuthorityEscalation, nil, map[string]string{"delegation": "to-night", "missing_parent": "Grant/refunds"}}),
		Entry("a Revocation", "revocations", func(s *scene, d *v1alpha1.Delegation) {
			Expect(env.Client(s.revoker).Create(ctx, s.revocation(s.revoker, d))).To(Succeed())
		}, refusal{decision.AuthorityRevoked, nil, below("to-night", 1, nil)}),
	)
})
