package explore

import (
	"fmt"

	"ctrlrun.dev/operator/kernel/effect"
	"ctrlrun.dev/operator/kernel/flow"
	"ctrlrun.dev/operator/kernel/receipt"
)

// lands reports whether the apiserver would take a write now. A guarded write whose object changed never lands again.
func (x *explorer) lands(s *state, st *step) bool {
	if x.Unguarded[st.why] {
		return true
	}
	switch st.kind {
	case writesAction:
		return s.fate[st.target-1] == present && s.actions[st.target-1] == st.guard
	case writesEffect:
		if st.create {
			return s.effects[st.target-1] == 0
		}
		return s.effects[st.target-1] == st.guard
	case lapses:
		return s.outcomes[st.target-1] <= 0 // the name of one that was deleted is free
	case appends:
		return s.chain == st.guard || x.Unguarded["append"]
	case judges:
		return s.resolutions[st.target-1] > 0 && s.judged[st.target-1] == 0
	}
	return false
}

// land is the world after a write that landed.
func (x *explorer) land(s state, p *pass, st *step) state {
	x.reach(st)
	switch st.kind {
	case writesAction:
		i := st.target - 1
		old, next := x.action(s.actions[i]), x.actions.get(st.value)
		s.actions[i] = x.versions.next(s.actions[i], st.value)
		x.wroteAction(&s, p, old, next, st.why)
	case writesEffect:
		i := st.target - 1
		old, next := x.record(s.effects[i]), x.records.get(st.value)
		s.effects[i] = x.versions.next(s.effects[i], st.value)
		x.wroteEffect(&s, p, old, next, st.why)
	case lapses:
		i := int(st.target - 1)
		a := x.action(s.actions[i/perAction])
		s.outcomes[i] = x.outcomes.id(outcomeMade{Outcome: flow.Outcome{
			Name: flow.LockName(a.UID, claimID(i), a.Agent), UID: fmt.Sprintf("outcome-%d", i), ActionUID: a.UID, ClaimID: claimID(i),
			Result: flow.ReportUnknown, LeaseLapsed: true, Reporter: "operator", Created: at(s.clock),
		}})
	case appends:
		next := st.value
		if s.chain != st.guard {
			d := x.chains.get(st.value).document
			entry, err := d.Entry(x.chains.head(s.chain))
			if err != nil {
				x.fail(invariantReceipt, "a receipt that nobody can read: %v", err)
				return s
			}
			d.Seq = entry.Seq
			next = x.chains.append(s.chain, entry, d)
		}
		s.chain = next
	case judges:
		if st.value == leavesOpen {
			s.told[st.target-1] = st.name
		} else {
			s.judged[st.target-1] = st.value
		}
		x.wroteVerdict(&s, int(st.target-1), st)
	}
	return s
}

// reach notes that a write landed.
func (x *explorer) reach(st *step) {
	switch st.kind {
	case writesAction:
		a := x.actions.get(st.value)
		x.reached[st.why]++
		switch {
		case st.why == flow.WhyEnd, st.why == flow.WhyFinish:
			x.reached[string(a.State)+" "+string(a.Reason)]++
		case st.why != flow.WhyAdmit:
		case a.WouldHave != nil:
			x.reached["observed "+string(a.WouldHave.Blocked)]++
			if !a.Reserves() {
				x.reached["observed without a reservation"]++
			}
		case a.Authority != nil:
			x.reached["admitted by a "+string(a.Authority.Kind)]++
		}
	case writesEffect:
		x.reached[st.why]++
		if x.records.get(st.value).Status.Attempt > 2 {
			x.reached["third attempt"]++
		}
	case lapses:
		x.reached["lapse"]++
	case appends:
		x.reached["receipt of "+x.chains.get(st.value).document.Kind]++
	case judges:
		x.reached["verdict "+st.why]++
	}
}

// --- what happens besides ------------------------------------------------------------------------------------------------

// emit takes a state that can follow, and what happened.
type emit func(next state, what func() string)

// events gives what agents, people, the clock and accidents can do next.
func (x *explorer) events(s *state, out emit) {
	x.proposals(s, out)
	for i, v := range s.actions {
		if v != 0 && s.fate[i] == present {
			x.agents(s, i, x.action(v), out)
		}
	}
	x.people(s, out)
	x.accidents(s, out)
	if x.Executor {
		x.executors(s, out)
	}
}

