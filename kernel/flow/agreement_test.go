package flow_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"ctrlrun.dev/operator/kernel/approval"
	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/decision"
	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/policy"
	"ctrlrun.dev/operator/kernel/receipt"
)

const (
	askingTwo   = `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"allow","resolutionsRequired":2}}`
	askingThree = `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"allow","resolutionsRequired":3}}`
	askingOne   = `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"allow"}}`
	ofAnother   = `{"stripe.payout":{"effect":"payout:{payment_id}","decision":"allow","resolutionsRequired":4}}`
	invalid     = `{"stripe.refund":{"effect":"refund:{payment_id}","decision":"allow","resolutionsRequired":11}}`
)

// united is the set of those policies, valid or not.
func united(texts ...string) *policy.Set {
	var sources []policy.Source
	for i, text := range texts {
		v, err := canonical.Parse([]byte(text))
		if err != nil {
			panic(err)
		}
		source, _ := policy.NewSource("p"+string(rune('a'+i)), "", 1, v)
		sources = append(sources, source)
	}
	return policy.NewSet(sources)
}

// says is what somebody says of attempt 1, so many seconds after noon.
func says(by, name string, state effect.State, after int) flow.Resolution {
	r := aResolution(state, ambiguousReceipt(nil))
	r.Name, r.UID, r.Resolver, r.Created = name, name+"-uid", by, noon.Add(time.Duration(after)*time.Second)
	return r
}

// asked is a pass over an ambiguous effect whose attempt asked for so many people, under those policies.
func asked(pinned int, policies *policy.Set, all ...flow.Resolution) *snapshotBuilder {
	record := aRecord(anAction("a0").Obj()).Settled(effect.Ambiguous, effect.LeaseLapsed).Obj()
	record.Status.ResolutionsRequired = pinned
	b := aPassOver(record).Holder(flow.Fresh, anAction("a0").Admitted(1).Obj())
	quoted := ambiguousReceipt(nil)
	b.s.World.Policies, b.s.Quoted, b.s.Resolutions = policies, []flow.QuotedRead{{Name: "payments-000000000005", Entry: &quoted}}, all
	b.s.ResolutionsListed = true
	return b
}

// knowing is the pass after everybody was told what is missing.
func (b *snapshotBuilder) knowing() *snapshotBuilder {
	for range b.s.Resolutions {
		judged, open := flow.Next(b.s).(flow.Judge)
		if !open || !judged.Open {
			break
		}
		i := slices.IndexFunc(b.s.Resolutions, func(r flow.Resolution) bool { return r.UID == judged.UID })
		b.s.Resolutions[i].Told = judged.Message
	}
	return b
}

// looked makes a resolution one of a program.
func looked(r flow.Resolution) flow.Resolution {
	r.Observer = "ledger-watcher"
	return r
}

