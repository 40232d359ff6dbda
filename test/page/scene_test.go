package page_test

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/kubebridge/bridge/test/e2e/harness"
)

// TestQuestions asks the page the three questions of its readers about a cluster with a sink whose
// broker is unavailable, a stop, an expired watch, and a container that fails again and again. Each
// answer takes at most two clicks, and no scrolling at 1440x900. With SCREENSHOTS=DIR it keeps the
// three pictures there, as `make screenshots` does for the docs.
func TestQuestions(t *testing.T) {
	b := newBrowser(t)
	s := newScene(t)
	s.happen()
	b.look("light", 1440)
	b.run(emulation.SetDeviceMetricsOverride(1440, 900, 1, false))

	t.Run("is it healthy, how far behind, what was lost", func(t *testing.T) {
		b.run(chromedp.Navigate(s.bridge.AdminURL() + "/"))
		b.until("the sink whose broker is unavailable, first", `/^lake\s/.test(document.querySelector("#sinks-rows tr")?.innerText ?? "")`)
		b.until("no informer among what fails", `document.querySelector("#informers-sum").innerText.includes("all in sync")`)
		b.until("since when lake is unavailable", `/lake.*since \d/s.test(document.querySelector("#reasons").innerText)`)
		b.until("both losses", `["may be missing", "not watched"].every((text) => document.querySelector("#losses").innerText.includes(text))`)
		// On a busy machine a minute has two samples.
		b.until("a trend", `document.querySelectorAll(".spark path").length === 3 && document.querySelector(".spark path").getAttribute("d").includes("L")`)
		b.showsWithoutScrolling(t, "#sinks-rows tr:last-child", ".losses li:last-child", "#informers-sum")
		b.eval(`document.querySelector("#disk").hidden = true`) // a directory of the test
		b.keep(t, "page-health")
	})
	t.Run("eight sinks are in view at 1024x768, each as far behind as the bridge says", func(t *testing.T) { b.eightSinks(t) })
	t.Run("what changed in shop in 30 minutes", func(t *testing.T) {
		b.click(`#views a[href="#/timeline"]`)
		b.until("namespaces", `document.querySelector("#timeline-ns option[value=shop]")`)
		b.eval(`{ const e = document.querySelector("#timeline-ns"); e.value = "shop"; e.dispatchEvent(new Event("change")) }`)
		b.until("the changes of shop", `location.hash.includes("ns=shop") && `+changeRows+`.length > 5`)
		b.until("the container that fails, in one row", `[...`+changeRows+`].filter((r) => r.innerText.includes("container checkout fails")).length === 1`)
		b.until("both times that are unsure", `["Not watched", "Changes may be missing"].every((text) => document.querySelector("#timeline-notes").innerText.includes(text))`)
		b.showsWithoutScrolling(t, "#lanes .names p:last-child", ".list .rowbutton", "#timeline-detail .difference pre")
		b.run(chromedp.KeyEvent("z"))
		b.until("the time of the changes", `document.querySelector("#lanes").dataset.from === new URLSearchParams(location.hash.split("?")[1]).get("from")`)
		b.click(".list li:nth-child(3) .rowbutton")
		b.until("its difference", `document.querySelector("#timeline-detail .difference pre")`)
		b.keep(t, "page-timeline")
	})
	t.Run("by its link, without a click", func(t *testing.T) { b.byLink(t, s) })
	t.Run("hatches are as long as the unwatched times", func(t *testing.T) { b.hatches(t, s) })
	t.Run("who changed this Deployment, and how", func(t *testing.T) {
		b.fill("#find", "deploy/web")
		b.run(chromedp.KeyEvent(kb.Enter))
		b.until("its versions", versionRows+`.length > 3`)
		b.eval(`[...` + versionRows + `].find((r) => r.innerText.includes("web:1.0 → web:1.1")).click()`)
		b.until("what changed", difference+`?.includes("web:1.1")`)
		if who := b.text("#object-who"); !strings.Contains(who, "by argocd") {
			t.Errorf("who: %s", who)
		}
		b.showsWithoutScrolling(t, "#object-who", "#object-difference pre", "#object-command")
		b.eval(`document.querySelector("#object-place").hidden = true`) // a directory of the test
		b.until("what it owns", `/owns (3 rs, \d+ po|\d+ po, 3 rs)/.test(document.querySelector("#object-ownership").innerText)`)
		b.keep(t, "page-object")
		b.eval(`[...document.querySelectorAll("#object-ownership a")].find((a) => a.textContent.startsWith("rs/")).click()`)
		b.until("its owner", `document.querySelector("#object-ownership").innerText.includes("of deploy/web")`)
		for _, size := range [][2]int64{{1440, 900}, {1024, 768}, {390, 844}} {
			b.run(emulation.SetDeviceMetricsOverride(size[0], size[1], 1, false))
			b.open("#/health")
			b.fill("#find", "deploy/web")
			b.run(chromedp.KeyEvent(kb.Enter))
			b.until("its versions", versionRows+`.length > 3`)
			b.eval(versionRows + `[2].click()`)
			b.until(fmt.Sprintf("the difference in view at %dx%d", size[0], size[1]), versionRows+`[2].getAttribute("aria-current") === "true" && (() => { const r = document.querySelector("#object-difference pre")?.getBoundingClientRect(); return r && r.height > 0 && r.top >= 0 && r.top + 20 < innerHeight })()`)
		}
		b.run(emulation.SetDeviceMetricsOverride(1440, 900, 1, false))
	})
	t.Run("18 commands are 18 rows and what every namespace gets", func(t *testing.T) { s.eighteen(t, b) })
}

