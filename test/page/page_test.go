package page_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/nats-io/nats-server/v2/server"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/kubebridge/bridge/test/e2e/harness"
)

// planted is a value that must never reach the page.
const planted = "hunter2-planted-value"

// site is a bridge to look at, in a namespace of its own.
type site struct {
	t      *testing.T
	client kubernetes.Interface
	bridge *harness.Bridge
	audit  *server.Server // one of its two brokers
}

const namespace = "shop"

func newSite(t *testing.T) *site {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	s := &site{t: t}
	plane := s.controlPlane(ctx)
	var err error
	s.client, err = kubernetes.NewForConfig(plane.Admin())
	must(t, err)
	_, err = s.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	must(t, err)
	s.audit, err = server.NewServer(&server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	must(t, err)
	s.audit.Start()
	t.Cleanup(s.audit.Shutdown)
	s.startBridge(ctx, plane.Kubeconfig)
	return s
}

func (s *site) controlPlane(ctx context.Context) *harness.ControlPlane {
	s.t.Helper()
	root, err := harness.Root()
	must(s.t, err)
	binary := os.Getenv("CONTROLPLANE_BIN")
	if binary == "" {
		binary = filepath.Join(root, "bin", "controlplane")
		must(s.t, harness.BuildControlPlane(ctx, root, binary, nil))
	}
	plane, err := harness.StartControlPlane(ctx, harness.ControlPlaneConfig{Binary: binary, Dir: s.t.TempDir(), Flags: []string{"--controllers=false"}})
	must(s.t, err)
	s.t.Cleanup(plane.Kill)
	return plane
}

func (s *site) startBridge(ctx context.Context, kubeconfig string) {
	s.t.Helper()
	root, err := harness.Root()
	must(s.t, err)
	binary := os.Getenv("BRIDGE_BIN")
	if binary == "" {
		binary = filepath.Join(s.t.TempDir(), "bridge")
		must(s.t, harness.BuildBridge(ctx, root, binary, false))
	}
	s.bridge, err = harness.NewBridge(harness.BridgeConfig{
		Binary: binary, Dir: s.t.TempDir(), Kubeconfig: kubeconfig, Cluster: "prod-eu-1", Env: map[string]string{"AUDIT": s.audit.ClientURL(), "BRIDGE_ADMIN_REMOTE": "true"},
		Everywhere: true,
		YAML: `
informers:
  - {name: workloads, resources: [pods, deployments.apps, services, namespaces]}
  - {name: config, resources: [configmaps, secrets], namespaces: [` + namespace + `], redact: [data.dsn], sinks: [{name: stream}, {name: audit, payload: change}, {name: kept}]}
sinks:
  - {name: stream, nats: {servers: ["nats://${NATS_ADDRESS}"], embedded: true}}
  - {name: audit, nats: {servers: ["${AUDIT}"], stream: {name: AUDIT}, subject: "audit.{resource}.{namespace}.{name}.{op}"}}
  - {name: kept, history: {}}
`,
	})
	must(s.t, err)
	must(s.t, s.bridge.StartAndWait(ctx))
	s.t.Cleanup(s.bridge.Kill)
}

func (s *site) configMap(name string, data map[string]string) {
	s.t.Helper()
	_, err := s.client.CoreV1().ConfigMaps(namespace).Create(s.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.CreateOptions{})
	must(s.t, err)
}

func (s *site) secret(name string) {
	s.t.Helper()
	_, err := s.client.CoreV1().Secrets(namespace).Create(s.t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"password": []byte(planted)}}, metav1.CreateOptions{})
	must(s.t, err)
}

func (s *site) update(name string, data map[string]string) {
	s.t.Helper()
	_, err := s.client.CoreV1().ConfigMaps(namespace).Update(s.t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}, metav1.UpdateOptions{})
	must(s.t, err)
}

