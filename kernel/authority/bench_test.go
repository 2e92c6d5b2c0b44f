package authority_test

import (
	"fmt"
	"testing"

	"ctrlrun.dev/operator/kernel/action"
	"ctrlrun.dev/operator/kernel/authority"
)

// big is a namespace of a thousand grants and a thousand delegations, most of them at depth three.
func big(b *testing.B, agent func(i int) string) *world {
	content := spec{"actions": []string{"stripe.*", "k8s.scale", "dns.**"}, "resources": []string{"payment:*"}, "constraints": spec{"amount_lte": 1000, "currency_in": []any{"EUR"}},
		"expirationTime": at(1000), "delegable": true}
	w := newWorld(b)
	for i := range 1000 {
		w.grant(fmt.Sprintf("g%d", i), content.with(spec{"subject": spec{"agent": agent(i)}}))
	}
	for i := range 1000 {
		parent, depth := grantRef(fmt.Sprintf("g%d", i)), i%4
		if depth > 0 {
			parent = delegationRef(fmt.Sprintf("d%d", i-1))
		}
		if depth == 3 {
			parent = delegationRef(fmt.Sprintf("d%d", i-1))
		}
		w.delegation(fmt.Sprintf("d%d", i), below(parent, "x", fmt.Sprintf("bot-%d", i), content))
	}
	return w
}

func BenchmarkEvaluate(b *testing.B) {
	for name, agent := range map[string]func(i int) string{
		"agents by name":    func(i int) string { return fmt.Sprintf("system:serviceaccount:team-%d:agent", i) },
		"agents by pattern": func(i int) string { return "system:serviceaccount:*" },
	} {
		set := big(b, agent).set()
		for asked, p := range map[string]action.Proposal{
			"passes by a delegation": proposal("bot-998", "stripe.refund", spec{"amount": 5, "currency": "EUR"}),
			"passes by a grant":      proposal("system:serviceaccount:team-999:agent", "stripe.refund", spec{"amount": 5, "currency": "EUR"}),
			"beyond the constraints": proposal("system:serviceaccount:team-999:agent", "stripe.refund", spec{"amount": 5000, "currency": "EUR"}),
			"nothing about it":       proposal("system:serviceaccount:team-999:agent", "mail.send", nil),
		} {
			p = on(p, "payment:42")
			b.Run(name+"/"+asked, func(b *testing.B) {
				for b.Loop() {
					set.Evaluate(p, t0)
				}
			})
		}
	}
}

func BenchmarkNewSet(b *testing.B) {
	w := big(b, func(i int) string { return fmt.Sprintf("agent-%d", i) })
	for b.Loop() {
		authority.NewSet(w.Documents)
	}
}
