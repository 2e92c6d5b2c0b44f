package approval_test

import (
	"slices"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/approval"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func ptr[T any](v T) *T { return &v }

// question asks one person about alice's refund, which she asked for on behalf of frank, until 12:15.
func question() approval.Question {
	return approval.Question{
		ActionUID: "a1-uid", ActionType: "stripe.refund", Hash: "sha256:1", Key: ptr("refund:txn_1"), Agent: "alice", User: ptr("frank"),
		Expiration: noon.Add(15 * time.Minute), AdmissionSince: noon.Add(-time.Hour), Required: 1,
	}
}

type answerBuilder struct{ a approval.Answer }

// anAnswer is the yes of that person to exactly the question, a minute after noon.
func anAnswer(by string) *answerBuilder {
	return &answerBuilder{approval.Answer{
		Name: "a1." + by, UID: by + "-uid", ActionUID: "a1-uid", ActionType: "stripe.refund", Hash: "sha256:1", Key: ptr("refund:txn_1"),
		Approved: true, Approver: by, Created: noon.Add(time.Minute),
	}}
}

func (b *answerBuilder) UID(uid string) *answerBuilder        { b.a.UID = uid; return b }
func (b *answerBuilder) Action(uid string) *answerBuilder     { b.a.ActionUID = uid; return b }
func (b *answerBuilder) Type(name string) *answerBuilder      { b.a.ActionType = name; return b }
func (b *answerBuilder) Hash(hash string) *answerBuilder      { b.a.Hash = hash; return b }
func (b *answerBuilder) Key(key *string) *answerBuilder       { b.a.Key = key; return b }
func (b *answerBuilder) At(t time.Time) *answerBuilder        { b.a.Created = t; return b }
func (b *answerBuilder) After(d time.Duration) *answerBuilder { return b.At(noon.Add(d)) }
func (b *answerBuilder) No() *answerBuilder                   { b.a.Approved = false; return b }
func (b *answerBuilder) Accepted() *answerBuilder             { b.a.Accepted = true; return b }
func (b *answerBuilder) Refused(word string) *answerBuilder   { b.a.Refused = word; return b }
func (b *answerBuilder) In(groups ...string) *answerBuilder   { b.a.Groups = groups; return b }
func (b *answerBuilder) Obj() approval.Answer                 { return b.a }

func asks(groups ...[]string) func(*approval.Question) {
	return func(q *approval.Question) { q.Groups = groups }
}

func TestJudge(t *testing.T) {
	since, until := question().AdmissionSince, question().Expiration
	for name, tc := range map[string]struct {
		answer approval.Answer
		change func(*approval.Question)
		want   approval.Refusal
	}{
		"a yes to exactly this":              {answer: anAnswer("carol").Obj()},
		"a no to exactly this":               {answer: anAnswer("carol").No().Obj()},
		"another action":                     {answer: anAnswer("carol").Action("a2-uid").Obj(), want: approval.Mismatch},
		"another type":                       {answer: anAnswer("carol").Type("stripe.payout").Obj(), want: approval.Mismatch},
		"another hash":                       {answer: anAnswer("carol").Hash("sha256:2").Obj(), want: approval.Mismatch},
		"no hash":                            {answer: anAnswer("carol").Hash("").Obj(), want: approval.Mismatch},
		"another key":                        {answer: anAnswer("carol").Key(ptr("refund:txn_2")).Obj(), want: approval.Mismatch},
		"no key, where there is one":         {answer: anAnswer("carol").Key(nil).Obj(), want: approval.Mismatch},
		"an empty key, where there is one":   {answer: anAnswer("carol").Key(ptr("")).Obj(), want: approval.Mismatch},
		"a key, where there is none":         {answer: anAnswer("carol").Obj(), change: func(q *approval.Question) { q.Key = nil }, want: approval.Mismatch},
		"an empty key, where there is none":  {answer: anAnswer("carol").Key(ptr("")).Obj(), change: func(q *approval.Question) { q.Key = nil }, want: approval.Mismatch},
		"no key, where there is none":        {answer: anAnswer("carol").Key(nil).Obj(), change: func(q *approval.Question) { q.Key = nil }},
		"the agent":                          {answer: anAnswer("alice").Obj(), want: approval.SelfApproval},
		"the agent says no":                  {answer: anAnswer("alice").No().Obj(), want: approval.SelfApproval},
		"the user":                           {answer: anAnswer("frank").Obj(), want: approval.SelfApproval},
		"the user of another action":         {answer: anAnswer("frank").Obj(), change: func(q *approval.Question) { q.User = nil }},
		"nobody":                             {answer: anAnswer("").Obj(), want: approval.SelfApproval},
		"at the very end":                    {answer: anAnswer("carol").At(until).Obj()},
		"after the end":                      {answer: anAnswer("carol").At(until.Add(1)).Obj(), want: approval.Expired},
		"just when admission came":           {answer: anAnswer("carol").At(since).Obj(), want: approval.MadeWithoutAdmission},
		"right after admission came":         {answer: anAnswer("carol").At(since.Add(1)).Obj()},
		"everything wrong: it is not this":   {answer: anAnswer("alice").Hash("sha256:2").At(since).Obj(), want: approval.Mismatch},
		"self, and nobody vouched for it":    {answer: anAnswer("alice").At(since).Obj(), want: approval.MadeWithoutAdmission},
		"self, and too late":                 {answer: anAnswer("alice").At(until.Add(1)).Obj(), want: approval.SelfApproval},
		"was told that it does not count":    {answer: anAnswer("carol").Refused("NotRequired").Obj(), want: approval.NotRequired},
		"in a group of each list":            {answer: anAnswer("carol").In("board", "audit").Obj(), change: asks([]string{"finance", "audit"}, []string{"board"})},
		"in a group of one list":             {answer: anAnswer("carol").In("audit").Obj(), change: asks([]string{"finance", "audit"}, []string{"board"}), want: approval.NotEntitled},
		"in no group, says no":               {answer: anAnswer("carol").No().Obj(), change: asks([]string{"finance"}), want: approval.NotEntitled},
		"in a group that begins the same":    {answer: anAnswer("carol").In("finance-interns").Obj(), change: asks([]string{"finance"}), want: approval.NotEntitled},
		"names are compared, not normalised": {answer: anAnswer("Alice").Obj()},
	} {
		t.Run(name, func(t *testing.T) {
			q := question()
			if tc.change != nil {
				tc.change(&q)
			}
			if got := q.Judge(tc.answer); got != tc.want {
				t.Errorf("Judge = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestCount(t *testing.T) {
	for name, tc := range map[string]struct {
		required   int
		answers    []approval.Answer
		sufficient bool
		approved   []string // uids, in order
		denied     string
		refusals   map[string]approval.Refusal
	}{
		"nobody": {required: 1},
		"one of one": {
			required: 1, answers: []approval.Answer{anAnswer("carol").Obj()},
			sufficient: true, approved: []string{"carol-uid"}, refusals: map[string]approval.Refusal{"carol-uid": ""},
		},
		"one of two": {
			required: 2, answers: []approval.Answer{anAnswer("carol").Obj()},
			approved: []string{"carol-uid"}, refusals: map[string]approval.Refusal{"carol-uid": ""},
		},
		"one person twice is one": {
			required: 2, answers: []approval.Answer{anAnswer("carol").UID("second").After(2 * time.Minute).Obj(), anAnswer("carol").Obj()},
			approved: []string{"carol-uid"}, refusals: map[string]approval.Refusal{"carol-uid": "", "second": approval.DuplicateApprover},
		},
		"one person's answer that does not count does not use it up": {
			required: 1, answers: []approval.Answer{anAnswer("carol").UID("wrong").Hash("sha256:2").Obj(), anAnswer("carol").After(2 * time.Minute).Obj()},
			sufficient: true, approved: []string{"carol-uid"}, refusals: map[string]approval.Refusal{"carol-uid": "", "wrong": approval.Mismatch},
		},
		"what was refused is not taken later, and said again it is": {
			required: 1, answers: []approval.Answer{anAnswer("carol").UID("told").Refused("NotRequired").Obj(), anAnswer("carol").After(2 * time.Minute).Obj()},
			sufficient: true, approved: []string{"carol-uid"}, refusals: map[string]approval.Refusal{"carol-uid": "", "told": approval.NotRequired},
		},
		"two of two, the oldest first": {
			required: 2, answers: []approval.Answer{anAnswer("dave").After(3 * time.Minute).Obj(), anAnswer("carol").Obj()},
			sufficient: true, approved: []string{"carol-uid", "dave-uid"}, refusals: map[string]approval.Refusal{"carol-uid": "", "dave-uid": ""},
		},
		"at the same moment the smaller uid is first": {
			required: 1, answers: []approval.Answer{anAnswer("dave").Obj(), anAnswer("carol").Obj()},
			sufficient: true, approved: []string{"carol-uid"}, refusals: map[string]approval.Refusal{"carol-uid": "", "dave-uid": ""},
		},
		"more than required: the first are spent": {
			required: 1, answers: []approval.Answer{anAnswer("erin").After(2 * time.Minute).Obj(), anAnswer("dave").Obj(), anAnswer("carol").After(4 * time.Minute).Obj()},
			sufficient: true, approved: []string{"dave-uid"}, refusals: map[string]approval.Refusal{"carol-uid": "", "dave-uid": "", "erin-uid": ""},
		},
		"of two in one second, who was told that it counts": {
			required: 1, answers: []approval.Answer{anAnswer("carol").Obj(), anAnswer("dave").Accepted().Obj()},
			sufficient: true, approved: []string{"dave-uid"}, refusals: map[string]approval.Refusal{"carol-uid": "", "dave-uid": ""},
		},
		"a no after enough said yes": {
			required: 1, answers: []approval.Answer{anAnswer("carol").Obj(), anAnswer("dave").No().After(2 * time.Minute).Obj()},
			approved: []string{"carol-uid"}, denied: "dave-uid", refusals: map[string]approval.Refusal{"carol-uid": "", "dave-uid": ""},
		},
		"a no before": {
			required: 1, answers: []approval.Answer{anAnswer("carol").After(2 * time.Minute).Obj(), anAnswer("dave").No().Obj()},
			approved: []string{"carol-uid"}, denied: "dave-uid", refusals: map[string]approval.Refusal{"carol-uid": "", "dave-uid": ""},
		},
		"a no by somebody who said yes": {
			required: 1, answers: []approval.Answer{anAnswer("carol").Obj(), anAnswer("carol").No().UID("no").After(2 * time.Minute).Obj()},
			approved: []string{"carol-uid"}, denied: "no", refusals: map[string]approval.Refusal{"carol-uid": "", "no": ""},
		},
		"of several no, the first is told": {
			required: 1, answers: []approval.Answer{anAnswer("erin").No().After(3 * time.Minute).Obj(), anAnswer("dave").No().Obj()},
			denied: "dave-uid", refusals: map[string]approval.Refusal{"erin-uid": "", "dave-uid": ""},
		},
		"a no that does not count denies nothing": {
			required: 1, answers: []approval.Answer{anAnswer("carol").Obj(), anAnswer("dave").No().Hash("sha256:2").Obj(), anAnswer("alice").No().Obj(), anAnswer("erin").No().After(time.Hour).Obj()},
			sufficient: true, approved: []string{"carol-uid"},
			refusals: map[string]approval.Refusal{"carol-uid": "", "dave-uid": approval.Mismatch, "alice-uid": approval.SelfApproval, "erin-uid": approval.Expired},
		},
		"nobody required is somebody required": {
			required: 0, answers: nil,
		},
		"nobody required, one came": {
			required: 0, answers: []approval.Answer{anAnswer("carol").Obj()},
			sufficient: true, approved: []string{"carol-uid"}, refusals: map[string]approval.Refusal{"carol-uid": ""},
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := question()
			q.Required = tc.required
			for range 2 { // in this order and in the other
				tally := q.Count(tc.answers)
				if got := tally.Sufficient(q); got != tc.sufficient {
					t.Errorf("sufficient = %t, want %t", got, tc.sufficient)
				}
				var approved []string
				for _, a := range tally.Approved {
					approved = append(approved, a.UID)
				}
				if !slices.Equal(approved, tc.approved) {
					t.Errorf("approved by %v, want %v", approved, tc.approved)
				}
				denied := ""
				if tally.Denied != nil {
					denied = tally.Denied.UID
				}
				if denied != tc.denied {
					t.Errorf("denied by %q, want %q", denied, tc.denied)
				}
				if len(tally.Refusals) != len(tc.refusals) {
					t.Errorf("%d verdicts, want %d", len(tally.Refusals), len(tc.refusals))
				}
				for uid, want := range tc.refusals {
					if got, ok := tally.Refusals[uid]; !ok || got != want {
						t.Errorf("the verdict on %s is %q (given %t), want %q", uid, got, ok, want)
					}
				}
				slices.Reverse(tc.answers)
			}
		})
	}
}