func (s *site) delete(name string) {
	s.t.Helper()
	must(s.t, s.client.CoreV1().ConfigMaps(namespace).Delete(s.t.Context(), name, metav1.DeleteOptions{}))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// One visit, from the first look to the end of the bridge. The steps build on each other.
func TestTheStatusPage(t *testing.T) {
	b := newBrowser(t)
	s := newSite(t)
	s.configMap("before", map[string]string{"level": "info"})
	b.look("light", 1360)
	b.run(chromedp.Navigate(s.bridge.AdminURL() + "/"))

	step := func(name string, do func(*testing.T)) {
		t.Helper()
		passed := t.Run(name, func(t *testing.T) {
			b.t, s.t = t, t
			do(t)
			b.noSecrets(t)
		})
		if b.t, s.t = t, t; !passed {
			b.shot("failed")
			t.FailNow()
		}
	}
	step("it loads and shows what the bridge does", func(t *testing.T) { s.loads(t, b) })
	step("it shows events while they happen", func(t *testing.T) { s.live(t, b) })
	step("the filter shows what it says and nothing else", func(t *testing.T) { s.filters(t, b) })
	step("an object is shown as settled and redacted", func(t *testing.T) { s.object(t, b) })
	step("the history of an object and of a namespace", func(t *testing.T) { s.history(t, b) })
	step("it can be used without a mouse", func(t *testing.T) { b.keyboard(t) })
	step("everything that can be operated has a name", func(t *testing.T) { b.names(t) })
	step("it is readable in light and dark, wide and narrow", func(t *testing.T) { b.readable(t) })
	step("a broker that is unavailable is reported", func(t *testing.T) { s.brokerAway(t, b) })
	if left := b.heardSoFar(""); len(left) > 0 {
		t.Errorf("the browser complains: %s", strings.Join(left, "\n"))
	}
	step("it says that the bridge is gone, and comes back with it", func(t *testing.T) { s.gone(t, b) })
	if own := strings.TrimPrefix(s.bridge.AdminURL(), "http://"); len(b.hosts) != 1 || !b.hosts[own] {
		t.Errorf("the page asks other hosts: %v", b.hosts)
	}
	step("elsewhere it asks for the token", func(t *testing.T) { s.elsewhere(t, b) })
}

func (s *site) loads(t *testing.T, b *browser) {
	b.until("readiness", `document.querySelector("#state").textContent === "ready"`)
	if got := b.text("#cluster"); got != "prod-eu-1" {
		t.Errorf("cluster %q", got)
	}
	b.until("all informers", `document.querySelectorAll("#informers-rows tr").length === 6`)
	b.until("all sinks", `[...document.querySelectorAll("#sinks-rows tr")].filter((r) => r.innerText.includes("connected")).length === 3`)
	b.until("the object that is there", `[...document.querySelectorAll("#informers-rows tr")].some((r) => /configmaps in shop\s+watching\s+1\s/.test(r.innerText))`)
	b.until("the tail", `document.querySelector("#events-sum").textContent.startsWith("looking")`)
	b.fill("#informers-filter", "secr")
	b.until("one informer", `document.querySelectorAll("#informers-rows tr").length === 1`)
	b.clear("#informers-filter")
}

// event is an expression that is true when the tail has a row with these texts.
func event(texts ...string) string {
	conditions := make([]string, len(texts))
	for i, text := range texts {
		conditions[i] = fmt.Sprintf("r.innerText.includes(%q)", text)
	}
	return `[...document.querySelectorAll("#events-rows tr")].some((r) => ` + strings.Join(conditions, " && ") + ")"
}

func (s *site) live(t *testing.T, b *browser) {
	s.configMap("live", map[string]string{"level": "info", "dsn": planted})
	s.secret("live")
	for _, sink := range []string{"stream", "audit"} {
		b.until("the event in "+sink, event("added", "configmaps", namespace+"/live", sink))
		b.until("the Secret's event in "+sink, event("added", "secrets", namespace+"/live", sink))
	}
	b.until("the count", `[...document.querySelectorAll("#informers-rows tr")].some((r) => /configmaps in shop\s+watching\s+2\s/.test(r.innerText))`)
	s.delete("live")
	b.until("the delete", event("deleted", namespace+"/live"))

	b.click("#events-pause")
	seen := b.text("#events-sum")
	s.configMap("unseen", nil)
	b.until("the count continues while it is paused", fmt.Sprintf("document.querySelector('#events-sum').textContent !== %q", seen))
	if b.eval(event("unseen")) == true {
		t.Error("a paused list moves")
	}
	b.click("#events-pause")
}

func (s *site) filters(t *testing.T, b *browser) {
	b.fill("#events-filter", `meta.resource == "configmaps" && sink == "audit" && op != "deleted"`)
	b.click("#events-payload")
	b.click("#events-form button[type=submit]")
	b.until("the tail", `document.querySelector("#events-sum").textContent.startsWith("looking")`)
	b.until("a watcher with the filter", `document.querySelectorAll("#events-rows tr").length === 0`)
	for i := range 5 {
		name := fmt.Sprintf("filtered-%d", i)
		s.secret(name)
		s.configMap(name, map[string]string{"level": "debug", "dsn": planted})
	}
	s.delete("filtered-0")
	s.configMap("last", nil)
	b.until("what comes last", event("added", namespace+"/last", "audit"))
	rows, _ := b.eval(`document.querySelectorAll("#events-rows tr").length`).(float64)
	if b.eval(event("secrets")) == true || b.eval(event("stream")) == true || b.eval(event("deleted")) == true || rows != 6 {
		t.Errorf("the filter lets through what it does not say, or not all: %v rows\n%s", rows, b.text("#events-rows"))
	}
	if payload, _ := b.eval(`[...document.querySelectorAll("#events-rows pre")].map((e) => e.textContent).join()`).(string); !strings.Contains(payload, `"level": "debug"`) {
		t.Errorf("there is no payload: %s", payload)
	}

	b.fill("#events-filter", `resorce == "pods"`)
	b.click("#events-form button[type=submit]")
	b.until("what is wrong with it", `document.querySelector("#events-problem").checkVisibility() && document.querySelector("#events-problem").textContent.includes("undeclared reference")`)
	b.fill("#events-filter", `op != "synced"`)
	b.click("#events-form button[type=submit]")
	b.until("no problem any more", `!document.querySelector("#events-problem").checkVisibility()`)
	b.until("the tail", `document.querySelector("#events-sum").textContent.startsWith("looking")`)
	b.heardSoFar("") // the browser reports the 400
}

func (s *site) object(t *testing.T, b *browser) {
	s.secret("shown")
	b.until("the event", event(namespace+"/shown"))
	b.eval(fmt.Sprintf(`[...document.querySelectorAll("#events-rows button")].find((e) => e.textContent === %q).click()`, namespace+"/shown"))
	b.until("the object", `document.querySelector("#object-found pre")?.textContent.includes('"kind": "Secret"')`)
	if text := b.text("#object-found"); !strings.Contains(text, `"password"`) || !strings.Contains(text, "secrets shop/shown exists") {
		t.Errorf("shown:\n%s", text)
	}
	b.fill("#object-name", "nothing-like-it")
	b.click("#object-form button[type=submit]")
	b.until("that it is not known", `document.querySelector("#object-found").textContent.includes("nothing is known of secrets shop/nothing-like-it")`)
	b.fill("#object-name", "shown")
	b.click("#object-form button[type=submit]")
	b.until("the object again", `document.querySelector("#object-found pre")`)
	b.heardSoFar("") // the browser reports the 404
}

// configuration is a text of several lines, as ConfigMaps have it.
const configuration = "a: 1\nb: 2\nc: 3\nd: 4\ne: 5\nport: 80\nf: 6\n"

// history asks what an object was, with the mouse and with the keyboard, and what happened.
func (s *site) history(t *testing.T, b *browser) {
	s.configMap("reported", map[string]string{"level": "info", "dsn": planted})
	s.update("reported", map[string]string{"level": "debug", "dsn": planted, "file": configuration})
	s.update("reported", map[string]string{"level": "debug", "color": "blue", "file": strings.Replace(configuration, "port: 80\n", "port: 8080\n", 1)})
	b.until("the event", event("updated", namespace+"/reported", "kept"))
	b.fill("#history-object", "repor")
	b.click("#history-form button[type=submit]")
	rows := `document.querySelectorAll("#history-shown tbody tr")`
	b.until("the only object that was found", rows+`.length > 0`)
	for deadline := time.Now().Add(time.Minute); b.eval(rows+`.length`) != 3.0; { // the history stores by batches
		if time.Now().After(deadline) {
			t.Fatalf("versions:\n%s", b.text("#history-shown"))
		}
		b.click("#history-form button[type=submit]")
		b.until("versions", rows+`.length > 0`)
	}
	text := b.text("#history-shown")
	for _, want := range []string{"configmaps shop/reported: 3 versions", `data.level "info" → "debug"`, "data.dsn"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is not in\n%s", want, text)
		}
	}
	t.Run("one version is the object as it was", func(t *testing.T) {
		b.click(".axis button:first-child")
		b.until("the object", `document.querySelector("#history-pane pre")?.textContent.includes('"level": "info"')`)
	})
	t.Run("two are compared, by the keyboard", func(t *testing.T) {
		b.eval(`document.querySelector(".axis button:last-child").focus()`)
		b.run(chromedp.KeyEvent(kb.ArrowLeft), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.Enter))
		b.until("the difference", `document.querySelector("#history-pane table")?.innerText.includes("data.color")`)
		if pressed := b.eval(`document.querySelectorAll("#history-shown .axis [aria-pressed=true]").length`); pressed != 2.0 {
			t.Errorf("%v versions are pressed", pressed)
		}
		if difference := b.text("#history-pane"); !strings.Contains(difference, `− "info"`) || !strings.Contains(difference, `+ "blue"`) {
			t.Errorf("the difference:\n%s", difference)
		}
	})
	b.shot("history")
	t.Run("a namespace has a timeline, which leads to its objects", func(t *testing.T) {
		b.fill("#history-namespace", namespace)
		b.click("#timeline-form button[type=submit]")
		b.until("the timeline", `document.querySelector("#history-shown h3")?.textContent.startsWith("Timeline of shop")`)
		if first := b.text("#history-shown tbody tr:first-child"); !strings.Contains(first, "shop/reported") || !strings.Contains(first, "data.color") {
			t.Errorf("the newest change does not come first: %s", first)
		}
		timeline := b.text("#history-shown")
		for _, want := range []string{"deleted", "shop/live", "shop/reported", "secrets"} {
			if !strings.Contains(timeline, want) {
				t.Errorf("%q is not in\n%s", want, timeline)
			}
		}
		b.shot("timeline")
		b.eval(`[...document.querySelectorAll("#history-shown button.link")].find((e) => e.textContent === "shop/reported").click()`)
		b.until("the versions again", rows+`.length === 3`)
		b.eval(`history.back()`)
		b.until("the timeline again", `document.querySelector("#history-shown h3")?.textContent.startsWith("Timeline of shop")`)
		b.eval(`history.forward()`)
		b.until("the versions again", rows+`.length === 3`)
	})
	t.Run("a reload keeps the object and the versions that are compared", func(t *testing.T) {
		b.eval(`document.querySelectorAll(".axis button").forEach((e, i) => { if (i !== 0) e.click() })`)
		b.until("the difference", `document.querySelector("#history-pane table")?.innerText.includes("data.color")`)
		if got, want := b.text("#history-pane pre.lines"), "… 2 lines are the same\n  c: 3\n  d: 4\n  e: 5\n− port: 80\n+ port: 8080\n  f: 6"; strings.TrimSpace(got) != want {
			t.Errorf("lines:\n%s\nwant:\n%s", got, want)
		}
		if pane := b.text("#history-pane"); strings.Contains(pane, "managedFields") {
			t.Errorf("managedFields are not hidden:\n%s", pane)
		}
		address := b.eval(`location.hash`)
		b.run(chromedp.Reload())
		b.until("the difference again", `document.querySelector("#history-pane table")?.innerText.includes("data.color")`)
		if got := b.eval(`location.hash`); got != address || !strings.HasPrefix(fmt.Sprint(got), "#/object/configmaps/shop/reported?") {
			t.Errorf("the address is %v, was %v", got, address)
		}
		b.click(".axis button[aria-pressed=true]")
		b.click(".axis button[aria-pressed=true]")
		b.until("the tail", `document.querySelector("#events-sum").textContent.startsWith("looking")`)
	})
	t.Run("an answer that is overtaken changes nothing", func(t *testing.T) {
		b.eval(`{
			const ask = fetch, after = (ms) => new Promise((done) => setTimeout(done, ms));
			window.fetch = async (url, ...more) => {
				const answer = await ask(url, ...more);
				if (!url.startsWith("/history/object")) return answer;
				await after(1000);
				setTimeout(() => { window.overtaken = true; window.fetch = ask; });
				return answer;
			};
			document.querySelectorAll(".axis button").forEach((e) => e.click());
		}`)
		b.until("the difference of the last two", `document.querySelector("#history-pane table")`)
		b.until("the answer that comes late", `window.overtaken`)
		if b.eval(`!!document.querySelector("#history-pane table")`) != true {
			t.Errorf("instead of the difference is shown:\n%s", b.text("#history-pane"))
		}
	})
	t.Run("what is not known is said", func(t *testing.T) {
		b.fill("#history-object", "nothing-like-it")
		b.click("#history-form button[type=submit]")
		b.until("that there is none", `document.querySelector("#history-problem").textContent.includes("never seen")`)
		b.fill("#history-object", "cm/reported")
		b.click("#history-form button[type=submit]")
		b.until("the versions again", rows+`.length === 3`)
	})
}

