package streams

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks/source"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestDeadLetterRestored(t *testing.T) {
	letter := func(e event.Event, more ...event.Attribute) *DeadLetter {
		e.Extensions = append([]event.Attribute{
			{Name: "team", Value: "shop"},
			{Name: "deadletterreason", Value: "too large"},
			{Name: "deadletterattempts", Value: "1"},
			{Name: "deadlettertopic", Value: "k8s.c.pods"},
		}, more...)
		return letterIn(t, &source.Message{Event: e, Lane: "dead/0", Offset: 7, Key: []byte("informers/all/pods/synced")})
	}
	sent := event.Event{ID: "all/pods/synced/1/partition/2", Source: "/clusters/c", Type: "dev.kubebridge.informer.synced", PartitionKey: "pods", Data: []byte("{}")}
	t.Run("as the event was handed to the sink, with a Run by which a restart does not skip it", func(t *testing.T) {
		want := sent
		want.Extensions = []event.Attribute{{Name: "team", Value: "shop"}}
		want.Routing = event.Routing{Cluster: "c", Part: 3, CompactionKey: "informers/all/pods/synced", Run: "/resent"}
		got, err := letter(sent).Restore("c")
		if err != nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%v\n%+v\nwant\n%+v", err, got, want)
		}
	})
	t.Run("not that of another cluster", func(t *testing.T) {
		if _, err := letter(sent).Restore("d"); err == nil || !strings.Contains(err.Error(), "/clusters/c") {
			t.Error(err)
		}
	})
	t.Run("not one without its payload", func(t *testing.T) {
		empty := sent
		empty.Type, empty.Data = "dev.kubebridge.resource.added", nil
		for _, l := range []*DeadLetter{letter(empty), letter(sent, event.Attribute{Name: "truncated", Value: "true"})} {
			if _, err := l.Restore("c"); !errors.Is(err, errNoPayload) {
				t.Error(err)
			}
		}
	})
	t.Run("any other message is none", func(t *testing.T) {
		if l := letterIn(t, &source.Message{Event: sent}); l != nil {
			t.Errorf("%+v", l)
		}
	})
}

// letterIn returns the dead letter that the event of a message is.
func letterIn(t *testing.T, m *source.Message) *DeadLetter {
	t.Helper()
	e, err := m.Event.CloudEvent()
	testkit.OK(t, err)
	return letterOf(m, e)
}