// byLink opens the timeline as a colleague does who was sent its address.
func (b *browser) byLink(t *testing.T, s *scene) {
	t.Helper()
	link := s.bridge.AdminURL() + "/#/timeline?ns=shop&since=30m"
	for range 3 {
		b.run(chromedp.Navigate("about:blank"), chromedp.Navigate(link))
		b.until("the newest change", `document.querySelector(".list .rowbutton")`)
		b.until("its difference", `document.querySelector("#timeline-detail .difference pre")`)
		b.showsWithoutScrolling(t, ".list .rowbutton", "#timeline-detail .difference pre")
		t.Logf("the newest change is there %.0f ms after the link was opened", b.eval(`performance.getEntriesByType("resource").filter((e) => e.name.includes("history/timeline")).at(-1).responseEnd`))
	}
}

// eighteen makes the changes of 18 commands in a namespace of its own.
func (s *scene) eighteen(t *testing.T, b *browser) {
	const ns = "till"
	ctx := t.Context()
	core, apps := s.client.CoreV1(), s.client.AppsV1().Deployments(ns)
	by := metav1.CreateOptions{FieldManager: "kubectl-create"}
	_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}, by)
	must(t, err)
	text := func(name, value string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"level": value}}
	}
	patch := func(patch string) {
		t.Helper()
		_, err := apps.Patch(ctx, "till", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "kubectl-patch"})
		must(t, err)
		s.pass(500 * time.Millisecond)
	}
	maps := core.ConfigMaps(ns)
	_, err = apps.Create(ctx, deployment("till", "till:1", 2), by) // 1
	must(t, err)
	s.pass(2 * time.Second)
	_, err = maps.Create(ctx, text("settings", "info"), by) // 2
	must(t, err)
	_, err = maps.Create(ctx, text("prices", "low"), by) // 3
	must(t, err)
	_, err = core.Services(ns).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "till"}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "till"}, Ports: []corev1.ServicePort{{Port: 80}}}}, by) // 4
	must(t, err)
	_, err = core.Secrets(ns).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "key"}, Data: map[string][]byte{"key": []byte("x")}}, by) // 5
	must(t, err)
	_, err = core.ServiceAccounts(ns).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "till"}}, by) // 6
	must(t, err)
	patch(`{"spec":{"template":{"spec":{"containers":[{"name":"till","image":"till:2"}]}}}}`)                                  // 7
	patch(`{"spec":{"replicas":3}}`)                                                                                           // 8
	patch(`{"metadata":{"labels":{"tier":"front"}}}`)                                                                          // 9
	patch(`{"metadata":{"annotations":{"note":"x"}}}`)                                                                         // 10
	patch(`{"spec":{"template":{"spec":{"containers":[{"name":"till","image":"till:2","env":[{"name":"A","value":"1"}]}]}}}}`) // 11
	patch(`{"spec":{"template":{"metadata":{"annotations":{"restarted":"now"}}}}}`)                                            // 12
	patch(`{"metadata":{"labels":{"tier":null}}}`)                                                                             // 13
	_, err = maps.Update(ctx, text("settings", "debug"), metav1.UpdateOptions{FieldManager: "kubectl-edit"})                   // 14
	must(t, err)
	_, err = maps.Update(ctx, text("prices", "high"), metav1.UpdateOptions{FieldManager: "kubectl-edit"}) // 15
	must(t, err)
	must(t, maps.Delete(ctx, "prices", metav1.DeleteOptions{}))          // 16
	must(t, core.Secrets(ns).Delete(ctx, "key", metav1.DeleteOptions{})) // 17
	patch(`{"spec":{"replicas":1}}`)                                     // 18
	s.pass(3 * time.Second)

	b.run(emulation.SetDeviceMetricsOverride(1440, 1800, 1, false)) // the list has the rows that are in view
	b.run(chromedp.Navigate("about:blank"), chromedp.Navigate(s.bridge.AdminURL()+"/#/timeline?ns="+ns+"&since=30m"))
	b.until("the last command", changeRows+`.length > 17 && `+changeRows+`[0].innerText.includes("replicas 3 → 1") && !/counting|^$/.test(document.querySelector("#timeline-sum").innerText)`)
	rows := b.eval(changeRows + `.length`).(float64)
	var all, shown, hidden float64
	_, err = fmt.Sscan(b.await(`Promise.all([fetch("history/timeline?namespace=till&limit=10000").then((r) => r.json()), fetch("history/lanes?namespace=till").then((r) => r.json())])
		.then(([timeline, lanes]) => [timeline.changes.length, lanes.changes, Object.values(lanes.hidden).reduce((a, b) => a + b, 0)].join(" "))`), &all, &shown, &hidden)
	must(t, err)
	t.Logf("18 commands: %v rows of %v changes, %v hidden", rows, all, hidden)
	if rows > 22 || shown != rows || shown+hidden != all {
		t.Errorf("%v rows, want at most 22; %v shown and %v hidden of %v", rows, shown, hidden, all)
	}
	for _, command := range []string{
		"deploy/till .*added", "cm/settings .*added", "cm/prices .*added", "svc/till .*added", "secret/key .*added", "sa/till .*added", "image till:1 → till:2", "replicas 2 → 3",
		`tier \\+?front`, `note \\+?x`, "env|LEVEL|A", "restarted", "tier removed|tier front", "level info → debug", "level low → high", "cm/prices .*deleted", "secret/key .*deleted", "replicas 3 → 1",
	} {
		if n := b.eval(fmt.Sprintf(`[...%s].filter((r) => new RegExp("%s").test(r.innerText.replace(/\s+/g, " "))).length`, changeRows, command)).(float64); n < 1 {
			t.Errorf("no row has %s:\n%s", command, b.text(".list"))
		}
	}
	b.shot("eighteen")
}