// noSecrets looks for planted values in all that the page holds.
func (b *browser) noSecrets(t *testing.T) {
	t.Helper()
	html, _ := b.eval(`document.documentElement.outerHTML + JSON.stringify(sessionStorage) + document.cookie + [...document.querySelectorAll("input")].map((i) => i.value).join()`).(string)
	if len(html) < 2000 {
		t.Errorf("only %d bytes were searched", len(html))
	}
	for _, needle := range []string{planted, base64.StdEncoding.EncodeToString([]byte(planted))} {
		if strings.Contains(html, needle) {
			t.Errorf("the page holds a planted value: %s", needle)
		}
	}
}

func (b *browser) keyboard(t *testing.T) {
	b.eval(`scrollTo(0, 0); document.activeElement.blur()`)
	b.eval(`document.body.tabIndex = -1, document.body.focus(), document.body.removeAttribute("tabindex")`)
	b.run(chromedp.KeyEvent(kb.Tab))
	if got := b.eval(`document.activeElement.className`); got != "skip" {
		t.Errorf("the first Tab leads to %v", got)
	}
	b.run(chromedp.KeyEvent(kb.Enter))
	if got := b.eval(`document.activeElement.id`); got != "main" {
		t.Errorf("the skip link leads to %v", got)
	}
	reached := map[any]bool{}
	for range 90 {
		b.run(chromedp.KeyEvent(kb.Tab))
		reached[b.eval(`document.activeElement.id || document.activeElement.getAttribute("aria-label")`)] = true
	}
	for _, id := range []string{"informers-filter", "informers-trouble", "Table of informers", "Table of sinks", "events-filter", "events-payload", "events-pause", "events-clear", "Table of events", "history-object", "timeline-since", "Table of versions"} {
		if !reached[id] {
			t.Errorf("Tab does not reach %s", id)
		}
	}
}

