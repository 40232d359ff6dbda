// Command bench measures the bridge beside the program that people write today, in one run on one
// machine: each with an API server and a broker of its own, one after the other, several times. It
// writes a table.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	var b bench
	flag.StringVar(&b.bin, "bin", "", "directory of the programs")
	flag.IntVar(&b.runs, "runs", 3, "how often everything is measured")
	flag.IntVar(&b.pods, "pods", 100_000, "pods of the initial sync")
	flag.IntVar(&b.updates, "updates", 40_000, "updates all out")
	flag.IntVar(&b.large, "large", 1_000_000, "pods of the large cluster; 0: leave it out")
	flag.BoolVar(&b.slow, "client-go", true, "measure the client-go programs too")
	flag.BoolVar(&b.kafka, "kafka", true, "measure the bridge into Kafka too")
	flag.BoolVar(&b.onlyMore, "more", false, "measure only what one more sink and one more resource cost")
	short := flag.Bool("short", false, "a quick look: one run of a few thousand pods, to standard output")
	out := flag.String("out", "", "file to write the table to; empty: standard output")
	flag.Parse()
	if *short {
		b.runs, b.pods, b.updates, b.large, *out = 1, 5000, 5000, 0, ""
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := b.run(ctx, *out); err != nil {
		log.Fatal(err)
	}
}

// bench is what is measured, and what was.
type bench struct {
	bin, work           string
	runs                int
	pods, updates       int
	large               int
	slow, kafka         bool
	onlyMore            bool
	results             map[string][]figures // by subject
	floorTLS, floorHTTP [2]float64           // frames a second, µs of CPU per frame
	small, big          []figures            // of the bridge at a tenth of the pods, and at the large number
	more                []figures            // what one more of something costs
	admin               string               // URL of the bridge whose metrics are read
}

func (b *bench) program(name string) string { return filepath.Join(b.bin, name) }

func (b *bench) run(ctx context.Context, out string) (err error) {
	if b.work, err = os.MkdirTemp("", "bridge-bench-"); err != nil {
		return err
	}
	b.results = map[string][]figures{}
	began := time.Now()
	if err := b.floors(ctx); err != nil {
		return err
	}
	subjects := []subject{floorToNATS, bridgeToNATS}
	if b.kafka {
		subjects = append(subjects, bridgeToKafka)
	}
	if b.slow {
		subjects = append(subjects, dynamicClient, typedClient)
	}
	if b.onlyMore {
		subjects = nil
	}
	for n := range b.runs {
		for _, s := range subjects {
			b.say(began, "run %d of %d: %s", n+1, b.runs, s.name)
			f, err := b.measure(ctx, s, b.pods, b.updates, s.name != typedClient.name)
			if err != nil {
				return err
			}
			b.results[s.name] = append(b.results[s.name], f)
			b.say(began, "   %.1f µs of CPU per update, %.0f updates/s, sync in %.1f s, peak %.0f MB", f[updateCPU], f[updateRate], f[syncTime], f[syncPeak])
		}
		if err := b.scale(ctx, began); err != nil {
			return err
		}
		if b.large > 0 || b.onlyMore {
			b.say(began, "   one more sink, one more resource")
			f, err := b.measureMore(ctx)
			if err != nil {
				return err
			}
			b.more = append(b.more, f)
		}
	}
	report := b.report()
	if out == "" {
		fmt.Print(report)
		return os.RemoveAll(b.work)
	}
	if err := os.WriteFile(out, []byte(report+kept(out)), 0o644); err != nil {
		return err
	}
	b.say(began, "written to %s", out)
	return os.RemoveAll(b.work)
}

// kept is what people wrote below the tables.
func kept(path string) string {
	const mark = "\n<!-- end of what make bench writes -->"
	before, err := os.ReadFile(path)
	if err != nil {
		return mark + "\n"
	}
	_, text, _ := strings.Cut(string(before), mark)
	return mark + text
}

func (b *bench) floors(ctx context.Context) (err error) {
	if b.floorTLS[0], b.floorTLS[1], err = b.floor(ctx, b.pods, false); err == nil {
		b.floorHTTP[0], b.floorHTTP[1], err = b.floor(ctx, b.pods, true)
	}
	return err
}

// scale measures the bridge in a small cluster and in a large one.
func (b *bench) scale(ctx context.Context, began time.Time) error {
	if b.large == 0 || b.onlyMore {
		return nil
	}
	for _, c := range []struct {
		pods int
		to   *[]figures
	}{{b.pods / 10, &b.small}, {b.large, &b.big}} {
		b.say(began, "   bridge, %d pods", c.pods)
		f, err := b.measure(ctx, bridgeToNATS, c.pods, b.updates, false)
		if err != nil {
			return err
		}
		*c.to = append(*c.to, f)
	}
	return nil
}

func (b *bench) say(began time.Time, format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%5.0fs  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, args...))
}
