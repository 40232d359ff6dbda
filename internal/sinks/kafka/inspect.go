package kafka

import "context"

// Inspect implements sinks.Inspector: it takes over what an administrator has changed at the topics
// in use.
func (s *Sink) Inspect(ctx context.Context) {
	c := s.connected()
	if c == nil {
		return
	}
	for _, t := range s.inUse() {
		raised := t.limit.Refresh(func() (int, error) { return c.maxMessageBytes(ctx, t.name) })
		if raised {
			s.log.Info("the topic may take larger batches again", "topic", t.name, "limit",
				t.limit.Load())
		}
	}
}