func TestAgreement(t *testing.T) {
	yes, no := effect.Committed, effect.Failed
	const waits, settled, freed = "wait for resolution", "resolve: Committed 1 LeaseLapsed", "resolve: Failed 1 LeaseLapsed"
	for name, tc := range map[string]struct {
		pinned   int
		policies *policy.Set
		said     []flow.Resolution
		change   func(*flow.Snapshot)
		want     string
		by       string // names of all who settled it
	}{
		"one is not enough":                  {2, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1)}, nil, waits, ""},
		"two settle it":                      {2, united(askingTwo), []flow.Resolution{says("dave", "r2", yes, 2), says("carol", "r1", yes, 1)}, nil, settled, "r1 r2"},
		"two say that nothing happened":      {2, united(askingTwo), []flow.Resolution{says("carol", "r1", no, 1), says("dave", "r2", no, 2)}, nil, freed, "r1 r2"},
		"two who say different things":       {2, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1), says("dave", "r2", no, 2)}, nil, waits, ""},
		"a third decides between them":       {2, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1), says("dave", "r2", no, 2), says("grace", "r3", no, 3)}, nil, freed, "r2 r3"},
		"as many as are needed are named":    {2, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1), says("dave", "r2", yes, 2), says("grace", "r3", yes, 3)}, nil, settled, "r1 r2"},
		"whoever agreed first":               {2, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1), says("dave", "r2", no, 2), says("grace", "r3", no, 3), says("heidi", "r4", yes, 4)}, nil, freed, "r2 r3"},
		"two of three":                       {3, united(askingThree), []flow.Resolution{says("carol", "r1", yes, 1), says("dave", "r2", yes, 2)}, nil, waits, ""},
		"three of three":                     {3, united(askingThree), []flow.Resolution{says("carol", "r1", yes, 1), says("dave", "r2", yes, 2), says("grace", "r3", yes, 3)}, nil, settled, "r1 r2 r3"},
		"one person twice":                   {2, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1), says("carol", "r1.2", yes, 2)}, nil, "judge r1.2: DuplicateResolver", ""},
		"one person in one second":           {2, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1), says("carol", "r1.2", no, 1)}, nil, "judge r1: Superseded", ""},
		"one person by two names":            {2, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1), says("c.jones", "r2", yes, 2)}, oneCarol, "judge r2: DuplicateResolver", ""},
		"whoever takes it back":              {2, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1), says("dave", "r2", yes, 2), says("carol", "r1.2", no, 3)}, nil, "judge r1: Superseded", ""},
		"whatever clocks say":                {2, united(askingTwo), []flow.Resolution{says("carol", "e.1.carol", yes, 5), says("dave", "e.1.dave", yes, 6), says("carol", "e.1.carol.2", no, 3)}, nil, "judge e.1.carol: Superseded", ""},
		"whoever takes it back by a name":    {2, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1), says("dave", "r2", yes, 2), says("c.jones", "r3", no, 3)}, oneCarol, "judge r1: Superseded", ""},
		"the agent does not count":           {2, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1), says(alice, "r2", yes, 2)}, nil, "judge r2: SelfResolution", ""},
		"nor by another name":                {2, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1), says("alice", "r2", yes, 2)}, aliasOf(alice, "alice"), "judge r2: SelfResolution", ""},
		"a program is not people":            {2, united(askingTwo), []flow.Resolution{looked(says("carol", "r1", yes, 1)), says("dave", "r2", yes, 2)}, nil, "judge r1: PeopleRequired", ""},
		"a program where two were pinned":    {2, united(allowing), []flow.Resolution{looked(says("carol", "r1", yes, 1))}, nil, "judge r1: PeopleRequired", ""},
		"a program where two are asked now":  {1, united(askingTwo), []flow.Resolution{looked(says("carol", "r1", yes, 1))}, nil, "judge r1: PeopleRequired", ""},
		"a program, by a stale policy":       {1, united(askingTwo), []flow.Resolution{looked(says("carol", "r1", yes, 1))}, hold(decision.CachesStale, noon), "wait for caches_stale", ""},
		"a program where one is enough":      {1, united(allowing), []flow.Resolution{looked(says("carol", "r1", yes, 1)), says("dave", "r2", no, 2)}, nil, settled, ""},
		"a person before a program":          {1, united(allowing), []flow.Resolution{looked(says("carol", "r1", yes, 2)), says("dave", "r2", no, 1)}, nil, freed, ""},
		"what does not count is told first":  {2, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1), without(says("dave", "r2", no, 2))}, nil, "judge r2: EvidenceMissing", ""},
		"what a cache knows is listed first": {2, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1), says("dave", "r2", yes, 2)}, func(s *flow.Snapshot) { s.ResolutionsListed = false }, "read resolutions", ""},
		"of one nothing is listed":           {1, united(askingOne), []flow.Resolution{says("carol", "r1", yes, 1), says("carol", "r1.2", no, 2)}, func(s *flow.Snapshot) { s.ResolutionsListed = false }, settled, ""},
		"while caches are stale":             {2, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1), says("dave", "r2", yes, 2)}, hold(decision.CachesStale, noon), "wait for caches_stale", ""},
		"one while caches are stale":         {1, united(askingOne), []flow.Resolution{says("carol", "r1", yes, 1)}, hold(decision.CachesStale, noon), "wait for caches_stale", ""},

		// Which number counts.
		"the policy asks for fewer by now":              {2, united(askingOne), []flow.Resolution{says("carol", "r1", yes, 1)}, nil, waits, ""},
		"the policy is gone":                            {2, united(), []flow.Resolution{says("carol", "r1", yes, 1)}, nil, waits, ""},
		"the policy asks for more by now":               {1, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1)}, nil, waits, ""},
		"and two settle it":                             {1, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1), says("dave", "r2", yes, 2)}, nil, settled, "r1 r2"},
		"nothing was said, and nothing is":              {0, united(), []flow.Resolution{says("carol", "r1", yes, 1)}, nil, settled, ""},
		"nothing was said, and the policy asks for two": {0, united(askingTwo), []flow.Resolution{says("carol", "r1", yes, 1)}, nil, waits, ""},
		"of another action":                             {1, united(askingOne, ofAnother), []flow.Resolution{says("carol", "r1", yes, 1)}, nil, settled, ""},
		"of an action nobody can name the most counts":  {0, united(askingOne, ofAnother), []flow.Resolution{says("carol", "r1", yes, 1), says("dave", "r2", yes, 2), says("grace", "r3", yes, 3)}, nameless, waits, ""},
		"of two policies the one that asks for more":    {1, united(askingOne, askingTwo), []flow.Resolution{says("carol", "r1", yes, 1)}, nil, waits, ""},
		"an invalid policy, and one was asked for":      {1, united(invalid), []flow.Resolution{says("carol", "r1", yes, 1)}, nil, waits, ""},
		"a mistake elsewhere, and one was asked for":    {1, united(`{"stripe.refund":{"effect":"refund:{payment_id}","decision":"alow","resolutionsRequired":3}}`), []flow.Resolution{says("carol", "r1", yes, 1), says("dave", "r2", yes, 2)}, nil, waits, ""},
		"a mistake elsewhere, and all said so":          {1, united(`{"stripe.refund":{"effect":"refund:{payment_id}","decision":"alow","resolutionsRequired":2}}`), []flow.Resolution{says("carol", "r1", yes, 1), says("dave", "r2", yes, 2)}, nil, settled, "r1 r2"},
		"an invalid policy, and two were":               {2, united(invalid), []flow.Resolution{says("carol", "r1", yes, 1)}, nil, waits, ""},
		"an invalid policy beside a valid one":          {1, united(askingTwo, invalid), []flow.Resolution{says("carol", "r1", yes, 1)}, nil, waits, ""},
		"an invalid policy, and nothing was said":       {0, united(invalid), []flow.Resolution{says("carol", "r1", yes, 1), says("dave", "r2", yes, 2)}, nil, waits, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := asked(tc.pinned, tc.policies, tc.said...)
			if tc.change != nil {
				tc.change(&b.s)
			}
			step := expect(t, b.knowing(), tc.want)
			if write, ok := step.(flow.WriteEffect); ok {
				var by []string
				for _, a := range write.Status.Resolution.Agreed {
					by = append(by, a.Name)
				}
				if got := strings.Join(by, " "); got != tc.by {
					t.Errorf("it is settled by %q, want %q", got, tc.by)
				}
				if line := write.Status.History[len(write.Status.History)-1]; !slices.Equal(line.Agreed, by) || line.Resolution != write.Status.Resolution.Name || len(by) > 0 && by[len(by)-1] != line.Resolution {
					t.Errorf("its history says %q and %q", line.Resolution, line.Agreed)
				}
				if write.Status.ResolutionsRequired != tc.pinned {
					t.Errorf("the record asked for %d, and asks for %d", tc.pinned, write.Status.ResolutionsRequired)
				}
			}
		})
	}
}

