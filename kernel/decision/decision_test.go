package decision_test

import (
	"testing"

	"ctrlrun.dev/operator/kernel/decision"
)

func TestValid(t *testing.T) {
	for word, want := range map[decision.Decision]bool{
		decision.Allow: true, decision.Approve: true, decision.Deny: true, "": false, "Allow": false, "maybe": false, "allow ": false,
	} {
		if got := word.Valid(); got != want {
			t.Errorf("%q is valid: %t, want %t", word, got, want)
		}
	}
}

// The literals stand in receipts and conditions: they never change.
func TestReasons(t *testing.T) {
	for reason, want := range map[decision.Reason][2]string{
		decision.UnknownAction:           {"unknown_action", "UnknownAction"},
		decision.Rule(0):                 {"rule[0]", "Rule0"},
		decision.Rule(12):                {"rule[12]", "Rule12"},
		decision.PlainDecision:           {"decision", "Decision"},
		decision.AmbiguousEffect:         {"ambiguous", "Ambiguous"},
		decision.UnrepresentableArgument: {"unrepresentable_argument", "UnrepresentableArgument"},
		decision.MadeWithoutAdmission:    {"made_without_admission", "MadeWithoutAdmission"},
		decision.AuthorityGrant:          {"authority_grant", "AuthorityGrant"},
		decision.AuthorityUnreadable:     {"authority_unreadable", "AuthorityUnreadable"},
		decision.AuthorityEscalation:     {"authority_escalation", "AuthorityEscalation"},
		decision.AuthorityRevoked:        {"authority_revoked", "AuthorityRevoked"},
		decision.AuthorityExpired:        {"authority_expired", "AuthorityExpired"},
		decision.AuthorityConstraint:     {"authority_constraint", "AuthorityConstraint"},
		decision.NoAuthority:             {"no_authority", "NoAuthority"},
		"":                               {"", ""},
	} {
		if string(reason) != want[0] || reason.Condition() != want[1] {
			t.Errorf("%q, as a condition %q, want %q and %q", reason, reason.Condition(), want[0], want[1])
		}
	}
}

func TestOfAuthority(t *testing.T) {
	for reason, want := range map[decision.Reason]bool{
		decision.AuthorityUnreadable: true, decision.AuthorityEscalation: true, decision.AuthorityRevoked: true,
		decision.AuthorityExpired: true, decision.AuthorityConstraint: true, decision.NoAuthority: true,
		decision.AuthorityGrant: false, decision.UnknownAction: false, decision.Rule(0): false, "": false,
	} {
		if got := reason.OfAuthority(); got != want {
			t.Errorf("%q is of authority: %t, want %t", reason, got, want)
		}
	}
}
