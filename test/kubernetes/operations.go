package main

import (
	"context"
	"fmt"
	"syscall"
)

// What a test can do to the cluster. Each holds the lock for its length and returns when the
// cluster is usable again.

// compact makes etcd forget the history before the current revision.
//
// The API server's watch cache still remembers what it has seen since it started; restart it, too,
// to have it answer 410 to an older resourceVersion.
func (s *supervisor) compact(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.etcd.compact(ctx)
}

// restartAPIServer ends the API server with the signal and starts it on the same port.
func (s *supervisor) restartAPIServer(ctx context.Context, signal syscall.Signal) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopAPIServer(signal)
	return s.startAPIServer(ctx)
}

// takeAPIServerAway stops the API server until bringAPIServerBack.
func (s *supervisor) takeAPIServerAway(signal syscall.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopAPIServer(signal)
}

func (s *supervisor) bringAPIServerBack(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.startAPIServer(ctx)
}

// pauseControllers stops kwok, controller manager and scheduler: nothing but the test changes the
// cluster then.
func (s *supervisor) pauseControllers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopControllers()
}

func (s *supervisor) resumeControllers(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.startControllers(ctx)
}

// saveSnapshot keeps the state of etcd under a name. The cluster continues meanwhile.
func (s *supervisor) saveSnapshot(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.etcd.save(name)
}

// restoreSnapshot takes the whole cluster back to a snapshot. The controllers are restarted,
// because they could not make sense of a resourceVersion that goes back; after a real restore they
// must be as well.
func (s *supervisor) restoreSnapshot(ctx context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.etcd.hasSnapshot(name) {
		return fmt.Errorf("there is no snapshot named %q", name)
	}
	paused := !s.controllersRunning()
	s.stopControllers()
	s.stopAPIServer(syscall.SIGTERM)
	s.etcd.stop()
	restoreErr := s.etcd.restore(name)
	// Start again even if the restore failed: the old data is still there, and an error is no
	// reason to lose the cluster.
	if err := s.etcd.start(ctx); err != nil {
		return err
	}
	if err := s.startAPIServer(ctx); err != nil {
		return err
	}
	if !paused {
		if err := s.startControllers(ctx); err != nil {
			return err
		}
	}
	return restoreErr
}