// action is the i-th one, as it is proposed.
func (p Proposal) action(i int, clock int32) flow.Action {
	a := flow.Action{
		Name: fmt.Sprintf("a%d", i+1), UID: actionUID(i), Created: at(clock), Type: "stripe.refund", Arguments: []byte(p.Arguments),
		Agent: p.Agent, Lease: lease, Status: flow.Status{State: flow.Pending},
	}
	if p.Claim {
		a.ClaimID = claimID(i * perAction)
	}
	if p.NotAfter > 0 {
		t := at(clock).Add(p.NotAfter)
		a.NotAfter = &t
	}
	if p.Expires > 0 {
		t := at(clock).Add(p.Expires)
		a.Expires = &t
	}
	return a
}

func (x *explorer) proposals(s *state, out emit) {
	for i, spec := range x.Actions {
		if s.actions[i] != 0 {
			continue
		}
		a := spec.action(i, s.clock)
		next := *s
		next.actions[i] = x.versions.next(0, x.actions.id(a))
		if s.admission == away {
			next.unvouched |= 1 << (i + 1)
		}
		out(next, func() string { return fmt.Sprintf("%s proposes %s", a.Agent, a.Name) })
		return // they are proposed in order
	}
}

// agents gives what the processes of the proposer of an action, and a rival, can do.
func (x *explorer) agents(s *state, i int, a *flow.Action, out emit) {
	for k := range perAction {
		p := i*perAction + k
		if k > 0 && !x.Second {
			break
		}
		x.process(s, i, p, a, out)
	}
	if !x.Rival {
		return
	}
	rival := bob
	if a.Agent == bob {
		rival = alice
	}
	if c := i*claimsOf + perAction; s.claims[c] == 0 && claimable(a) {
		next := *s
		next.claims[c] = x.claim(s, i, c, a, rival, s.admission == away)
		out(next, func() string { return rival + " claims " + a.Name })
	}
	if a.Execution == nil {
		return
	}
	for k := range perAction {
		p := i*perAction + k
		if a.Execution.ClaimID == claimID(p) && s.outcomes[p] == 0 {
			next := *s
			next.outcomes[p] = x.outcome(s, p, a, flow.ReportNotExecuted, rival, false)
			out(next, func() string {
				return fmt.Sprintf("%s takes the name of the lock of %s, with NotExecuted", rival, a.Name)
			})
		}
	}
}

// process gives what one process can do: claim, start, report, give up. One that does nothing more is dead.
func (x *explorer) process(s *state, i, p int, a *flow.Action, out emit) {
	did := s.processes[p]
	if did&done != 0 {
		return
	}
	name := claimID(p)
	if did&started != 0 {
		results := []flow.OutcomeResult{flow.ReportCommitted}
		if did&acted == 0 {
			results[0] = flow.ReportNotExecuted
		}
		if x.Unknown {
			results = append(results, flow.ReportUnknown)
		}
		for _, result := range results {
			x.report(s, p, a, result, out)
		}
		return
	}
	own := a.ClaimID == name
	claimed := s.claims[i*claimsOf+p%perAction] != 0
	if claimable(a) && !claimed && (own || a.ClaimID != "" || p%perAction == 0 || s.claims[i*claimsOf] != 0) {
		next := *s
		next.claims[i*claimsOf+p%perAction] = x.claim(s, i, p, a, a.Agent, false)
		out(next, func() string { return name + " claims " + a.Name })
	}
	if e := a.Execution; e != nil && e.Mode == flow.AgentMode && e.ClaimID == name && s.clock < since(e.Lease) {
		next := *s
		next.processes[p] |= started | acted
		out(next, func() string { return name + " starts, and executes " + a.Name })
		if x.NotExecuted {
			next := *s
			next.processes[p] |= started
			out(next, func() string { return name + " starts, and does not execute " + a.Name })
		}
	}
	if x.GiveUp && (own || claimed) {
		x.report(s, p, a, flow.ReportNotExecuted, out)
	}
}

func (x *explorer) report(s *state, p int, a *flow.Action, result flow.OutcomeResult, out emit) {
	next := *s
	next.processes[p] |= done
	if s.outcomes[p] == 0 {
		next.outcomes[p] = x.outcome(s, p, a, result, a.Agent, false)
		out(next, func() string { return fmt.Sprintf("%s reports %s", claimID(p), result) })
		return
	}
	next.lates[p] = x.outcomes.id(outcomeMade{Outcome: flow.Outcome{
		Name: "late." + flow.LockName(a.UID, claimID(p), a.Agent), UID: fmt.Sprintf("late-%d", p), ActionUID: a.UID, ClaimID: claimID(p),
		Result: result, Reporter: a.Agent, Created: at(s.clock),
	}})
	out(next, func() string { return fmt.Sprintf("%s reports %s, late", claimID(p), result) })
}

