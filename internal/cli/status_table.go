package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/informer"
)

// writeJSON writes what the bridge has said, as one document or one line.
func (a *answer) writeJSON(w io.Writer, pretty bool) error {
	if pretty {
		return terminal.PrintIndented(w, a.raw)
	}
	var line bytes.Buffer
	if err := json.Compact(&line, a.raw); err != nil {
		return err
	}
	line.WriteByte('\n')
	_, err := line.WriteTo(w)
	return err
}

// writeYAML writes a document that others may follow.
func (a *answer) writeYAML(w io.Writer) error {
	if _, err := io.WriteString(w, "---\n"); err != nil {
		return err
	}
	return terminal.PrintYAML(w, json.RawMessage(a.raw))
}

// writeTable writes for people. Rates need the answer before, which may be nil.
func (a *answer) writeTable(w io.Writer, before *answer) error {
	a.writeHead(w)
	if a.Status == nil {
		return nil
	}
	t := terminal.NewTable(w)
	fmt.Fprintln(t, "\nINFORMER\tRESOURCE\tPHASE\tOBJECTS\tVERSION\tLAG\tBEHIND\tWAITING\tON "+
		"DISK\tGAPS\tLAST ERROR")
	for i := range a.Informers {
		writeUnit(t, &a.Informers[i])
	}
	if err := t.Flush(); err != nil { // the columns of what follows are others
		return err
	}
	fmt.Fprintln(t, "\nSINK\tBROKER\tPUBLISHED\tPER SECOND\tITEMS\tBYTES\tOLDEST\tRETRIES\tDEAD "+
		"LETTERS\tLAST ERROR")
	for i := range a.Sinks {
		a.writeSink(t, &a.Sinks[i], before)
	}
	return t.Flush()
}

func (a *answer) writeHead(w io.Writer) {
	state := "ready"
	if !a.Ready {
		state = "not ready"
	}
	name := "bridge"
	if a.Status != nil {
		name = a.Cluster
	}
	fmt.Fprintf(w, "%s: %s (bridge %s, runs for %s)\n", name, state,
		cmp.Or(a.Version, "of unknown version"), sinceStart(a.Started))
	for _, r := range a.Reasons {
		fmt.Fprintf(w, "  %s: %s", r.What, terminal.OneLine(r.Message))
		if !r.Since.IsZero() {
			fmt.Fprintf(w, " (for %v)", time.Since(r.Since).Round(time.Second))
		}
		fmt.Fprintln(w)
	}
	if s := a.Status; s != nil {
		fmt.Fprintf(w, "state: %s, %s\n", cmp.Or(s.State.Dir, "in memory"),
			terminal.Bytes(int64(s.State.Bytes)))
	}
}

func writeUnit(w io.Writer, u *informer.Status) {
	resource, objects, behind := u.Resource, "-", "-"
	if u.Namespace != "" {
		resource += " in " + u.Namespace
	}
	if u.Objects != nil {
		objects = strconv.Itoa(*u.Objects)
	}
	if u.VersionsBehind != nil {
		behind = strconv.FormatUint(*u.VersionsBehind, 10)
	}
	phase := u.Phase
	if !u.Synced {
		phase += " (not in sync)"
	}
	gaps := 0
	for _, n := range u.Gaps {
		gaps += n
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%s\n", u.Informer, resource, phase,
		objects, cmp.Or(u.Version, "-"),
		age(u.OldestSeconds), behind, terminal.Bytes(int64(u.QueuedBytes+u.LogBytes)),
		terminal.Bytes(u.SpoolBytes), gaps, cmp.Or(terminal.OneLine(u.LastError), "-"))
}

func (a *answer) writeSink(w io.Writer, s *bridge.SinkStatus, before *answer) {
	broker := "connected"
	switch {
	case !s.Opened:
		broker = "not open yet"
	case !s.Connected:
		broker = "unavailable"
	case s.Blocked != "":
		broker = "blocked"
	case s.Paused:
		broker = "paused"
	}
	lastError := "-"
	if s.LastError != "" {
		lastError = fmt.Sprintf("%s (%v ago)", terminal.OneLine(s.LastError),
			time.Since(s.LastErrorAt).Round(time.Second))
	}
	fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%d\t%s\t%s\t%d\t%d\t%s\n", s.Name, broker, s.Published,
		a.rate(s, before),
		s.QueuedItems, terminal.Bytes(int64(s.QueuedBytes)), seconds(s.OldestSeconds), s.Retries,
		s.DeadLetters, lastError)
}

// rate is what a sink has published per second since the answer before.
func (a *answer) rate(s *bridge.SinkStatus, before *answer) string {
	if before == nil || before.Status == nil {
		return "-"
	}
	i := slices.IndexFunc(before.Sinks,
		func(other bridge.SinkStatus) bool { return other.Name == s.Name })
	if i < 0 || before.Sinks[i].Published > s.Published { // it was started again
		return "-"
	}
	n := float64(s.Published - before.Sinks[i].Published)
	return strconv.FormatFloat(n/a.at.Sub(before.at).Seconds(), 'f', 1, 64)
}

// age is the oldest of all sinks.
func age(bySink map[string]float64) string {
	return seconds(slices.Max(append(slices.Collect(maps.Values(bySink)), 0)))
}

func sinceStart(began time.Time) string {
	if began.IsZero() {
		return "unknown time"
	}
	return time.Since(began).Round(time.Second).String()
}

// seconds is "0s", "120ms", "3m20s".
func seconds(n float64) string {
	d := time.Duration(n * float64(time.Second))
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
