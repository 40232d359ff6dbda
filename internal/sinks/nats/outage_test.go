package nats_test

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// What is shown of a server that is unavailable says so, since when, and why; not what the client's
// buffer holds.
func TestOutageError(t *testing.T) {
	for name, mode := range map[string]func(*nats.Options){
		"JetStream": func(*nats.Options) {},
		"core":      coreMode,
	} {
		t.Run(name, func(t *testing.T) {
			ts := newTestServer(t)
			began := time.Now().Truncate(time.Second)
			sink := openOver(t, strings.Replace(ts.url(), "nats://", "nats://me:hunter2@", 1), mode,
				ackTimeout(time.Minute))
			mustStore(t, sink, ev("a", 1))
			ts.stop()
			stopped, said := time.Now(), ""
			eventually(t, "an attempt to connect fails, and that is reported", func() error {
				err := call(t, sink, ev("a", 2))[0].Err
				wantClass(t, err, sinks.Reconnect)
				if said = err.Error(); !strings.Contains(said, "connection refused") {
					return err
				}
				if !errors.Is(err, natsclient.ErrReconnectBufExceeded) {
					return fmt.Errorf("the client's error is not in it: %w", err)
				}
				return nil
			})
			_, rest, _ := strings.Cut(said, "can't be reached since ")
			text, _, _ := strings.Cut(rest, " (")
			since, err := time.Parse(time.RFC3339, text)
			if err != nil || since.Before(began) || since.After(stopped.Add(patience)) {
				t.Errorf("since when: %v: %s", err, said)
			}
			if strings.Contains(said, "buffer") || strings.Contains(said, "hunter2") ||
				!strings.Contains(said, "the events are pending") {
				t.Errorf("it says: %s", said)
			}
			ts.start()
			eventually(t, "it continues", func() error { return call(t, sink, ev("a", 2))[0].Err })
		})
	}
}

// A sink that has nothing to send reports it too.
func TestBlocked(t *testing.T) {
	ts := newTestServer(t)
	sink := openOver(t, ts.url(), coreMode)
	if err := sink.Blocked(); err != nil {
		t.Fatalf("blocked while the server is there: %v", err)
	}
	ts.stop()
	eventually(t, "it is reported", func() error {
		err := sink.Blocked()
		if sinks.Classify(err) != sinks.Reconnect ||
			!strings.Contains(fmt.Sprint(err), "can't be reached since") {
			return fmt.Errorf("blocked for %w", err)
		}
		return nil
	})
	ts.start()
	eventually(t, "that is over", sink.Blocked)
}

// What a server reports before it closes a connection is read, though writes fail by then.
func TestReportBeforeClose(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		_, _ = conn.Write([]byte("INFO {}\r\n-ERR 'maximum connections exceeded'\r\n"))
		_ = conn.Close()
	}()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	left, err := nats.ReadAfterFailedWrites(conn, closed)
	if err != nil || string(left) != "-ERR 'maximum connections exceeded'\r\n" {
		t.Errorf("read %q, %v", left, err)
	}
}

// What the server reports before it ends a connection is why the sink is unavailable, and the sink
// connects again whatever that is.
func TestReported(t *testing.T) {
	for name, c := range map[string]struct {
		begin, end func(*server.Options)
		want       string
	}{
		"the password is changed": {
			func(o *server.Options) { o.Username, o.Password = "bridge", "other" },
			func(o *server.Options) { o.Username, o.Password = "bridge", "secret" }, "Authorization Violation",
		},
		"too many connections": {
			func(o *server.Options) { o.MaxConn = 1 },
			func(o *server.Options) { o.MaxConn = 0 }, "maximum connections exceeded",
		},
	} {
		t.Run(name, func(t *testing.T) {
			ts := newTestServer(t, c.end)
			url := strings.Replace(ts.url(), "nats://", "nats://bridge:secret@", 1)
			sink := openOver(t, url)
			mustStore(t, sink, ev("a", 1))
			ts.reload(c.begin)
			if name == "too many connections" {
				ts.disconnectAll(url)
			}
			eventually(t, "the sink says why", func() error {
				m := call(t, sink, ev("a", 2))[0]
				if m.Err == nil || !strings.Contains(m.Err.Error(), c.want) {
					return fmt.Errorf("it says %w", cmp.Or(m.Err, errors.New("nothing")))
				}
				return nil
			})
			ts.reload(c.end)
			eventually(t, "it continues", func() error {
				return call(t, sink, ev("a", 2))[0].Err
			})
		})
	}
}