func (x *explorer) outcome(s *state, p int, a *flow.Action, result flow.OutcomeResult, reporter string, forged bool) int32 {
	return x.outcomes.id(outcomeMade{Forged: forged, Outcome: flow.Outcome{
		Name: flow.LockName(a.UID, claimID(p), a.Agent), UID: fmt.Sprintf("outcome-%d", p), ActionUID: a.UID, ClaimID: claimID(p),
		Result: result, Reporter: reporter, Created: at(s.clock),
	}})
}

func claimable(a *flow.Action) bool { return a.State == flow.Claimable && a.ClaimableTime != nil }

// claim is one of the action as it stands; the c-th of all.
func (x *explorer) claim(s *state, i, c int, a *flow.Action, claimant string, forged bool) int32 {
	id := claimID(c)
	if claimant != a.Agent || forged {
		id = fmt.Sprintf("a%d-foreign", i+1)
	}
	return x.claims.id(claimMade{Forged: forged, Claim: flow.Claim{
		Name: "claim-" + id, UID: "claim-" + id, ActionUID: a.UID, ClaimID: id, Claimant: claimant, Created: at(s.clock), ClaimableTime: *a.ClaimableTime,
	}})
}

func (x *explorer) people(s *state, out emit) {
	for k, spec := range x.Answers {
		v := s.actions[spec.Action]
		if s.answers[k] != 0 || v == 0 || s.fate[spec.Action] != present {
			continue
		}
		a := x.action(v)
		if a.Ask == nil || a.Finished() {
			continue
		}
		next := *s
		next.answers[k] = x.answers.id(x.answer(s, k, a, spec))
		out(next, func() string {
			return fmt.Sprintf("%s answers %s: yes %t, wrong %q", spec.Approver, a.Name, !spec.Denied, spec.Wrong)
		})
	}
	for k, spec := range x.Resolutions {
		if s.resolutions[k] == 0 {
			for e, v := range s.effects {
				x.resolve(s, k, spec, e, v, out)
			}
		}
	}
}

func (x *explorer) answer(s *state, k int, a *flow.Action, spec Answer) answerMade {
	made := answerMade{}
	y := &made.Answer
	y.Name, y.UID, y.ActionUID, y.ActionType, y.Hash = answerUID(k), answerUID(k), a.UID, a.Type, a.Hash
	if a.Effect != nil {
		key := a.Effect.Key
		y.Key = &key
	}
	y.Approved, y.Approver, y.Created = !spec.Denied, spec.Approver, at(s.clock)
	switch other := "refund:another"; spec.Wrong {
	case "hash":
		y.Hash = "sha256:another"
	case "key":
		y.Key = &other
	case "type":
		y.ActionType = "stripe.payout"
	}
	return made
}

func answerUID(k int) string { return fmt.Sprintf("answer-%d", k+1) }

// resolve is a person who says what happened to an ambiguous effect, once no process can start any more.
func (x *explorer) resolve(s *state, k int, spec Resolution, e int, v int32, out emit) {
	r := x.record(v)
	if r == nil || r.Status == nil || r.Status.State != effect.Ambiguous {
		return
	}
	var quoted int32
	for c := s.chain; c != 0 && quoted == 0; c = x.chains.get(c).before {
		if d := x.chains.get(c).document; d.EffectKey == r.Key && d.Attempt == r.Status.Attempt && d.Result == "ambiguous" {
			quoted = c
		}
	}
	if quoted == 0 || x.mayStart(s, r.Key) {
		return
	}
	if spec.Errs && max(r.Status.ResolutionsRequired, x.policies[s.rules].Resolutions) < 2 {
		return // where one is enough, one who errs is believed
	}
	link := x.chains.head(quoted)
	y := flow.Resolution{
		Name: fmt.Sprintf("resolution-%d", k+1), UID: fmt.Sprintf("resolution-%d", k+1), EffectUID: r.UID, Attempt: r.Status.Attempt, ActionType: r.Status.ActionType,
		State: effect.Failed, QuotedName: receipt.Name("payments", link.Seq), QuotedHash: link.Hash, Resolver: spec.by(), Evidence: "https://provider.example/txn_1", Created: at(s.clock),
	}
	if x.executions(s, r.Key) > 0 != spec.Errs {
		y.State = effect.Committed
	}
	switch spec.Wrong {
	case "hash":
		y.QuotedHash = "sha256:another"
	case "evidence":
		y.Evidence = ""
	}
	next := *s
	next.resolutions[k], next.judged[k] = x.resolutions.id(y), 0
	out(next, func() string {
		return fmt.Sprintf("%s resolves attempt %d of %s: %s, quoting receipt %d, wrong %q", y.Resolver, y.Attempt, r.Key, y.State, link.Seq, spec.Wrong)
	})
}

