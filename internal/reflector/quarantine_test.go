package reflector_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

const poison = `{"metadata":{"name":"a","resourceVersion":"98"},"poison":true}`

// A frame that can't be understood is quarantined, and a list follows.
func TestQuarantinedFrame(t *testing.T) {
	tests := map[string]string{
		"an unknown type":      `{"type":"CHANGED","object":` + poison + `}`,
		"no metadata":          `{"type":"ADDED","object":{"poison":true}}`,
		"another kind":         `{"type":"ADDED","object":{"kind":"Table","metadata":{"name":"a","resourceVersion":"98"},"poison":true}}`,
		"bad JSON":             `{"type":"ADDED","object":{"poison":tru}}`,
		"no object":            `{"type":"ADDED","poison":true}`,
		"no frame":             `["poison"]`,
		"two types":            `{"type":"ADDED","object":` + poison + `,"type":"DELETED"}`,
		"two objects":          `{"type":"ADDED","object":` + poison + `,"object":` + poison + `}`,
		"a bookmark of what":   `{"type":"BOOKMARK","object":{"poison":true}}`,
		"an object, then what": `{"object":{"poison":true},"type":"ADDED"}`,
		"too large": `{"type":"ADDED","object":{"poison":"` + strings.Repeat("x", 5000) +
			`"}}`,
	}
	for name, frame := range tests {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, pods)
				c.follow(pods, func(cfg *reflector.Config) {
					cfg.From = c.Version()
					cfg.MaxFrame = 4096
				})
				c.Skip(1)
				c.Streams.Raw(frame)
				c.later(2 * time.Second)
				c.expect("begin unreadable 97..98", "end 98")
				if len(c.store.quarantined) != 1 || len(c.store.quarantined[0]) > 4500 {
					t.Fatalf("quarantined: %q", c.store.quarantined)
				}
				withheld := name == "another kind" // which may be a Secret
				if strings.Contains(c.store.quarantined[0], "poison") == withheld && name != "no object" {
					t.Errorf("quarantined: %q", c.store.quarantined)
				}
				if got := c.metric("quarantined_total", ""); got != 1 {
					t.Errorf("quarantined_total = %v", got)
				}
				c.create("shop/b")
				c.expect("add shop/b@99")
			})
		})
	}
}

// The type may come after the object.
func TestTypeAfterObject(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, c.from(c.Version()))
		c.Streams.Raw(`{"more":[1],"object":{"metadata":{"name":"a","resourceVersion":"98"}},"type":"ADDED","and":{}}`)
		c.expect("add a@98")
	})
}

// A list that can't be read to its end is not repeated without a pause.
func TestUnreadableList(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.Faults.Answer(testkit.Lists, -1, page("98", "", `[{"metadata":{"name":nobody}}]`))
		c.follow(pods, func(cfg *reflector.Config) { cfg.DisableWatchList = true })
		c.later(time.Hour)
		if got := len(c.Requests(testkit.Lists)); got < 60 || got > 125 {
			t.Errorf("%d lists in an hour", got)
		}
		if c.refl.Status().Synced {
			t.Error("synced without the object that could not be read")
		}
	})
}

// Many events that can't be read do not cause a list each.
func TestUnreadableEvents(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, c.from(c.Version()))
		for range 3600 { // every second a frame that can't be read, while lists go well
			c.Streams.Raw(`{"type":"ADDED","object":{}}`)
			c.later(time.Second)
		}
		if got := c.refl.Status().Relists["unreadable"]; got < 60 || got > 130 {
			t.Errorf("%d relists in an hour", got)
		}
	})
}

