package e2e_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGettingStarted carries out the commands of docs/getting-started.md in a fresh clone, with the
// test's cluster in place of kind's.
func TestGettingStarted(t *testing.T) {
	t.Parallel()
	w := newWalk(t)
	t.Cleanup(func() { w.run("kubectl delete deployment web --ignore-not-found") })
	const page = "docs/getting-started.md"
	text, err := os.ReadFile(filepath.Join("../..", page))
	must(t, err)
	steps, known := w.firstSteps(), map[string]bool{}
	w.page(page, string(text), steps, known)
	w.stopBridge()
	for command := range steps {
		if !known[command] {
			t.Errorf("%s has the command %q no more", page, command)
		}
	}
}

// firstSteps are what the commands of docs/getting-started.md have to show.
func (w *walk) firstSteps() map[string]func(*readmeCommand) {
	return map[string]func(*readmeCommand){
		"kind create cluster": func(*readmeCommand) {},
		"make build":          w.prints(),
		"bin/bridge run":      func(c *readmeCommand) { w.runBridge(c.text, w.natsAddress()) },

		"kubectl create deployment web --image=nginx":         w.prints(`^deployment.apps/web created$`),
		"kubectl scale deployment web --replicas=3":           w.prints(`^deployment.apps/web scaled$`),
		"bin/bridge history deploy/web --field spec.replicas": w.waits(`added +kubectl-create .* 1$`, `updated +\S+ +\d+ +1 +3$`),
		"bin/bridge timeline --since 10m":                     w.prints(`Deployment/web`),
		"bin/bridge status":                                   w.prints(`ready`),

		"bin/bridge validate bridge.yaml": func(c *readmeCommand) {
			w.prints(`^bridge.yaml is good: 1 informer, 1 sink$`)(c)
			file := filepath.Join(w.dir, "bridge.yaml")
			text, err := os.ReadFile(file)
			must(w.t, err)
			here := strings.Replace(string(text), "nats://nats.example.com:4222", startNATS(w.t, ""), 1)
			must(w.t, os.WriteFile(file, []byte(here), 0o600))
		},
		"bin/bridge validate bridge.yaml --live": w.prints(`^bridge.yaml is good`),
		"bin/bridge run --config bridge.yaml":    func(c *readmeCommand) { w.runBridge(c.text) },
	}
}
