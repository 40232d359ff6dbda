package e2e_test

import (
	"time"

	"github.com/kubebridge/bridge/test/e2e/crash"
)

// plan is what happens around one kill.
type plan struct {
	fault  fault
	moment crash.Phase   // that is waited for; Running for any
	life   time.Duration // until then
}

// fault is what goes wrong besides.
type fault int

const (
	none        fault = iota
	killsServer       // the API server is killed, and has forgotten what was before
	cutsBroker        // one of the brokers, for some seconds
	cutsForLong       // one of the brokers, for longer than the bridge keeps anything in memory alone
)

const (
	short = 1500 * time.Millisecond
	long  = 6 * time.Second // what an unreachable broker keeps waiting has gone to disk for its age
)

// The first kills have everything once, so that a short run shows all of it.
var firstPlans = []plan{
	{moment: crash.Running, life: 2 * time.Second},
	{moment: crash.Starting},
	{moment: crash.Committing, life: time.Second},
	{moment: crash.Committing},
	{moment: crash.Running, life: short, fault: cutsBroker},
	{moment: crash.Listing},
	{moment: crash.Starting},
	{moment: crash.Running, life: long, fault: cutsBroker},
	{moment: crash.Running, life: short, fault: killsServer},
	{moment: crash.Listing},
	{moment: crash.Committing, life: time.Second},
	{moment: crash.Running, life: long},
}

// plan says what happens around a kill: the first ones are all different, the others are left to
// chance.
func (c *crashRun) plan(kill int) (p plan) {
	if kill < min(len(firstPlans), c.kills) {
		p = firstPlans[kill]
	} else {
		p = c.anyPlan()
	}
	if p.moment == crash.Listing && !c.forgets {
		p.moment = crash.Committing
	}
	if p.fault == killsServer && !c.forgets {
		p.fault = none
	}
	return p
}

func (c *crashRun) anyPlan() plan {
	p := plan{moment: crash.Running, life: c.upTo(short)}
	switch n := c.random.IntN(24); {
	case n < 4:
		p.moment, p.life = crash.Starting, 0
	case n < 8:
		p.moment = crash.Committing
	case n < 11:
		p.moment, p.life = crash.Listing, 0
	case n < 13:
		p.life = long - time.Second + c.upTo(2*time.Second)
	case n == 13:
		p.life, p.fault = 2*long, cutsForLong
	}
	if p.fault == none && c.random.IntN(3) == 0 {
		p.fault = cutsBroker
		if c.random.IntN(4) == 0 {
			p.fault = killsServer
		}
	}
	return p
}

// upTo is any time up to a length.
func (c *crashRun) upTo(length time.Duration) time.Duration {
	return time.Duration(c.random.Int64N(int64(length)))
}

// live waits for the moment at which the bridge is to be killed, and says what it was about then.
func (c *crashRun) live(p plan) crash.Phase {
	c.t.Helper()
	life := p.life
	if p.moment == crash.Starting {
		life = c.upTo(c.startup * 2 / 3)
	}
	began, seen := time.Now(), lastSeen{}
	for until := began.Add(life); p.moment == crash.Listing || time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
		if !c.bridge.Running() {
			c.startAgain()
			seen = lastSeen{}
			continue
		}
		c.look(&seen)
		if p.moment == crash.Listing && (seen.listing || time.Since(began) > long) { // it may have been too quick for us
			break
		}
	}
	if p.moment == crash.Committing && c.awaitWrite() {
		return crash.Committing
	}
	return c.phase(seen)
}

// lastSeen is what the bridge said of itself last.
type lastSeen struct {
	listing bool // it is reading a list
	started bool // it watches everything, or has done so
}

// look asks the bridge what it is about. One that does not answer is starting.
func (c *crashRun) look(seen *lastSeen) {
	s, err := c.bridge.Status(c.ctx)
	if err != nil || len(s.Informers) == 0 {
		return
	}
	watching := 0
	seen.listing = false
	for _, i := range s.Informers {
		switch i.Phase {
		case "listing":
			seen.listing = true
		case "watching":
			watching++
		}
	}
	if watching == len(s.Informers) && !seen.started {
		seen.started, c.startup = true, time.Since(c.lives[len(c.lives)-1].Began)
	}
}

// phase is what the bridge is about; what it says of itself may be some milliseconds old.
func (c *crashRun) phase(seen lastSeen) crash.Phase {
	switch {
	case seen.listing:
		return crash.Listing
	case len(c.apiServer) > 0:
		return crash.APIServerAway
	case !seen.started:
		return crash.Starting
	}
	for _, s := range c.sinks {
		if s.isCut() {
			return crash.BrokerAway
		}
	}
	return crash.Running
}

// awaitWrite waits until the bridge writes to its state, for a while. The file system shows it, to
// the millisecond.
func (c *crashRun) awaitWrite() bool {
	before := crash.LastWrite(c.bridge.StateDir)
	for until := time.Now().Add(2 * time.Second); time.Now().Before(until); time.Sleep(time.Millisecond) {
		if crash.LastWrite(c.bridge.StateDir).After(before) {
			return true
		}
	}
	return false
}

// startAgain starts a bridge that ended by itself, as it does when it finds no API server. What
// starts it waits a little before it does.
func (c *crashRun) startAgain() {
	c.t.Helper()
	c.t.Logf("the bridge ended by itself: %s", c.bridge.Log.Tail(1))
	if !c.ControlPlane.Running() {
		code, _ := c.ControlPlane.Wait(c.ctx)
		c.t.Fatalf("the control plane has ended with exit code %d", code)
	}
	c.report.Exits++
	c.endLife()
	time.Sleep(200 * time.Millisecond)
	c.startBridge()
}
