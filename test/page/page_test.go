package page_test

import (
	"context"
	"encoding/base64"
	"flag"
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

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/test/e2e/harness"
)

var away = flag.Duration("away", 15*time.Second, "how long a broker of TestTheStatusPage is unavailable before the lag is read")

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
		Everywhere: true, YAML: siteConfig,
	})
	must(s.t, err)
	s.keepStaging()
	must(s.t, s.bridge.StartAndWait(ctx))
	s.t.Cleanup(s.bridge.Kill)
}

const siteConfig = `
informers:
  - {name: workloads, resources: [pods, deployments.apps, services, namespaces]}
  - {name: config, resources: [configmaps, secrets], namespaces: [` + namespace + `], redact: [data.dsn], sinks: [{name: stream}, {name: audit, payload: change}, {name: kept}]}
sinks:
  - {name: stream, nats: {servers: ["nats://${NATS_ADDRESS}"], embedded: true}}
  - {name: audit, nats: {servers: ["${AUDIT}"], stream: {name: AUDIT}, subject: "audit.{resource}.{namespace}.{name}.{op}"}}
  - {name: kept, history: {}}
`

// keepStaging writes what another cluster had into the history of the bridge.
func (s *site) keepStaging() {
	s.t.Helper()
	db, err := history.Open(history.Options{Dir: filepath.Join(s.bridge.StateDir, "history")})
	must(s.t, err)
	_, err = db.Writer.Append(s.t.Context(), []*event.Event{{
		ID: "other/7", Source: "/clusters/staging", Type: "dev.kubebridge.resource.added", Op: event.Added, Time: time.Now().Add(-time.Hour),
		Sequence: "00000000.00000000000000000007", Informer: "all",
		ObjectAttributes: event.ObjectAttributes{APIVersion: "v1", Resource: "pods", Kind: "Pod", Namespace: "lab", Name: "other", UID: "other", ResourceVersion: "7"},
		Data:             []byte(`{"kind":"Pod","metadata":{"name":"other","namespace":"lab"}}`),
	}})
	must(s.t, err)
	must(s.t, db.Close())
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
	step("health: it loads and shows what the bridge does", func(t *testing.T) { s.loads(t, b) })
	step("live: it shows events while they happen", func(t *testing.T) { s.live(t, b) })
	step("live: the filter shows what it says and nothing else", func(t *testing.T) { s.filters(t, b) })
	step("object: versions, differences, addresses", func(t *testing.T) { s.object(t, b) })
	step("timeline: an application, newest first", func(t *testing.T) { s.timeline(t, b) })
	step("compare: two times", func(t *testing.T) { s.compare(t, b) })
	step("one of two clusters is chosen, and where its history ends is said", func(t *testing.T) { b.clusters(t) })
	step("a file that is refused is reported until one is applied", func(t *testing.T) { s.refused(t, b) })
	step("zones: each time says its own, and addresses mean the same", func(t *testing.T) { s.zones(t, b) })
	step("the three questions take two clicks at most", func(t *testing.T) { s.questions(t, b) })
	step("it can be used without a mouse", func(t *testing.T) { b.keyboard(t) })
	step("it is readable in light and dark, wide and narrow, and all has a name", func(t *testing.T) { b.readable(t) })
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
	b.until("readiness", `document.querySelector("#state").textContent === "bridge ready"`)
	if got := b.text("#cluster"); got != "prod-eu-1" {
		t.Errorf("cluster %q", got)
	}
	b.until("all sinks", `[...document.querySelectorAll("#sinks-rows tr")].filter((r) => r.innerText.includes("connected")).length === 3`)
	b.until("informers in one line", `/6 resources, \d+ objects, all in sync/.test(document.querySelector("#informers-sum").textContent)`)
	b.click("#informers summary")
	b.until("all informers", `document.querySelectorAll("#informers-rows tr").length === 6`)
	b.until("the object that is there", `[...document.querySelectorAll("#informers-rows tr")].some((r) => /configmaps in shop\s+watching\s+1\s/.test(r.innerText))`)
	b.fill("#informers-filter", "secr")
	b.until("one informer", `document.querySelectorAll("#informers-rows tr").length === 1`)
	b.clear("#informers-filter")
	b.until("plots with the metrics' names", `document.querySelectorAll(".plot path.line").length >= 6 && document.querySelector("#plots").innerText.includes("bridge_publisher_published_total")`)
	b.until("the trend of each sink", `document.querySelectorAll("#sinks-rows svg.spark").length === 3`)
	b.until("losses", `document.querySelector("#losses").innerText.includes("Nothing")`)
	t.Run("an error that is over is said to be", func(t *testing.T) {
		row := b.await(`fetch("status").then((r) => r.json()).then(async (s) => {
			const ago = (seconds) => new Date(Date.now() - seconds * 1000).toISOString();
			(await import("./health.js")).status({...s, sinks: [{...s.sinks[0], lastError: "reset", lastErrorAt: ago(600), lastErrorOver: ago(300)}]});
			return document.querySelector("#sinks-rows tr").innerText;
		})`)
		if !strings.Contains(row, "reset (10 min 0 s ago, over for 5 min 0 s)") {
			t.Error(row)
		}
	})
	t.Run("without a history it says how to keep one, and not while that opens", func(t *testing.T) {
		for _, test := range []struct{ known, started, want string }{
			{"null", "2026-01-01T00:00:00Z", "not open yet"},
			{"{kept: false}", time.Now().Format(time.RFC3339), "not open yet"},
			{"{kept: false}", "2026-01-01T00:00:00Z", "sinks: [{name: stream}, {name: history}]"},
		} {
			if text := b.await(fmt.Sprintf(`import("./health.js").then((m) => {
				const box = document.createElement("div");
				m.enter(box, {known: () => (%s), status: () => ({started: %q})});
				m.learned();
				m.leave();
				return box.querySelector("#losses").textContent;
			})`, test.known, test.started)); !strings.Contains(text, test.want) || strings.Contains(text, "keeps no history") != strings.Contains(test.want, "sinks:") {
				t.Errorf("%s: %s", test.known, text)
			}
		}
		b.run(chromedp.Reload())
	})
}

