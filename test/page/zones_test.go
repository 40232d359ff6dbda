package page_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"
	_ "time/tzdata"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// zones looks at the page from several zones, on days when their clocks change too. Each time that
// is shown says its zone, and an address means the same in all of them.
func (s *site) zones(t *testing.T, b *browser) {
	const form = "2006-01-02 15:04:05Z07:00"
	link := "" // as a colleague in the zone before has copied it
	for _, zone := range []struct{ name, change string }{
		{"UTC", "2025-03-30T01:00:00Z"},
		{"Asia/Kolkata", "2025-06-01T00:00:00Z"},
		{"America/Los_Angeles", "2025-03-09T10:00:00Z"},
		{"America/New_York", "2025-11-02T06:00:00Z"},
		{"Pacific/Chatham", "2025-04-05T14:00:00Z"},
		{"Europe/London", "2025-03-30T01:00:00Z"},
	} {
		location, err := time.LoadLocation(zone.name)
		must(t, err)
		change, err := time.Parse(time.RFC3339, zone.change)
		must(t, err)
		b.run(emulation.SetTimezoneOverride(zone.name))
		b.eval(`localStorage.setItem("bridge-zone", "local")`)
		b.run(chromedp.Reload())

		from := change.Add(-48 * time.Hour)
		var shown []struct {
			Time   int64
			Moment string
			Parsed int64
		}
		b.module(t, fmt.Sprintf(`Array.from({length: 192}, (_, i) => %d + i * 1800000).map((time) => ({time, moment: m.moment(time), parsed: m.parse(m.moment(time))}))`, from.UnixMilli()), &shown)
		for _, one := range shown {
			if want := time.UnixMilli(one.Time).In(location).Format(form); one.Moment != want || one.Parsed != one.Time {
				t.Errorf("%s: %s is shown, and read as %v; want %s", zone.name, one.Moment, time.UnixMilli(one.Parsed).UTC(), want)
			}
		}

		// round times of four days are midnights, and of one day whole hours, each of another name
		for days, most := range map[int]int{4: 6, 1: 12} {
			var ticks [][2]any
			b.module(t, fmt.Sprintf(`m.ticks(%d, %d, %d)`, change.Add(-time.Duration(days)*12*time.Hour).UnixMilli(), change.Add(time.Duration(days)*12*time.Hour).UnixMilli(), most), &ticks)
			names := map[any]bool{}
			for _, tick := range ticks {
				at := time.UnixMilli(int64(tick[0].(float64))).In(location)
				if names[tick[1]] = true; at.Minute() != 0 || days == 4 && at.Hour() != 0 {
					t.Errorf("%s: %v, which is %v, is no round time", zone.name, tick[1], at)
				}
				if text := fmt.Sprint(tick[1]); days == 4 && !strings.HasPrefix(text, at.Format("01-02")) || days == 1 && !strings.Contains(text, at.Format("15:04Z07:00")) {
					t.Errorf("%s: %v is named %s", zone.name, at, text)
				}
			}
			if len(ticks) < 3 || len(names) != len(ticks) {
				t.Errorf("%s: round times %v", zone.name, ticks)
			}
		}

		b.open("#/timeline?ns=" + namespace + "&since=15m")
		b.until("the timeline", changeRows+`.length > 5`)
		if got := b.text("#timeline-range"); strings.Count(got, time.Now().In(location).Format("Z07:00")) != 2 {
			t.Errorf("%s: the window is %s", zone.name, got)
		}
		if link != "" {
			_, address, _ := strings.Cut(link, "#/timeline?")
			query, err := url.ParseQuery(address)
			must(t, err)
			sent, err := time.Parse(time.RFC3339, query.Get("from"))
			must(t, err)
			b.run(chromedp.Navigate(link))
			b.until("the window of the link", fmt.Sprintf(`document.querySelector("#timeline-range")?.textContent.includes(%q)`, sent.In(location).Format("15:04:05Z07:00")+" – "))
			b.until("its changes", changeRows+`.length > 5`)
		}
		b.open("#/timeline?ns=" + namespace + "&since=15m")
		b.until("the timeline", changeRows+`.length > 5 && !location.hash.includes("from=")`)
		link = b.copied()
		b.open(fmt.Sprintf("#/timeline?from=%s&to=%s", change.Add(-time.Hour).Format(time.RFC3339), change.Add(time.Hour).Format(time.RFC3339)))
		want := change.Add(-time.Hour).In(location).Format(form) + " – " + change.Add(time.Hour).In(location).Format("15:04:05Z07:00")
		if a, z := change.Add(-time.Hour).In(location), change.Add(time.Hour).In(location); a.Day() != z.Day() {
			want = a.Format(form) + " – " + z.Format(form)
		}
		b.until("the window "+want, fmt.Sprintf(`document.querySelector("#timeline-range").textContent === %q`, want))
	}
	b.eval(`localStorage.clear()`)
	b.run(emulation.SetTimezoneOverride(""), chromedp.Reload())
}

// module evaluates an expression of m, the module of times.
func (b *browser) module(t *testing.T, expression string, into any) {
	t.Helper()
	var text string
	b.run(chromedp.Evaluate(`import("./time.js").then((m) => JSON.stringify(`+expression+`))`, &text, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	must(t, json.Unmarshal([]byte(text), into))
}

// copied is the address that the key c copies.
func (b *browser) copied() string {
	b.t.Helper()
	b.eval(`navigator.clipboard.writeText = (text) => { window.copiedText = text; return Promise.resolve() }, document.activeElement.blur()`)
	b.run(chromedp.KeyEvent("c"))
	b.until("the address", `window.copiedText`)
	return fmt.Sprint(b.eval(`window.copiedText`))
}
