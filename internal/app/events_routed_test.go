package app

import (
	"context"
	"strconv"
	"strings"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/testkit"
)

// routed prints events with the place where a sink of NATS or Kafka would send them, as `bridge
// sample` reports it, before the attributes.
type routed struct {
	*absent
	out         *testkit.Buffer
	destination func(*event.Event) string
}

func newRouted(a *absent, c *config.Sink, out *testkit.Buffer) (*routed, error) {
	_, section := c.Section()
	form, err := section.Form(c.Common())
	return &routed{a, out, form.Destination}, err
}

// Publish implements sinks.Sink.
func (r *routed) Publish(ctx context.Context, batch []*sinks.Message) {
	if !r.wait(ctx) {
		sinks.Fail(batch, ctx.Err())
		return
	}
	for _, m := range batch {
		_, to, _ := strings.Cut(r.destination(m.Event), ": ")
		line := append([]byte(`{"to":`+strconv.Quote(to)+`,`), event.AppendStructured(nil, m.Event)[1:]...)
		_, m.Err = r.out.Write(append(line, '\n'))
	}
}