// hatches compares those of the timeline with the times at which the bridge ended, and watched
// again.
func (b *browser) hatches(t *testing.T, s *scene) {
	t.Helper()
	var hatches []struct {
		From, To float64 // milliseconds
		Full     bool
	}
	b.run(chromedp.Evaluate(`fetch("history/lanes?namespace=shop").then((r) => r.json()).then(async (answer) => (await import("./lanes.js")).hatchesOf(answer.incomplete))`,
		&hatches, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	if len(hatches) != len(s.unwatched) || hatches[0].Full == hatches[1].Full {
		t.Fatalf("hatches %+v, want a light one for the stop and a full one for the expired watch", hatches)
	}
	for _, h := range hatches {
		away, early := s.unwatched[0], time.Second
		if h.Full { // of a bridge that was killed: the gap begins at what was committed
			away, early = s.unwatched[1], time.Minute
		}
		from, to := time.UnixMilli(int64(h.From)).Sub(away.from), time.UnixMilli(int64(h.To)).Sub(away.to)
		t.Logf("full: %t, begins %v after the bridge ended, and ends %v after it watches", h.Full, from, to)
		if from < -early || from > time.Second || to.Abs() > time.Second {
			t.Errorf("full: %t: the hatch is wrong", h.Full)
		}
	}
}

// eightSinks looks at Health with more sinks than the scene has.
func (b *browser) eightSinks(t *testing.T) {
	t.Helper()
	b.run(emulation.SetDeviceMetricsOverride(1024, 768, 1, false))
	defer b.run(emulation.SetDeviceMetricsOverride(1440, 900, 1, false))
	var lag string
	b.run(chromedp.Evaluate(`fetch("status").then((r) => r.json()).then(async (s) => {
		const health = await import("./health.js");
		const more = Array.from({length: 5}, (_, i) => ({...s.sinks[i % 3], name: "more-" + i}));
		health.status({...s, sinks: [...s.sinks, ...more]});
		const [row, sink] = [[...document.querySelectorAll("#sinks-rows tr")].find((r) => r.dataset.key === "lake"), s.sinks.find((x) => x.name === "lake")];
		const [last, box] = ["tr:last-child", ""].map((e) => document.querySelector(e ? "#sinks-rows " + e : "#sinks .scroll").getBoundingClientRect());
		return [row.cells[2].textContent, sink.lagSeconds, document.querySelectorAll("#sinks-rows tr").length, last.bottom <= Math.min(innerHeight, box.bottom)].join("|");
	})`, &lag, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	var minutes, seconds, rows int
	var want float64
	var isInView bool
	shown, rest, _ := strings.Cut(lag, "|")
	if n, _ := fmt.Sscanf(shown, "%d min %d s", &minutes, &seconds); n != 2 {
		minutes = 0
		_, err := fmt.Sscanf(shown, "%d s", &seconds)
		must(t, err)
	}
	_, err := fmt.Sscanf(strings.ReplaceAll(rest, "|", " "), "%g %d %t", &want, &rows, &isInView)
	must(t, err)
	if got := float64(60*minutes + seconds); got < want-1 || got > want+1 {
		t.Errorf("lake is behind by %s; the bridge says %.1f s", shown, want)
	}
	if rows != 8 || !isInView {
		t.Errorf("of %d sinks the last one is in view: %t", rows, isInView)
	}
	b.shot("eight-sinks")
}

// showsWithoutScrolling looks where elements are.
func (b *browser) showsWithoutScrolling(t *testing.T, selectors ...string) {
	t.Helper()
	for _, selector := range selectors {
		b.until(selector+" in view", fmt.Sprintf(`(() => { const r = document.querySelector(%q)?.getBoundingClientRect(); return r && r.height > 0 && r.top >= 0 && r.bottom <= innerHeight })()`, selector))
	}
	if b.eval(`scrollY`) != 0.0 {
		t.Error("the page was scrolled")
	}
}

// keep writes what the window shows, where SCREENSHOTS names a directory.
func (b *browser) keep(t *testing.T, name string) {
	t.Helper()
	var picture []byte
	b.run(chromedp.CaptureScreenshot(&picture))
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		dir = t.ArtifactDir()
	}
	small, err := reduce(picture)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, name+".png"), small, 0o644))
	if len(small) > 130_000 {
		t.Errorf("%s has %d bytes: the docs keep small ones", name, len(small))
	}
}

