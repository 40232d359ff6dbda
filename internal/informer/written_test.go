package informer_test

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// writtenPod is pod "a" in a version, with managedFields entries "manager@second", in seconds since
// the bubble began. Its own second is that of its creation. With "manager@second+x" it has a field
// x that each version sets, and that this manager owns; an entry "manager@" has no time.
func writtenPod(t *testing.T, version string, created int, entries string) *resource.Object {
	t.Helper()
	at := func(second string) string {
		d, err := time.ParseDuration(second + "s")
		testkit.OK(t, err)
		return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC).Add(d).Format(time.RFC3339)
	}
	var fields []string
	spec := ""
	for entry := range strings.FieldsSeq(entries) {
		manager, second, _ := strings.Cut(entry, "@")
		manager, subresource, _ := strings.Cut(manager, "/")
		second, owns := strings.CutSuffix(second, "+x")
		owned := "{}"
		if owns {
			owned, spec = `{"f:spec":{"f:x":{}}}`, fmt.Sprintf(`,"spec":{"x":%q}`, version)
		}
		if second != "" {
			second = fmt.Sprintf(`"time":%q,`, at(second))
		}
		fields = append(fields, fmt.Sprintf(`{"manager":%q,"operation":"Update","apiVersion":"v1",%s"subresource":%q,"fieldsV1":%s}`,
			manager, second, subresource, owned))
	}
	raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":"ua",`+
		`"resourceVersion":%q,"creationTimestamp":%q,"managedFields":[%s]}%s}`,
		version, at(fmt.Sprint(created)), strings.Join(fields, ","), spec)
	obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: pods})
	testkit.OK(t, err)
	return obj
}

// attributions are the events as "op manager/subresource@second", with the milliseconds of a time
// that was observed.
func (o *outbox) attributions() (lines []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, e := range o.raw {
		by := e.Manager
		if e.ManagerSubresource != "" {
			by += "/" + e.ManagerSubresource
		}
		at := e.Time.Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).Milliseconds()
		text := fmt.Sprintf("%s %s@%d", e.Op, by, at/1000)
		if e.TimeSource == event.TimeObserved {
			text = fmt.Sprintf("%s %s@%d.%03d", e.Op, by, at/1000, at%1000)
		}
		if e.LastManager != "" {
			text += " last " + e.LastManager
		}
		if e.Name != "" {
			lines = append(lines, text)
		}
	}
	o.raw, o.lines = nil, nil
	return lines
}

