package changelog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/changelog"
)

// What is pending for long goes to disk in time, also when the log was empty before.
func TestRunWakesUpForWhatIsAppended(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, openDB(t), "pods", func(c *changelog.Config) { c.SpoolAfter = 5 * time.Second })
		go func() { _ = r.Run(t.Context()) }()
		for n := range 3 {
			time.Sleep(time.Hour)
			e := r.entry("a", 10+n, 0b11)
			r.Place([]*changelog.Entry{e}, changelog.Mark{})
			r.Append([]*changelog.Entry{e})
			before := r.Status().DiskBytes
			if time.Sleep(4 * time.Second); r.Status().DiskBytes != before {
				t.Fatal("on disk after 4 s")
			}
			if time.Sleep(3 * time.Second); r.Status().DiskBytes == before {
				t.Fatalf("change %d is not on disk after 7 s", n)
			}
		}
	})
}
