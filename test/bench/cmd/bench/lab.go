package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/kubebridge/bridge/test/bench/apiserver"
)

// lab is one run of one subject: servers of its own, and the subject.
type lab struct {
	b                    *bench
	dir, kubeconfig, api string
	servers              []*process
	broker               broker
	address              string
	subject              subject
	running              *process
	failed               bool // keep what it wrote
}

// open starts an API server with so many pods, and a broker.
func (b *bench) open(ctx context.Context, s subject, pods int) (l *lab, err error) {
	l = &lab{b: b, subject: s}
	defer func() {
		if err != nil {
			l.close()
		}
	}()
	if l.dir, err = os.MkdirTemp(b.work, "run-"); err != nil {
		return l, err
	}
	l.kubeconfig = filepath.Join(l.dir, "kubeconfig")
	api, url, err := startServer(ctx, l.dir, b.program("apiserver"), "-pods", fmt.Sprint(pods), "-idle", fmt.Sprint(s.idle), "-kubeconfig", l.kubeconfig, "-control", "127.0.0.1:0")
	if err != nil {
		return l, err
	}
	l.api, l.servers = url, append(l.servers, api)
	var args []string
	if !s.kafka {
		args = []string{"-dir", filepath.Join(l.dir, "jetstream")}
	}
	server, address, err := startServer(ctx, l.dir, b.program("broker"), args...)
	if err != nil {
		return l, err
	}
	l.address, l.servers = address, append(l.servers, server)
	if s.kafka {
		l.broker, err = dialKafka(address)
	} else {
		l.broker, err = dialNATS(address)
	}
	return l, err
}

func (l *lab) close() {
	if l.running != nil {
		_ = l.running.stop()
	}
	if l.broker != nil {
		l.broker.close()
	}
	for _, p := range l.servers {
		_ = p.stop()
	}
	if !l.failed {
		_ = os.RemoveAll(l.dir)
	}
}

// run starts the subject.
func (l *lab) run(ctx context.Context) error {
	args, err := l.subject.command(l.b, l.dir, l.kubeconfig, l.address)
	if err != nil {
		return err
	}
	l.running, err = start(ctx, l.dir, args[0], args[1:]...)
	return err
}

// await waits until the broker has so many messages.
func (l *lab) await(ctx context.Context, n int64, patience time.Duration) (time.Time, error) {
	end := time.Now().Add(patience)
	for {
		have, err := l.broker.count(ctx)
		now := time.Now()
		switch {
		case err != nil:
			return now, err
		case have >= n:
			return now, nil
		case now.After(end):
			return now, fmt.Errorf("%s: %d of %d messages after %s; see %s", l.subject.name, have, n, patience, l.dir)
		}
		select {
		case err := <-l.running.ended:
			return now, fmt.Errorf("%s ended: %w; see %s", l.subject.name, err, l.dir)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// update lets the API server make updates: so many a second, or at once.
func (l *lab) update(n, perSecond int) error {
	resp, err := http.Post(fmt.Sprintf("%s/bench/updates?n=%d&rate=%d", l.api, n, perSecond), "", nil) //nolint:noctx // on this machine
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

func (l *lab) counts() (c apiserver.Counts, err error) {
	resp, err := http.Get(l.api + "/bench/counts") //nolint:noctx // on this machine
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	return c, json.NewDecoder(resp.Body).Decode(&c)
}
