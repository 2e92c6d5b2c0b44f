package flow

import (
	"math/big"
	"time"

	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/policy"
)

// rulesSchema names the layout of what RulesHash hashes.
const rulesSchema = "ctrlrun.rules/v1"

// RulesHash is the hash of everything that decides in a namespace: what its policies say together, its settings with their
// defaults written out, and its environment. The names of policies, their versions, comments and the order of keys are no
// part of it: two namespaces with the same hash decide the same.
func RulesHash(set *policy.Set, limits Limits, environment string) (string, error) {
	actions, refused := set.Rules()
	return canonical.Hash(map[string]any{
		"schema":      rulesSchema,
		"environment": environment,
		"actions":     actions,
		"refused":     refused,
		"settings": map[string]any{
			"mode":                 "enforce",
			"authority":            "not_required",
			"approval_ttl_seconds": seconds(limits.ApprovalTTL),
			"max_lease_seconds":    seconds(limits.MaxLease),
		},
	})
}

func seconds(d time.Duration) *big.Int { return big.NewInt(int64(d / time.Second)) }
