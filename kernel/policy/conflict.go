package policy

import "ctrlrun.dev/operator/kernel/decision"

// Conflicts are the actions, sorted, that two policies of the set define differently. Each of them is denied.
func (s *Set) Conflicts() []string {
	var names []string
	for _, name := range s.names {
		if s.slots[name].reason == decision.PolicyConflict {
			names = append(names, name)
		}
	}
	return names
}
