package patch

import (
	"bytes"
	"slices"

	"github.com/kubebridge/bridge/internal/resource"
)

// Equal says whether two versions differ in nothing but what the paths lead to. A member that only one of them has, and that holds
// nothing else, is no difference either. The order of members does not count.
func Equal(old, changed []byte, except *resource.Paths) bool {
	switch {
	case bytes.Equal(old, changed) || except.End():
		return true
	case except.Empty() && !isObject(old):
		return false
	case isObject(old) && isObject(changed):
		return equalObjects(old, changed, except)
	case isArray(old) && isArray(changed):
		return equalArrays(old, changed, except.Item())
	}
	return false
}

func equalObjects(old, changed []byte, except *resource.Paths) bool {
	before := membersOf(old)
	for name, value := range resource.Members(changed) {
		if !equalOrMissing(before.take(name), value, except.Member(name)) {
			return false
		}
	}
	return !slices.ContainsFunc(before.list, func(m member) bool {
		return !m.taken && !equalOrMissing(nil, m.value, except.Member(m.name))
	})
}

func equalArrays(old, changed []byte, except *resource.Paths) bool {
	before, after := slices.Collect(resource.Items(old)), slices.Collect(resource.Items(changed))
	for i := range max(len(before), len(after)) {
		var was, is []byte
		if i < len(before) {
			was = before[i]
		}
		if i < len(after) {
			is = after[i]
		}
		if !equalOrMissing(was, is, except) {
			return false
		}
	}
	return true
}

// equalOrMissing compares two values of which one may be missing, which is nil.
func equalOrMissing(a, b []byte, except *resource.Paths) bool {
	switch {
	case a != nil && b != nil:
		return Equal(a, b, except)
	case except.End():
		return true
	case except.Empty():
		return false
	}
	return onlyExcepted(slices.Concat(a, b), except)
}

// onlyExcepted says whether a value is an object or list that holds something, and nothing but what the paths lead to.
func onlyExcepted(value []byte, except *resource.Paths) bool {
	holds := false
	if isObject(value) {
		for name, inner := range resource.Members(value) {
			if holds = true; !equalOrMissing(nil, inner, except.Member(name)) {
				return false
			}
		}
		return holds
	}
	if isArray(value) {
		for inner := range resource.Items(value) {
			if holds = true; !equalOrMissing(nil, inner, except.Item()) {
				return false
			}
		}
	}
	return holds
}
