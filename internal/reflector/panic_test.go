package reflector_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
)

func TestPanic(t *testing.T) {
	selectors := map[string]func(*reflector.Config, func(*resource.Object) bool){
		"Selects": func(cfg *reflector.Config, f func(*resource.Object) bool) { cfg.Selects = f },
		"Matches": func(cfg *reflector.Config, f func(*resource.Object) bool) { cfg.Matches = f },
	}
	for name, set := range selectors {
		for way, change := range ways {
			t.Run("in "+name+", "+way, func(t *testing.T) {
				run(t, func(t *testing.T) {
					c := newCluster(t, widgets)
					fill := func() {
						c.create("shop/a")
						c.Create("shop/b", func(obj map[string]any) { obj["spec"] = "hunter2" })
						c.create("shop/c")
					}
					if way != "watch" {
						fill()
					}
					var log bytes.Buffer
					c.follow(widgets, func(cfg *reflector.Config) {
						change(c, cfg)
						cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
						set(cfg, func(obj *resource.Object) bool {
							if obj.Name == "b" {
								panic(string(obj.Raw))
							}
							return true
						})
					})
					want := []string{
						"begin initial", "replace shop/a@98", "skip shop/b",
						"replace shop/c@100", "end 100",
					}
					if way == "watch" {
						fill()
						want = []string{"add shop/a@98", "add shop/c@100"}
					}
					c.expect(want...)
					if len(c.store.unreadable) != 1 || c.store.unreadable[0].Reason != "panic" ||
						c.store.unreadable[0].Key != "shop/b" ||
						c.metric("quarantined_total", "panic") != 1 {
						t.Errorf("quarantined: %q", c.store.quarantined)
					}
					if text := log.String(); !strings.Contains(text, "panic_test.go") ||
						strings.Contains(text, "hunter2") {
						t.Errorf("log: %s", text)
					}
					c.Delete("shop/b")
					c.create("shop/d")
					c.expect("gone shop/b@101", "add shop/d@102")
				})
			})
		}
	}
	t.Run("in the Store ends the process", func(t *testing.T) {
		run(t, func(t *testing.T) {
			c := newCluster(t, widgets)
			c.create("shop/a")
			r, err := reflector.New(reflector.Config{
				Client: &reflector.Client{
					HTTP: c.HTTP(),
					Base: c.URL(),
				},
				Store: &recorder{fail: func(string) error { panic("wrong state") }}, Type: widgets,
				Snapshot: true,
			})
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if recover() == nil {
					t.Error("it continues")
				}
			}()
			_ = r.Run(t.Context())
		})
	})
}
