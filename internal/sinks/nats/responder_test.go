package nats_test

import (
	"fmt"
	"sync"
	"testing"

	natsclient "github.com/nats-io/nats.go"

	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// responder stands where a stream would be, and answers as the test says: slowly, twice, wrongly or
// not at all.
type responder struct {
	t    testing.TB
	conn *natsclient.Conn

	mu   sync.Mutex // guards seen
	seen []*natsclient.Msg
	news chan *natsclient.Msg
}

// newResponder listens on the subjects of the events; the server needs no JetStream, the sink
// manage: off.
func newResponder(t testing.TB, ts *testServer) *responder {
	t.Helper()
	r := &responder{t: t, conn: ts.client(), news: make(chan *natsclient.Msg, 4096)}
	_, err := r.conn.Subscribe("k8s.>", func(m *natsclient.Msg) {
		r.mu.Lock()
		r.seen = append(r.seen, m)
		r.mu.Unlock()
		r.news <- m
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.conn.Flush(); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *responder) next() *natsclient.Msg { return <-r.news }

func (r *responder) ids() (ids []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.seen {
		ids = append(ids, m.Header.Get("Nats-Msg-Id"))
	}
	return ids
}

func (r *responder) reply(m *natsclient.Msg, data string) {
	r.t.Helper()
	if err := m.Respond([]byte(data)); err != nil {
		r.t.Errorf("respond: %v", err)
	}
	if err := r.conn.Flush(); err != nil {
		r.t.Errorf("respond: %v", err)
	}
}

func (r *responder) ack(m *natsclient.Msg) { r.reply(m, `{"stream":"K8S", "seq":1}`) }

func (r *responder) refuse(m *natsclient.Msg, code int, text string) {
	r.reply(m,
		fmt.Sprintf(`{"error":{"code":400,"err_code":%d,"description":%q},"stream":"K8S","seq":0}`,
			code, text))
}

func unmanaged(c *nats.Options) { c.Stream.Manage = nats.Off }
