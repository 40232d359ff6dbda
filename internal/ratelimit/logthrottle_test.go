package ratelimit_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/ratelimit"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestThrottle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out testkit.Buffer
		log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		var one, another ratelimit.LogThrottle
		for range 3 {
			one.Warn(log, "a fault")
		}
		another.Log(log, slog.LevelError, "another fault")
		time.Sleep(10 * time.Second)
		one.Warn(log, "a fault")
		var got []string
		for line := range strings.Lines(out.String()) {
			_, line, _ = strings.Cut(line, " ") // the time
			got = append(got, strings.TrimSpace(line))
		}
		want := []string{
			`level=WARN msg="a fault" suppressed=0`,
			`level=DEBUG msg="a fault"`,
			`level=DEBUG msg="a fault"`,
			`level=ERROR msg="another fault" suppressed=0`,
			`level=WARN msg="a fault" suppressed=2`,
		}
		if strings.Join(got, "\n") != strings.Join(want, "\n") {
			t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}