// reduce gives a picture the 256 colours that it has most of.
func reduce(picture []byte) ([]byte, error) {
	full, err := png.Decode(bytes.NewReader(picture))
	if err != nil {
		return nil, err
	}
	count := map[color.RGBA]int{}
	for y := full.Bounds().Min.Y; y < full.Bounds().Max.Y; y++ {
		for x := full.Bounds().Min.X; x < full.Bounds().Max.X; x++ {
			c := color.RGBAModel.Convert(full.At(x, y)).(color.RGBA)
			const near = 0xf0 | 0x08 // shades of a letter's edge are one
			if !isPlain(c) {
				c.R, c.G, c.B = c.R&near, c.G&near, c.B&near
			}
			count[c]++
		}
	}
	var palette color.Palette
	colors := make([]color.RGBA, 0, len(count))
	for c := range count {
		colors = append(colors, c)
	}
	slices.SortFunc(colors, func(a, b color.RGBA) int { return count[b] - count[a] })
	for _, c := range colors[:min(len(colors), 256)] {
		palette = append(palette, c)
	}
	small := image.NewPaletted(full.Bounds(), palette)
	draw.Draw(small, full.Bounds(), full, full.Bounds().Min, draw.Src)
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, small)
	return out.Bytes(), err
}

// isPlain reports whether a colour is one of a large surface, which stays as it is.
func isPlain(c color.RGBA) bool { return c.R >= 0xf0 && c.G >= 0xf0 && c.B >= 0xf0 }

