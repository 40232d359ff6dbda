package filter

import (
	"github.com/google/cel-go/common/types"

	"github.com/kubebridge/bridge/internal/resource/jsontree"
)

// maxDepth is the level below which values are compared as bytes.
const maxDepth = 128

// same reports whether two JSON values are equal as CEL values, in time linear in their size: CEL
// itself does not count what == costs before it is done.
func same(a, b jsontree.Value, depth int) bool {
	switch {
	case a.Equal(b):
		return true
	case depth == maxDepth:
		return false
	case a.IsObject() && b.IsObject():
		for pair := range jsontree.Pairs(a, b) {
			if !pair.Old.Exists() || !pair.New.Exists() || !same(pair.Old, pair.New, depth+1) {
				return false
			}
		}
		return true
	case a.IsArray() && b.IsArray():
		return sameItems(a, b, depth+1)
	case a.IsObject(), a.IsArray(), b.IsObject(), b.IsArray():
		return false
	}
	return types.Equal(valueOf(a), valueOf(b)) == types.True // 1 and 1.0, "a" and "\u0061"
}

func sameItems(a, b jsontree.Value, depth int) bool {
	for x, y := a.Walk(), b.Walk(); ; {
		more := x.Next()
		if y.Next() != more {
			return false
		}
		if !more {
			return true
		}
		if !same(x.Value(), y.Value(), depth) {
			return false
		}
	}
}