// open goes to a view, as its link does.
func (b *browser) open(address string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("{ location.hash = %q }", address))
}

// hasEvent is an expression that is true when the tail has a row with these texts.
func hasEvent(texts ...string) string {
	conditions := make([]string, len(texts))
	for i, text := range texts {
		conditions[i] = fmt.Sprintf("r.innerText.includes(%q)", text)
	}
	return `[...document.querySelectorAll("#events-rows tr")].some((r) => ` + strings.Join(conditions, " && ") + ")"
}

const looking = `document.querySelector("#events-sum")?.textContent.startsWith("looking")`

func (s *site) live(t *testing.T, b *browser) {
	b.click(`#views a[href="#/live"]`)
	b.until("the tail", looking)
	s.configMap("live", map[string]string{"level": "info", "dsn": planted})
	s.secret("live")
	b.until("one row of the event, with a mark for each sink", hasEvent("added", "cm/live", "✓ stream", "✓ audit", "✓ kept"))
	b.until("the Secret's event", hasEvent("added", "secret/live", "✓ stream", "✓ audit"))
	if rows := b.eval(`[...document.querySelectorAll("#events-rows tr")].filter((r) => r.innerText.includes("cm/live")).length`); rows != 1.0 {
		t.Errorf("one change is %v rows", rows)
	}
	s.delete("live")
	b.until("the delete", hasEvent("deleted", "cm/live"))

	b.click("#events-pause")
	seen := b.text("#events-sum")
	s.configMap("unseen", nil)
	b.until("the count continues while it is paused", fmt.Sprintf("document.querySelector('#events-sum').textContent !== %q", seen))
	if b.eval(hasEvent("unseen")) == true {
		t.Error("a paused list moves")
	}
	b.click("#events-pause")
}