func oneCarol(s *flow.Snapshot) { aliasOf("carol", "c.jones")(s) }

func aliasOf(names ...string) func(*flow.Snapshot) {
	return func(s *flow.Snapshot) { s.World.People = approval.NewPeople([][]string{names}) }
}

func nameless(s *flow.Snapshot) { s.Effect.Status.ActionType = "" }

func without(r flow.Resolution) flow.Resolution {
	r.Evidence = ""
	return r
}

// Whoever has said something is told what is missing, in the same words until something changes, and it is no verdict.
func TestWhatIsMissing(t *testing.T) {
	yes, no := effect.Committed, effect.Failed
	for name, tc := range map[string]struct {
		policies *policy.Set
		said     []flow.Resolution
		want     []string // for each
	}{
		"one of two": {united(askingTwo), []flow.Resolution{says("carol", "r1", no, 1)}, []string{
			"MorePeopleRequired: 1 of 2 people say NotExecuted. Somebody else has to say NotExecuted too before it is settled; until then the effect stays Ambiguous."}},
		"two against one, of three": {united(askingThree), []flow.Resolution{says("carol", "r1", yes, 1), says("dave", "r2", yes, 2), says("grace", "r3", no, 3)}, []string{
			"MorePeopleRequired: 2 of 3 people say Committed. 1 says NotExecuted. Somebody else has to say Committed too before it is settled; until then the effect stays Ambiguous.",
			"MorePeopleRequired: 2 of 3 people say Committed. 1 says NotExecuted. Somebody else has to say Committed too before it is settled; until then the effect stays Ambiguous.",
			"MorePeopleRequired: 1 of 3 people say NotExecuted. 2 say Committed. 2 more people have to say NotExecuted too before it is settled; until then the effect stays Ambiguous."}},
		"nobody knows how many": {united(invalid), []flow.Resolution{says("carol", "r1", yes, 1)}, []string{
			`PolicyInvalid: Nobody can say how many people have to say the same: a policy that names "stripe.refund" is invalid, and its number cannot be read. Correct the policy.`}},
	} {
		t.Run(name, func(t *testing.T) {
			b := asked(0, tc.policies, tc.said...)
			for i, want := range tc.want {
				judged, ok := flow.Next(b.s).(flow.Judge)
				if !ok || !judged.Open || judged.Accepted || judged.UID != tc.said[i].UID || judged.Reason+": "+judged.Message != want {
					t.Fatalf("told %+v, want %s", judged, want)
				}
				b.s.Resolutions[i].Told = judged.Message
			}
			expect(t, b, "wait for resolution")
			// The policy may change, and then they are told otherwise.
			b.s.World.Policies = united(ofAnother, strings.Replace(askingTwo, "2}", "5}", 1))
			if judged, ok := flow.Next(b.s).(flow.Judge); !ok || !judged.Open || !strings.Contains(judged.Message, "of 5 people") {
				t.Errorf("after the policy changed: %+v", judged)
			}
		})
	}
}