// mayStart reports whether a process that was admitted for the key has yet to start, and still may.
func (x *explorer) mayStart(s *state, key string) bool {
	for i, v := range s.actions {
		a := x.action(v)
		if a == nil || !a.Reserves() || a.Effect.Key != key {
			continue
		}
		if a.Execution.Mode == flow.OperatorMode && s.workers[0]|s.workers[1] != 0 && s.workers[0]&done == 0 && s.workers[1]&done == 0 {
			return true // a worker that began and has not acted yet: who resolves has to know that it is dead
		}
		for k := range perAction {
			p := i*perAction + k
			if a.Execution.ClaimID == claimID(p) && s.processes[p]&(started|done) == 0 && s.clock < since(a.Execution.Lease) {
				return true
			}
		}
	}
	return false
}

// executions is what the remote has counted for a key, by those who had it. In observe mode an action is executed that could
// not have it; that is what enforcing is for.
func (x *explorer) executions(s *state, key string) int {
	n := 0
	for p, did := range s.processes {
		if did&acted == 0 {
			continue
		}
		if a := x.action(s.actions[p/perAction]); a.Reserves() && a.Effect.Key == key {
			n++
		}
	}
	for _, did := range s.workers {
		if did&acted != 0 {
			n++
		}
	}
	return n
}

func (x *explorer) accidents(s *state, out emit) {
	if int(s.ticks) < len(x.Ticks) {
		next := *s
		d := x.Ticks[s.ticks]
		next.ticks, next.clock = s.ticks+1, s.clock+int32(d.Milliseconds())
		out(next, func() string { return d.String() + " pass" })
	}
	if int(s.rules) < len(x.policies)-1 {
		next := *s
		next.rules++
		out(next, func() string {
			p := x.policies[next.rules]
			what := "the policy becomes " + p.Text
			if p.Authority != nil {
				what += fmt.Sprintf(", and authority lets the agents propose: %t", p.Authority.Lets)
			}
			if p.Observe {
				what += ", and is not enforced"
			}
			return what
		})
	}
	if x.Unentitled != "" && s.right < given {
		next := *s
		next.right++
		out(next, func() string {
			return fmt.Sprintf("%s may approve: %t", x.Unentitled, next.right == given)
		})
	}
	for i, v := range s.effects {
		if v != 0 && s.dropped < x.Drops && x.record(v).Status != nil {
			next := *s
			bare := *x.record(v)
			bare.Status = nil
			next.dropped++
			next.effects[i] = x.versions.next(v, x.records.id(bare))
			out(next, func() string { return "the record of " + bare.Key + " loses its status" })
		}
	}
	if x.Gap {
		x.gap(s, out)
	}
	if x.Retention > 0 {
		x.retain(s, out)
	}
}