func (s *site) filters(t *testing.T, b *browser) {
	b.fill("#events-filter", `meta.resource == "configmaps" && sink == "audit" && op != "deleted"`)
	b.click("#events-payload")
	b.click("#events-form button[type=submit]")
	b.until("the tail", looking)
	b.until("a watcher with the filter", `document.querySelectorAll("#events-rows tr").length === 0`)
	for i := range 5 {
		name := fmt.Sprintf("filtered-%d", i)
		s.secret(name)
		s.configMap(name, map[string]string{"level": "debug", "dsn": planted})
	}
	s.delete("filtered-0")
	s.configMap("last", nil)
	b.until("what comes last", hasEvent("added", "cm/last", "audit"))
	rows, _ := b.eval(`document.querySelectorAll("#events-rows tr").length`).(float64)
	if b.eval(hasEvent("secret")) == true || b.eval(hasEvent("stream")) == true || b.eval(hasEvent("deleted")) == true || rows != 6 {
		t.Errorf("the filter lets through what it does not say, or not all: %v rows\n%s", rows, b.text("#events-rows"))
	}
	if payload, _ := b.eval(`[...document.querySelectorAll("#events-rows pre")].map((e) => e.textContent).join()`).(string); !strings.Contains(payload, `"level": "debug"`) {
		t.Errorf("there is no payload: %s", payload)
	}
	b.axeFindsNothing(t)
	b.shot("live")

	b.fill("#events-filter", `resorce == "pods"`)
	b.click("#events-form button[type=submit]")
	b.until("what is wrong with it", `document.querySelector("#events-problem").checkVisibility() && document.querySelector("#events-problem").textContent.includes("undeclared reference")`)
	b.fill("#events-filter", `op != "synced"`)
	b.click("#events-form button[type=submit]")
	b.until("no problem any more", `!document.querySelector("#events-problem").checkVisibility()`)
	b.until("the tail", looking)
	b.heardSoFar("") // the browser reports the 400
}

// configuration is a text of several lines, as ConfigMaps have it.
const configuration = "a: 1\nb: 2\nc: 3\nd: 4\ne: 5\nport: 80\nf: 6\n"

const (
	versionRows = `document.querySelectorAll("#versions .rowbutton")`
	difference  = `document.querySelector("#object-difference")?.innerText`
)

