package sinks_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks"
)

func TestSizeLimit(t *testing.T) {
	at := func(most int) func() (int, error) { return func() (int, error) { return most, nil } }
	denied := func() (int, error) { return 0, errors.New("no right to read it") }
	want := func(t *testing.T, l *sinks.SizeLimit, most int) {
		t.Helper()
		if got := l.Load(); got != most {
			t.Fatalf("the limit is %d, want %d", got, most)
		}
	}
	t.Run("a lowered limit is read, and read again until it is raised", func(t *testing.T) {
		l := sinks.NewSizeLimit(5000)
		if !l.Refuse(4000, at(2000)) {
			t.Error("no smaller form is tried")
		}
		want(t, l, 2000)
		if l.Refresh(at(2000)) || l.Refresh(denied) {
			t.Error("the limit is raised")
		}
		want(t, l, 2000)
		if !l.Refresh(at(6000)) {
			t.Error("the limit is not raised")
		}
		want(t, l, 6000)
		if l.Refresh(at(1)) {
			t.Error("a limit that nothing exceeds was read")
		}
	})
	t.Run("a message that was known not to fit changes nothing", func(t *testing.T) {
		l := sinks.NewSizeLimit(1000)
		if l.Refuse(1001, at(500)) {
			t.Error("a smaller form is tried")
		}
		want(t, l, 1000)
	})
	t.Run("a limit that can't be read, or is not the cause, is the refused size", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l := sinks.NewSizeLimit(0)
			if !l.Refuse(4000, denied) || !l.Refuse(3999, at(10_000)) {
				t.Error("no smaller form is tried")
			}
			want(t, l, 3998)
			if l.Refresh(denied) {
				t.Error("the limit is dropped at once")
			}
			want(t, l, 3998)
			time.Sleep(time.Minute)
			if !l.Refresh(denied) {
				t.Error("the limit is still believed later")
			}
			want(t, l, 0)
		})
	})
}

func TestDeadLetter(t *testing.T) {
	refused := &sinks.Error{Class: sinks.Refused, Err: sinks.ErrTooLarge}
	away := &sinks.Error{Class: sinks.Reconnect, Err: errors.New("away")}
	to := event.Attribute{Name: "deadlettertopic", Value: "pods"}
	long := strings.Repeat("ä", 1000)
	for name, c := range map[string]struct {
		answers []error
		want    error
		sent    int
	}{
		"a letter that is stored is sent once":         {[]error{nil}, nil, 1},
		"one that waits is not made smaller":           {[]error{away}, away, 1},
		"one that is too large goes without its data":  {[]error{refused, nil}, nil, 2},
		"then with its attributes cut":                 {[]error{refused, refused, nil}, nil, 3},
		"what is refused in the end is the caller's":   {[]error{refused, refused, refused}, refused, 3},
		"the second attempt may have to wait, as well": {[]error{refused, away}, away, 2},
	} {
		t.Run(name, func(t *testing.T) {
			e := &event.Event{ID: "uid/1", ObjectAttributes: event.ObjectAttributes{Name: long}, Data: []byte("payload"), Extensions: []event.Attribute{{Name: "team", Value: long}}}
			var sent []*event.Event
			err := sinks.DeadLetter(t.Context(), e, errors.New("too\n large\x00"+long), 3, to, func(_ context.Context, letter *event.Event) error {
				copied := *letter
				copied.Extensions = slices.Clone(letter.Extensions)
				sent = append(sent, &copied)
				return c.answers[len(sent)-1]
			})
			if !errors.Is(err, c.want) || len(sent) != c.sent {
				t.Fatalf("%v after %d letters", err, len(sent))
			}
			if e.Data == nil || len(e.Extensions) != 1 {
				t.Error("the event has changed")
			}
			first := sent[0].Extensions
			if reason := first[1].Value; !strings.HasPrefix(reason, "too large ä") || len(reason) > 1024 || first[2].Value != "3" || first[3] != to {
				t.Errorf("attributes %q", first)
			}
			if len(sent) > 1 && (sent[1].Data != nil || sent[1].Extensions[5] != (event.Attribute{Name: "originalsize", Value: "7"})) {
				t.Errorf("the second letter has %q", sent[1].Extensions)
			}
			if len(sent) > 2 && (len(sent[2].Name) > 256 || len(sent[2].Extensions[0].Value) > 256) {
				t.Error("the third letter is not cut")
			}
		})
	}
}
