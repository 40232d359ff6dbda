package reflector_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// quietStore takes everything.
type quietStore struct{}

func (quietStore) Add(context.Context, *resource.Object) error              { return nil }
func (quietStore) Update(context.Context, *resource.Object) error           { return nil }
func (quietStore) Delete(context.Context, *resource.Object) error           { return nil }
func (quietStore) Bookmark(context.Context, resource.Version) error         { return nil }
func (quietStore) BeginReplace(context.Context, resource.Relist) error      { return nil }
func (quietStore) Replace(context.Context, *resource.Object) error          { return nil }
func (quietStore) EndReplace(context.Context, resource.Version) error       { return nil }
func (quietStore) Unselected(context.Context, *resource.Object, bool) error { return nil }
func (quietStore) Progress(context.Context, resource.Version) error         { return nil }
func (quietStore) Quarantine(context.Context, *resource.Unreadable) error   { return nil }
func (quietStore) Skip(context.Context, resource.Identity) error            { return nil }
func (quietStore) Flush()                                                   {}

// A clock bounds the time of every version, also where resources are of two etcds whose versions
// have nothing to do with each other, and through a restart.
func TestClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		etcds := map[string]*testkit.Server{
			"pods": testkit.NewServer(t, pods), "widgets": testkit.NewServer(t, widgets),
		}
		etcds["widgets"].Skip(7)
		types := map[string]resource.Type{"pods": pods, "widgets": widgets}
		var saved []byte
		clock := reflector.NewClock(nil, func(form []byte) error { saved = form; return nil },
			slog.New(slog.DiscardHandler))
		ended := make(chan error, 1)
		go func() { ended <- clock.Run(t.Context()) }()
		for name, server := range etcds {
			server.Create("shop/first", nil)
			r, err := reflector.New(reflector.Config{
				Client: &reflector.Client{HTTP: server.HTTP(), Base: server.URL(), Clock: clock},
				Store:  quietStore{}, Type: types[name], Snapshot: true,
			})
			testkit.OK(t, err)
			go func() { _ = r.Run(t.Context()) }()
			synctest.Wait()
		}
		type made struct {
			of      string
			version resource.Version
			at      time.Time
		}
		var writes []made
		for i := range 500 {
			time.Sleep(time.Duration(i%7) * 1500 * time.Millisecond)
			for name, server := range etcds {
				if name == "pods" || i%5 == 0 {
					version := server.Create(resource.MakeKey("shop", fmt.Sprint("o", i)), nil)
					writes = append(writes, made{name, version, time.Now()})
				}
			}
		}
		check := func(clock *reflector.Clock, writes []made, width time.Duration) {
			t.Helper()
			for _, w := range writes {
				since, isKnown := clock.Since(types[w.of].String(), w.version.Before())
				if !isKnown || since.After(w.at) || w.at.Sub(since) > width {
					t.Fatalf("%s %s was made at %s, since %s (%t)", w.of, w.version, w.at, since, isKnown)
				}
			}
		}
		synctest.Wait()
		check(clock, writes, time.Hour) // thinned
		check(clock, writes[len(writes)-100:], 20*time.Second)
		time.Sleep(reflector.ClockPeriod)
		synctest.Wait()
		next := reflector.NewClock(saved, func([]byte) error { return errors.New("not now") }, slog.New(slog.DiscardHandler))
		check(next, writes, 24*time.Hour)
		check(next, writes[len(writes)-20:], 20*time.Second)
		at, isEarlier := next.Watched()
		if want, is := clock.Watched(); !at.Equal(want) || !isEarlier || is {
			t.Errorf("it was saved at %s in an earlier run (%t), want %s (%t)", at, isEarlier, want, is)
		}
	})
}