// object asks what an object was, with the mouse and with the keyboard.
func (s *site) object(t *testing.T, b *browser) {
	s.configMap("reported", map[string]string{"level": "info", "dsn": planted})
	s.update("reported", map[string]string{"level": "debug", "dsn": planted, "file": configuration})
	s.update("reported", map[string]string{"level": "debug", "color": "blue", "file": strings.Replace(configuration, "port: 80\n", "port: 8080\n", 1)})
	b.until("the event", hasEvent("updated", "cm/reported", "kept"))
	for deadline := time.Now().Add(time.Minute); ; { // the history stores by batches
		b.fill("#find", "reported")
		b.run(chromedp.KeyEvent(kb.Enter))
		b.until("the versions", versionRows+`.length > 0`)
		if b.eval(versionRows+`.length`) == 3.0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("versions:\n%s", b.text("#versions"))
		}
		b.open("#/object")
		b.until("no object", versionRows+`.length === 0`)
	}
	t.Run("the newest version against the one before, line by line", func(t *testing.T) {
		b.until("the difference", difference+`?.includes("data.color")`)
		text := b.text("#object-difference")
		if want := "… 2 lines are the same\n  c: 3\n  d: 4\n  e: 5\n− port: 80\n+ port: 8080\n  f: 6"; !strings.Contains(text, want) {
			t.Errorf("lines:\n%s\nwant:\n%s", text, want)
		}
		if strings.Contains(text, "managedFields") || !strings.Contains(text, "data.dsn") {
			t.Errorf("the difference:\n%s", text)
		}
		if command := b.text("#object-command"); !strings.HasPrefix(command, "bridge diff cm/reported -n shop --from ") || !strings.HasSuffix(command, " --dir "+s.bridge.StateDir+"/history --cluster prod-eu-1") {
			t.Errorf("the command is %q", command)
		}
	})
	t.Run("arrows lead to other versions, y to YAML", func(t *testing.T) {
		b.eval(`document.activeElement.blur()`)
		b.run(chromedp.KeyEvent(kb.ArrowLeft))
		b.until("the version before", difference+`?.includes('debug') && `+difference+`?.includes("data.level")`)
		b.run(chromedp.KeyEvent("y"))
		b.until("YAML", difference+`?.includes("+   level: debug")`)
		b.run(chromedp.KeyEvent("y"))
		b.until("fields", difference+`?.includes("data.level")`)
		b.run(chromedp.KeyEvent(kb.ArrowLeft))
		b.until("the first one, against nothing", difference+`?.includes("against nothing") && `+difference+`?.includes("+   level: info")`)
	})
	t.Run("a reload and Back keep the object and what is compared", func(t *testing.T) {
		b.eval(versionRows + `[0].click()`)
		b.until("the difference", difference+`?.includes("data.color")`)
		b.eval(versionRows + `[2].dispatchEvent(new MouseEvent("click", {shiftKey: true, bubbles: true}))`)
		b.until("two versions", `/vs=\d+/.test(location.hash) && `+difference+`?.includes("info")`)
		address, text := b.eval(`location.hash`), b.text("#object-difference")
		if !strings.HasPrefix(fmt.Sprint(address), "#/object/configmaps/shop/reported?") {
			t.Errorf("the address is %v", address)
		}
		b.run(chromedp.Reload())
		b.until("the difference again", difference+`?.includes("info")`)
		if got := b.text("#object-difference"); got != text || b.eval(`location.hash`) != address {
			t.Errorf("after a reload:\n%s\nbefore:\n%s", got, text)
		}
		other := newBrowser(t)
		other.run(chromedp.Navigate(s.bridge.AdminURL() + "/" + fmt.Sprint(address)))
		other.until("the difference in a second browser", difference+`?.includes("info")`)
		if got := other.text("#object-difference"); got != text {
			t.Errorf("a second browser:\n%s\nthe first:\n%s", got, text)
		}
		b.eval(`history.back()`)
		b.until("one version", `!location.hash.includes("vs=")`)
	})
	t.Run("a delete compares too", func(t *testing.T) {
		b.open("#/object/configmaps/shop/live")
		b.until("the delete against nothing", `document.querySelector("#versions")?.innerText.includes("deleted") && `+difference+`?.includes("−   level: info")`)
	})
	t.Run("a search puts the exact name first, and what is not known is said", func(t *testing.T) {
		b.fill("#find", "nothing-like-it")
		b.until("that there is none", `document.querySelector("#found").innerText.includes("never seen")`)
		b.fill("#find", "filtered")
		b.until("several", `document.querySelectorAll("#found li").length >= 10`)
		b.clear("#find")
		b.open("#/object/configmaps/shop/nothing-like-it")
		b.until("that there is none", `document.querySelector("#view").innerText.includes("never seen")`)
		b.heardSoFar("") // the browser reports the 404s
	})
}

const changeRows = `document.querySelectorAll(".list .rowbutton")`

