package event_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
)

func TestPanic(t *testing.T) {
	for name, tt := range map[string]struct {
		fail func()
		want string
	}{
		"of the runtime":      {func() { _ = []int{}[len(t.Name())] }, "panic: runtime error: index out of range"},
		"that quotes objects": {func() { panic(errors.New("hunter2")) }, "panic: *errors.errorString"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &event.Change{
				Op: event.Added, Key: "shop/web", Object: &resource.Object{Raw: []byte(`{"kind":"Deployment"}`)}, UID: "u", Version: "7",
			}
			e := newMaker(t, event.MakerConfig{Type: deployments, Trace: func(string, string) string { tt.fail(); return "" }}).Object(c)
			if _, ok := errors.AsType[*event.PanicError](e.Err); !ok || !strings.HasPrefix(e.Err.Error(), tt.want) || len(e.Err.Error()) > 200 {
				t.Errorf("%v", e.Err)
			}
			if e.Data != nil || e.ID == "" || e.Subject == "" || e.ResourceVersion != "7" {
				t.Errorf("%+v", e)
			}
			var log bytes.Buffer
			slog.New(slog.NewTextHandler(&log, nil)).Error("failed", "err", e.Err)
			if !strings.Contains(log.String(), "TestPanic") || strings.Contains(log.String(), "hunter2") {
				t.Errorf("want the stack and no object: %s", log.String())
			}
		})
	}
}