// names compares what assistive technology gets: landmarks, and a name for all that can be
// operated.
func (b *browser) names(t *testing.T) {
	var nodes []*accessibility.Node
	b.run(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		nodes, err = accessibility.GetFullAXTree().Do(ctx)
		return err
	}))
	landmarks := map[string]int{}
	for _, n := range nodes {
		role, name := value(n.Role), value(n.Name)
		switch role {
		case "banner", "main", "navigation", "contentinfo", "region", "search", "form":
			landmarks[role]++
		case "button", "link", "textbox", "searchbox", "checkbox", "combobox", "meter", "table":
			if name == "" {
				t.Errorf("a %s has no name", role)
			}
			landmarks[role]++
		}
	}
	for _, role := range []string{"banner", "main", "navigation", "contentinfo", "region", "searchbox", "button", "checkbox", "meter", "table"} {
		if landmarks[role] == 0 {
			t.Errorf("there is no %s: %v", role, landmarks)
		}
	}
	b.axeFindsNothing(t)
}

func value(v *accessibility.Value) string {
	if v == nil {
		return ""
	}
	return strings.Trim(string(v.Value), `"`)
}

func (b *browser) axeFindsNothing(t *testing.T) {
	t.Helper()
	file := os.Getenv("AXE")
	if file == "" {
		t.Log("AXE is not set: without axe-core only roles and names are checked")
		return
	}
	script, err := os.ReadFile(file)
	must(t, err)
	if found := b.axe(string(script)); len(found) > 0 {
		t.Errorf("axe finds:\n%s", strings.Join(found, "\n"))
	}
}

