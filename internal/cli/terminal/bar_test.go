package terminal

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/sinks/source"
)

func TestProgressBar(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		bar := &Bar{out: &out, of: "messages", began: time.Now()}
		bar.Clear()
		if out.Len() > 0 {
			t.Errorf("before the first %q", out.String())
		}
		time.Sleep(10 * time.Second)
		bar.Show(250_000, source.Progress{Read: 250, Total: 1000})
		bar.Show(250_001, source.Progress{Read: 251, Total: 1000}) // too soon
		const quarter = "\r[=======                       ]  25%  250,000 messages, 25,000/s, 30s left\x1b[K"
		if got := out.String(); got != quarter {
			t.Errorf("at a quarter %q\nwant %q", got, quarter)
		}
		out.Reset()
		time.Sleep(time.Second)
		bar.Show(1000, source.Progress{}) // whose end is not known
		if got := out.String(); got != "\r1,000 messages, 90/s\x1b[K" {
			t.Errorf("without an end %q", got)
		}
		out.Reset()
		if bar.Clear(); out.String() != "\r\x1b[K" {
			t.Errorf("it is taken away by %q", out.String())
		}
	})
}