// Two who quote different receipts that both say so agree; each is asked for once.
func TestAgreementOfTwoReceipts(t *testing.T) {
	first, second := says("carol", "r1", effect.Committed, 1), says("dave", "r2", effect.Committed, 2)
	other := ambiguousReceipt(func(d *receipt.Document) { d.Message = "nobody knows yet" })
	second.QuotedName, second.QuotedHash = "payments-000000000006", other.Hash
	b := asked(2, united(askingTwo), first, second)
	if read := expect(t, b, "read quoted receipt").(flow.Read); read.Name != second.QuotedName {
		t.Errorf("it reads %s", read.Name)
	}
	b.s.Quoted = append(b.s.Quoted, flow.QuotedRead{Name: second.QuotedName, Entry: &other})
	write := expect(t, b, "resolve: Committed 1 LeaseLapsed").(flow.WriteEffect)
	if agreed := write.Status.Resolution.Agreed; agreed[0].QuotedHash != first.QuotedHash || agreed[1].QuotedHash != other.Hash {
		t.Errorf("they quote %+v", agreed)
	}
}

// What several people settled is put on record with all of them, and each gets their verdict: those who were needed, those who
// said otherwise, and whoever came too late to be needed.
func TestAgreementOnRecord(t *testing.T) {
	all := []flow.Resolution{
		says("carol", "r1", effect.Failed, 1), says("dave", "r2", effect.Committed, 2), says("grace", "r3", effect.Failed, 3), says("heidi", "r4", effect.Failed, 4),
	}
	all[0].Evidence, all[2].Reason = "https://provider.example/1", "asked again"
	write := expect(t, asked(2, united(askingTwo), all...).knowing(), "resolve: Failed 1 LeaseLapsed").(flow.WriteEffect)
	if by := write.Status.Resolution; by.Name != "r3" || by.Resolver != "grace" {
		t.Errorf("%s by %s decided", by.Name, by.Resolver)
	}
	record := &effect.Record{Name: refundName, UID: "effect-uid", Key: refundKey, Status: &write.Status}

	b := aPassOver(record).Holder(flow.Absent, nil).Chain(ofResolution, nil)
	d := expect(t, b, "append resolution/effect-uid/1: failed").(flow.Append).Document
	if d.Resolver != "grace" || d.ResolutionName != "r3" || len(d.Resolvers) != 2 ||
		d.Resolvers[0] != (receipt.Resolver{Resolver: "carol", Name: "r1", UID: "r1-uid", Statement: "asked the provider", Evidence: "https://provider.example/1", Resolves: receipt.Link{Seq: 5, Hash: all[0].QuotedHash}}) ||
		d.Resolvers[1].Resolver != "grace" || d.Resolvers[1].Statement != "asked again" || !strings.Contains(d.Message, "carol and grace resolved") {
		t.Errorf("the receipt says %+v", d)
	}

	a0 := anAction("a0").Admitted(1).Ended(flow.Ambiguous, decision.LeaseLapsed).Receipted(3).Obj()
	b = aPassOver(record).Holder(flow.Fresh, a0).Chain(ofResolution, &receipt.Document{})
	if told := expect(t, b, "resolved a0: Ambiguous lease_lapsed").(flow.WriteAction); told.Status.Resolved.Resolver != "carol and grace" || !strings.Contains(told.Status.Message, "until carol and grace looked") {
		t.Errorf("the Action is told %+v, %s", told.Status.Resolved, told.Status.Message)
	}
	long := *record.Status
	by := *long.Resolution
	by.Agreed = slices.Clone(by.Agreed)
	by.Agreed[0].Resolver = strings.Repeat("x", 512)
	long.Resolution = &by
	b = aPassOver(&effect.Record{Name: refundName, UID: "effect-uid", Key: refundKey, Status: &long}).Holder(flow.Fresh, a0).Chain(ofResolution, &receipt.Document{})
	if told := expect(t, b, "resolved a0: Ambiguous lease_lapsed").(flow.WriteAction); told.Status.Resolved.Resolver != "grace and 1 more" {
		t.Errorf("of long names the Action is told %s", told.Status.Resolved.Resolver)
	}

	verdicts := func(b *snapshotBuilder) {
		t.Helper()
		b.s.Resolutions = slices.Clone(all)
		for i, want := range []string{"judge r1: Accepted", "judge r2: Outvoted", "judge r3: Accepted", "judge r4: AnotherWasFirst"} {
			judged := expect(t, b, want).(flow.Judge)
			if judged.Open || judged.Accepted != strings.HasSuffix(want, "Accepted") || judged.UID != all[i].UID || judged.Message == "" {
				t.Errorf("the verdict is %+v", judged)
			}
			b.s.Resolutions[i].Judged = true
		}
	}
	verdicts(aPassOver(record).Holder(flow.Absent, nil).Chain(ofResolution, &receipt.Document{}))

	// The record may have gone on to the next attempt before they are told.
	next, err := write.Status.Renew(effect.Take{Holder: effect.Holder{Name: "a1", UID: "a1-uid", Agent: alice}, ActionType: "stripe.refund", Token: "t", Began: true, Now: noon, ResolutionsRequired: 1})
	if err != nil {
		t.Fatal(err)
	}
	verdicts(aPassOver(&effect.Record{Name: refundName, UID: "effect-uid", Key: refundKey, Status: &next}).Holder(flow.Fresh, anAction("a1").Admitted(2).Obj()))
	if next.ResolutionsRequired != 1 || next.Resolution != nil {
		t.Errorf("the next attempt has %+v", next)
	}
}

