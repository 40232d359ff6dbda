package kafka_test

import (
	"testing"

	ce "github.com/cloudevents/sdk-go/v2/event"
	"github.com/cloudevents/sdk-go/v2/types"

	"github.com/kubebridge/bridge/internal/event"
)

// requireSameEvent compares what the SDK has read with what was published, attribute by attribute.
func requireSameEvent(t testing.TB, got *ce.Event, want *event.Event) {
	t.Helper()
	seen := map[string]string{
		"specversion": got.SpecVersion(), "id": got.ID(), "source": got.Source(),
		"type": got.Type(), "subject": got.Subject(),
		"datacontenttype": got.DataContentType(), "time": types.FormatTime(got.Time()),
	}
	for name, value := range got.Extensions() {
		text, err := types.Format(value)
		if err != nil {
			t.Fatal(err)
		}
		seen[name] = text
	}
	want.Each(func(name, value string) {
		if seen[name] != value {
			t.Errorf("attribute %s is %q, want %q", name, seen[name], value)
		}
		delete(seen, name)
	})
	for name, value := range seen {
		if value != "" {
			t.Errorf("attribute %s=%q was not published", name, value)
		}
	}
	if string(got.Data()) != string(want.Data) {
		t.Errorf("data is %s, want %s", got.Data(), want.Data)
	}
}