// newScene is a site whose control plane has controllers.
func newScene(t *testing.T) *scene {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s := &scene{site: &site{t: t}}
	root, err := harness.Root()
	must(t, err)
	binary := os.Getenv("CONTROLPLANE_BIN")
	if binary == "" {
		binary = filepath.Join(root, "bin", "controlplane")
		must(t, harness.BuildControlPlane(ctx, root, binary, nil))
	}
	s.plane, err = harness.StartControlPlane(ctx, harness.ControlPlaneConfig{Binary: binary, Dir: t.TempDir(), Flags: []string{"--etcd-compaction-interval=0"}})
	must(t, err)
	t.Cleanup(s.plane.Kill)
	s.client, err = kubernetes.NewForConfig(s.plane.Admin())
	must(t, err)
	bridge := os.Getenv("BRIDGE_BIN")
	if bridge == "" {
		bridge = filepath.Join(t.TempDir(), "bridge")
		must(t, harness.BuildBridge(ctx, root, bridge, false))
	}
	s.bridge, err = harness.NewBridge(harness.BridgeConfig{
		Binary: bridge, Dir: t.TempDir(), Kubeconfig: s.plane.Kubeconfig, Cluster: "prod-eu-1", Everywhere: true,
		YAML: sceneConfig,
	})
	must(t, err)
	must(t, s.bridge.Start())
	t.Cleanup(s.bridge.Kill)
	return s
}

const sceneConfig = `
informers:
  - {name: all, resources: ["*"]}
sinks:
  - {name: stream, nats: {servers: ["nats://${NATS_ADDRESS}"], embedded: true}}
  - {name: history, history: {}}
`

type scene struct {
	*site
	plane *harness.ControlPlane
	// unwatched are from an end of the bridge until it watches again.
	unwatched []struct{ from, to time.Time }
}

// away ends the bridge, has something happen, and waits until the bridge watches again.
func (s *scene) away(end, happens func()) {
	s.t.Helper()
	end()
	from := time.Now()
	happens()
	must(s.t, s.bridge.Start())
	s.watching()
	s.unwatched = append(s.unwatched, struct{ from, to time.Time }{from, time.Now()})
}

