package cli

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/reflector"
)

const (
	// progressInterval is how often progress is redrawn.
	progressInterval = 500 * time.Millisecond
	// ratesOver is the time over which rates are taken, as a multiple of progressInterval.
	ratesOver = 6
)

// progress shows on a terminal how far a running bridge is: a line for each resource that is not in
// sync, with its rate; then one line of state.
type progress struct {
	screen  *terminal.Screen
	samples []counted // of the last ratesOver intervals
}

// counted is what had been read and sent at a time.
type counted struct {
	at     time.Time
	counts map[string]float64
}

// newProgress returns nil where progress can't be shown: standard error is no terminal, the log is
// for programs, or a sink prints its events on this terminal.
func newProgress(c *config.Config, stdout, stderr io.Writer) *progress {
	if c.Log.Format == "json" {
		return nil
	}
	for i := range c.Sinks {
		if c.Sinks[i].Stdout != nil && terminal.Is(stdout) {
			return nil
		}
	}
	if s := terminal.AsScreen(stderr); s != nil {
		return &progress{screen: s}
	}
	return nil
}

// run shows the status until ctx ends, and takes it off again.
func (p *progress) run(ctx context.Context, status func() app.ProcessStatus) {
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	defer p.screen.Show(nil)
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			s := status()
			_, height := p.screen.Size()
			p.screen.Show(p.lines(&s, now, height))
		}
	}
}

// lines are what is shown of a status, at most half a terminal of a height.
func (p *progress) lines(s *app.ProcessStatus, now time.Time, height int) []string {
	if s.Status == nil {
		return []string{"starting: " + terminal.OneLine(s.Starting)}
	}
	p.remember(s.Status, now)
	var syncing []*informer.Status
	listed, total := 0, 0
	for i := range s.Informers {
		u := &s.Informers[i]
		if u.Phase == string(informer.Gone) {
			continue
		}
		total++
		listed += u.Listed
		if !u.Synced && u.PausedBy == nil {
			syncing = append(syncing, u)
		}
	}
	if len(syncing) == 0 {
		return []string{p.state(s, total)}
	}
	lines := []string{fmt.Sprintf("syncing: %d of %d resources in sync, %d objects listed%s",
		total-len(syncing), total, listed, p.rate("listed"))}
	for i, u := range syncing {
		if i == height/2-1 && len(syncing) > i+1 {
			return append(lines, fmt.Sprintf("  and %d more", len(syncing)-i))
		}
		lines = append(lines, p.resource(u))
	}
	return lines
}

// resource is the line of a resource that is not in sync.
func (p *progress) resource(u *informer.Status) string {
	name := u.Resource
	if u.Namespace != "" {
		name += " in " + u.Namespace
	}
	line := fmt.Sprintf("  %-34s %-11s", name, u.Phase)
	if u.Phase == string(reflector.Listing) {
		line += fmt.Sprintf(" %d objects%s", u.Listed, p.rate("listed "+key(u)))
	}
	if u.LastError != "" {
		line += " " + terminal.OneLine(u.LastError)
	}
	return line
}

// state is the one line of a bridge that is in sync.
func (p *progress) state(s *app.ProcessStatus, resources int) string {
	objects := 0
	for i := range s.Informers {
		if n := s.Informers[i].Objects; n != nil {
			objects += *n
		}
	}
	parts := []string{
		fmt.Sprintf("in sync: %s, %s", terminal.Amount(resources, "resource"),
			terminal.Amount(objects, "object")),
	}
	for i := range s.Sinks {
		parts = append(parts, p.sink(&s.Sinks[i]))
	}
	if len(s.Reasons) > 0 { // it comes last: it may be cut
		parts[0] = "not ready"
		parts = append(parts, s.Reasons[0].What+": "+terminal.OneLine(s.Reasons[0].Message))
	}
	return strings.Join(parts, " | ")
}

func (p *progress) sink(s *bridge.SinkStatus) string {
	text := fmt.Sprintf("%s: %d sent%s", s.Name, s.Published, p.rate("sent "+s.Name))
	switch {
	case s.PausedBy != nil || s.Paused:
		text += ", paused"
	case !s.Connected:
		text += ", unavailable"
	}
	if s.QueuedItems > 0 {
		text += fmt.Sprintf(", %d queued", s.QueuedItems)
	}
	return text
}

func key(u *informer.Status) string { return u.Informer + " " + u.Resource + " " + u.Namespace }

// remember takes a sample, and forgets those that are too old for a rate.
func (p *progress) remember(s *bridge.Status, now time.Time) {
	counts := map[string]float64{}
	for i := range s.Informers {
		u := &s.Informers[i]
		counts["listed"] += float64(u.Listed)
		counts["listed "+key(u)] = float64(u.Listed)
	}
	for i := range s.Sinks {
		counts["sent "+s.Sinks[i].Name] = float64(s.Sinks[i].Published)
	}
	p.samples = append(p.samples, counted{now, counts})
	if len(p.samples) > ratesOver+1 {
		p.samples = p.samples[1:]
	}
}

// rate is what was counted per second over the samples, as ", 310/s"; "" where it is not known.
func (p *progress) rate(what string) string {
	first, last := &p.samples[0], &p.samples[len(p.samples)-1]
	before, known := first.counts[what]
	elapsed := last.at.Sub(first.at).Seconds()
	if n := last.counts[what] - before; known && elapsed > 0 && n >= 0 {
		return fmt.Sprintf(", %.0f/s", n/elapsed)
	}
	return ""
}
