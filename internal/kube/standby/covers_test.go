package standby

import (
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
)

func TestCovers(t *testing.T) {
	follows := func(p Unit) LeaderState { return LeaderState{Progress: p} }
	leads := func(p Unit) LeaderState { return LeaderState{Progress: p, Leads: true} }
	listed := Seen{From: "5", Complete: true}
	reported := &NewestVersion{Version: "10", Objects: []uint64{resource.Key("shop/a").Digest()}}
	tests := map[string]struct {
		change  Change
		stand   LeaderState
		history Seen
		want    bool
	}{
		"nothing is delivered":      {Change{Version: "10"}, follows(Unit{}), listed, false},
		"an earlier version is":     {Change{Version: "10"}, follows(Unit{Delivered: "9"}), listed, false},
		"the version is":            {Change{Version: "10"}, follows(Unit{Delivered: "10"}), listed, true},
		"a later version is":        {Change{Version: "10"}, follows(Unit{Delivered: "11"}), listed, true},
		"the leader before did":     {Change{Version: "10"}, leads(Unit{Delivered: "10"}), listed, true},
		"the leader before did not": {Change{Version: "11"}, leads(Unit{Delivered: "10"}), listed, false},
		"versions have no order":    {Change{Version: "x"}, follows(Unit{Delivered: "y"}), listed, false},

		"of an epoch that the leader has not reached": {
			Change{Version: "8", Epoch: 1}, follows(Unit{Delivered: "9"}), listed, false,
		},
		"of an epoch before the leader's": {
			Change{Version: "10"}, follows(Unit{Delivered: "7", Epoch: 1}), listed, true,
		},
		"of an epoch before one in which nothing is delivered": {
			Change{Version: "10"}, follows(Unit{Epoch: 1}), listed, false,
		},

		"of an object that the leader has reported in that version": {
			Change{Version: "10", Key: "shop/a"}, follows(Unit{Delivered: "9", Front: reported}), listed, true,
		},
		"of another object of that version": {
			Change{Version: "10", Key: "shop/b"}, follows(Unit{Delivered: "9", Front: reported}), listed, false,
		},
		"of that object in another version": {
			Change{Version: "11", Key: "shop/a"}, follows(Unit{Delivered: "9", Front: reported}), listed, false,
		},
		"of no known object of that version": {
			Change{Version: "10"}, follows(Unit{Delivered: "9", Front: reported}), listed, false,
		},
		"of that object, and in a list": {
			Change{Version: "10", Key: "shop/a", OfList: true},
			follows(Unit{Delivered: "4", Front: reported}), listed, false,
		},

		"of a list that is under way": {
			Change{Version: "20", OfList: true}, follows(Unit{Delivered: "24"}), Seen{From: "5"}, false,
		},
		"of a list behind what is delivered": {
			Change{Version: "20", OfList: true},
			follows(Unit{Delivered: "24"}),
			Seen{From: "25", Complete: true},
			false,
		},
		"of a list that is delivered": {
			Change{Version: "20", OfList: true},
			follows(Unit{Delivered: "25"}),
			Seen{From: "25", Complete: true},
			true,
		},
		"of a list of another epoch": {
			Change{OfList: true, Epoch: 1}, follows(Unit{Delivered: "25", Epoch: 1}), listed, false,
		},

		"a repetition is the leader's": {Change{Version: "5", Repeats: true}, follows(Unit{}), listed, true},
		"a repetition by the leader": {
			Change{Version: "5", Repeats: true}, leads(Unit{Delivered: "10"}), listed, false,
		},

		"a selection that the leader does not know yet": {
			Change{Version: "10", Selection: "4"}, follows(Unit{Delivered: "11", Selection: "3"}), listed, false,
		},
		"a selection that the leader knows": {
			Change{Version: "10", Selection: "4"}, follows(Unit{Delivered: "11", Selection: "4"}), listed, true,
		},
		"a leader that reports no selection": {
			Change{Version: "10", Selection: "4"}, follows(Unit{Delivered: "11"}), listed, false,
		},

		"the leader has ended the unit": {Change{Version: "10"}, LeaderState{Ended: true}, listed, true},
		"it had before this one led":    {Change{Version: "10"}, LeaderState{Ended: true, Leads: true}, listed, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Covers(&tt.change, &tt.stand, &tt.history); got != tt.want {
				t.Errorf("got %v, want %v", got, tt.want)
			}
		})
	}
}