func (b *browser) readable(t *testing.T) {
	b.eval(`[...document.querySelectorAll(".axis button")].slice(1).forEach((e) => e.click())`)
	b.until("the difference", `document.querySelector("#history-pane table")`)
	views := map[string]string{"object": fmt.Sprint(b.eval(`location.hash`)), "timeline": "#/timeline?ns=" + namespace + "&since=30m"}
	shown := map[string]string{"object": "#history-pane table", "timeline": `#history-shown [aria-label="Table of the timeline"]`}
	backgrounds := map[any]bool{}
	for _, scheme := range []string{"light", "dark"} {
		for _, view := range []string{"timeline", "object"} {
			b.eval(fmt.Sprintf(`location.hash = %q`, views[view]))
			b.until("the "+view, fmt.Sprintf(`document.querySelector(%q)`, shown[view]))
			for _, width := range []int64{1440, 768, 390} {
				b.look(scheme, width)
				if wide := b.eval(`document.documentElement.scrollWidth - innerWidth`).(float64); wide > 0 {
					t.Errorf("at %d the page is %v too wide", width, wide)
				}
				if covered := b.eval(marksThatCover); covered != 0.0 {
					t.Errorf("at %d, %v marks of the axis cover the next one", width, covered)
				}
				b.axeFindsNothing(t)
				b.shot(fmt.Sprintf("%s-%s-%d", view, scheme, width))
			}
		}
		backgrounds[b.eval(`getComputedStyle(document.body).backgroundColor`)] = true
	}
	if len(backgrounds) != 2 {
		t.Errorf("light and dark look the same: %v", backgrounds)
	}
	b.look("light", 1360)
}

