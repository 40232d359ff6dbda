package table

import (
	"slices"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
)

// The column labels has those of the object, whatever the form of the payload.
func TestLabels(t *testing.T) {
	const object = `{"kind":"Pod","metadata":{"name":"web","labels":{"b":"2","a":"\"1\""}},"spec":{"labels":{"c":"3"}}}`
	both := []event.Attribute{{Name: "a", Value: `"1"`}, {Name: "b", Value: "2"}}
	for payload, want := range map[string][]event.Attribute{
		object: both,
		`{"object":` + object + `,"old":{"metadata":{}}}`:                both,
		`{"before":null,"after":` + object + `}`:                         both,
		`{"before":` + object + `,"after":null,"op":"d"}`:                both,
		`{"metadata":{"name":"web"},"spec":{"labels":{"c":"3"}}}`:        nil,
		`{"metadata":{"labels":null},"after":` + object + `}`:            nil,
		`{"metadata":[],"object":` + object + `}`:                        both,
		`{"text":"labels","labels":{"c":"3"}}`:                           nil,
		`[{"labels":{}}]`:                                                nil,
		`{"metadata":{"labels":`:                                         nil,
		`{"change":"a","op":"updated","user":"labels","labels":"x"}    `: nil,
	} {
		if got := labelsOf([]byte(payload)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", payload, got, want)
		}
	}
}
