package page_test

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// elsewhere looks at the page from where only who has the token may read.
func (s *site) elsewhere(t *testing.T, b *browser) {
	file, err := os.ReadFile(filepath.Join(s.bridge.StateDir, "admin-token"))
	must(t, err)
	token := strings.TrimSpace(string(file))
	url := strings.Replace(s.bridge.AdminURL(), "127.0.0.1", elsewhere, 1) + "/"
	b.run(chromedp.Navigate(url))
	b.asks(t, "send the bridge's token")
	b.axeFindsNothing(t)
	b.shot("token")

	b.useToken("not-" + token)
	b.asks(t, "the token is not the bridge's")
	b.keepsNothingOf(t, token, "sessionStorage") // what was refused is not kept, and holds the right one here

	b.useToken(token)
	b.until("the status", `document.querySelectorAll("#sinks-rows tr").length === 3`)
	b.open("#/live")
	b.until("the tail", looking)
	s.configMap("elsewhere", nil)
	b.until("the event", hasEvent("added", "cm/elsewhere"))
	b.open("#/object/configmaps/shop/before")
	b.until("the object", difference+`?.includes("kind: ConfigMap")`)
	if b.eval(`document.querySelector("#access").checkVisibility()`) == true {
		t.Error("it asks for the token still")
	}
	b.keepsNothingOf(t, token)

	b.run(chromedp.Reload())
	b.until("the page that is loaded again", difference+`?.includes("kind: ConfigMap")`)
	b.mu.Lock()
	if want := map[string]bool{"/status": true, "/tail": true, "/samples": true, "/history/resources": true, "/history/losses": true, "/history/versions": true, "/history/diff": true, "/history/object": true, "/objects": true}; !maps.Equal(b.bearers, want) {
		t.Errorf("requests for %v carried the token, want %v", b.bearers, want)
	}
	b.mu.Unlock()

	ctx, stop := chromedp.NewContext(b.ctx)
	defer stop()
	other := &browser{t: t, ctx: ctx}
	must(t, chromedp.Run(ctx, chromedp.Navigate(url)))
	other.asks(t, "send the bridge's token") // another tab has none
	b.heardSoFar("")                         // the browser reports the 401s
}

// asks waits until the page asks for a token, and sees that it shows nothing meanwhile.
func (b *browser) asks(t *testing.T, why string) {
	t.Helper()
	b.until("that it asks: "+why, `document.querySelector("#access-form").checkVisibility() && document.querySelector("#access-why").textContent.includes("`+why+`")`)
	if b.eval(`document.querySelectorAll("#sinks-rows tr, #events-rows tr, #object-difference pre").length > 0`) == true {
		t.Error("informers, events or objects are shown all the same")
	}
}

func (b *browser) useToken(token string) {
	b.t.Helper()
	b.fill("#access-token", token)
	b.click("#access-form button[type=submit]")
}

// keepsNothingOf looks for a token where it would outlive the tab, or be seen: and, where more is
// named, there too.
func (b *browser) keepsNothingOf(t *testing.T, token string, more ...string) {
	t.Helper()
	places := map[string]string{
		"the page":       `document.documentElement.outerHTML`,
		"fields":         `[...document.querySelectorAll("input")].map((i) => i.value).join()`,
		"localStorage":   `JSON.stringify(localStorage)`,
		"cookies":        `document.cookie`,
		"the address":    `location.href + JSON.stringify(history.state)`,
		"requests":       `performance.getEntries().map((e) => e.name).join()`,
		"the tab's name": `window.name`,
	}
	if slices.Contains(more, "sessionStorage") {
		places["sessionStorage"] = `JSON.stringify(sessionStorage)`
	}
	for place, expression := range places {
		if text, _ := b.eval(expression).(string); strings.Contains(text, token) {
			t.Errorf("the token is in %s", place)
		}
	}
}
