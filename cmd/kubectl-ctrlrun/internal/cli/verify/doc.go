// Package verify drives a namespace's own policies through the guarantees of package guarantees, in a scratch namespace, on the
// cluster as it is: real admission, real RBAC, the operator that runs. Every identity that acts in it is a ServiceAccount of the
// scratch namespace with one of the shipped roles.
//
// The namespace the policies come from is only read, and not by this package: whoever calls it hands the policies over. The
// scratch namespace is removed whatever happens. Its Ledger stays, as every Ledger does.
//
// A scenario gives no error if the guarantee holds, a finding if it does not, and any other error if it could not be found out.
// The last is never a verdict about the product: the run ends.
package verify
