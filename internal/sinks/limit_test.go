package sinks_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

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
