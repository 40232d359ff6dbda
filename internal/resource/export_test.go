package resource

import (
	"maps"
	"slices"
)

// HarmlessAnnotations are the annotations of Secrets that stay readable, sorted.
func HarmlessAnnotations() []string { return slices.Sorted(maps.Keys(harmlessAnnotations)) }

// Rewrite gives the JSON without what the rules take out.
func (r *Rules) Rewrite(raw []byte) ([]byte, error) {
	return r.rewrite(raw, r.redactor.forObject(Type{}, "", ""))
}

// CopiesOfObject are the annotations that hold a copy of the whole object.
var CopiesOfObject = copiesOfObject

// CredentialPaths are the places of credentials in other kinds than Secrets.
var CredentialPaths = credentialPaths
