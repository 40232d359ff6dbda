package filter_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/filter"
)

// unnamed is a pod of which an expression about its phase names all but little: what lies beside,
// deep and wide, is not to be looked into. Decoding it would cost an allocation for each of its
// values at least.
func unnamed(t testing.TB, version string, values int) *event.Change {
	var beside strings.Builder
	for i := range values {
		fmt.Fprintf(&beside, `,{"name":"v%d","list":[%d,"x",{"deep":{"er":"y"}}]}`, i, i)
	}
	raw := fmt.Sprintf(`{"metadata":{"name":"web","namespace":"shop","uid":"u","resourceVersion":"%s","labels":{"app":"web"}},`+
		`"spec":{"all":[{}%s]},"status":{"conditions":[{}%s],"phase":"Running"}}`, version, beside.String(), beside.String())
	return &event.Change{Op: event.Updated, Key: "shop/web", Object: parse(t, raw), Old: parse(t, raw), UID: "u", Version: "8"}
}

// A filter decodes only the fields that it names.
func TestFilterDecoding(t *testing.T) {
	for _, text := range []string{
		`object.status.phase == "Failed"`,
		`object.status.phase != old.status.phase`,
		`has(object.spec) && object.metadata.labels.app == "db"`,
		`meta.labels.app == "db" || op == "deleted"`,
	} {
		t.Run(text, func(t *testing.T) {
			cost := func(values int) float64 {
				f, c := filter.New(filter.Rules{Expression: compile(t, text)}, pods), unnamed(t, "8", values)
				return testing.AllocsPerRun(50, func() {
					if reason, err := f.Rejects(c); reason == "" || err != nil {
						t.Fatalf("%q, %v", reason, err)
					}
				})
			}
			// The index of where objects and lists end grows a few times. Each value would be one
			// more.
			if few, many := cost(1), cost(1000); many > few+10 {
				t.Errorf("%v allocations with 1 value beside what it names, %v with 1,000", few, many)
			}
		})
	}
}
