package event_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/testkit"
)

// An event that is too large for the broker is the largest that there is.
func TestLinearTime(t *testing.T) {
	for name, data := range map[string]func(size int) string{
		"metadata in metadata": func(n int) string {
			return strings.Repeat(`{"metadata":`, n/10) + `{"a":1}` + strings.Repeat(`}`, n/10)
		},
		"many annotations in nested metadata": func(n int) string {
			var annotations strings.Builder
			for i := range n {
				fmt.Fprintf(&annotations, `"%d":"x",`, i)
			}
			return strings.Repeat(`{"annotations":`, n/10) + `{` + annotations.String() + `"last":1}` + strings.Repeat(`}`, n/10)
		},
	} {
		t.Run(name, func(t *testing.T) {
			testkit.CheckLinear(t, 2_000, func(size int) func() {
				e := &event.Event{Data: []byte(`{"metadata":` + data(size) + `}`)}
				return func() {
					event.Trimmed(e)
					event.Reference(e)
				}
			})
		})
	}
}
