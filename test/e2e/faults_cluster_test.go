package e2e_test

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/kubebridge/bridge/test/e2e/faults"
)

// What answers at the API server's address after a cut is another cluster: the bridge must end
// before it has read anything of it. When the cluster is back, it continues as if nothing had been.
func clusterIsReplaced(f *faultRun) {
	p := f.front()
	b := f.faulted()
	f.start(b)
	f.change()
	time.Sleep(*faultsTime / 3)
	identity := func(r faults.Request) bool { return strings.HasSuffix(r.Path, "/namespaces/kube-system") }
	p.Answer(1000, identity, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"kube-system","uid":"of-another"}}`))
	})
	p.Cut()
	ctx, cancel := context.WithTimeout(f.ctx, time.Minute)
	defer cancel()
	code, err := b.Wait(ctx)
	must(f.t, err)
	if code != 2 || !strings.Contains(b.Log.String(), "another cluster") {
		f.t.Errorf("exit code %d, want 2 and a word about another cluster; the log is\n%s", code, b.Log)
	}
	p.Heal()
	f.start(b)
	f.calm()
	f.exact(b)
	f.stop(b)
}
