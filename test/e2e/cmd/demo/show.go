package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kubebridge/bridge/test/e2e/read"
)

// show reads the stream as any NATS client would, and prints the events.
type show struct {
	screen *screen
	url    string
	count  int       // events so far; to be read after run
	whole  time.Time // when an event was last shown with everything in it
}

// run shows events until ctx ends.
func (s *show) run(ctx context.Context) error {
	conn, err := nats.Connect(s.url)
	if err != nil {
		return fmt.Errorf("connect to the embedded NATS server: %w", err)
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	consumer, err := js.OrderedConsumer(ctx, "K8S", jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	messages, err := consumer.Messages()
	if err != nil {
		return err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	s.header()
	for {
		msg, err := messages.Next()
		if err != nil {
			return unlessStopped(ctx, err)
		}
		e, err := read.FromNATS(ctx, msg)
		if err != nil {
			return err
		}
		s.show(&e)
	}
}

// How wide the columns are; a subject gets what the others leave.
const (
	timeWidth, opWidth, sizeWidth    = 12, 7, 5
	minSubjectWidth, maxSubjectWidth = 24, 76
	gaps                             = 2 * 5
	wide                             = 160 // a terminal that has room for whole ids
)

// layout is how wide the columns are that depend on the terminal.
func (s *show) layout() (subject, manager, id int) {
	manager, id = 23, len("76f76fe1-6e4c-47df-b2a4-d9d4787191c5/1234567")
	if s.screen.width < wide {
		manager, id = 16, len("76f76fe1…/deleted")-len("…")+1
	}
	rest := s.screen.width - timeWidth - opWidth - sizeWidth - manager - id - gaps
	return min(max(rest, minSubjectWidth), maxSubjectWidth), manager, id
}

func (s *show) row(at, op, subject, size, manager, id string) string {
	subjectWidth, managerWidth, _ := s.layout()
	return fmt.Sprintf("%-*s  %s  %-*s  %*s  %-*s  %s", timeWidth, at, op, subjectWidth, shorten(subject, subjectWidth),
		sizeWidth, size, managerWidth, cut(manager, managerWidth), id)
}

func (s *show) header() {
	s.screen.line("%s", s.screen.paint(dim, s.row("ARRIVED", pad("TYPE"), "SUBJECT", "BYTES", "MANAGER", "ID")))
}

func pad(op string) string { return fmt.Sprintf("%-*s", opWidth, op) }

// show prints an event on one line, and one with everything in it from time to time.
func (s *show) show(e *read.Event) {
	s.count++
	op := s.screen.paint(colorOf(e.Op()), pad(e.Op()))
	s.screen.line("%s", s.row(time.Now().Format("15:04:05.000"), op, e.Subject(), fmt.Sprint(len(e.Data())), e.Attribute("manager"), s.id(e)))
	const often, some = 20 * time.Second, 10
	if e.AboutObject() && s.count > some && time.Since(s.whole) > often {
		s.whole = time.Now()
		s.everything(e)
	}
}

func colorOf(op string) string {
	switch op {
	case "added":
		return green
	case "updated":
		return yellow
	case "deleted":
		return red
	}
	return cyan
}

// id is the event's id, with a shorter uid where the terminal is too narrow for all of it.
func (s *show) id(e *read.Event) string {
	uid := e.Attribute("uid")
	if _, _, room := s.layout(); len(e.ID()) > room && len(uid) > 8 {
		return strings.Replace(e.ID(), uid, uid[:8]+"…", 1)
	}
	return e.ID()
}

// shorten takes characters out of the middle.
func shorten(text string, n int) string {
	if len(text) <= n {
		return text
	}
	keep := n * 3 / 4 // of the end, where the name is
	return text[:n-keep-1] + "…" + text[len(text)-keep:]
}

// everything prints all attributes of an event, as the CloudEvents SDK reads them, and the
// beginning of its payload.
func (s *show) everything(e *read.Event) {
	rows := [][2]string{
		{"specversion", e.SpecVersion()},
		{"id", e.ID()},
		{"source", e.Source()},
		{"type", e.Type()},
		{"subject", e.Subject()},
		{"time", e.Time().Format(time.RFC3339Nano)},
		{"datacontenttype", e.DataContentType()},
	}
	for _, name := range slices.Sorted(maps.Keys(e.Extensions())) {
		rows = append(rows, [2]string{name, e.Attribute(name)})
	}
	rows = append(rows, [2]string{"data", cut(string(e.Data()), min(s.screen.width, 160)-21)})
	var out strings.Builder
	fmt.Fprintf(&out, "  ┌ all of this event, as any CloudEvents reader gets it from NATS subject %s\n", e.NATSSubject)
	for _, row := range rows {
		fmt.Fprintf(&out, "  │ %s  %s\n", s.screen.paint(cyan, fmt.Sprintf("%-15s", row[0])), row[1])
	}
	fmt.Fprintf(&out, "  └ %d bytes of data\n", len(e.Data()))
	s.screen.line("%s", strings.TrimSuffix(out.String(), "\n"))
}
