package page_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/heapprofiler"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/performance"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/test/e2e/harness"
)

var (
	largeVersions = flag.Int("large.versions", 20_000, "versions in the history of TestLargeHistory")
	largeQuiet    = flag.Duration("large.quiet", 2*time.Second, "how long the CPU is measured while a view is open")
	largeFlood    = flag.Duration("large.flood", 3*time.Second, "how long Live is looked at while much happens")
)

// The history of TestLargeHistory is a day of 20 namespaces. A tenth of its objects are
// Deployments, a tenth ReplicaSets of these, the others Pods of these.
const (
	largeObjects    = 10_000
	largeNamespaces = 20
	largeTime       = 24 * time.Hour
)

// TestLargeHistory logs what the page takes over a large history: the time to the first row,
// frames, memory of the tab, CPU of the bridge. `make bench-page` does it with 1,000,000 versions;
// the everyday form is small, and only looks at what does not depend on the machine.
func TestLargeHistory(t *testing.T) {
	b := newBrowser(t)
	s, until := newLarge(t)
	b.run(emulation.SetDeviceMetricsOverride(1440, 900, 1, false), chromedp.ActionFunc(func(ctx context.Context) error {
		_, err := cdppage.AddScriptToEvaluateOnNewDocument(watcher).Do(ctx)
		return err
	}))
	tenth := largeTime / time.Duration(max(10, *largeVersions/100_000)) // 100,000 versions, or a tenth of them
	for _, view := range []struct{ name, address string }{
		{"a namespace, an hour", window("shop-0", until, time.Hour)},
		{"a namespace, a day", window("shop-0", until, largeTime)},
		{"all namespaces, a tenth", window("", until, tenth)},
		{"all namespaces, a day", window("", until, largeTime)},
	} {
		b.run(chromedp.Navigate("about:blank"))
		from := processor(t, s.bridge.Pid())
		b.run(chromedp.Navigate(s.bridge.AdminURL() + "/" + view.address))
		b.until("a change", `watched.first > 0`)
		b.until("its difference", `document.querySelector("#timeline-detail .difference pre")`)
		b.until("lanes", `document.querySelector("#lanes .lane")`)
		used := processor(t, s.bridge.Pid()) - from
		asked := b.eval(`performance.getEntriesByType("resource").filter((e) => e.name.includes("history/lanes")).at(-1).duration`)
		t.Logf("%s: %s", view.name, b.text("#timeline-sum"))
		t.Logf("%s: first row after %.0f ms, lanes answered in %.0f ms, with %v of CPU for the view, drawn %.0f ms later", view.name, b.eval(`watched.first`), asked, used, b.eval(`watched.first - performance.getEntriesByType("resource").filter((e) => e.name.includes("history/")).map((e) => e.responseEnd).filter((end) => end <= watched.first).sort((x, y) => x - y).at(-1)`))
		t.Logf("%s: %s", view.name, b.frames(t, `document.querySelector(".list").scrollTop += 60`))
		t.Logf("%s: after scrolling %s", view.name, b.memory(t))
		if nodes := b.eval(`document.querySelectorAll("*").length`).(float64); nodes > 3000 {
			t.Errorf("%s: %v elements", view.name, nodes)
		}
	}
	b.run(chromedp.Navigate(s.bridge.AdminURL() + "/" + window("", until, largeTime)))
	b.until("200 lanes", `document.querySelectorAll("#lanes .lane").length === 200`)
	t.Logf("200 lanes, zoom and pan: %s", b.frames(t, `{ const n = (window.turns = (window.turns ?? 0) + 1); if (n % 6 === 0) dispatchEvent(new KeyboardEvent("keydown", {key: ["+", "[", "-", "]"][(n / 6) % 4]})) }`))

	for name, address := range map[string]string{"no page": "", "Health": "/#/health", "Timeline": "/#/timeline?ns=shop-0&since=1d"} {
		if b.run(chromedp.Navigate("about:blank")); address != "" {
			b.run(chromedp.Navigate(s.bridge.AdminURL() + address))
			b.until("the state", `!["asking", "no answer"].includes(document.querySelector("#state").textContent)`)
		}
		pause := time.After(time.Second)
		<-pause
		from := processor(t, s.bridge.Pid())
		<-time.After(*largeQuiet)
		t.Logf("CPU of the bridge with %s: %.2f %% of a core", name, 100*float64(processor(t, s.bridge.Pid())-from)/float64(*largeQuiet))
	}
	s.flood(b)
}

