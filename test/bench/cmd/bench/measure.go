package main

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// Names of what is measured.
const (
	syncTime      = "initial sync, to the last ack (s)"
	syncCPU       = "initial sync, CPU (s)"
	syncPeak      = "initial sync, peak resident memory (MB)"
	syncResident  = "resident memory 5 s after it (MB)"
	updateRate    = "updates a second, all out, to the last ack"
	updateCPU     = "CPU per update (µs)"
	idleCPU       = "CPU while nothing changes (% of a core)"
	rareCPU       = "CPU per update at 20 updates/s (µs)"
	slowCPU       = "CPU per update at 100 updates/s (µs)"
	steadyCPU     = "CPU per update at 500 updates/s (µs)"
	fastCPU       = "CPU per update at 2,000 updates/s (µs)"
	steadySwitch  = "context switches per update at 500 updates/s"
	latencyMedian = "latency at 500 updates/s, p50 (ms)"
	latencyHigh   = "latency at 500 updates/s, p99 (ms)"
	restartTime   = "restart to the first live event (s)"
	restartLists  = "lists of a restart (WatchLists count, probes do not)"
)

// figures are what one run of one subject has given, by name.
type figures map[string]float64

// measure runs a subject once, through all phases or the first two.
func (b *bench) measure(ctx context.Context, s subject, pods, updates int, all bool) (figures, error) {
	l, err := b.open(ctx, s, pods)
	defer l.close()
	if err != nil {
		return nil, err
	}
	f := figures{}
	phases := []func(context.Context, figures) error{
		func(ctx context.Context, f figures) error { return l.sync(ctx, f, pods) },
	}
	if all { // first: what a flood has left to do would be counted with them
		phases = append(phases, l.rates, l.latency)
	}
	phases = append(phases, func(ctx context.Context, f figures) error { return l.updates(ctx, f, updates) })
	if all && s.name != floorToNATS.name { // it keeps nothing to start from
		phases = append(phases, l.restart)
	}
	for _, phase := range phases {
		if err := phase(ctx, f); err != nil {
			l.failed = true
			return f, err
		}
	}
	return f, nil
}

func (l *lab) sync(ctx context.Context, f figures, pods int) error {
	if err := l.run(ctx); err != nil {
		return err
	}
	end, err := l.await(ctx, int64(pods), 15*time.Minute)
	if err != nil {
		return err
	}
	f[syncTime], f[syncCPU] = end.Sub(l.running.began).Seconds(), l.running.cpu().Seconds()
	time.Sleep(5 * time.Second)
	now, peak := l.running.memory()
	f[syncPeak], f[syncResident] = float64(peak)/1e6, float64(now)/1e6
	const idle = 10 * time.Second
	cpu := l.running.cpu()
	time.Sleep(idle)
	f[idleCPU] = 100 * (l.running.cpu() - cpu).Seconds() / idle.Seconds()
	return nil
}

func (l *lab) updates(ctx context.Context, f figures, n int) error {
	before, err := l.broker.count(ctx)
	if err != nil {
		return err
	}
	cpu, began := l.running.cpu(), time.Now()
	if err := l.update(n, 0); err != nil {
		return err
	}
	end, err := l.await(ctx, before+int64(n), 15*time.Minute)
	if err != nil {
		return err
	}
	f[updateRate] = float64(n) / end.Sub(began).Seconds()
	f[updateCPU] = float64((l.running.cpu() - cpu).Microseconds()) / float64(n)
	return nil
}

// rates measures what an update costs at the rates that clusters have.
func (l *lab) rates(ctx context.Context, f figures) error {
	for _, rate := range []struct {
		perSecond     int
		cpu, switches string
	}{
		{20, rareCPU, ""},
		{100, slowCPU, ""},
		{500, steadyCPU, steadySwitch},
		{2000, fastCPU, ""},
	} {
		before, err := l.broker.count(ctx)
		if err != nil {
			return err
		}
		seconds := 10
		if rate.perSecond < 100 {
			seconds = 30 // CPU time is counted in hundredths of a second
		}
		n := rate.perSecond * seconds
		cpu, switches := l.running.cpu(), l.running.switches()
		if err := l.update(n, rate.perSecond); err != nil {
			return err
		}
		if _, err := l.await(ctx, before+int64(n), time.Minute); err != nil {
			return err
		}
		f[rate.cpu] = float64((l.running.cpu() - cpu).Microseconds()) / float64(n)
		if rate.switches != "" {
			f[rate.switches] = float64(l.running.switches()-switches) / float64(n)
		}
	}
	return nil
}

const (
	latencyRate    = 500
	latencySeconds = 20
)

func (l *lab) latency(ctx context.Context, f figures) error {
	store, ok := l.broker.(*natsBroker)
	if !ok {
		return nil
	}
	before, err := store.count(ctx)
	if err != nil {
		return err
	}
	const n = latencyRate * latencySeconds
	if err := l.update(n, latencyRate); err != nil {
		return err
	}
	if _, err := l.await(ctx, before+n, time.Minute); err != nil {
		return err
	}
	list, err := store.latencies(ctx, before, n)
	if err != nil {
		return err
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	f[latencyMedian], f[latencyHigh] = ms(list[n/2]), ms(list[n*99/100])
	return nil
}

// restart stops the subject, and starts it while 200 pods a second change.
func (l *lab) restart(ctx context.Context, f figures) error {
	if err := l.running.stop(); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	before, err := l.broker.count(ctx)
	if err != nil {
		return err
	}
	requests, err := l.counts()
	if err != nil {
		return err
	}
	updating := make(chan error, 1)
	go func() { updating <- l.update(200*10, 200) }()
	if err := l.run(ctx); err != nil {
		return err
	}
	end, err := l.await(ctx, before+1, 10*time.Minute)
	if err != nil {
		return err
	}
	f[restartTime] = end.Sub(l.running.began).Seconds()
	after, err := l.counts()
	f[restartLists] = float64(after.Lists - requests.Lists)
	if err == nil {
		err = <-updating
	}
	return err
}

// floor is what reading frames costs, and how many a second the API server gives.
func (b *bench) floor(ctx context.Context, frames int, plain bool) (perSecond, cpu float64, err error) {
	dir := b.work
	args := []string{"-pods", fmt.Sprint(frames), "-kubeconfig", dir + "/floor.kubeconfig"}
	if plain {
		args = append(args, "-plain")
	}
	api, _, err := startServer(ctx, dir, b.program("apiserver"), args...)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = api.stop() }()
	p, err := start(ctx, dir, b.program("floor"), "-kubeconfig", dir+"/floor.kubeconfig", "-frames", fmt.Sprint(frames))
	if err != nil {
		return 0, 0, err
	}
	if err := <-p.ended; err != nil {
		return 0, 0, fmt.Errorf("floor: %w; see %s", err, p.log.Name())
	}
	var took, bytes int64
	line, err := firstLine(p.log.Name())
	if err == nil {
		_, err = fmt.Sscan(line, &took, &bytes)
	}
	used := p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
	return float64(frames) / (float64(took) / 1e9), float64(used.Microseconds()) / float64(frames), err
}

func cores() int { return runtime.NumCPU() }