// A reservation notes how many people its policy asks for; what it notes is the policy that decided on it.
func TestResolutionsArePinned(t *testing.T) {
	for text, want := range map[string]int{askingOne: 1, askingTwo: 2, askingThree: 3} {
		b := aPass(anAction("a1").Obj()).Read()
		b.s.World.Policies = aPolicy(text)
		if write := expect(t, b, "reserve: Executing 1").(flow.WriteEffect); write.Status.ResolutionsRequired != want {
			t.Errorf("a first attempt under %s asks for %d", text, write.Status.ResolutionsRequired)
		}
		failed := aRecord(anAction("a0").Obj()).Settled(effect.Failed, "").Obj()
		failed.Status.ResolutionsRequired = 7
		b = aPass(anAction("a1").Obj()).Read().Effect(flow.Fresh, failed).Holder(flow.Absent, nil)
		b.s.World.Policies = aPolicy(text)
		if write := expect(t, b, "renew: Executing 2").(flow.WriteEffect); write.Status.ResolutionsRequired != want {
			t.Errorf("a further attempt under %s asks for %d", text, write.Status.ResolutionsRequired)
		}
	}
}

// What was pinned is lost with a record; the policies of then take its place. Where they cannot be read nothing does.
func TestALostRecordAsksAsThePoliciesDo(t *testing.T) {
	for name, tc := range map[string]struct {
		policies *policy.Set
		known    bool // the action's type
		want     int
	}{
		"one":                             {united(askingOne, ofAnother), true, 1},
		"two":                             {united(askingTwo, ofAnother), true, 2},
		"no policy":                       {united(), true, 1},
		"an invalid policy":               {united(invalid), true, 0},
		"of whatever action":              {united(askingTwo, ofAnother), false, 4},
		"of whatever action, one invalid": {united(ofAnother, invalid), false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := aPassOver(&effect.Record{Name: refundName, UID: "effect-uid", Key: refundKey})
			b.s.World.Policies, b.s.Key.Read = tc.policies, true
			if tc.known {
				b.s.Key.Actions = []flow.Action{*anAction("a0").Admitted(1).Obj()}
			}
			if write := expect(t, b, "lost: Ambiguous 1 StatusMissing").(flow.WriteEffect); write.Status.ResolutionsRequired != tc.want {
				t.Errorf("it asks for %d, want %d", write.Status.ResolutionsRequired, tc.want)
			}
		})
	}
}
