package bridge

import (
	"fmt"
	"testing"
)

func TestReplicaState(t *testing.T) {
	const none = replicaState(-1) // it can't happen
	table := map[replicaState][]replicaState{
		//            progressRead elected progressTaken takenInVain superseded stopped
		joining:      {following, none, none, none, none, replicaEnded},
		following:    {none, taking, none, none, none, replicaEnded},
		taking:       {none, none, leading, replicaEnded, none, replicaEnded},
		leading:      {none, none, none, none, replicaEnded, replicaEnded},
		replicaEnded: {none, none, none, none, none, replicaEnded},
	}
	for state, row := range table {
		for event, want := range row {
			t.Run(fmt.Sprintf("state %d, event %d", state, event), func(t *testing.T) {
				defer func() {
					if r := recover(); (r != nil) != (want == none) {
						t.Errorf("it panics with %v", r)
					}
				}()
				if got := state.after(replicaEvent(event)); got != want {
					t.Errorf("got %d, want %d", got, want)
				}
			})
		}
	}
}
