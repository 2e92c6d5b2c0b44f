// Package judge says whether a run kept the promises of the protocol.
//
// It looks at what is stored when everything has settled (Actions, Effects, Receipts, Outcomes), at what the remote was
// made to do, and at the journal of what was done to the run on purpose. It asks five questions:
//
//   - duplicates: was anything done, admitted or committed twice, or done without admission
//   - lost: has every Action ended with a receipt, and does everything executed or reported stand in the record
//   - wrong Failed: was anything done that the record calls not done
//   - chain: does the chain of receipts verify, alone and against the objects around it
//   - unexplained: is there an Ambiguous attempt that nothing can have made so
//
// An Ambiguous attempt is explained only by an injection into that very attempt, which was on record before it was caused,
// and which can lead to that cause. To kill an operator explains nothing: it must not make anything Ambiguous.
package judge