// TestAttribution has a bubble begin at second 0. Each change comes at the next second and a half.
func TestAttribution(t *testing.T) {
	type step func(r *rig)
	added := func(version string, entries string) step {
		return func(r *rig) { testkit.OK(r.t, r.fifo.Add(r.t.Context(), writtenPod(r.t, version, 1, entries))) }
	}
	updated := func(version string, entries string) step {
		return func(r *rig) { testkit.OK(r.t, r.fifo.Update(r.t.Context(), writtenPod(r.t, version, 1, entries))) }
	}
	deleted := func(version string, entries string) step {
		return func(r *rig) { testkit.OK(r.t, r.fifo.Delete(r.t.Context(), writtenPod(r.t, version, 1, entries))) }
	}
	listed := func(why resource.Relist, version string, entries string) step {
		return func(r *rig) {
			testkit.OK(r.t, r.fifo.BeginReplace(r.t.Context(), why))
			testkit.OK(r.t, r.fifo.Replace(r.t.Context(), writtenPod(r.t, version, 1, entries)))
			testkit.OK(r.t, r.fifo.EndReplace(r.t.Context(), resource.Version(version)))
		}
	}
	unread := func(version string) step {
		return func(r *rig) {
			u := &resource.Unreadable{Reason: "too-deep", Key: "shop/a", Version: resource.Version(version), Digest: strings.Repeat("0", 64)}
			testkit.OK(r.t, r.fifo.Quarantine(r.t.Context(), u))
		}
	}
	resynced := func(r *rig) { r.resync("a") }
	leavable := func(c *informer.StagesConfig) { c.Selective, c.Leavable = true, true }
	rewound := resource.Relist{Kind: resource.RelistRewound, Reason: resource.ReasonExpired}
	for _, tt := range []struct {
		name    string
		options []option
		steps   []step
		want    string
	}{
		{"created", nil, []step{added("11", "alice@1")}, "added alice@1"},
		{"created, over the end of a second", nil, []step{added("11", "alice@2")}, "added alice@2"},
		{
			"added long after it was created: the server does not report its first version", nil,
			[]step{added("11", "alice@4")},
			"added @1.500",
		},
		{
			"added where the server selects: it may have been changed into the selection",
			[]option{leavable},
			[]step{added("11", "alice@1")},
			"added @1.500",
		},
		{"in a first list", nil, []step{listed(initial, "11", "alice@1")}, "added @1.500"},
		{
			"written by another", nil,
			[]step{added("11", "alice@1"), updated("12", "alice@1 bob@2")},
			"added alice@1, updated bob@2",
		},
		{
			"by a server whose clock is an hour behind", nil,
			[]step{listed(initial, "11", "alice@-3600"), updated("12", "alice@-3600 bob@-3598+x"), updated("13", "alice@-3600 bob@-3597+x")},
			"added @1.500, updated bob@3.000, updated bob@4.500",
		},
		{
			"twice in one second, beside an entry of a year that has not come", nil,
			[]step{added("11", "alice@1 x@3000000000"), updated("12", "alice@1 bob@2+x x@3000000000"), updated("13", "alice@1 bob@2+x x@3000000000")},
			"added @1.500, updated bob@2, updated bob@2",
		},
		{
			"by another than the one whose entry of long ago is new", nil,
			[]step{listed(initial, "11", "alice@1+x"), updated("12", "alice@1+x bob@-3600")},
			"added @1.500, updated @3.000",
		},
		{
			"fields were only removed", nil,
			[]step{added("11", "alice@1"), updated("12", "alice@1")},
			"added alice@1, updated @3.000",
		},
		{
			"written after fields were removed", nil,
			[]step{added("11", "alice@1"), updated("12", "alice@1"), updated("13", "alice@1 bob@4")},
			"added alice@1, updated @3.000, updated bob@4",
		},
		{
			"written in the second in which a removal was observed: time does not go back", nil,
			[]step{added("11", "alice@1"), updated("12", "alice@1"), updated("13", "alice@1 bob/status@2")},
			"added alice@1, updated @3.000, updated bob/status@4.500",
		},
		{
			"by a server whose clock is ahead", nil,
			[]step{added("11", "alice@1"), updated("12", "alice@1 bob@200"), updated("13", "alice@1 bob@200")},
			"added alice@1, updated bob@200, updated @200.000",
		},
		{
			"with an entry of the future, which somebody has sent", nil,
			[]step{added("11", "alice@1"), updated("12", "alice@1 bob@2 eve@9999"), updated("13", "alice@1 carol@4 eve@9999")},
			"added alice@1, updated @3.000, updated carol@4",
		},
		{
			"by a server whose clock is far ahead: its time is not used", nil,
			[]step{added("11", "alice@1"), updated("12", "alice@1 bob@2000"), updated("13", "alice@1 bob@2003")},
			"added alice@1, updated bob@3.000, updated bob@4.500",
		},
		{
			"by a manager again in the same second", nil,
			[]step{added("11", "alice@1"), updated("12", "alice@1 bob@2+x"), updated("13", "alice@1 bob@2+x"), deleted("14", "alice@1 bob@2+x")},
			"added alice@1, updated bob@2, updated bob@2, deleted @6.000 last bob",
		},
		{
			"by one without a time, and again", nil,
			[]step{added("11", "alice@1"), updated("12", "alice@1 hpa/scale@+x"), updated("13", "alice@1 hpa/scale@+x")},
			"added alice@1, updated hpa/scale@3.000, updated hpa/scale@4.500",
		},
		{
			"fields that two own", nil,
			[]step{added("11", "alice@1"), updated("12", "alice@1 hpa/scale@+x"), updated("13", "alice@1+x hpa/scale@+x"), deleted("14", "alice@1+x hpa/scale@+x")},
			"added alice@1, updated hpa/scale@3.000, updated @4.500, deleted @6.000",
		},
		{
			"with an entry of long ago, which somebody has sent", nil,
			[]step{listed(initial, "11", "alice@1"), updated("12", "alice@1 eve@-900")},
			"added @1.500, updated @3.000",
		},
		{
			"a list comes between: who has set a value last is not known", nil,
			[]step{added("11", "alice@1"), listed(expired, "13", "alice@1 bob@2"), deleted("14", "alice@1 bob@2")},
			"added alice@1, updated @3.000, deleted @4.500",
		},
		{
			"of a version that only a list has shown, and then of a watch", nil,
			[]step{added("11", "alice@1"), listed(expired, "13", "alice@1 bob@2"), updated("14", "alice@1 bob@2 carol@4")},
			"added alice@1, updated @3.000, updated carol@4",
		},
		{
			"a list had the entry already", nil,
			[]step{added("11", "alice@1"), listed(expired, "13", "alice@1 bob@2"), updated("14", "alice@1 bob@2")},
			"added alice@1, updated @3.000, updated @4.500",
		},
		{
			"after a version that can't be read", nil,
			[]step{added("11", "alice@1"), unread("12"), updated("13", "alice@1 bob@2"), updated("14", "alice@5 bob@2")},
			"added alice@1, updated @4.500, updated alice@5",
		},
		{
			"after a rewind, what was undone does not count", nil,
			[]step{added("11", "alice@1"), updated("12", "bob@2"), listed(rewound, "9", "alice@1"), updated("13", "alice@1 carol@2"), updated("14", "carol@6")},
			"added alice@1, updated bob@2, updated @4.500, updated carol@6.000, updated carol@6",
		},
		{
			"deleted", nil,
			[]step{added("11", "alice@1"), updated("12", "alice@1"), deleted("13", "alice@1")},
			"added alice@1, updated @3.000, deleted @4.500 last alice",
		},
		{
			"deleted by nobody knows whom, and written by two last", nil,
			[]step{added("11", "alice@1 bob@1"), deleted("13", "alice@1 bob@1")},
			"added @1.500, deleted @3.000",
		},
		{
			"reported again", nil, []step{added("11", "alice@1"), resynced}, "added alice@1, synced @1.000",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, restart := range []bool{false, true} {
				synctest.Test(t, func(t *testing.T) {
					db, out := memory(t), newOutbox()
					r := newRig(t, db, []*outbox{out}, tt.options...)
					for n, step := range tt.steps {
						time.Sleep(1500 * time.Millisecond)
						step(r)
						synctest.Wait()
						if restart && n+1 < len(tt.steps) {
							r.stop()
							r = newRig(t, db, []*outbox{out}, tt.options...)
						}
					}
					if got := strings.Join(out.attributions(), ", "); got != tt.want {
						t.Errorf("with restarts %t:\n%s\nwant\n%s", restart, got, tt.want)
					}
					r.stop()
				})
			}
		})
	}
}

