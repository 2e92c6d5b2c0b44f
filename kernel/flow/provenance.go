package flow

import (
	"maps"
	"math/big"
	"slices"
	"strconv"
	"time"

	"ctrlrun.dev/operator/kernel/canonical"
	"ctrlrun.dev/operator/kernel/receipt"
	"ctrlrun.dev/operator/kernel/timeline"
)

// rulesSchema names the layout of what RulesHash hashes.
const rulesSchema = "ctrlrun.rules/v1"

// RulesHash is the hash of everything that decides in a namespace: what its policies say together, its settings with their
// defaults written out, and its environment. The names of policies, their versions, comments and the order of keys are no
// part of it: two namespaces with the same hash decide the same.
//
// Grants count where authority is required. Delegations do not: each is a statement with a receipt of its own.
func RulesHash(w World) (string, error) {
	actions, refused := w.Policies.Rules()
	rules := map[string]any{
		"schema":      rulesSchema,
		"environment": w.Environment,
		"actions":     actions,
		"refused":     refused,
		"settings": map[string]any{
			"mode":                 "enforce",
			"authority":            "not_required",
			"approval_ttl_seconds": seconds(w.Limits.ApprovalTTL),
			"max_lease_seconds":    seconds(w.Limits.MaxLease),
		},
	}
	if aliases := w.People.Aliases(); len(aliases) > 0 {
		people := make([]any, len(aliases))
		for i, names := range aliases {
			list := make([]any, len(names))
			for j, name := range names {
				list[j] = name
			}
			people[i] = list
		}
		rules["settings"].(map[string]any)["identity_aliases"] = people
	}
	if len(w.Executors) > 0 {
		rules["executors"] = w.Executors.rules()
	}
	if w.Observe {
		rules["settings"].(map[string]any)["mode"] = "observe"
	}
	if w.Required {
		rules["settings"].(map[string]any)["authority"] = "required"
		rules["authority"] = w.Authority.Rules()
	}
	return canonical.Hash(rules)
}

func seconds(d time.Duration) *big.Int { return big.NewInt(int64(d / time.Second)) }

// RulesKind is a kind of object that decides.
type RulesKind string

// The kinds of objects whose coming into force is on record.
const (
	PolicyRules   RulesKind = "policy"
	SettingsRules RulesKind = "settings"
	GrantRules    RulesKind = "grant"
)

// RulesObject is an object that decides, as it is in force now.
type RulesObject struct {
	Kind       RulesKind
	Name, UID  string
	Generation int64
	// Hash is of its own rules, "" if they have none. Version is the free text of its author.
	Hash, Version string
}

// RuleOnRecord is what the chain says of such an object: the newest of its receipts.
type RuleOnRecord struct {
	Kind       RulesKind
	Name       string
	Generation int64
	Seq        int64
}

// RulesOnRecord are the objects of which the chain says that they are in force, by uid.
type RulesOnRecord map[string]RuleOnRecord

// Add takes a further receipt into account. It reports whether the receipt is about an object that decides.
func (r RulesOnRecord) Add(d receipt.Document) bool {
	told := RuleOnRecord{Name: d.Data["name"], Generation: d.Ordinal, Seq: d.Seq}
	switch timeline.Type(d.Event) {
	case timeline.PolicyInForce:
		told.Kind = PolicyRules
	case timeline.SettingsInForce:
		told.Kind = SettingsRules
	case timeline.GrantInForce:
		told.Kind = GrantRules
	case timeline.PolicyRemoved, timeline.SettingsRemoved, timeline.GrantRemoved:
		delete(r, d.SubjectUID)
		return true
	default:
		return false
	}
	if told.Generation >= r[d.SubjectUID].Generation {
		r[d.SubjectUID] = told
	}
	return true
}

// RulesDue are the receipts that the chain lacks: of each generation that is in force now, and of objects that are gone. Both
// come from a cache, so whoever appends asks the apiserver first whether the object is there, or is not: the end of an object
// is on record only once it is gone for good, so that nobody who asks puts it on record as in force afterwards.
//
// The identity is the object's uid with its generation, and 0 for its end, which comes once: whichever operators write it,
// however late, there is one receipt for each.
func RulesDue(s Snapshot, told RulesOnRecord, present []RulesObject) []receipt.Document {
	var due []receipt.Document
	here := map[string]bool{}
	for _, o := range present {
		here[o.UID] = true
		if t, ok := told[o.UID]; ok && t.Generation >= o.Generation {
			continue
		}
		d := base(s, receipt.KindEvent, o.UID, o.Generation)
		d.Event = string(map[RulesKind]timeline.Type{PolicyRules: timeline.PolicyInForce, SettingsRules: timeline.SettingsInForce, GrantRules: timeline.GrantInForce}[o.Kind])
		d.Data = filled(map[string]string{
			"name": o.Name, "generation": strconv.FormatInt(o.Generation, 10), "version": o.Version, "policy_hash": o.Hash, "rules_hash": s.World.RulesHash,
		})
		due = append(due, d)
	}
	for _, uid := range slices.Sorted(maps.Keys(told)) {
		t := told[uid]
		if here[uid] {
			continue
		}
		d := base(s, receipt.KindEvent, uid, 0)
		d.Event = string(map[RulesKind]timeline.Type{PolicyRules: timeline.PolicyRemoved, SettingsRules: timeline.SettingsRemoved, GrantRules: timeline.GrantRemoved}[t.Kind])
		d.Data = filled(map[string]string{"name": t.Name, "rules_hash": s.World.RulesHash})
		due = append(due, d)
	}
	return due
}

// GapDocument is the receipt of a time in which the admission policies were not in force. What was stated before from does
// not count; previous is what it was before, and noticed when an operator saw it, the zero time if that one is gone.
func GapDocument(s Snapshot, from, previous, noticed time.Time) receipt.Document {
	d := base(s, receipt.KindEvent, s.World.NamespaceUID, from.UnixMicro())
	d.Event, d.Data = string(timeline.AdmissionGap), map[string]string{"admission_since": stamp(from), "previous_admission_since": stamp(previous)}
	if !noticed.IsZero() {
		d.Data["noticed"] = stamp(noticed)
	}
	return d
}

// Skew is a measurement of the operator's clock against the apiserver's.
type Skew struct {
	// Ahead is how far the operator's clock is ahead, at most Bound away from the truth; negative: behind.
	Ahead, Bound, Threshold time.Duration
	Measured                time.Time
}

// SkewDocument is the receipt of a clock that is too far off to decide by.
func SkewDocument(s Snapshot, skew Skew) receipt.Document {
	direction := "ahead"
	if skew.Ahead < 0 {
		direction = "behind"
	}
	micros := func(d time.Duration) string { return strconv.FormatInt(d.Microseconds(), 10) }
	d := base(s, receipt.KindEvent, s.World.NamespaceUID, skew.Measured.UnixMicro())
	d.Event = string(timeline.ClockSkewDetected)
	d.Data = map[string]string{
		"skew_us": micros(skew.Ahead), "bound_us": micros(skew.Bound), "threshold_us": micros(skew.Threshold),
		"direction": direction, "measured_at": stamp(skew.Measured),
	}
	return d
}

// filled leaves out what is empty.
func filled(data map[string]string) map[string]string {
	maps.DeleteFunc(data, func(_, v string) bool { return v == "" })
	return data
}