// watcher notes when the first row of a list is there, and tasks that keep the page from answering.
const watcher = `
	window.watched = {first: 0, tasks: []};
	new PerformanceObserver((list) => { for (const e of list.getEntries()) watched.tasks.push(e.duration) }).observe({type: "longtask", buffered: true});
	new MutationObserver(() => { if (!watched.first && document.querySelector(".list .rowbutton")) watched.first = performance.now() }).observe(document, {childList: true, subtree: true});`

func window(namespace string, until time.Time, span time.Duration) string {
	return fmt.Sprintf("#/timeline?ns=%s&from=%s&to=%s", namespace, until.Add(-span).Format(time.RFC3339), until.Format(time.RFC3339))
}

// frames does something in each frame of 3 seconds.
func (b *browser) frames(t *testing.T, act string) string {
	t.Helper()
	var found struct {
		Frames              int
		P95, Longest, Tasks float64
	}
	b.run(chromedp.Evaluate(`new Promise((done) => {
		const times = [], begin = performance.now();
		let last = begin;
		watched.tasks = [];
		const frame = (now) => {
			times.push(now - last);
			last = now;
			`+act+`;
			if (now < begin + 3000) return requestAnimationFrame(frame);
			times.sort((x, y) => x - y);
			done({frames: times.length, p95: times[Math.floor(times.length * 0.95)], longest: times.at(-1), tasks: Math.max(0, ...watched.tasks)});
		};
		requestAnimationFrame(frame);
	})`, &found, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	return fmt.Sprintf("%d frames in 3 s, p95 %.1f ms, the longest %.1f ms, the longest task %.0f ms", found.Frames, found.P95, found.Longest, found.Tasks)
}

// memory is what the tab holds.
func (b *browser) memory(t *testing.T) string {
	t.Helper()
	var metrics []*performance.Metric
	b.run(performance.Enable(), heapprofiler.Enable(), heapprofiler.CollectGarbage(), chromedp.ActionFunc(func(ctx context.Context) (err error) {
		metrics, err = performance.GetMetrics().Do(ctx)
		return err
	}))
	value := map[string]float64{}
	for _, m := range metrics {
		value[m.Name] = m.Value
	}
	return fmt.Sprintf("%.1f MB of JavaScript, %v elements", value["JSHeapUsedSize"]/1e6, b.eval(`document.querySelectorAll("*").length`))
}

// processor is the CPU that a process has used.
func processor(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	var user, system int64
	_, err = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	must(t, err)
	return time.Duration(user+system) * 10 * time.Millisecond
}

// newLarge returns a bridge with a large history, and when that ends. Its informers read a cluster
// in which not much is.
func newLarge(t *testing.T) (s *site, until time.Time) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	s = &site{t: t}
	dir := filepath.Join(t.TempDir(), "history")
	until = time.Now().Truncate(time.Second)
	writeLarge(t, dir, until)
	plane := s.controlPlane(ctx)
	var err error
	s.client, err = kubernetes.NewForConfig(plane.Admin())
	must(t, err)
	root, err := harness.Root()
	must(t, err)
	binary := os.Getenv("BRIDGE_BIN")
	if binary == "" {
		binary = filepath.Join(t.TempDir(), "bridge")
		must(t, harness.BuildBridge(ctx, root, binary, false))
	}
	var informers strings.Builder
	for i := range 6 {
		fmt.Fprintf(&informers, "  - {name: all-%d, resources: [\"*\"]}\n", i)
	}
	s.bridge, err = harness.NewBridge(harness.BridgeConfig{
		Binary: binary, Dir: t.TempDir(), Kubeconfig: plane.Kubeconfig, Cluster: "prod-eu-1",
		YAML: "informers:\n" + informers.String() + "sinks:\n  - {name: history, history: {dir: " + dir + "}}\n",
	})
	must(t, err)
	must(t, s.bridge.StartAndWait(ctx))
	t.Cleanup(s.bridge.Kill)
	return s, until
}

// writeLarge writes a history as the sink does.
func writeLarge(t *testing.T, dir string, until time.Time) {
	t.Helper()
	db, err := history.Open(history.Options{Dir: dir})
	must(t, err)
	objects := min(largeObjects, *largeVersions/2)
	pad := make([]string, objects)
	for i := range pad {
		pad[i] = strings.Repeat(fmt.Sprintf(`{"name":"env-%d","value":"%x"},`, i, i*i), 20)
	}
	batch := make([]*event.Event, 0, 1000)
	for n := range *largeVersions {
		batch = append(batch, largeEvent(n, objects, pad[n%objects], until.Add(-largeTime+time.Duration(n)*(largeTime/time.Duration(*largeVersions)))))
		if len(batch) == cap(batch) || n == *largeVersions-1 {
			_, err = db.Writer.Append(t.Context(), batch)
			must(t, err)
			batch = batch[:0]
		}
	}
	must(t, db.Close())
}

// largeEvent is the n-th change: Deployments get other images, Pods another status.
func largeEvent(n, objects int, pad string, at time.Time) *event.Event {
	i := n % objects
	app := i / 10
	version, op := 1000+n, event.Updated
	if n < objects {
		op = event.Added
	}
	of := func(kind, name string) string {
		return fmt.Sprintf(`{"apiVersion":"apps/v1","kind":%q,"name":%q,"uid":%q,"controller":true}`, kind, name, name)
	}
	e := &event.Event{
		ID: fmt.Sprint(version), Source: "/clusters/prod-eu-1", Type: "dev.kubebridge.resource." + string(op), Op: op, Time: at,
		OriginAttributes: event.OriginAttributes{TimeSource: event.TimeManagedFields, ManagerOperation: "Update"},
		Routing:          event.Routing{Group: "apps", Version: "v1"}, Informer: "kept", Sequence: fmt.Sprintf("00000000.%020d", version),
		ObjectAttributes: event.ObjectAttributes{APIVersion: "apps/v1", Namespace: fmt.Sprintf("shop-%d", app%largeNamespaces), ResourceVersion: fmt.Sprint(version)},
	}
	if op == event.Updated {
		e.Previous = fmt.Sprint(version - objects)
	}
	owner := ""
	switch i % 10 {
	case 0:
		e.Resource, e.Kind, e.Name, e.Manager = "deployments", "Deployment", fmt.Sprint("web-", app), "argocd"
	case 1:
		e.Resource, e.Kind, e.Name, owner, e.Manager = "replicasets", "ReplicaSet", fmt.Sprintf("web-%d-1", app), of("Deployment", fmt.Sprint("web-", app)), "kube-controller-manager"
	default:
		e.Routing.Group, e.APIVersion = "", "v1"
		e.Resource, e.Kind, e.Name, owner, e.Manager, e.ManagerSubresource = "pods", "Pod", fmt.Sprintf("web-%d-1-%d", app, i%10), of("ReplicaSet", fmt.Sprintf("web-%d-1", app)), "kubelet", "status"
	}
	e.UID = e.Name
	image := n / objects
	if i%10 > 0 {
		image = 0
	}
	e.Data = fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":%q,"ownerReferences":[%s]},"spec":{"containers":[{"name":"web","image":"web:1.%d","env":[%s{"name":"LAST"}]}]},"status":{"observed":%d}}`,
		e.APIVersion, e.Kind, e.Name, e.Namespace, e.UID, e.ResourceVersion, owner, image, pad, n)
	return e
}

