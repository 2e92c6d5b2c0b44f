// Package admission carries the admission policies of this release, so that the operator can tell whether those in the
// cluster are these.
package admission

import "embed"

// Validating holds the manifests of the validating policies and their bindings: what safety rests on. The mutating ones
// only stamp what these check.
//
//go:embed validating/*.yaml
var Validating embed.FS