// gap is a time without admission, in which anybody who may create or delete does it in any name.
func (x *explorer) gap(s *state, out emit) {
	switch s.admission {
	case inForce:
		next := *s
		next.admission = away
		out(next, func() string { return "admission is away" })
		return
	case back:
		return
	}
	next := *s
	next.admission, next.since, next.clock = back, s.clock, s.clock+1000
	out(next, func() string { return "admission is back" })
	for i, v := range s.actions {
		if v == 0 || s.fate[i] != present {
			continue
		}
		a := x.action(v)
		if a.Finished() {
			continue
		}
		if s.deleted == 0 && s.dropped == 0 {
			next := *s
			next.fate[i], next.deleted = removed, 1
			out(next, func() string { return "somebody deletes " + a.Name })
		}
		if c := i*claimsOf + perAction; claimable(a) && s.claims[c] == 0 {
			next := *s
			next.claims[c] = x.claim(s, i, c, a, a.Agent, true)
			out(next, func() string { return "somebody claims " + a.Name + " as " + a.Agent })
		}
		if a.Ask != nil {
			for k := len(x.Answers); k < maxAnswers; k++ {
				if s.answers[k] == 0 {
					next := *s
					forged := x.answer(s, k, a, Answer{Approver: []string{carol, dave}[k%2]})
					forged.Forged = true
					next.answers[k] = x.answers.id(forged)
					out(next, func() string { return "somebody approves " + a.Name + " as " + forged.Approver })
					break
				}
			}
		}
		if e := a.Execution; e != nil {
			for k := range perAction {
				if p := i*perAction + k; e.ClaimID == claimID(p) && s.outcomes[p] == 0 {
					next := *s
					next.outcomes[p] = x.outcome(s, p, a, flow.ReportNotExecuted, a.Agent, true)
					out(next, func() string { return "somebody reports NotExecuted for " + a.Name + " as " + a.Agent })
				}
			}
		}
	}
}

// retain deletes a finished action whose time is over, and its statements.
func (x *explorer) retain(s *state, out emit) {
	for i, v := range s.actions {
		if v == 0 || s.fate[i] != present || !x.action(v).Finished() || x.action(v).FinishTime == nil {
			continue
		}
		a := x.action(v)
		view := flow.Retained{UID: a.UID, Finished: true, FinishTime: *a.FinishTime}
		if a.Effect != nil {
			if r := x.recordOf(s, a); r != nil && r.Status != nil && r.Status.Holder != nil {
				view.HolderUID, view.EffectAmbiguous = r.Status.Holder.UID, r.Status.State == effect.Ambiguous
			}
		}
		w := flow.World{Limits: x.limits()}
		if wait, keep := flow.Retain(view, w, at(s.clock)); wait > 0 || keep {
			continue
		}
		next := *s
		next.fate[i] = retired
		for k, id := range s.answers {
			if id > 0 && x.answers.get(id).ActionUID == a.UID {
				next.answers[k] = gone
			}
		}
		for k := range claimsOf {
			if c := i*claimsOf + k; s.claims[c] != 0 {
				next.claims[c] = gone
			}
		}
		for k := range perAction {
			p := i*perAction + k
			if s.outcomes[p] != 0 {
				next.outcomes[p] = gone
			}
			if s.lates[p] != 0 {
				next.lates[p] = gone
			}
		}
		out(next, func() string { return a.Name + " and its statements are deleted" })
	}
}

// executors gives what the operator's own workers can do: begin by a compare-and-set with a nonce of their own, act, settle.
func (x *explorer) executors(s *state, out emit) {
	for i, v := range s.effects {
		r := x.record(v)
		if r == nil || r.Status == nil || r.Status.Holder == nil {
			continue
		}
		a := x.action(s.actions[placeOf(r.Status.Holder.UID)-1])
		admitted := a.Execution != nil && a.Execution.Mode == flow.OperatorMode && a.Effect != nil && a.Effect.Name == r.Name && a.Effect.Attempt == r.Status.Attempt
		for k, did := range s.workers {
			nonce := fmt.Sprintf("worker-%d", k+1)
			switch {
			case did == 0 && admitted && (k == 0 || s.workers[0] != 0):
				status, err := r.Status.Begin(nonce, at(s.clock))
				if err == nil {
					next := x.worked(s, i, status)
					next.workers[k] = started
					out(next, func() string { return nonce + " begins " + r.Key })
				}
			case did == started && r.Status.Nonce == nonce && s.clock < since(r.Status.Lease):
				next := *s
				next.workers[k] |= acted
				out(next, func() string { return nonce + " executes " + r.Key })
			case did&started != 0 && did&done == 0 && r.Status.Nonce == nonce && r.Status.State == effect.Executing:
				result := effect.Failed
				if did&acted != 0 {
					result = effect.Committed
				}
				status, err := r.Status.Settle(effect.Settlement{State: result, Now: at(s.clock)})
				if err == nil {
					next := x.worked(s, i, status)
					next.workers[k] |= done
					out(next, func() string { return fmt.Sprintf("%s settles %s: %s", nonce, r.Key, result) })
				}
			}
		}
	}
}

func (x *explorer) worked(s *state, i int, status effect.Status) state {
	next := *s
	r := *x.record(s.effects[i])
	r.Status = &status
	next.effects[i] = x.versions.next(s.effects[i], x.records.id(r))
	return next
}
