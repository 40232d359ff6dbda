package diff

import (
	"bytes"
	"slices"

	"github.com/kubebridge/bridge/internal/resource"
)

// partNames are the parts of an object, in the order in which they are listed. Other top-level
// members have their own names and follow, sorted.
var partNames = []string{
	"spec", "status", "labels", "annotations", "finalizers", "owners", "deletion", "metadata",
}

// partOfMetadata has the part that a member of the metadata belongs to; "" for members that every
// update changes or that only count. All others are the part "metadata".
var partOfMetadata = map[string]string{
	"labels": "labels", "annotations": "annotations", "finalizers": "finalizers",
	"ownerReferences": "owners", "deletionTimestamp": "deletion",
	"deletionGracePeriodSeconds": "deletion",
	"resourceVersion":            "", "managedFields": "", "generation": "",
}

// Bounds of the parts that the author of an object names. What does not fit is the part otherPart.
const (
	maxOtherParts = 8
	maxPartName   = 63
	otherPart     = "other"
)

// Parts returns the parts of an object that differ between two versions; none where only its
// resourceVersion, managedFields and generation do. old is nil for no version: then these are all
// parts that the object has. It goes once over the top-level members and the metadata, and compares
// values as Equal does.
func Parts(old, changed []byte) []string {
	var known [8]bool // of partNames
	var others []string
	add := func(part string) {
		if n := slices.Index(partNames, part); n >= 0 {
			known[n] = true
		}
	}
	eachMember(old, changed, func(name string, was, is []byte) {
		switch name {
		case "kind", "apiVersion":
		case "metadata":
			addMetadata(was, is, add)
		case "spec", "status":
			if unequal(was, is) {
				add(name)
			}
		default:
			if unequal(was, is) {
				others = addOther(others, name)
			}
		}
	})
	slices.Sort(others)
	var parts []string
	for n, part := range partNames {
		if known[n] {
			parts = append(parts, part)
		}
	}
	return append(parts, others...)
}

func addMetadata(old, changed []byte, add func(part string)) {
	eachMember(old, changed, func(name string, was, is []byte) {
		part, isKnown := partOfMetadata[name]
		if !isKnown {
			part = "metadata"
		}
		if part != "" && unequal(was, is) {
			add(part)
		}
	})
}

// addOther adds a top-level member under a name that is no other part's and that a list can hold.
func addOther(others []string, name string) []string {
	if !isPartName(name) || slices.Contains(partNames, name) || len(others) >= maxOtherParts {
		name = otherPart
	}
	if slices.Contains(others, name) {
		return others
	}
	return append(others, name)
}

func isPartName(name string) bool {
	for i := range len(name) {
		if c := name[i] | 0x20; (c < 'a' || c > 'z') && (name[i] < '0' || name[i] > '9') {
			return false
		}
	}
	return name != "" && len(name) <= maxPartName
}

// unequal reports whether two values differ. A missing one is null.
func unequal(old, changed []byte) bool {
	return !bytes.Equal(old, changed) && !Equal(orNull(old), orNull(changed), nil)
}

func orNull(value []byte) []byte {
	if value == nil {
		return []byte("null")
	}
	return value
}

type rawMember struct {
	name  string
	value []byte
}

// eachMember calls visit with each member that one of two JSON objects has. The value of one that
// is missing is nil. Members are in the same order in nearly all versions of an object; a table of
// those of the older one is made where they are not.
func eachMember(old, changed []byte, visit func(name string, was, is []byte)) {
	var room [16]rawMember
	olds := room[:0]
	for name, value := range resource.Members(old) {
		olds = append(olds, rawMember{name, value})
	}
	next := 0
	var rest map[string][]byte
	for name, is := range resource.Members(changed) {
		if rest == nil && next < len(olds) && olds[next].name == name {
			visit(name, olds[next].value, is)
			next++
			continue
		}
		if rest == nil {
			rest = make(map[string][]byte, len(olds)-next)
			for _, m := range olds[next:] {
				rest[m.name] = m.value
			}
		}
		visit(name, rest[name], is)
		delete(rest, name)
	}
	if rest == nil {
		for _, m := range olds[next:] {
			visit(m.name, m.value, nil)
		}
	}
	for name, was := range rest {
		visit(name, was, nil)
	}
}
