package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

const (
	etcdName = "bridge-test"
	// etcdPeerURL is a name only: a single member talks to no peer, and listens for them on a port
	// that nobody knows.
	etcdPeerURL = "http://127.0.0.1:2380"

	etcdStartTimeout = 30 * time.Second
	// etcdStopTimeout ends the wait for etcd's orderly stop, which itself waits for clients that
	// may never hang up.
	etcdStopTimeout = 3 * time.Second
)

// etcd is the embedded etcd server. It can be stopped and started again on the same port.
type etcd struct {
	layout
	port   int
	server *embed.Etcd // nil when stopped; owned by the supervisor, under its lock
}

func (e *etcd) url() string { return "http://" + loopback(e.port) }

func (e *etcd) start(ctx context.Context) error {
	server, err := embed.StartEtcd(e.config())
	if err != nil {
		return fmt.Errorf("start etcd, see %s: %w", e.log("etcd"), err)
	}
	select {
	case <-server.Server.ReadyNotify():
		e.server = server
		return nil
	case <-ctx.Done():
		err = context.Cause(ctx)
	case <-time.After(etcdStartTimeout):
		err = fmt.Errorf("not ready after %v", etcdStartTimeout)
	}
	server.Close()
	return fmt.Errorf("start etcd, see %s: %w", e.log("etcd"), err)
}

func (e *etcd) config() *embed.Config {
	c := embed.NewConfig()
	c.Name = etcdName
	c.Dir = e.etcd()
	c.ListenClientUrls = []url.URL{mustParseURL(e.url())}
	c.AdvertiseClientUrls = c.ListenClientUrls
	c.ListenPeerUrls = []url.URL{mustParseURL("http://127.0.0.1:0")}
	c.AdvertisePeerUrls = []url.URL{mustParseURL(etcdPeerURL)}
	c.InitialCluster = etcdName + "=" + etcdPeerURL
	c.UnsafeNoFsync = true // tests: speed over surviving a power cut
	// A member that is alone wins its election as soon as it stands for it: with the default of 1 s
	// that second would be part of every start and every restore.
	c.TickMs, c.ElectionMs = 10, 100
	c.LogOutputs = []string{e.log("etcd")}
	c.LogLevel = "warn"
	return c
}

// stop is a no-op when etcd is stopped. Stop the API server first: etcd waits for its clients to
// hang up.
func (e *etcd) stop() {
	if e.server == nil {
		return
	}
	closed := make(chan struct{})
	go func(server *embed.Etcd) {
		server.Close()
		close(closed)
	}(e.server)
	e.server = nil
	select {
	case <-closed:
	case <-time.After(etcdStopTimeout):
	}
}

// revision is the latest one: the highest resourceVersion that an object of the cluster can have
// now.
func (e *etcd) revision() int64 {
	if e.server == nil {
		return 0
	}
	return e.server.Server.KV().Rev()
}

// compact forgets the history before the current revision.
func (e *etcd) compact(ctx context.Context) error {
	if e.server == nil {
		return errors.New("etcd is stopped")
	}
	rev := e.revision()
	_, err := e.server.Server.Compact(ctx, &etcdserverpb.CompactionRequest{Revision: rev, Physical: true})
	if err != nil {
		return fmt.Errorf("compact etcd at revision %d: %w", rev, err)
	}
	return nil
}

// save writes a snapshot of the running server's data, as `etcdctl snapshot save` would, and
// replaces an earlier one.
func (e *etcd) save(name string) error {
	if e.server == nil {
		return errors.New("etcd is stopped")
	}
	path := e.snapshot(name)
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("snapshot %s: %w", name, err)
	}
	snap := e.server.Server.Backend().Snapshot()
	_, err = snap.WriteTo(file)
	if err := errors.Join(err, snap.Close(), file.Close()); err != nil {
		return fmt.Errorf("snapshot %s: %w", name, err)
	}
	return nil
}

// restore replaces the data of the stopped server with a snapshot, as `etcdutl snapshot restore`
// does for an administrator after a disaster: the revision goes back, and then counts up again
// through numbers that were used.
func (e *etcd) restore(name string) error {
	if e.server != nil {
		return errors.New("restore: etcd is running")
	}
	fresh := e.etcd() + ".restoring"
	if err := os.RemoveAll(fresh); err != nil {
		return err
	}
	err := snapshot.NewV3(zap.NewNop()).Restore(snapshot.RestoreConfig{
		SnapshotPath:        e.snapshot(name),
		Name:                etcdName,
		OutputDataDir:       fresh,
		PeerURLs:            []string{etcdPeerURL},
		InitialCluster:      etcdName + "=" + etcdPeerURL,
		InitialClusterToken: "etcd-cluster",
		SkipHashCheck:       true, // only `etcdctl snapshot save` appends the hash
	})
	if err != nil {
		return fmt.Errorf("restore snapshot %s: %w", name, err)
	}
	if err := os.RemoveAll(e.etcd()); err != nil {
		return err
	}
	return os.Rename(fresh, e.etcd())
}

// hasSnapshot reports whether restore would find the snapshot.
func (e *etcd) hasSnapshot(name string) bool {
	_, err := os.Stat(e.snapshot(name))
	return !errors.Is(err, fs.ErrNotExist)
}

func mustParseURL(s string) url.URL {
	u, err := url.Parse(s)
	if err != nil {
		panic(err) // all of them are written in this file
	}
	return *u
}