// marksThatCover counts the marks of the axis that reach into the next one.
const marksThatCover = `[...document.querySelectorAll(".axis button")].filter((e, i, all) => all[i + 1] && e.getBoundingClientRect().right > all[i + 1].getBoundingClientRect().left).length`

func (s *site) brokerAway(t *testing.T, b *browser) {
	s.audit.Shutdown()
	s.audit.WaitForShutdown()
	s.configMap("waits", nil)
	b.until("that it is not ready", `document.querySelector("#state").textContent === "not ready"`)
	b.until("why", `document.querySelector("#reasons").checkVisibility() && document.querySelector("#reasons").innerText.includes("sink audit")`)
	b.until("the sink's state", `[...document.querySelectorAll("#sinks-rows tr")].some((r) => r.innerText.includes("audit") && r.innerText.includes("unavailable"))`)
	b.until("the other sink continues", event("configmaps", namespace+"/waits", "stream"))
	b.click("#informers-trouble")
	b.axeFindsNothing(t)
	b.shot("broker-away")
	b.click("#informers-trouble")
}

func (s *site) gone(t *testing.T, b *browser) {
	s.bridge.Kill()
	b.until("that the bridge does not answer", `document.querySelector("#gone").checkVisibility() && document.body.classList.contains("stale") && document.querySelector("#state").textContent === "no answer"`)
	if text := b.text("#gone"); !strings.Contains(text, "does not answer since") {
		t.Errorf("it says %q", text)
	}
	b.axeFindsNothing(t)
	b.shot("gone")
	must(t, s.bridge.Start())
	b.until("the bridge again", `!document.querySelector("#gone").checkVisibility() && document.querySelector("#state").textContent !== "no answer"`)
	b.until("the tail again", `document.querySelector("#events-sum").textContent.startsWith("looking")`)
	s.configMap("after", nil)
	b.until("events again", event("configmaps", namespace+"/after"))
}
