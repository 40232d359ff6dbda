package informer

import (
	"fmt"
	"testing"
)

func TestState(t *testing.T) {
	const none = state(-1) // it can't happen
	table := map[state][]state{
		//        begun    stopped  returned  closed
		created:  {running, none, none, none},
		running:  {none, draining, detached, none},
		draining: {none, draining, detached, none},
		detached: {none, detached, none, ended},
		ended:    {none, none, none, none},
	}
	for from, row := range table {
		for event, want := range row {
			t.Run(fmt.Sprintf("state %d, event %d", from, event), func(t *testing.T) {
				defer func() {
					if r := recover(); (r != nil) != (want == none) {
						t.Errorf("it panics with %v", r)
					}
				}()
				if got := from.after(lifeEvent(event)); got != want {
					t.Errorf("got %d, want %d", got, want)
				}
			})
		}
	}
}
