package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// findChromium is the path of a browser; without one the test is skipped.
func findChromium(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium here: the status page is not tested (apt-get install chromium, or set CHROMIUM)")
	return ""
}

// browser is one page, and what it complained about.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu         sync.Mutex
	complaints []string // guarded by mu
	hosts      map[string]bool
	bearers    map[string]bool // paths of requests with a token
}

// elsewhere is a name under which the browser finds this machine, and the bridge does not know
// that.
const elsewhere = "bridge.elsewhere.test"

func newBrowser(t *testing.T) *browser {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(findChromium(t)), chromedp.WindowSize(1360, 1000), chromedp.WSURLReadTimeout(time.Minute),
		chromedp.Flag("host-resolver-rules", "MAP "+elsewhere+" 127.0.0.1"))
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox) // as root there is none; what is opened is our own page
	}
	allocator, stopAllocator := chromedp.NewExecAllocator(context.WithoutCancel(t.Context()), options...)
	t.Cleanup(stopAllocator)
	ctx, stop := chromedp.NewContext(allocator)
	t.Cleanup(stop)
	b := &browser{t: t, ctx: ctx, hosts: map[string]bool{}, bearers: map[string]bool{}}
	chromedp.ListenTarget(ctx, b.heard)
	b.run(network.Enable(), runtime.Enable(), log.Enable())
	return b
}

// heard notes errors of the page, and whom it asks.
func (b *browser) heard(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.complaints = append(b.complaints, e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		b.complaints = append(b.complaints, fmt.Sprintf("console.%s %s", e.Type, e.Args[0].Value))
	case *log.EventEntryAdded:
		b.complaints = append(b.complaints, fmt.Sprintf("%s %s %s", e.Entry.Source, e.Entry.Text, e.Entry.URL))
	case *network.EventRequestWillBeSent:
		if host := strings.SplitN(e.Request.URL, "/", 4); len(host) > 2 && !strings.HasPrefix(e.Request.URL, "data:") {
			b.hosts[host[2]] = true
			if e.Request.Headers["Authorization"] != nil {
				path, _, _ := strings.Cut(host[3], "?")
				b.bearers["/"+path] = true
			}
		}
	}
}

// heardSoFar are the complaints since the last call, but for those that contain a word.
func (b *browser) heardSoFar(but string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var left []string
	for _, c := range b.complaints {
		if but == "" || !strings.Contains(c, but) {
			left = append(left, c)
		}
	}
	b.complaints = nil
	return left
}

func (b *browser) run(actions ...chromedp.Action) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, 2*time.Minute)
	defer cancel()
	// The first Run makes the browser, which must outlive this call.
	if chromedp.FromContext(b.ctx).Target == nil {
		ctx = b.ctx
	}
	if err := chromedp.Run(ctx, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// eval gives the value of an expression in the page.
func (b *browser) eval(expression string) (value any) {
	b.t.Helper()
	b.run(chromedp.Evaluate(expression, &value))
	return value
}

// await gives the text that a promise of the page brings.
func (b *browser) await(expression string) (text string) {
	b.t.Helper()
	b.run(chromedp.Evaluate(expression, &text, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	return text
}

// text of an element, as it is shown.
func (b *browser) text(selector string) string {
	b.t.Helper()
	text, _ := b.eval(fmt.Sprintf("document.querySelector(%q)?.innerText ?? ''", selector)).(string)
	return text
}

// until waits until an expression is true in the page.
func (b *browser) until(what, expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(time.Minute); b.eval("!!("+expression+")") != true; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.shot("timeout")
			b.t.Fatalf("never shown: %s; the page says:\n%s", what, b.text("body"))
		}
	}
}

// fill puts text into a field, as somebody who types.
func (b *browser) fill(selector, text string) {
	b.t.Helper()
	b.clear(selector)
	b.run(chromedp.SendKeys(selector, text, chromedp.ByQuery))
}

func (b *browser) clear(selector string) {
	b.t.Helper()
	b.eval(fmt.Sprintf("{ const e = document.querySelector(%q); e.value = ''; e.dispatchEvent(new Event('input')) }", selector))
}

func (b *browser) click(selector string) {
	b.t.Helper()
	b.run(chromedp.Click(selector, chromedp.ByQuery))
}

// look sets the colour scheme and the width of the window.
func (b *browser) look(scheme string, width int64) {
	b.t.Helper()
	b.run(
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}, {Name: "prefers-reduced-motion", Value: "reduce"}}),
		emulation.SetDeviceMetricsOverride(width, 1000, 1, false),
	)
}

// shot keeps a picture of the whole page.
func (b *browser) shot(name string) {
	b.t.Helper()
	var picture []byte
	b.run(chromedp.FullScreenshot(&picture, 100))
	file := filepath.Join(b.t.ArtifactDir(), name+".png")
	if err := os.WriteFile(file, picture, 0o600); err != nil {
		b.t.Fatal(err)
	}
	b.t.Log("screenshot", file)
}

// axe gives what axe-core finds wrong with the page.
func (b *browser) axe(script string) []string {
	b.t.Helper()
	b.run(chromedp.Evaluate(script+"; true", nil))
	var found string
	b.run(chromedp.Evaluate(`axe.run().then((r) => JSON.stringify(r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.map((n) => n.target + " " + n.failureSummary).join(" | "))))`,
		&found, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	var violations []string
	if err := json.Unmarshal([]byte(found), &violations); err != nil {
		b.t.Fatal(err)
	}
	return violations
}