// Half a frame is a cut connection.
func TestHalfFrame(t *testing.T) {
	run(t, func(t *testing.T) {
		c := newCluster(t, pods)
		c.follow(pods, c.from(c.Version()))
		c.later(2 * time.Second)
		c.Streams.Raw(`{"type":"ADDED","object":{"metadata":{"na`)
		c.Streams.Close()
		synctest.Wait()
		c.create("shop/a")
		c.later(2 * time.Second)
		c.expect("add shop/a@98")
		c.expectRequests(testkit.Lists, 0, "lists")
		if len(c.store.quarantined) != 0 {
			t.Errorf("quarantined: %q", c.store.quarantined)
		}
	})
}

// Bytes of secrets are not quarantined.
func TestQuarantineOfSecrets(t *testing.T) {
	redactor, err := resource.NewRedactor([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{
		"a wrong type": `"hunter2"`, "bad JSON": `{"hunter2":hunter2}`,
		"half an escape": `{"p":"hunter2\u12x"}`,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T) {
				c := newCluster(t, secrets)
				c.follow(secrets, func(cfg *reflector.Config) {
					cfg.From,
						cfg.Parse.Redactor = c.Version(), redactor
				})
				c.Streams.Raw(`{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"98"},"data":` + data + `}}`)
				synctest.Wait()
				if len(c.store.quarantined) != 1 || strings.Contains(c.store.quarantined[0], "hunter2") ||
					strings.Contains(c.store.quarantined[0], "12x") {
					t.Errorf("quarantined: %q", c.store.quarantined)
				}
				if got := c.refl.Status().LastError; strings.Contains(got, "hunter2") ||
					strings.Contains(got, "12x") || got == "" {
					t.Errorf("LastError = %q", got)
				}
			})
		})
	}
}

// A secret is handed on redacted.
func TestRedactedSecret(t *testing.T) {
	run(t, func(t *testing.T) {
		redactor, err := resource.NewRedactor([]byte("0123456789abcdef"))
		if err != nil {
			t.Fatal(err)
		}
		c := newCluster(t, secrets)
		c.follow(secrets, func(cfg *reflector.Config) {
			cfg.From = c.Version()
			cfg.Parse.Redactor = redactor
		})
		c.Streams.Raw(`{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"98"},"data":{"p":"aHVudGVyMg=="}}}`)
		synctest.Wait()
		if raw := string(c.store.last().Raw); strings.Contains(raw, "aHVudGVyMg") ||
			!strings.Contains(raw, "redacted:") {
			t.Errorf("Raw = %s", raw)
		}
	})
}

// What is quarantined has the same id, wherever the stream is cut.
func TestQuarantineID(t *testing.T) {
	tests := map[string]struct{ reason, frame string }{
		"bad JSON": {"syntax", `{"type":"ADDED","object":{"poison":tru}}`},
		"too large": {"too-large", `{"type":"ADDED","object":{"poison":"` +
			strings.Repeat("x", 9000) + `"}}`},
		"no metadata":  {"incomplete", `{"type":"ADDED","object":{"poison":true}}`},
		"another kind": {"wrong-kind", `{"type":"ADDED","object":{"kind":"Table"}}`},
		"no frame":     {"unexpected", `["poison"]`},
		"no object":    {"wrong-type", `{"type":"ADDED","object":[]}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ids := map[string]bool{}
			for _, more := range []string{"", `{"type":"ADDED","object":{}}`} {
				run(t, func(t *testing.T) {
					c := newCluster(t, pods)
					c.follow(pods, func(cfg *reflector.Config) {
						cfg.From,
							cfg.MaxFrame = c.Version(), 4096
					})
					c.Streams.Raw(tt.frame + more)
					synctest.Wait()
					if len(c.store.unreadable) != 1 {
						t.Fatalf("quarantined: %q", c.store.quarantined)
					}
					u := c.store.unreadable[0]
					if u.Reason != tt.reason || c.metric("quarantined_total", tt.reason) != 1 {
						t.Errorf("reason %s, want %s", u.Reason, tt.reason)
					}
					ids[u.ID()] = true
				})
			}
			if len(ids) != 1 {
				t.Errorf("ids %v", ids)
			}
		})
	}
}
