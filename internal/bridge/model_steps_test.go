package bridge_test

import (
	"fmt"
	"math"
	"net/http"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// step does one thing at random.
func (m *model) step() {
	m.thaw()
	if m.reloads && m.life != nil && m.one(8) {
		m.reload()
		return
	}
	switch n := m.rng.IntN(100); {
	case n < 48:
		m.write()
	case n < 54:
		m.bookmark()
	case n < 60:
		m.breakStreams()
	case n < 68:
		m.refuse()
	case n < 86:
		m.upset()
	case n < 89:
		time.Sleep(time.Duration(m.rng.IntN(90)) * time.Second)
	case n < 92:
		m.rewind()
	case m.life == nil:
		m.start()
	case n < 96:
		m.stopLife()
	default:
		m.crash()
	}
}

// thaw lets the cluster continue when the bridge has worked through a rewind.
func (m *model) thaw() {
	if m.rewinding && m.watermark() <= m.cluster.version() {
		m.rewinding = false
		m.note("worked through the rewind")
	}
}

// watermark is what is committed.
func (m *model) watermark() int64 {
	if m.life == nil {
		db := m.open()
		defer func() { _ = db.Close() }() // nothing was written
		return m.read(db).watermark
	}
	return number(resource.Version(m.life.bridge.Status().Informers[0].Watermark))
}

func (m *model) write() {
	if m.rewinding {
		return
	}
	switch n := m.rng.IntN(20); {
	case n == 0:
		m.cluster.Skip(1 + m.rng.Int64N(5))
	case n == 1:
		m.note("%s", m.cluster.removeSome())
	case n == 2:
		m.note("%s", m.cluster.expire())
	case n == 3:
		m.note("%s", m.cluster.expire())
		m.cluster.Streams.Cut()
	default:
		for range 1 + m.rng.IntN(8) {
			m.note("%s", m.cluster.change())
		}
	}
}

// bookmark sends bookmarks, unless a watch of before a rewind may still have something to send: no
// server goes back within a watch.
func (m *model) bookmark() {
	if !m.rewinding {
		m.cluster.Streams.Bookmark()
	}
}

func (m *model) breakStreams() {
	switch n := m.rng.IntN(8); {
	case n < 4:
		m.note("cut")
		m.cluster.Streams.Cut()
	case n < 6 && !m.rewinding: // a watch that a rewind has cut can't end in good order
		m.note("close")
		m.cause("closed")
		m.cluster.Streams.Close()
	case n < 7:
		m.note("garbage")
		m.cause(resource.ReasonUnreadable)
		m.cluster.Streams.Raw(pick(m, `{"type":"MODIFIED","object":{"metadata":{}}}`, `{"type":"ADD`+"\n", `{"type":"ADDED","object":17}`))
	default:
		code := pick(m, http.StatusGone, http.StatusInternalServerError)
		m.note("error %d", code)
		m.cause(fmt.Sprint("error ", code))
		m.cluster.Streams.Error(testkit.NewStatus(code, metav1.StatusReasonUnknown))
	}
}

// cause notes something that may lead to a gap.
func (m *model) cause(what string) { m.causes[what]++ }

// refuse lets the API server refuse, hang, or break off what comes next.
func (m *model) refuse() {
	match := pick(m, testkit.Any, testkit.Watches, testkit.Lists, testkit.Probes)
	times := 1 + m.rng.IntN(3)
	switch n := m.rng.IntN(10); {
	case n < 2:
		m.note("429 x%d", times)
		m.cluster.Faults.RefuseBusy(match, times, time.Second)
	case n < 5:
		code := pick(m, 500, 503, 504, 401, 403, 404)
		m.note("%d x%d", code, times)
		m.cluster.Faults.Refuse(match, times, code, metav1.StatusReasonUnknown)
	case n < 7:
		m.note("break x%d", times)
		m.cluster.Faults.Break(match, times)
	case n < 8:
		m.note("hang")
		m.cluster.Faults.Hang(match, 1)
	default:
		after := 1 + m.rng.IntN(2000)
		m.note("cut after %d bytes x%d", after, times)
		m.cluster.Faults.CutAfter(match, times, after)
	}
}

// upset changes the condition of a broker, to healthy most of the time.
func (m *model) upset() {
	b := pick(m, m.brokers...)
	condition := pick(m, testkit.Healthy, testkit.Healthy, testkit.Healthy, testkit.Healthy,
		testkit.Unreachable, testkit.Hung, testkit.Slow)
	m.note("%s is %s", b.Name, condition)
	b.Set(condition)
}

// rewind restores the cluster from a backup that is older than the watermark: what is not older
// can't be distinguished from a server that did not go back.
func (m *model) rewind() {
	time.Sleep(time.Millisecond) // so that no other rewind is at the same time
	synctest.Wait()
	// With what can't be understood a list after a rewind waits for it to become well, or ends as
	// if that had left.
	if m.cluster.garble != nil || m.rewinding || m.life != nil && !m.attached() {
		return
	}
	watermark, oldest := m.watermark(), max(m.cluster.oldest(), 97)
	if watermark <= oldest {
		return
	}
	m.note("%s", m.cluster.rewind(watermark-1-m.rng.Int64N(min(watermark-oldest, 20))))
	m.rewinds = append(m.rewinds, moment{time.Now()})
	m.rewinding = true
}

// attached reports whether the bridge would notice a server that goes back by the end of its watch:
// it has one open, has read all that was to be read, and has had an answer (where answers are
// compressed they begin with the first frame, and without one the HTTP client tries again by
// itself).
func (m *model) attached() bool {
	read := number(resource.Version(m.life.bridge.Status().Informers[0].Version))
	return m.cluster.Streams.Count() > 0 && !m.features.Gzip && read >= m.cluster.now().before(math.MaxInt64)
}
