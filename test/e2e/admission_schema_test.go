package e2e

import (
	"maps"

	"github.com/google/uuid"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apifields "k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The rules of a record hold against whoever writes it, so these tests write as the operator.

// edit copies a status and changes it; a nil value removes the key.
func edit(status, changes fields) fields {
	status = maps.Clone(status)
	for k, v := range changes {
		if v == nil {
			delete(status, k)
			continue
		}
		status[k] = v
	}
	return status
}

const laterTime = "2027-01-02T03:04:05.000000Z"

var (
	holderA    = fields{"name": "a", "uid": "uid-a", "agent": "bot"}
	holderB    = fields{"name": "b", "uid": "uid-b", "agent": "bot"}
	resolution = fields{"name": "r", "uid": "uid-r", "resolver": "oncall"}

	executingA = fields{
		"state": "Executing", "attempt": int64(1), "startedAttempts": int64(0), "holder": holderA, "token": "token-1", "leaseExpirationTime": someTime,
	}
	reservedA  = edit(executingA, fields{"state": "Reserved"})
	committedA = edit(executingA, fields{"state": "Committed", "startedAttempts": int64(1)})
	failedA    = edit(executingA, fields{"state": "Failed", "startedAttempts": int64(1)})
	ambiguousA = edit(executingA, fields{"state": "Ambiguous", "cause": "LeaseLapsed", "startedAttempts": int64(1)})
	lost       = fields{"state": "Ambiguous", "attempt": int64(1), "startedAttempts": int64(1), "cause": "StatusMissing"}
	askedTwo   = edit(ambiguousA, fields{"resolutionsRequired": int64(2)})
	byTwo      = edit(resolution, fields{"resolvers": []any{edit(resolution, fields{"name": "q", "uid": "uid-q", "resolver": "duty"}), resolution}})
	operatorA  = edit(executingA, fields{"nonce": "n"})
	round1     = fields{"round": int64(1), "continuation": "state", "time": someTime, "expirationTime": laterTime}
	gone1      = edit(round1, fields{"continued": []any{fields{"claimRef": fields{"name": "c", "uid": "uid-c"}, "claimID": "id", "time": someTime}}})
	round2     = edit(gone1, fields{"round": int64(2)})
	askedA     = edit(operatorA, fields{"suspension": round1, "leaseExpirationTime": laterTime})
	goneA      = edit(askedA, fields{"suspension": gone1, "nonce": "n2"})
	secondB    = edit(executingA, fields{"attempt": int64(2), "holder": holderB, "token": "token-2"})
)

// effectIn makes an Effect in the given state by the edges that lead to it.
func effectIn(ctx SpecContext, namespace string, status fields) *unstructured.Unstructured {
	o := effect(namespace, status)
	if status != nil && status["suspension"] != nil && status["suspension"].(fields)["continued"] != nil {
		o = effectIn(ctx, namespace, askedA)
		o.Object["status"] = status
		ExpectWithOffset(1, env.Client(operator).Update(ctx, o)).To(Succeed())
		return o
	}
	if status != nil && status["state"] == "Failed" {
		o.Object["status"] = edit(executingA, fields{"holder": status["holder"], "attempt": status["attempt"], "token": status["token"], "resolutionsRequired": status["resolutionsRequired"]})
	}
	ExpectWithOffset(1, env.Client(operator).Create(ctx, o)).To(Succeed())
	if status != nil && status["state"] == "Failed" {
		o.Object["status"] = status
		ExpectWithOffset(1, env.Client(operator).Update(ctx, o)).To(Succeed())
	}
	return o
}

var _ = Describe("The record of an Effect", func() {
	var s *stage
	BeforeEach(func() { s = theStage() })

	DescribeTable("is made", func(ctx SpecContext, status fields, expected types.GomegaMatcher) {
		Expect(env.Client(operator).Create(ctx, effect(s.namespace, status))).To(expected)
	},
		Entry("Executing", executingA, Succeed()),
		Entry("Reserved", reservedA, Succeed()),
		Entry("Ambiguous where it was lost", lost, Succeed()),
		Entry("never Failed", failedA, refusedBySchema("never created Failed")),
		Entry("never Failed for a lost status", edit(lost, fields{"state": "Failed"}), refusedBySchema("never created Failed")),
		Entry("not without holder", edit(executingA, fields{"holder": nil}), refusedBySchema("holder and token are required")),
		Entry("not without token", edit(executingA, fields{"token": nil}), refusedBySchema("holder and token are required")),
		Entry("not Ambiguous without cause", edit(ambiguousA, fields{"cause": nil}), refusedBySchema("has a cause")),
		Entry("not running for a cause", edit(executingA, fields{"holder": nil, "token": nil, "cause": "StatusMissing"}), refusedBySchema("only an effect that is or was Ambiguous has a cause")),
		Entry("not with attempt 0", edit(executingA, fields{"attempt": int64(0)}), refusedBySchema("greater than or equal to 1")),
		Entry("not in a state of its own", edit(executingA, fields{"state": "Done"}), refusedBySchema("Unsupported value")),
		Entry("not already resolved", edit(ambiguousA, fields{"resolution": resolution}), refusedBySchema("only a settled effect has a resolution")),
	)

	It("is not made Failed by a server-side apply either", func(ctx SpecContext) {
		Expect(apply(ctx, env.Admin(), "operator", effect(s.namespace, failedA))).To(refusedBySchema("never created Failed"))
	})

	DescribeTable("goes", func(ctx SpecContext, from, to fields) {
		o := effectIn(ctx, s.namespace, from)
		o.Object["status"] = to
		Expect(env.Client(operator).Update(ctx, o)).To(Succeed())
	},
		Entry("from Reserved to Executing", reservedA, edit(executingA, fields{"nonce": "n"})),
		Entry("from Reserved to Failed", reservedA, failedA),
		Entry("from Executing to Committed", executingA, committedA),
		Entry("from Executing to Failed", executingA, failedA),
		Entry("from Executing to Ambiguous", executingA, ambiguousA),
		Entry("from Ambiguous to Committed", ambiguousA, edit(committedA, fields{"cause": "LeaseLapsed", "resolution": resolution})),
		Entry("from Ambiguous to Failed", ambiguousA, edit(failedA, fields{"cause": "LeaseLapsed", "resolution": resolution})),
		Entry("from Ambiguous to Failed by two people who were asked for", askedTwo, edit(askedTwo, fields{"state": "Failed", "resolution": byTwo})),
		Entry("from Ambiguous to Failed by more people than were", ambiguousA, edit(failedA, fields{"cause": "LeaseLapsed", "resolution": byTwo})),
		Entry("from Failed to an attempt that asks for another number", edit(failedA, fields{"resolutionsRequired": int64(2)}), edit(secondB, fields{"resolutionsRequired": int64(1)})),
		Entry("from Failed to the next attempt of another Action", failedA, secondB),
		Entry("from Failed to the next attempt, reserved", failedA, edit(secondB, fields{"state": "Reserved"})),
		Entry("from lost to Committed", lost, edit(lost, fields{"state": "Committed", "resolution": resolution})),
		Entry("from no status to lost", nil, lost),
		Entry("nowhere, asked back", operatorA, askedA),
		Entry("nowhere, asked back, with a lease that was longer", edit(operatorA, fields{"leaseExpirationTime": laterTime}), askedA),
		Entry("nowhere, gone on with", askedA, goneA),
		Entry("nowhere, gone on with by an agent", edit(askedA, fields{"nonce": nil}), edit(goneA, fields{"nonce": nil})),
		Entry("nowhere, asked back again", goneA, edit(goneA, fields{"suspension": round2})),
		Entry("from asked back to Ambiguous", askedA, edit(askedA, fields{"state": "Ambiguous", "cause": "LeaseLapsed"})),
		Entry("from gone on with to Committed", goneA, edit(goneA, fields{"state": "Committed"})),
		Entry("from gone on with to Failed, as stated", goneA, edit(goneA, fields{"state": "Failed", "history": []any{fields{"attempt": int64(1), "result": "not_executed"}}})),
		Entry("nowhere, with a late report", ambiguousA, edit(ambiguousA, fields{"lateOutcomeRef": fields{"name": "late.x", "result": "Committed"}})),
		Entry("nowhere, with another line of history", executingA, edit(executingA, fields{"history": []any{fields{"attempt": int64(1), "result": "never_began"}}})),
	)

	const (
		noTransition = "no such transition"
		keeps        = "change only with the state"
		newAttempt   = "a new attempt has the next number"
		sameAttempt  = "an attempt keeps its number"
		asManyPeople = "as many people as the attempt asked for"
		whileActing  = "an executor asks back while it is executing"
		oneByOne     = "an executor asks back again once somebody has gone on"
	)
	DescribeTable("does not go", func(ctx SpecContext, from, to fields, why string) {
		o := effectIn(ctx, s.namespace, from)
		o.Object["status"] = to
		Expect(env.Client(operator).Update(ctx, o.DeepCopy())).To(refusedBySchema(why))
		Expect(env.Admin().Update(ctx, o)).To(refusedBySchema(why))
	},
		Entry("from Committed to anything: Failed", committedA, failedA, noTransition),
		Entry("from Committed to anything: Ambiguous", committedA, ambiguousA, noTransition),
		Entry("from Committed to anything: Executing", committedA, secondB, noTransition),
		Entry("from Executing to Reserved", executingA, reservedA, noTransition),
		Entry("from Reserved to Committed", reservedA, committedA, noTransition),
		Entry("from Reserved to Ambiguous", reservedA, ambiguousA, noTransition),
		Entry("from Failed to Committed", failedA, committedA, noTransition),
		Entry("from Failed to Ambiguous", failedA, ambiguousA, noTransition),
		Entry("from Ambiguous to Executing", ambiguousA, secondB, noTransition),
		Entry("from Ambiguous to Reserved", ambiguousA, edit(secondB, fields{"state": "Reserved"}), noTransition),
		Entry("from Ambiguous to Committed without a Resolution", ambiguousA, committedA, "only by a Resolution"),
		Entry("from Ambiguous to Failed without a Resolution", ambiguousA, failedA, "only by a Resolution"),
		Entry("from lost to Failed without a Resolution", lost, edit(lost, fields{"state": "Failed"}), "only by a Resolution"),
		Entry("from Executing to Committed with a Resolution", executingA, edit(committedA, fields{"resolution": resolution}), "only an Ambiguous effect is resolved"),
		Entry("from Failed to the same attempt", failedA, edit(secondB, fields{"attempt": int64(1)}), newAttempt),
		Entry("from Failed to the attempt after the next", failedA, edit(secondB, fields{"attempt": int64(3)}), newAttempt),
		Entry("from Failed to the same holder", failedA, edit(secondB, fields{"holder": holderA}), newAttempt),
		Entry("from Failed to a holder that only has another name", failedA, edit(secondB, fields{"holder": edit(holderA, fields{"name": "b"})}), newAttempt),
		Entry("from Failed on with the last attempt's cause", failedA, edit(secondB, fields{"cause": "LeaseLapsed"}), newAttempt),
		Entry("from Failed on with the last attempt's late report", failedA, edit(secondB, fields{"lateOutcomeRef": fields{"name": "late.x", "result": "Committed"}}), newAttempt),
		Entry("from Executing to another holder", executingA, edit(executingA, fields{"holder": holderB}), keeps),
		Entry("from Executing to another attempt", executingA, edit(executingA, fields{"attempt": int64(2)}), keeps),
		Entry("from Executing to another token", executingA, edit(executingA, fields{"token": "token-2"}), keeps),
		Entry("from Executing to another nonce", executingA, edit(executingA, fields{"nonce": "n"}), keeps),
		Entry("from Executing to a longer lease", executingA, edit(executingA, fields{"leaseExpirationTime": "2027-01-02T03:04:05.000000Z"}), keeps),
		Entry("from Ambiguous to resolved and still Ambiguous", ambiguousA, edit(ambiguousA, fields{"resolution": resolution}), keeps),
		Entry("from Executing to fewer people who have to resolve it", edit(executingA, fields{"resolutionsRequired": int64(2)}), edit(executingA, fields{"resolutionsRequired": int64(1)}), keeps),
		Entry("from Ambiguous to more people who have to", ambiguousA, askedTwo, keeps),
		Entry("from Ambiguous to nobody who says how many", askedTwo, ambiguousA, keeps),
		Entry("from Executing to Ambiguous for fewer people", edit(executingA, fields{"resolutionsRequired": int64(2)}), ambiguousA, sameAttempt),
		Entry("from Ambiguous to Failed by fewer people than were asked for", askedTwo, edit(askedTwo, fields{"state": "Failed", "resolution": resolution}), asManyPeople),
		Entry("from Ambiguous to Failed by one of two", askedTwo, edit(askedTwo, fields{"state": "Failed", "resolution": edit(resolution, fields{"resolvers": []any{resolution}})}), asManyPeople),
		Entry("from Ambiguous to Failed by people and a program", askedTwo, edit(askedTwo, fields{"state": "Failed", "resolution": edit(byTwo, fields{"observer": "x"})}), "no agreement of people"),
		Entry("from Ambiguous to Failed by one person twice", askedTwo, edit(askedTwo, fields{"state": "Failed", "resolution": edit(resolution, fields{"resolvers": []any{resolution, edit(resolution, fields{"name": "q", "uid": "uid-q"})}})}), "nobody is counted twice"),
		Entry("from Executing to asked back in round 2", operatorA, edit(askedA, fields{"suspension": edit(round1, fields{"round": int64(2)})}), whileActing),
		Entry("from Executing to asked back with another nonce", operatorA, edit(askedA, fields{"nonce": "n2"}), keeps),
		Entry("from Executing to asked back for longer than it says", operatorA, edit(askedA, fields{"leaseExpirationTime": "2028-01-02T03:04:05.000000Z"}), keeps),
		Entry("from Executing to Committed and asked back", operatorA, edit(askedA, fields{"state": "Committed"}), whileActing),
		Entry("from asked back to asked back again", askedA, edit(askedA, fields{"suspension": edit(round1, fields{"round": int64(2)})}), oneByOne),
		Entry("from asked back to another nonce", askedA, edit(askedA, fields{"nonce": "n2"}), keeps),
		Entry("from asked back to a longer lease", askedA, edit(askedA, fields{"leaseExpirationTime": "2028-01-02T03:04:05.000000Z"}), keeps),
		Entry("from asked back to another continuation", askedA, edit(askedA, fields{"suspension": edit(round1, fields{"continuation": "other"})}), "a round is written once"),
		Entry("from asked back to never asked", askedA, edit(askedA, fields{"suspension": nil}), whileActing),
		Entry("from asked back to two who go on", askedA, edit(askedA, fields{"suspension": edit(gone1, fields{"continued": []any{gone1["continued"].([]any)[0], gone1["continued"].([]any)[0]}})}), "somebody goes on once a round"),
		Entry("from asked back to Failed, as never begun", askedA, edit(askedA, fields{"state": "Failed", "history": []any{fields{"attempt": int64(1), "result": "never_began"}}}), "whose executor asked back had begun"),
		Entry("from gone on with to the round after the next", goneA, edit(goneA, fields{"suspension": edit(gone1, fields{"round": int64(3)})}), oneByOne),
		Entry("from gone on with to nobody who went on", goneA, edit(goneA, fields{"suspension": round1}), "who went on is written once"),
		Entry("from gone on with to asked back and gone on with at once", goneA, edit(goneA, fields{"suspension": edit(round2, fields{"continued": []any{gone1["continued"].([]any)[0], gone1["continued"].([]any)[0]}})}), oneByOne),
		Entry("from Executing to Committed by another holder", executingA, edit(committedA, fields{"holder": holderB}), sameAttempt),
		Entry("from Executing to Failed as another attempt", executingA, edit(failedA, fields{"attempt": int64(2)}), sameAttempt),
		Entry("from Executing to Committed with another token", executingA, edit(committedA, fields{"token": "token-2"}), sameAttempt),
		Entry("from Executing to no holder", executingA, edit(committedA, fields{"holder": nil}), "holder"),
		Entry("from no status to Executing", nil, executingA, "can only become Ambiguous with cause StatusMissing"),
		Entry("from no status to Failed", nil, failedA, "can only become Ambiguous with cause StatusMissing"),
		Entry("from no status to Committed", nil, committedA, "can only become Ambiguous with cause StatusMissing"),
		Entry("from no status to Ambiguous for another cause", nil, ambiguousA, "can only become Ambiguous with cause StatusMissing"),
	)

	It("is never resolved twice", func(ctx SpecContext) {
		o := effectIn(ctx, s.namespace, ambiguousA)
		resolved := edit(failedA, fields{"cause": "LeaseLapsed", "resolution": resolution})
		o.Object["status"] = resolved
		Expect(env.Client(operator).Update(ctx, o)).To(Succeed())
		o.Object["status"] = edit(resolved, fields{"resolution": edit(resolution, fields{"resolver": "somebody"})})
		Expect(env.Client(operator).Update(ctx, o.DeepCopy())).To(refusedBySchema(keeps))
		// The next attempt starts without it: else its own ambiguity would count as resolved.
		o.Object["status"] = edit(secondB, fields{"resolution": resolution})
		Expect(env.Client(operator).Update(ctx, o.DeepCopy())).To(refusedBySchema(newAttempt))
		o.Object["status"] = secondB
		Expect(env.Client(operator).Update(ctx, o)).To(Succeed())
	})

	It("that lost its holder goes on to another attempt only by a Resolution and with a holder", func(ctx SpecContext) {
		o := effectIn(ctx, s.namespace, lost)
		o.Object["status"] = edit(lost, fields{"state": "Failed", "resolution": resolution})
		Expect(env.Client(operator).Update(ctx, o)).To(Succeed())
		o.Object["status"] = edit(secondB, fields{"holder": nil})
		Expect(env.Client(operator).Update(ctx, o.DeepCopy())).To(refusedBySchema("holder"))
		o.Object["status"] = secondB
		Expect(env.Client(operator).Update(ctx, o)).To(Succeed())
	})

	It("keeps its status", func(ctx SpecContext) {
		o := effectIn(ctx, s.namespace, executingA)
		for _, patch := range []string{`{"status":null}`, `{"status":{"state":null}}`, `{"status":{"holder":null}}`} {
			Expect(mergePatch(ctx, env.Admin(), o, patch)).NotTo(Succeed(), patch)
		}
		Expect(mergePatch(ctx, env.Admin(), o, `{"status":null}`)).To(refusedBySchema("never removed"))
		Expect(jsonPatch(ctx, env.Admin(), o, `[{"op":"replace","path":"/status","value":{}}]`)).To(refusedBySchema("Required value"))
		Expect(jsonPatch(ctx, env.Admin(), o, `[{"op":"remove","path":"/status"}]`)).To(refusedBySchema("never removed"))
	})

	It("keeps its key", func(ctx SpecContext) {
		o := effectIn(ctx, s.namespace, executingA)
		Expect(mergePatch(ctx, env.Admin(), o, `{"spec":{"key":"another"}}`)).To(refusedBySchema("the key of an Effect never changes"))
	})
})

var _ = Describe("A Receipt", func() {
	It("never changes", func(ctx SpecContext) {
		o := recordKinds[1].valid(theStage().namespace)
		Expect(env.Client(operator).Create(ctx, o)).To(Succeed())
		Expect(mergePatch(ctx, env.Admin(), o, `{"spec":{"document":"{ }"}}`)).To(refusedBySchema("never changes"))
		Expect(mergePatch(ctx, env.Admin(), o, `{"spec":{"result":"committed"}}`)).To(refusedBySchema("never changes"))
	})

	It("has a seq from 1", func(ctx SpecContext) {
		o := set(recordKinds[1].valid(theStage().namespace), int64(0), "spec", "seq")
		Expect(env.Client(operator).Create(ctx, o)).To(refusedBySchema("greater than or equal to 1"))
	})
})

var _ = Describe("The status of a Ledger", func() {
	head := fields{"epoch": int64(1), "seq": int64(5), "hash": someHash, "namespaceUID": "uid", "admissionSince": someTime}

	DescribeTable("moves", func(ctx SpecContext, changes fields, expected types.GomegaMatcher) {
		o := recordKinds[2].valid("")
		Expect(env.Client(operator).Create(ctx, o)).To(Succeed())
		o.Object["status"] = maps.Clone(head)
		Expect(env.Client(operator).Status().Update(ctx, o)).To(Succeed())
		if changes == nil {
			delete(o.Object, "status")
		} else {
			o.Object["status"] = edit(head, changes)
		}
		Expect(env.Client(operator).Status().Update(ctx, o)).To(expected)
	},
		Entry("on", fields{"seq": int64(6), "hash": otherHash}, Succeed()),
		Entry("not at all", fields{}, Succeed()),
		Entry("to another chain in another epoch", fields{"epoch": int64(2), "seq": int64(0), "hash": otherHash, "namespaceUID": "other"}, Succeed()),
		Entry("not back", fields{"seq": int64(4)}, refusedBySchema("only grows")),
		Entry("not to another hash of the same seq", fields{"hash": otherHash}, refusedBySchema("only grows")),
		Entry("not to an earlier epoch", fields{"epoch": int64(0)}, refusedBySchema("never goes back")),
		Entry("not to another namespace", fields{"seq": int64(6), "namespaceUID": "other"}, refusedBySchema("belongs to one namespace")),
		Entry("not to an earlier admission", fields{"admissionSince": "2025-01-02T03:04:05.000000Z"}, refusedBySchema("admissionSince never goes back")),
		Entry("not to no admission", fields{"admissionSince": nil}, refusedBySchema("admissionSince never goes back")),
		Entry("not to nothing", nil, refusedBySchema("never removed")),
	)
})

var _ = Describe("The status of an Action", func() {
	var (
		execution = fields{
			"mode": "Agent", "claimID": uuid.NewString(), "token": "t", "leaseExpirationTime": someTime, "admissionTime": someTime,
		}
		asked   = fields{"required": int64(1), "counted": int64(0), "requestTime": "2026-01-02T03:04:05Z", "expirationTime": "2026-01-02T03:19:05Z"}
		named   = fields{"name": "e", "key": "k"}
		would   = fields{"decision": "Allow", "reason": "decision"}
		receipt = fields{"name": "chain-000000000001", "seq": int64(1), "hash": someHash}

		pending   = fields{"state": "Pending", "firstSeq": int64(3)}
		awaiting  = edit(pending, fields{"state": "AwaitingApproval", "actionHash": someHash, "approval": asked, "effect": named})
		claimable = edit(awaiting, fields{"state": "Claimable"})
		admitted  = edit(claimable, fields{"state": "Admitted", "execution": execution, "effect": edit(named, fields{"attempt": int64(1)})})
		committed = edit(admitted, fields{"state": "Committed", "receiptRef": receipt})
		denied    = edit(awaiting, fields{"state": "Denied", "reason": "approval_denied"})
	)

	walk := func(ctx SpecContext, steps ...fields) (*unstructured.Unstructured, error) {
		o := statementKinds[0].make(ctx, theStage())
		var err error
		for i, status := range steps {
			Expect(err).NotTo(HaveOccurred(), "step %d", i)
			o.Object["status"] = status
			err = env.Client(operator).Status().Update(ctx, o)
		}
		return o, err
	}

	It("is Pending before anybody wrote it, whatever came with the Action", func(ctx SpecContext) {
		s := theStage()
		o := statementKinds[0].valid(s, s.agent)
		o.Object["status"] = committed
		Expect(env.Client(s.agent).Create(ctx, o)).To(Succeed())
		Expect(get(o, "status")).To(Equal(fields{"state": "Pending"}))
	})

	DescribeTable("goes", func(ctx SpecContext, steps ...fields) {
		_, err := walk(ctx, steps...)
		Expect(err).NotTo(HaveOccurred())
	},
		Entry("straight to the end", edit(admitted, fields{"approval": nil}), edit(committed, fields{"approval": nil})),
		Entry("by way of an approval and a claim", pending, awaiting, claimable, admitted, edit(admitted, fields{"state": "Ambiguous"})),
		Entry("to asked back, gone on with, and the end", admitted, edit(admitted, fields{"suspension": round1}), edit(admitted, fields{"suspension": gone1}), edit(committed, fields{"suspension": gone1})),
		Entry("to asked back while nothing is enforced", edit(admitted, fields{"wouldHave": would}), edit(admitted, fields{"wouldHave": would, "suspension": round1}), edit(admitted, fields{"wouldHave": would, "suspension": round1, "state": "Observed", "outcome": "Ambiguous"})),
		Entry("back to approval", awaiting, claimable, awaiting, claimable),
		Entry("to Denied, and then to its receipt", awaiting, denied, edit(denied, fields{"receiptRef": receipt})),
		Entry("to Expired from Claimable", claimable, edit(claimable, fields{"state": "Expired", "reason": "not_claimed"})),
		Entry("on with the votes", awaiting, edit(awaiting, fields{"approval": edit(asked, fields{"counted": int64(1), "votes": "1/1"})})),
	)

	DescribeTable("does not go", func(ctx SpecContext, why string, steps ...fields) {
		_, err := walk(ctx, steps...)
		Expect(err).To(refusedBySchema(why))
	},
		Entry("from Denied to anything", "terminal state never changes", denied, edit(denied, fields{"state": "Pending"})),
		Entry("from Committed to Failed", "terminal state never changes", admitted, committed, edit(committed, fields{"state": "Failed"})),
		Entry("to another reason of an end", "reason of a terminal state", denied, edit(denied, fields{"reason": "unknown_action"})),
		Entry("from Admitted back", "an admitted Action ends", admitted, edit(claimable, fields{"execution": execution})),
		Entry("from Admitted to Denied", "an admitted Action ends", admitted, edit(admitted, fields{"state": "Denied"})),
		Entry("to an outcome without admission", "only an admitted Action has an outcome", awaiting, edit(committed, fields{"effect": named})),
		Entry("to Admitted for nobody", "execution is present exactly from Admitted on", edit(admitted, fields{"execution": nil})),
		Entry("to an execution that is not admitted", "execution is present exactly from Admitted on", edit(claimable, fields{"execution": execution})),
		Entry("to asked back before it is admitted", "only an executor that was admitted asks back", edit(awaiting, fields{"suspension": round1})),
		Entry("to never asked back", "a suspension stays on record", admitted, edit(admitted, fields{"suspension": round1}), admitted),
		Entry("to another continuation", "a round is written once", admitted, edit(admitted, fields{"suspension": round1}), edit(admitted, fields{"suspension": edit(round1, fields{"continuation": "other"})})),
		Entry("to another process", "admitted once", admitted, edit(admitted, fields{"execution": edit(execution, fields{"claimID": uuid.NewString()})})),
		Entry("to a longer lease", "admitted once", admitted, edit(admitted, fields{"execution": edit(execution, fields{"leaseExpirationTime": "2027-01-02T03:04:05.000000Z"})})),
		Entry("to another token", "admitted once", admitted, edit(admitted, fields{"execution": edit(execution, fields{"token": "u"})})),
		Entry("to another hash", "actionHash is written once", awaiting, edit(awaiting, fields{"actionHash": otherHash})),
		Entry("to no hash", "actionHash is written once", awaiting, edit(awaiting, fields{"actionHash": nil})),
		Entry("to another key", "effect is written once", awaiting, edit(awaiting, fields{"effect": fields{"name": "e", "key": "l"}})),
		Entry("to another name of the effect", "effect is written once", awaiting, edit(awaiting, fields{"effect": fields{"name": "f", "key": "k"}})),
		Entry("to no effect", "effect is written once", awaiting, edit(awaiting, fields{"effect": nil})),
		Entry("to another attempt", "effect is written once", admitted, edit(admitted, fields{"effect": edit(named, fields{"attempt": int64(2)})})),
		Entry("to fewer approvals", "asked is written once", edit(awaiting, fields{"approval": edit(asked, fields{"required": int64(2)})}), awaiting),
		Entry("to more time for an answer", "asked is written once", awaiting, edit(awaiting, fields{"approval": edit(asked, fields{"expirationTime": "2027-01-02T03:04:05Z"})})),
		Entry("to nothing asked", "asked is written once", awaiting, edit(awaiting, fields{"approval": nil})),
		Entry("to another beginning of its receipts", "firstSeq is written once", pending, edit(pending, fields{"firstSeq": int64(2)})),
		Entry("to another receipt", "receiptRef is written once", admitted, committed, edit(committed, fields{"receiptRef": edit(receipt, fields{"seq": int64(2)})})),
		Entry("to no receipt", "receiptRef is written once", admitted, committed, edit(committed, fields{"receiptRef": nil})),
		Entry("to a receipt before the end", "only a finished Action has a receipt", edit(awaiting, fields{"receiptRef": receipt})),
		Entry("to a state of its own", "Unsupported value", edit(pending, fields{"state": "Done"})),
	)

	It("is never removed", func(ctx SpecContext) {
		o, err := walk(ctx, admitted)
		Expect(err).NotTo(HaveOccurred())
		remove := client.RawPatch("application/json-patch+json", []byte(`[{"op":"remove","path":"/status"}]`))
		Expect(env.Admin().Status().Patch(ctx, o.DeepCopy(), remove)).NotTo(Succeed())
		Expect(env.Admin().Get(ctx, client.ObjectKeyFromObject(o), o)).To(Succeed())
		Expect(get(o, "status", "state")).To(Equal("Admitted"))
	})

	It("is found by field", func(ctx SpecContext) {
		o, err := walk(ctx, admitted)
		Expect(err).NotTo(HaveOccurred())
		for _, field := range []string{"status.state=Admitted", "spec.actionType=stripe.refund", "status.receiptRef.name="} {
			list := &unstructured.UnstructuredList{}
			list.SetGroupVersionKind(o.GroupVersionKind())
			options := &client.ListOptions{Namespace: o.GetNamespace()}
			selector, err := apifields.ParseSelector(field)
			Expect(err).NotTo(HaveOccurred())
			options.FieldSelector = selector
			Expect(env.Admin().List(ctx, list, options)).To(Succeed())
			Expect(list.Items).To(ContainElement(HaveField("GetName()", o.GetName())), field)
		}
	})
})

var _ = Describe("A Resolution", func() {
	It("that frees a key needs evidence", func(ctx SpecContext) {
		s := theStage()
		k := statementKinds[4]
		o := set(k.valid(s, s.resolver), "NotExecuted", "spec", "result")
		Expect(env.Client(s.resolver).Create(ctx, o)).To(refusedBySchema("needs evidence"))
		Expect(env.Client(s.resolver).Create(ctx, set(o, "https://provider.example.com/1", "spec", "evidence"))).To(Succeed())
	})
})