// flood looks at Live and Health while 800 changes a second are sent.
func (s *site) flood(b *browser) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	defer cancel()
	maps := s.client.CoreV1().ConfigMaps("default")
	_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "busy"}}, metav1.CreateOptions{})
	must(s.t, err)
	ended := make(chan int)
	go func() {
		n := 0
		for tick := time.NewTicker(time.Second / 134); ; n++ { // six informers send each
			select {
			case <-tick.C:
				if _, err := maps.Patch(ctx, "busy", types.MergePatchType, fmt.Appendf(nil, `{"data":{"n":"%d"}}`, n), metav1.PatchOptions{}); err != nil && ctx.Err() == nil {
					s.t.Error(err)
				}
			case <-ctx.Done():
				ended <- n
				return
			}
		}
	}()
	for _, view := range []string{"live", "health"} {
		b.run(chromedp.Navigate("about:blank"), chromedp.Navigate(s.bridge.AdminURL()+"/#/"+view))
		b.until("the state", `!["asking", "no answer"].includes(document.querySelector("#state").textContent)`)
		b.eval(`watched.tasks = []`)
		<-time.After(*largeFlood)
		tasks, _ := b.eval(`JSON.stringify(watched.tasks)`).(string)
		s.t.Logf("%s while events flood for %v: tasks above 50 ms: %s; %s", view, *largeFlood, tasks, b.text("#events-sum"))
	}
	cancel()
	s.t.Logf("%d changes were made", <-ended)
}
