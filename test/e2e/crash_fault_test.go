package e2e_test

import (
	"context"
	"sync"
	"time"

	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// crashSink is a sink whose broker outlives the bridge, and can be cut off.
type crashSink struct {
	name   string
	key    string // of its configuration
	reader reader
	gate   *crash.Gate
	// keeps: what comes again is stored again. forgets: it can't be read back, so that needs no
	// reason, and what was lost may come late.
	keeps, forgets bool

	mu      sync.Mutex
	outages []crash.Outage // guarded by mu
}

// cut makes the broker unreachable until open is called.
func (s *crashSink) cut() (open func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.outages)
	s.outages = append(s.outages, crash.Outage{From: time.Now()})
	s.gate.Shut()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.gate.Open()
		s.outages[n].To = time.Now()
	}
}

func (s *crashSink) isCut() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.outages)
	return n > 0 && s.outages[n-1].To.IsZero()
}

// addFault begins something that continues during the kills to come.
func (c *crashRun) addFault(p plan) {
	switch p.fault {
	case killsServer:
		c.faults.Go(c.restartAPIServer)
	case cutsBroker:
		c.cut(time.Second + c.upTo(6*time.Second))
	case cutsForLong:
		c.cut(2*long - time.Second)
	case none:
	}
}

// cut makes one of the brokers unreachable for so long, unless it is already.
func (c *crashRun) cut(length time.Duration) {
	s := c.sinks[c.report.Cuts%len(c.sinks)]
	if s.isCut() {
		return
	}
	c.report.Cuts++
	open := s.cut()
	c.faults.Go(func() {
		time.Sleep(length)
		open()
	})
}

// forget has the API server forget what a bridge that is not running has not seen.
func (c *crashRun) forget() {
	c.restartAPIServer()
}

// restartAPIServer has the API server forget what was before, and be killed. One at a time.
func (c *crashRun) restartAPIServer() {
	c.apiServer <- struct{}{}
	defer func() { <-c.apiServer }()
	ctx, cancel := context.WithTimeout(c.ctx, startTime)
	defer cancel()
	_, err := c.Operate(ctx, "compact")
	if err == nil {
		_, err = c.Operate(ctx, "restart-apiserver?signal=KILL")
	}
	if err == nil {
		err = c.newWitness()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.report.Restarts++
	if err != nil {
		c.err = err
	}
}

// newWitness begins a new ledger and ends the one before: the history of an API server that was
// restarted begins again.
func (c *crashRun) newWitness() error {
	ctx, cancel := context.WithTimeout(c.ctx, 30*time.Second)
	defer cancel()
	ledger, err := truth.Watch(ctx, c.Admin(), c.collections()...)
	if err != nil {
		return err
	}
	c.t.Cleanup(ledger.Stop)
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.ledgers); n > 0 {
		c.ledgers[n-1].Stop()
	}
	c.ledgers = append(c.ledgers, ledger)
	return nil
}

func (c *crashRun) collections() []truth.Collection {
	return []truth.Collection{
		truth.Core("pods", c.namespace), truth.Named("deployments", "apps", "v1", c.namespace), truth.Core("configmaps", c.namespace),
	}
}