func (s *site) timeline(t *testing.T, b *browser) {
	b.open("#/timeline?ns=" + namespace)
	b.until("the timeline", changeRows+`.length > 5`)
	b.until("the newest change, and its difference", `document.querySelector("#timeline-detail").innerText.includes("data.color")`)
	if first, _ := b.eval(changeRows + `[0].innerText`).(string); !strings.Contains(first, "cm/reported") {
		t.Errorf("the newest change does not come first: %s", first)
	}
	if got := b.text("#lanes .names"); !strings.Contains(got, "cm/reported 3×") || !strings.Contains(got, "secret/live") {
		t.Errorf("lanes:\n%s", got)
	}
	if got := b.text("#timeline-range"); strings.Count(got, "Z") != 2 {
		t.Errorf("times without a zone: %s", got)
	}
	t.Run("three decisions are undone by three Backs", func(t *testing.T) {
		begin := b.eval(`document.activeElement.blur(), location.hash`)
		b.eval(changeRows + `[2].click()`)
		b.eval(`{ const e = document.querySelector("#timeline-kind"); e.value = "secrets"; e.dispatchEvent(new Event("change")) }`)
		b.until("one kind", changeRows+`.length === 6`)
		b.run(chromedp.KeyEvent("-"))
		b.until("a longer window", `location.hash.includes("from=")`)
		for range 3 {
			b.eval(`history.back()`)
			time.Sleep(50 * time.Millisecond)
		}
		b.until("where it began", fmt.Sprintf("location.hash === %q", begin))
		b.until("all kinds", changeRows+`.length > 6`)
	})
	t.Run("j goes down, and a name leads to the object", func(t *testing.T) {
		b.eval(`document.activeElement.blur()`)
		b.run(chromedp.KeyEvent("j"))
		b.until("the second one is chosen", `location.hash.includes("sel=") && `+changeRows+`[1].getAttribute("aria-current") === "true"`)
		b.shot("timeline")
		b.eval(`[...document.querySelectorAll("#lanes a")].find((e) => e.textContent === "cm/reported").click()`)
		b.until("the object", versionRows+`.length === 3`)
		b.eval(`history.back()`)
		b.until("the timeline again", changeRows+`.length > 5`)
	})
	t.Run("a namespace that is not known gets a proposal", func(t *testing.T) {
		b.open("#/timeline?ns=shopp")
		b.until("the proposal", `document.querySelector("#timeline-notes").innerText.includes("shop?")`)
	})
}

func (s *site) compare(t *testing.T, b *browser) {
	b.open("#/compare?ns=" + namespace + "&a=15m&b=now")
	b.until("what is different", `document.querySelector("#compare-found").innerText.includes("cm/reported")`)
	if got := b.text("#compare-found"); strings.Contains(got, "cm/live") {
		t.Errorf("what came and went is different:\n%s", got)
	}
	b.shot("compare")
	for _, ns := range []string{namespace, ""} {
		b.open("#/compare?ns=" + ns + "&a=15m&b=now")
		b.until("what is different", `document.querySelector("#compare-found").innerText.includes("cm/reported")`)
		for _, width := range []int64{1360, 1024, 390} {
			b.look("light", width)
			b.until("a row, its name and its number in one line", `[...document.querySelectorAll("#compare-found li")].every((e) => e.lastChild.getClientRects().length === 1 && e.lastChild.offsetTop <= e.children[1].offsetTop + 4)`)
		}
		b.look("light", 1360)
	}
}

// clusters looks at the history of another cluster, and comes back.
func (b *browser) clusters(t *testing.T) {
	choose := func(cluster string) {
		b.eval(fmt.Sprintf(`{ const e = document.querySelector("#cluster-of"); e.value = %q; e.dispatchEvent(new Event("change")) }`, cluster))
	}
	b.open("#/timeline?since=6h")
	b.until("the bridge's own cluster", `document.querySelector("#cluster-of").checkVisibility() && document.querySelector("#cluster-of").value === "prod-eu-1" && `+changeRows+`.length > 5`)
	choose("staging")
	b.until("the one change of the other", changeRows+`.length === 1 && `+changeRows+`[0].innerText.includes("po/other")`)
	b.until("where its history ends", `/Changes may be missing .*: the history has nothing newer/.test(document.querySelector("#timeline-notes").innerText)`)
	b.until("its namespaces only", `[...document.querySelectorAll("#timeline-ns option")].map((o) => o.value).join() === ",lab"`)
	b.axeFindsNothing(t)
	b.shot("cluster")
	b.run(chromedp.Reload())
	b.until("the other one after a reload", changeRows+`.length === 1 && document.querySelector("#cluster-of").value === "staging" && document.querySelector("#lanes a")`)
	b.eval(`document.querySelector("#lanes a").click()`)
	b.until("its object", versionRows+`.length === 1 && document.querySelector("#object-command").innerText.endsWith(" --cluster staging") && document.querySelector("#view").innerText.includes("the history has nothing newer")`)
	b.click(`#views a[href="#/health"]`)
	b.until("what may be missing of it", `document.querySelector("#losses").innerText.includes("the history has nothing newer")`)
	choose("prod-eu-1")
	b.until("nothing of the bridge's own", `document.querySelector("#losses").innerText.includes("Nothing")`)
	b.heardSoFar("")
}

