package main

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/kubebridge/bridge/test/bench/apiserver"
)

// report is what was measured, as Markdown.
func (b *bench) report() string {
	var out bytes.Buffer
	fmt.Fprintf(&out, begin, time.Now().Format("2006-01-02"), cores(), cpuName(), runtime.Version(), kernel(), b.runs, b.pods, apiserver.Size(), b.updates)
	b.table(&out)
	b.scaleTable(&out)
	b.moreTable(&out)
	fmt.Fprintf(&out, "\n## The floor\n\nA client that reads watch frames and does nothing with them: "+
		"%.0f frames/s and %.1f µs of CPU per\nframe over TLS and HTTP/2, "+
		"%.0f frames/s and %.1f µs over plain HTTP.\n",
		b.floorTLS[0], b.floorTLS[1], b.floorHTTP[0], b.floorHTTP[1])
	return out.String()
}

const begin = `<!-- written by make bench -->
# Benchmarks

%s, %d cores (%s), %s, %s. Medians of %d runs (min–max in
brackets), each with a synthetic API server over TLS and HTTP/2 and a broker of its own on the same
cores, one subject after the other. %d pods of %d bytes with managedFields; %d updates all
out. CPU and memory are those of the measured process alone. **client-go** is the program that a
competent user writes: an informer, a transform that drops managedFields, the CloudEvents SDK,
asynchronous publishing with ids ([test/bench/cmd/clientgo](../test/bench/cmd/clientgo/main.go)).
The **floor** reads watch frames, publishes them as they came with acknowledgement, and does nothing
else ([test/bench/cmd/floor](../test/bench/cmd/floor/main.go)): it checks, remembers, redacts and
resumes nothing.
Ratios are the medians of the runs' own pairs.

`

var rows = []struct {
	name   string
	higher bool // is better
	goal   string
}{
	{rareCPU, false, "≤ 800"},
	{slowCPU, false, "≤ 450"},
	{steadyCPU, false, "≤ 280"},
	{fastCPU, false, "≤ 140"},
	{steadySwitch, false, "≤ 8"},
	{latencyMedian, false, "≤ 0.4"},
	{latencyHigh, false, "≤ 1.5"},
	{updateCPU, false, "≤ 35, 1/20"},
	{updateRate, true, "≥ 24,000, 20x"},
	{syncTime, false, "1/10"},
	{syncCPU, false, "≤ 5, 1/15"},
	{syncPeak, false, "≤ 100, 1/40"},
	{syncResident, false, "1/30"},
	{idleCPU, false, "≤ 0.2"},
	{restartTime, false, "≤ 1"},
	{restartLists, false, "0"},
}

func (b *bench) table(out *bytes.Buffer) {
	fmt.Fprintln(out, "| | floor → JetStream | bridge → JetStream | bridge → Kafka | client-go, dynamic |"+
		" client-go, typed | ratio to dynamic | goal |")
	fmt.Fprintln(out, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |")
	for _, row := range rows {
		fmt.Fprintf(out, "| %s |", row.name)
		for _, s := range []subject{floorToNATS, bridgeToNATS, bridgeToKafka, dynamicClient, typedClient} {
			fmt.Fprintf(out, " %s |", medianAndRange(values(b.results[s.name], row.name)))
		}
		fmt.Fprintf(out, " %s | %s |\n", b.ratio(row.name, row.higher), row.goal)
	}
}

// scaleTable compares clusters of different sizes.
func (b *bench) scaleTable(out *bytes.Buffer) {
	if len(b.big) == 0 {
		return
	}
	fmt.Fprintf(out, "\n## Size of the cluster\n\n| bridge → JetStream | %d pods | %d pods | %d pods |\n| --- | ---: | ---: | ---: |\n", b.pods/10, b.pods, b.large)
	for _, name := range []string{updateCPU, updateRate, syncTime, syncCPU, syncPeak, syncResident} {
		fmt.Fprintf(out, "| %s | %s | %s | %s |\n", name, medianAndRange(values(b.small, name)), medianAndRange(values(b.results[bridgeToNATS.name], name)), medianAndRange(values(b.big, name)))
	}
}

func values(runs []figures, name string) (list []float64) {
	for _, f := range runs {
		if v, ok := f[name]; ok {
			list = append(list, v)
		}
	}
	slices.Sort(list)
	return list
}

func medianAndRange(list []float64) string {
	if len(list) == 0 {
		return ""
	}
	if len(list) == 1 {
		return number(list[0])
	}
	return fmt.Sprintf("%s (%s–%s)", number(median(list)), number(list[0]), number(list[len(list)-1]))
}

func median(sorted []float64) float64 { return sorted[len(sorted)/2] }

func number(v float64) string {
	switch {
	case v == math.Trunc(v) || v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

// ratio of the bridge to the dynamic client, run by run.
func (b *bench) ratio(name string, higher bool) string {
	mine, theirs := b.results[bridgeToNATS.name], b.results[dynamicClient.name]
	var list []float64
	for i := range min(len(mine), len(theirs)) {
		if mine[i][name] > 0 && theirs[i][name] > 0 {
			list = append(list, mine[i][name]/theirs[i][name])
		}
	}
	if len(list) == 0 {
		return ""
	}
	slices.Sort(list)
	if r := median(list); higher || r >= 1 {
		return fmt.Sprintf("%.1fx", r)
	} else { //nolint:revive // the scope of r
		return fmt.Sprintf("1/%.1f", 1/r)
	}
}

func cpuName() string {
	info, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return "unknown CPU"
}

func kernel() string {
	version, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return runtime.GOOS
	}
	return "Linux " + strings.TrimSpace(string(version))
}
