package diff

import (
	"bytes"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// Equal reports whether two versions differ in nothing but what the paths lead to. A member that
// only one version has, and that holds nothing else, is no difference either. The order of members
// does not count. Below 128 levels only equal bytes are equal.
func Equal(old, changed []byte, except *resource.Paths) bool {
	return bytes.Equal(old, changed) ||
		EqualValues(jsontree.Parse(old), jsontree.Parse(changed), except)
}

// EqualValues is Equal for versions that are indexed already.
func EqualValues(old, changed jsontree.Value, except *resource.Paths) bool {
	return equal(old, changed, except, 0)
}

// equal compares two values, one of which may be missing.
func equal(old, changed jsontree.Value, except *resource.Paths, depth int) bool {
	switch {
	case except.End() || old.Equal(changed):
		return true
	case depth == maxDepth:
		return false
	case !old.Exists(), !changed.Exists():
		return onlyExcepted(old, changed, except, depth)
	case old.IsObject() && changed.IsObject():
		for pair := range jsontree.Pairs(old, changed) {
			if !equal(pair.Old, pair.New, except.Member(pair.Name), depth+1) {
				return false
			}
		}
		return true
	case old.IsArray() && changed.IsArray() && !except.Empty():
		return equalArrays(old, changed, except.Item(), depth+1)
	}
	return false
}

func equalArrays(old, changed jsontree.Value, except *resource.Paths, depth int) bool {
	a, b := old.Walk(), changed.Walk()
	for {
		hasOld, hasNew := a.Next(), b.Next()
		if !hasOld && !hasNew {
			return true
		}
		var was, is jsontree.Value
		if hasOld {
			was = a.Value()
		}
		if hasNew {
			is = b.Value()
		}
		if !equal(was, is, except, depth) {
			return false
		}
	}
}

// onlyExcepted reports whether the one value that exists is an object or array that holds
// something, and nothing but what the paths lead to.
func onlyExcepted(old, changed jsontree.Value, except *resource.Paths, depth int) bool {
	if except.Empty() {
		return false
	}
	value := old
	if !old.Exists() {
		value = changed
	}
	holds := false
	for w := value.Walk(); w.Next(); {
		inner := except.Item()
		if value.IsObject() {
			inner = except.Member(w.Name())
		}
		if holds = true; !equal(w.Value(), jsontree.Value{}, inner, depth+1) {
			return false
		}
	}
	return holds
}
