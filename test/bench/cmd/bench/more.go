package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Names of what more of something costs.
const (
	moreSink       = "one more stream, CPU per update all out (µs)"
	moreMemory     = "one more idle resource, resident memory (KB)"
	moreGoroutines = "one more idle resource, goroutines"
	manyInSync     = "start to in sync with the idle resources (s)"
	manyRequests   = "requests of each idle resource for that (lists and watches)"
	bodyCPU        = "CPU per update all out, every body written (µs)"
	unitsInSync    = "start to in sync with a resource in a namespace 1,000 times (s)"
	unitRequests   = "requests of each of them for that (lists and watches)"
)

var moreRows = []struct{ name, goal string }{
	{moreSink, "≤ 12"},
	{moreMemory, "≤ 60"},
	{moreGoroutines, "≤ 3"},
	{manyInSync, ""},
	{manyRequests, ""},
	{bodyCPU, "≤ 60"},
	{unitsInSync, "as `qps` has it"},
	{unitRequests, ""},
}

// measureMore measures what one more sink costs, and one more resource in which nothing happens.
func (b *bench) measureMore(ctx context.Context) (figures, error) {
	const pods = 10_000
	f := figures{}
	one, err := b.measure(ctx, bridgeToNATS, pods, b.updates, false)
	if err != nil {
		return nil, err
	}
	two, err := b.measure(ctx, bridgeToTwo, pods, b.updates, false)
	if err != nil {
		return nil, err
	}
	f[moreSink] = two[updateCPU] - one[updateCPU]
	few, err := b.measureIdle(ctx, bridgeOfFew)
	if err != nil {
		return nil, err
	}
	many, err := b.measureIdle(ctx, bridgeOfMany)
	if err != nil {
		return nil, err
	}
	f[moreMemory] = (many[moreMemory] - few[moreMemory]) / idleResources
	f[moreGoroutines] = (many[moreGoroutines] - few[moreGoroutines]) / idleResources
	f[manyInSync] = many[manyInSync]
	f[manyRequests] = (many[manyRequests] - few[manyRequests]) / idleResources
	bodies, err := b.measure(ctx, bridgeOfBody, pods, b.updates, false)
	if err != nil {
		return nil, err
	}
	f[bodyCPU] = bodies[updateCPU]
	units, err := b.measureIdle(ctx, bridgeOfUnits)
	if err != nil {
		return nil, err
	}
	f[unitsInSync], f[unitRequests] = units[manyInSync], units[manyRequests]/(unitResources*unitNamespaces)
	return f, nil
}

// measureIdle is the resident memory in KB and the goroutines of a bridge that is in sync.
func (b *bench) measureIdle(ctx context.Context, s subject) (figures, error) {
	const pods = 1000
	l, err := b.open(ctx, s, pods)
	defer l.close()
	if err != nil {
		return nil, err
	}
	if err := l.run(ctx); err != nil {
		return nil, err
	}
	for deadline := time.Now().Add(5 * time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if _, err = get(b.admin + "/readyz"); err == nil {
			break
		}
		if time.Now().After(deadline) {
			l.failed = true
			return nil, fmt.Errorf("%s is not in sync: %w; see %s", s.name, err, l.dir)
		}
	}
	f := figures{manyInSync: time.Since(l.running.began).Seconds()}
	time.Sleep(10 * time.Second)
	now, _ := l.running.memory()
	text, err := get(b.admin + "/metrics")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(line, "go_goroutines "); ok {
			f[moreGoroutines], err = strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	counts, errCounts := l.counts()
	f[moreMemory], f[manyRequests] = float64(now)/1000, float64(counts.Lists+counts.Watches)
	return f, errors.Join(err, errCounts)
}

func get(url string) (string, error) {
	resp, err := http.Get(url) //nolint:noctx // on this machine
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, resp.Status)
	}
	return string(body), err
}

// freeAddress is one that nobody listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // on this machine
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

func (b *bench) moreTable(out *bytes.Buffer) {
	if len(b.more) == 0 {
		return
	}
	fmt.Fprintf(out, "\n## One more\n\nFloods at 10,000 pods; %d resources in which nothing is, at `kubernetes.qps` 50 and its burst.\n\n| | | goal |\n| --- | ---: | --- |\n", idleResources)
	for _, row := range moreRows {
		fmt.Fprintf(out, "| %s | %s | %s |\n", row.name, medianAndRange(values(b.more, row.name)), row.goal)
	}
}
