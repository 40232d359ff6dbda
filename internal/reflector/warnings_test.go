package reflector_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestOneLineForMany(t *testing.T) {
	run(t, func(t *testing.T) {
		var log testkit.Buffer
		c := newCluster(t, pods)
		const objects = 5
		for i := range objects {
			c.Create(resource.MakeKey("shop", fmt.Sprint("poison-", i)), garbled)
		}
		c.follow(pods, func(cfg *reflector.Config) {
			cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
		})
		c.later(time.Second)
		lines := func(level string) (found []string) {
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "can't be understood") && strings.Contains(line, "level="+level) {
					found = append(found, line)
				}
			}
			return found
		}
		if n := len(c.store.unreadable); n != objects {
			t.Fatalf("%d objects were quarantined", n)
		}
		if errors, debug := len(lines("ERROR")), len(lines("DEBUG")); errors != 1 || debug != objects-1 {
			t.Errorf("%d errors and %d debug lines", errors, debug)
		}
		c.later(10 * time.Second)
		c.Update("shop/poison-0", garbled)
		c.later(time.Second)
		if errors := lines("ERROR"); len(errors) != 2 || !strings.Contains(errors[1], "suppressed=4") {
			t.Errorf("after ten seconds: %q", errors)
		}
	})
}
