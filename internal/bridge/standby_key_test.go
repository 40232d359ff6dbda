package bridge_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/testkit"
)

func TestRedactionKeysOfReplicas(t *testing.T) {
	const one, two = "a key of 16 bytes or more", "another key of 16 bytes"
	isFingerprint := regexp.MustCompile(`redacted:[0-9a-f]{8}:[0-9a-f]{16}`)
	// takeover kills the leader behind one version of an object, and gives the fingerprints of all
	// that were sent, and what the standby said of itself before.
	takeover := func(t *testing.T, first, second string) (sent []string, notReady string, differs float64) {
		p := newPair(t)
		registry := prometheus.NewRegistry()
		p.second.cfg.Registerer = registry
		p.cfg.Units[0] = redactingWith(t, p.cfg.Units[0], "spec.x", first)
		p.second.cfg.Units[0] = redactingWith(t, p.second.cfg.Units[0], "spec.x", second)
		change := func(n int) {
			p.Update("shop/a", func(obj map[string]any) { obj["spec"] = map[string]any{"x": "hunter2", "n": n} })
			p.Streams.Bookmark()
			p.settle()
		}
		change(1)
		p.start()
		p.second.start()
		change(2)
		p.inSync()
		p.settle()
		time.Sleep(5 * time.Second)
		for _, reason := range p.second.Ready() {
			notReady += reason.String()
		}
		differs = testkit.Metric(t, registry, "bridge_standby_redaction_key_differs")
		p.die()
		p.takesOver()
		change(3)
		for _, rec := range p.broker.Records() {
			sent = append(sent, isFingerprint.FindAllString(string(rec.Data), -1)...)
		}
		p.endSecond()
		return sent, notReady, differs
	}
	t.Run("with one key a takeover changes no hash", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sent, notReady, differs := takeover(t, one, one)
			if len(sent) < 3 || len(slices.Compact(sent)) != 1 {
				t.Errorf("sent %s", sent)
			}
			if notReady != "" || differs != 0 {
				t.Errorf("%q, and the metric is %v", notReady, differs)
			}
		})
	})
	t.Run("with two keys the standby is not ready and says why, and still takes over", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			sent, notReady, differs := takeover(t, one, two)
			if len(sent) < 3 || len(slices.Compact(sent)) != 2 {
				t.Errorf("sent %s", sent)
			}
			if !strings.HasPrefix(notReady, "redaction: this replica redacts with key ") || !strings.Contains(notReady, "redaction.keyFile") {
				t.Errorf("it says %q", notReady)
			}
			if differs != 1 {
				t.Errorf("the metric is %v", differs)
			}
		})
	})
}
