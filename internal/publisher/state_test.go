package publisher

import "testing"

// TestItemState has every event in every state: the state that follows, or itemNew where the event
// can't happen.
func TestItemState(t *testing.T) {
	const no = itemNew
	all := []itemEvent{
		onAdd, onReadBack, onSend, onStore, onFail, onRefuse, onDeadLetter, onKeep, onReturn, onLose, onDetach,
	}
	for state, want := range map[itemState][]itemState{
		//            add         recall        send         store       fail       refuse
		itemNew:     {itemQueued, no, no, no, no, no, no, no, no, no, no},
		itemQueued:  {no, itemReadBack, itemSending, no, no, itemRefused, no, no, no, no, itemPending},
		itemSending: {no, no, no, itemStored, itemTried, itemRefused, no, no, no, no, no},
		itemTried:   {no, no, itemSending, no, no, itemRefused, no, no, no, no, itemPending},
		itemRefused: {
			no, itemReadBack, no, no, no, no, itemDeadLettered, itemKept, itemReturned, itemLost,
			itemPending,
		},
		itemStored:       {no, no, no, no, no, no, no, no, no, no, no},
		itemReadBack:     {no, no, no, no, no, no, no, no, no, no, no},
		itemDeadLettered: {no, no, no, no, no, no, no, no, no, no, no},
		itemKept:         {no, no, no, no, no, no, no, no, no, no, no},
		itemReturned:     {no, no, no, no, no, no, no, no, no, no, no},
		itemLost:         {no, no, no, no, no, no, no, no, no, no, no},
		itemPending:      {no, no, no, no, no, no, no, no, no, no, no},
	} {
		for i, e := range all {
			if got := behind(state, e); got != want[i] {
				t.Errorf("event %d in state %d leads to %d, want %d", e, state, got, want[i])
			}
		}
	}
}

// behind is next, or itemNew where that panics.
func behind(s itemState, e itemEvent) (next itemState) {
	defer func() {
		if recover() != nil {
			next = itemNew
		}
	}()
	return s.after(e)
}
