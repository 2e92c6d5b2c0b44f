// Package receipt is the evidence: one hash-chained document per finished action, how it is appended, exported, read and
// verified.
//
// # The chain
//
// Each namespace has one chain. Receipt n is a JSON object in the product's one canonical form (package canonical), and
// it says where it stands:
//
//	document(n) = {..., "seq": n, "prev_hash": hash(n-1), ...}
//	hash(n)     = "sha256:" + hex(SHA-256(document(n)))
//	hash(0)     = Genesis, "sha256:" and 64 zeros
//
// seq and prev_hash are inside what is hashed, so a receipt cannot be moved; hash is outside, beside the document. What
// is stored and exported is the exact string that was hashed, never a structure that would have to be rendered again: a
// reader that knows fewer fields than the writer must still be able to verify. Hence one exported line is
//
//	{"seq":42,"hash":"sha256:...","document":"<the exact string>"}
//
// and `jq -rj .document | sha256sum` prints the hash. A pair (seq, hash) is a [Link]; the Link of the last receipt is the
// head, and whoever keeps a head outside of the cluster can later prove that the chain up to it is still the same.
//
// # What a chain proves
//
// If the receipts 1 to n verify, then none of them was altered, removed, inserted or moved since the head (n, hash) was
// noted. Without a head, receipts cut off at the end cannot be missed. The chain is no signature: whoever may write every
// receipt and the head can write another history, which is why a head belongs somewhere else too.
//
// [Verifier] walks receipts by seq, whatever order or number of files they came in, and reports every break by one of six
// names and the seq it stands at. It judges the bytes alone, so a chain may hold documents of schemas and kinds this
// version does not know. The walk goes on with the stored hash after a break, hence an altered receipt is reported at its
// own place and the rest of the chain is still judged:
//
//   - content_altered: the document does not have the stored hash, or does not say the seq it is stored under.
//   - link_broken: prev_hash is not the hash of the receipt before. Also two intact receipts at one seq, since a chain
//     has one, and a receipt at the start of a partial file that is not the one named.
//   - missing: no receipt has this seq, but a later one exists.
//   - head_mismatch: the chain does not contain the head that was given: it ends before, or has another hash there.
//   - unchained: receipts without a seq. They are counted, and never pass.
//   - hash_missing: a receipt without a stored hash. Nothing vouches for its content but the link of the next one.
//
// It needs a [Digest] of each receipt and no document, so that receipts in any order can be sorted first, in little memory.
//
// In a cluster other objects say something about receipts too. [CrossCheck] holds that against the chain, and has five names
// more, for what no walk along the chain can see: copies beside a document that differ from it, a receipt under another name
// or of another namespace, an Action or an Effect that the receipts contradict.
//
// [Parse] is for those who have to understand a receipt, and is strict: it refuses a schema, a kind or a key it does not
// know, and names the seq, because an interpretation that skips what it does not understand is a guess.
//
// # Appending
//
// Two writers, each as late as you like, must not write a second receipt for one thing, nor two receipts with one seq.
// The store refuses the second: a receipt is created under a [Name] made from its seq, and names are unique. The rest is
// [Fold]. Every receipt has an [Identity] (kind, subject uid, ordinal), unique in its chain. A writer folds the chain
// without a gap, from a verified point that is certainly before any receipt of its subject, until there is no further
// receipt. Only if the identity is nowhere in what was folded it may create the receipt at head+1. If that name exists
// already, another writer was faster: fold that receipt in and look again. So the create is a compare-and-set on the
// whole log, and a Fold refuses whatever would make the log ambiguous: a gap, a fork, an altered document, a second
// receipt of one identity.
//
// An `action` receipt has ordinal 0: an action finishes once. A `resolution` has the attempt of the effect it resolves, a
// `status-missing` the number of the loss, a `ledger-accepted` 0, and an `event` a number that its subject never has twice:
// the generation of what came into force, 0 for its end, or a time in microseconds.
//
// The package is pure: it has no clock, does no I/O and starts no goroutine.
package receipt