// happen makes what the page has to explain.
func (s *scene) happen() {
	s.t.Helper()
	ctx := s.t.Context()
	core, apps := s.client.CoreV1(), s.client.AppsV1().Deployments(namespace)
	by := func(manager string) metav1.CreateOptions { return metav1.CreateOptions{FieldManager: manager} }
	s.watching()
	_, err := core.Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, by("kubectl-create"))
	must(s.t, err)
	_, err = apps.Create(ctx, deployment("web", "web:1.0", 3), by("argocd"))
	must(s.t, err)
	_, err = core.ConfigMaps(namespace).Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "settings"}, Data: map[string]string{"app.conf": configuration}}, by("argocd"))
	must(s.t, err)
	_, err = core.Services(namespace).Create(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}, by("argocd"))
	must(s.t, err)
	s.pass(4 * time.Second)
	s.patch("web", "argocd", `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:1.1"}]}}}}`)
	s.pass(4 * time.Second)
	s.patch("web", "kubectl-edit", `{"spec":{"replicas":5},"metadata":{"labels":{"tier":"front"}}}`)
	s.pass(4 * time.Second)

	s.away(func() {
		_, err := s.bridge.Stop(ctx)
		must(s.t, err)
	}, func() {
		must(s.t, core.Services(namespace).Delete(ctx, "web", metav1.DeleteOptions{}))
		s.pass(8 * time.Second)
	})
	s.patch("web", "argocd", `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:1.1","env":[{"name":"LOG_LEVEL","value":"debug"}]}]}}}}`)
	s.pass(4 * time.Second)

	s.away(s.bridge.Kill, func() { // the versions of this time are compacted away
		s.patch("web", "kubectl-edit", `{"metadata":{"labels":{"tier":"back"}}}`)
		for i := range 3 {
			s.patch("web", "kubectl-annotate", fmt.Sprintf(`{"metadata":{"annotations":{"note":"%d"}}}`, i))
			_, err := s.plane.Operate(ctx, "compact")
			must(s.t, err)
		}
		_, err := s.plane.Operate(ctx, "restart-apiserver")
		must(s.t, err)
		must(s.t, s.bridge.Configure(sceneConfig+"  - {name: lake, kafka: {brokers: [\"127.0.0.1:1\"]}}\n"))
	})

	s.pass(3 * time.Second)
	_, err = apps.Create(ctx, deployment("checkout", "checkout:4", 1), by("argocd"))
	must(s.t, err)
	s.crash("checkout")
	_, err = core.ConfigMaps(namespace).Patch(ctx, "settings", types.MergePatchType, fmt.Appendf(nil, `{"data":{"app.conf":%q}}`, strings.Replace(configuration, "port: 80\n", "port: 8080\n", 1)), metav1.PatchOptions{FieldManager: "kubectl-edit"})
	must(s.t, err)
	s.pass(3 * time.Second)
	s.patch("web", "kubectl-edit", `{"spec":{"replicas":2}}`)
	s.pass(2 * time.Second)
}

func deployment(name, image string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: name, Image: image}}},
			},
		},
	}
}

func (s *scene) patch(name, manager, patch string) {
	s.t.Helper()
	_, err := s.client.AppsV1().Deployments(namespace).Patch(s.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: manager})
	must(s.t, err)
}

// crash makes the container of an application fail several times.
func (s *scene) crash(app string) {
	s.t.Helper()
	pods := s.client.CoreV1().Pods(namespace)
	var pod string
	for deadline := time.Now().Add(time.Minute); pod == ""; time.Sleep(100 * time.Millisecond) {
		list, err := pods.List(s.t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
		must(s.t, err)
		if len(list.Items) > 0 && list.Items[0].Status.Phase == corev1.PodRunning {
			pod = list.Items[0].Name
		}
		if time.Now().After(deadline) {
			s.t.Fatal("no pod of " + app)
		}
	}
	for i := range 6 {
		state := fmt.Sprintf(`{"status":{"containerStatuses":[{"name":%q,"image":"x","imageID":"","ready":false,"restartCount":%d,"state":{"waiting":{"reason":"CrashLoopBackOff","message":"back-off %d0s"}}}]}}`, app, i+1, i+1)
		_, err := pods.Patch(s.t.Context(), pod, types.MergePatchType, []byte(state), metav1.PatchOptions{FieldManager: "kubelet"}, "status")
		must(s.t, err)
		s.pass(1500 * time.Millisecond)
	}
}

// watching waits until the bridge watches all resources. It is not ready: a broker is unavailable.
func (s *scene) watching() {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		status, err := s.bridge.Status(s.t.Context())
		watching := 0
		for _, i := range status.Informers {
			if i.Phase == "watching" {
				watching++
			}
		}
		if err == nil && watching > 20 && watching == len(status.Informers) {
			return
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the bridge does not watch: %v", err)
		}
	}
}

// pass lets time pass, so that changes are distinct in the pictures.
func (s *scene) pass(d time.Duration) { time.Sleep(d) }