// The bridge's clock is wrong beside the cluster's: one warning says by how much.
func TestClockWarning(t *testing.T) {
	for name, tt := range map[string]struct {
		seconds []int // of the writes
		want    int   // warnings
	}{
		"the clocks are alike":         {[]int{2, 4, 6}, 0},
		"four minutes behind":          {[]int{240, 242, 244}, 0},
		"half an hour behind":          {[]int{1800, 1802, 1804}, 1},
		"one write is of two hours on": {[]int{2, 7200, 6}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log testkit.Buffer
				r := newRig(t, memory(t), []*outbox{newOutbox()}, func(c *informer.StagesConfig) {
					c.Log = slog.New(slog.NewTextHandler(&log, nil))
				})
				testkit.OK(t, r.fifo.Add(t.Context(), writtenPod(t, "11", 1, "alice@1")))
				for i, second := range tt.seconds {
					time.Sleep(1500 * time.Millisecond)
					testkit.OK(t, r.fifo.Update(t.Context(), writtenPod(t, fmt.Sprint(12+i), 1, fmt.Sprint("alice@1 bob@", second))))
					synctest.Wait()
				}
				r.stop()
				const warning = "its clock is ahead, or this one is behind"
				if n := strings.Count(log.String(), warning); n != tt.want {
					t.Errorf("%d warnings, want %d: %s", n, tt.want, log.String())
				}
				if tt.want > 0 && tt.seconds[0] == 1800 && !strings.Contains(log.String(), "ahead=29m5") {
					t.Errorf("it does not say by how much: %s", log.String())
				}
			})
		})
	}
}
