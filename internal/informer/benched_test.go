package informer_test

import (
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/filter"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/informer/controller"
)

// benchmarked are the ways that are compared.
var benchmarked = map[string]func(*testing.B, *event.MakerConfig, *informer.ListenerConfig){
	"plain": func(*testing.B, *event.MakerConfig, *informer.ListenerConfig) {},
	"filter on meta": func(b *testing.B, _ *event.MakerConfig, l *informer.ListenerConfig) {
		l.Selector = selector(b, `meta.namespace == "shop"`)
	},
	"changed": func(*testing.B, *event.MakerConfig, *informer.ListenerConfig) {},
	"filter on object": func(b *testing.B, _ *event.MakerConfig, l *informer.ListenerConfig) {
		l.Selector = selector(b, `object.status.phase == "Running"`)
	},
	"payload change": func(_ *testing.B, m *event.MakerConfig, _ *informer.ListenerConfig) { m.Payload = event.PayloadChange },
	"payload patch":  func(_ *testing.B, m *event.MakerConfig, _ *informer.ListenerConfig) { m.Payload = event.PayloadPatch },
}

func selector(b *testing.B, text string) controller.Selector {
	e, err := filter.Compile(text)
	if err != nil {
		b.Fatal(err)
	}
	return filter.New(filter.Rules{Expression: e}, pods)
}