// refused gives the running bridge a file with a mistake, and takes it back.
func (s *site) refused(t *testing.T, b *browser) {
	b.open("#/health")
	must(t, s.bridge.Configure(siteConfig+"  - {name: more, histroy: {}}\n"))
	b.until("that it is refused, since when, and why", `document.querySelector("#refused").checkVisibility() && /is refused since 20\d\d-.*histroy/s.test(document.querySelector("#refused").innerText)`)
	b.axeFindsNothing(t)
	b.shot("refused")
	must(t, s.bridge.Configure(siteConfig))
	b.until("that one is applied", `!document.querySelector("#refused").checkVisibility()`)
}

// questions are asked from the start of the page, with clicks that are counted, at 1440x900.
func (s *site) questions(t *testing.T, b *browser) {
	b.look("light", 1440)
	inView := func(selector string) string {
		return fmt.Sprintf(`(() => { const r = document.querySelector(%q)?.getBoundingClientRect(); return r && r.height > 0 && r.top >= 0 && r.top < 880 })()`, selector)
	}
	t.Run("is it healthy, how far behind, what was lost: no click", func(t *testing.T) {
		b.open("#/health")
		for _, selector := range []string{"#sinks-rows tr:last-child", "#losses", "#informers-sum"} {
			b.until(selector+" in view", inView(selector))
		}
		b.shot("question-health")
	})
	t.Run("what changed in the last 30 minutes: one click", func(t *testing.T) {
		b.click(`#views a[href="#/timeline"]`)
		b.until("the newest change in view", inView(".list .rowbutton"))
		b.until("its difference in view", inView("#timeline-detail h2"))
		b.shot("question-timeline")
	})
	t.Run("who changed this object, and how: a search, Enter", func(t *testing.T) {
		b.fill("#find", "cm/reported")
		b.run(chromedp.KeyEvent(kb.Enter))
		b.until("the difference in view", inView("#object-difference pre"))
		if who := b.text("#object-who"); !strings.Contains(who, "by ") {
			t.Errorf("who: %s", who)
		}
		b.shot("question-object")
	})
	b.look("light", 1360)
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
	// 12 stops of Tab are enough for each control of a view
	for view, ids := range map[string][]string{
		"#/timeline?ns=" + namespace: {"find", "zone", "timeline-ns", "timeline-since", "timeline-kind", "timeline-by", "timeline-find", "timeline-copy"},
		"#/live":                     {"find", "events-filter", "events-payload", "events-pause", "events-clear"},
		"#/compare":                  {"find", "compare-ns", "compare-a", "compare-b"},
	} {
		b.open(view)
		b.until("the view", fmt.Sprintf("document.querySelector(%q)", "#"+ids[len(ids)-1]))
		b.eval(`document.querySelector("#main").focus()`)
		reached := map[any]bool{}
		for range 12 {
			b.run(chromedp.KeyEvent(kb.Tab))
			reached[b.eval(`document.activeElement.id || document.activeElement.getAttribute("aria-label")`)] = true
		}
		b.run(chromedp.KeyEvent("/"))
		b.eval(`document.activeElement.blur()`)
		b.run(chromedp.KeyEvent("/"))
		reached[b.eval(`document.activeElement.id`)] = true
		reached["zone"] = true // the next one
		for _, id := range ids {
			if !reached[id] {
				t.Errorf("%s: 12 tabs do not reach %s: %v", view, id, reached)
			}
		}
		b.eval(`document.activeElement.blur()`)
	}
	for i, view := range []string{"health", "timeline", "object", "compare", "live"} {
		b.run(chromedp.KeyEvent(fmt.Sprint(i + 1)))
		b.until("the view "+view, fmt.Sprintf("location.hash.startsWith(%q)", "#/"+view))
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
	for _, role := range []string{"banner", "main", "navigation", "contentinfo", "searchbox", "button"} {
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
	views := []struct{ name, address, shown string }{
		{"health", "#/health", `document.querySelectorAll(".plot path.line").length > 3`},
		{"timeline", "#/timeline?ns=" + namespace, `document.querySelector("#timeline-detail")?.innerText.includes("data.color")`},
		{"object", "#/object/configmaps/shop/reported", difference + `?.includes("data.color")`},
		{"compare", "#/compare?ns=" + namespace, `document.querySelector("#compare-found")?.innerText.includes("cm/reported")`},
		{"live", "#/live", looking},
	}
	backgrounds := map[any]bool{}
	for _, scheme := range []string{"light", "dark"} {
		for _, view := range views {
			b.open(view.address)
			b.until("the view "+view.name, view.shown)
			for _, width := range []int64{1440, 1024, 390} {
				b.look(scheme, width)
				if wide := b.eval(`document.documentElement.scrollWidth - innerWidth`).(float64); wide > 0 {
					t.Errorf("%s: at %d the page is %v too wide", view.name, width, wide)
				}
				if nodes := b.eval(`document.querySelectorAll("*").length`).(float64); nodes > 3000 {
					t.Errorf("%s: %v nodes", view.name, nodes)
				}
				b.names(t)
				b.shot(fmt.Sprintf("%s-%s-%d", view.name, scheme, width))
			}
		}
		backgrounds[b.eval(`getComputedStyle(document.body).backgroundColor`)] = true
	}
	if len(backgrounds) != 2 {
		t.Errorf("light and dark look the same: %v", backgrounds)
	}
	b.look("light", 1360)
}

func (s *site) brokerAway(t *testing.T, b *browser) {
	b.open("#/live")
	b.until("the tail", looking)
	s.audit.Shutdown()
	s.audit.WaitForShutdown()
	s.configMap("waits", nil)
	since := time.Now()
	b.until("the other sink continues", hasEvent("cm/waits", "stream"))
	b.open("#/health")
	b.until("that it is not ready, and since when", `document.querySelector("#state").textContent.startsWith("bridge not ready ")`)
	b.until("why, and since when", `document.querySelector("#reasons").checkVisibility() && /sink audit: .*since 20\d\d-/.test(document.querySelector("#reasons").innerText)`)
	b.until("the sink's state and lag, first", `/^audit\s+unavailable\s+[1-9]/.test(document.querySelector("#sinks-rows tr").innerText)`)
	if sum := b.text("#informers-sum"); !strings.Contains(sum, "all in sync") {
		t.Errorf("the informers fail where a broker is unavailable: %s", sum)
	}
	b.axeFindsNothing(t)
	b.shot("broker-away")
	<-time.After(time.Until(since.Add(*away)))
	b.until("the next status", `performance.now() > 0`)
	shown := b.await(`fetch("status").then((r) => r.json()).then((s) => [...document.querySelectorAll("#sinks-rows tr")].find((r) => r.dataset.key === "audit").cells[2].textContent + "|" + s.sinks.find((x) => x.name === "audit").lagSeconds)`)
	elapsed := time.Since(since).Seconds()
	var lag float64
	text, said, _ := strings.Cut(shown, "|")
	_, err := fmt.Sscan(said, &lag)
	must(t, err)
	t.Logf("%.1f s after a change that a sink can't take: the page says %s, the bridge %.1f s", elapsed, text, lag)
	if lag < elapsed-2 || lag > elapsed+2 {
		t.Errorf("the lag is %.1f s after %.1f s", lag, elapsed)
	}
	if sum := b.text("#informers-sum"); !strings.Contains(sum, "all in sync") {
		t.Errorf("the informers fail where a broker is unavailable: %s", sum)
	}
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
	b.open("#/live")
	b.until("the tail again", looking)
	s.configMap("after", nil)
	b.until("events again", hasEvent("cm/after"))
	b.open("#/timeline?ns=" + namespace)
	b.until("the time of the stop", `document.querySelector("#timeline-notes").innerText.includes("Not watched")`)
	b.shot("stopped")
}
