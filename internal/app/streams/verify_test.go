package streams_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/streams"
	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/verify"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A kind, a namespace and a time narrow what is checked: only what is wrong in there is found.
func TestVerifyNarrowed(t *testing.T) {
	events := testkit.Events(t, 3, 60, 6)
	for i := range events {
		events[i].Time = time.Date(2026, 1, 1, 0, 0, i, 0, time.UTC)
	}
	lost := slices.IndexFunc(events, func(e event.Event) bool { return e.Op == event.Updated && e.Previous != "" })
	gone := events[lost]
	events = slices.Delete(events, lost, lost+1)
	path := filepath.Join(t.TempDir(), "events.json")
	var text []byte
	for i := range events {
		text = append(event.AppendStructured(text, &events[i]), '\n')
	}
	testkit.OK(t, os.WriteFile(path, text, 0o600))
	last := events[len(events)-1]
	resource := strings.TrimSuffix(gone.Resource+"."+gone.Group, ".")
	for _, test := range []struct {
		name     string
		narrow   func(o *streams.VerifyOptions)
		isBroken bool
		want     func(e *event.Event) bool
	}{
		{"by nothing", func(*streams.VerifyOptions) {}, true, func(*event.Event) bool { return true }},
		{"to its kind", func(o *streams.VerifyOptions) { o.Kinds = []string{strings.ToLower(gone.Kind)} }, true, func(e *event.Event) bool { return e.Resource == gone.Resource }},
		{"to its resource and group", func(o *streams.VerifyOptions) { o.Kinds = []string{resource} }, true, func(e *event.Event) bool { return e.Resource == gone.Resource }},
		{"to its namespace", func(o *streams.VerifyOptions) { o.Namespace = gone.Namespace }, true, func(e *event.Event) bool { return e.AboutInformer() || e.Namespace == gone.Namespace }},
		{"to another namespace", func(o *streams.VerifyOptions) { o.Namespace = "no-such" }, false, func(e *event.Event) bool { return e.AboutInformer() }},
		{"to what came later", func(o *streams.VerifyOptions) { o.Since = last.Time }, false, func(e *event.Event) bool { return e.AboutInformer() || !e.Time.Before(last.Time) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := streams.VerifyOptions{SourceOptions: streams.SourceOptions{From: path, Config: &config.Config{}, Patience: time.Second}}
			test.narrow(&o)
			r, err := streams.Verify(t.Context(), o)
			testkit.OK(t, err)
			want := 0
			for i := range events {
				if test.want(&events[i]) {
					want++
				}
			}
			if (r.Faults[verify.Break] > 0) != test.isBroken || r.Events != want {
				t.Errorf("%d events, want %d; %v", r.Events, want, r.Faults)
			}
		})
	}
	o := streams.VerifyOptions{SourceOptions: streams.SourceOptions{From: path, Config: &config.Config{}, Patience: time.Second}, Kinds: []string{"nothing"}}
	if _, err := streams.Verify(t.Context(), o); !errors.Is(err, streams.ErrNoKind) {
		t.Errorf("a kind of which there is none: %v", err)
	}
}
