package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/crash"
	"github.com/kubebridge/bridge/test/e2e/faults"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// badGateway is the answer of a proxy that does not reach what is behind it.
func badGateway(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	w.WriteHeader(http.StatusBadGateway)
	_, _ = io.WriteString(w, "<html><body>502 Bad Gateway</body></html>") // the client may be gone
}

var tooLargeVersion = metav1.StatusCause{Type: metav1.CauseTypeResourceVersionTooLarge, Message: "Too large resource version"}

// Each resource meets refusals of its own kind, several in a row, while everything changes.
func requestsAreRefused(f *faultRun) {
	const retryAfter = 3
	p := f.front()
	b := f.faulted()
	f.start(b)
	f.change()
	time.Sleep(*faultsTime / 3)
	p.Answer(2, faults.All("pods"), faults.Status(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, retryAfter))
	p.Answer(1, faults.Watches("deployments"), faults.Status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, 1, tooLargeVersion))
	p.Answer(1, faults.All("deployments"), badGateway)
	p.Answer(1, faults.All("configmaps"), faults.Status(http.StatusInternalServerError, metav1.StatusReasonInternalError, 0))
	p.Answer(1, faults.Watches("configmaps"), faults.Status(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, 1))
	p.Answer(1, faults.Watches("configmaps"), faults.Status(http.StatusGatewayTimeout, metav1.StatusReasonTimeout, 0))
	cut := time.Now()
	p.Cut()
	eventually(f.t, "everybody watches again", time.Minute, func() (problems []string) {
		for resource, times := range map[string]int{"pods": 3, "deployments": 3, "configmaps": 4} {
			if n := len(since(p.Requests(faults.All(resource)), cut)); n < times {
				problems = append(problems, fmt.Sprintf("%d requests of %s", n, resource))
			}
		}
		return problems
	})
	f.calm()
	f.exact(b)
	asked := since(p.Requests(faults.All("pods")), cut)
	for i := range 2 {
		if pause := asked[i+1].Time.Sub(asked[i].Time); pause < retryAfter*time.Second {
			f.t.Errorf("the API server asked to be left alone for %d s, and was asked again after %v", retryAfter, pause)
		}
	}
	f.relisted(b, 0)
	f.stop(b)
}

// since are the requests that were made after a moment.
func since(requests []faults.Request, moment time.Time) []faults.Request {
	return slices.DeleteFunc(requests, func(r faults.Request) bool { return r.Time.Before(moment) })
}

// relisted fails when the bridge listed more often than so, in all, beyond the first list of each
// resource.
func (f *faultRun) relisted(b *harness.Bridge, want int) {
	f.t.Helper()
	s, err := b.Status(f.ctx)
	must(f.t, err)
	relists := -len(s.Informers)
	for _, i := range s.Informers {
		relists += i.Relists
	}
	if relists != want {
		f.t.Errorf("the bridge listed %d times after its first lists, want %d: %+v", relists, want, s.Informers)
	}
}

// A version that has expired is a gap, in whichever way it is reported. What changed in it and
// can't be known is reported to be missing; the rest is there.
func versionsExpire(f *faultRun) {
	const soon = 5 * time.Second // less than what the failures have made of the pause
	p := f.front()
	b := f.faulted()
	f.start(b)
	f.change()
	time.Sleep(*faultsTime / 3)
	// The answer to a watch, after failures that have made the bridge slow to ask again. Of a
	// version that is left to try, the first may be.
	p.Answer(3, faults.All("pods"), badGateway)
	p.Answer(2, faults.Watches("pods"), faults.Status(http.StatusGone, metav1.StatusReasonExpired, 0))
	p.Cut()
	f.waitForRequests(p, faults.WatchLists("pods"), 2)
	watches, lists := p.Requests(faults.Watches("pods")), p.Requests(faults.WatchLists("pods"))
	if pause := lists[1].Time.Sub(watches[len(watches)-1].Time); pause > soon {
		f.t.Errorf("%v lie between the 410 and the list", pause)
	}
	p.Heal()
	// An event within a watch, and a second one at once: after something came through there is a
	// later version to try.
	p.Wrap(1, faults.Watches("configmaps"), faults.EndingIn(3, http.StatusGone, metav1.StatusReasonExpired))
	p.Wrap(1, faults.Watches("configmaps"), faults.EndingIn(0, http.StatusGone, metav1.StatusReasonExpired))
	p.Cut()
	f.waitForRequests(p, faults.WatchLists("configmaps"), 2)
	p.Heal()
	time.Sleep(*faultsTime / 3)
	f.calm()
	v := f.judge(b, f.ledger.Changes())
	if v.Gaps != 2 {
		f.t.Errorf("%d gaps were reported, want 2", v.Gaps)
	}
	f.relisted(b, 2)
	f.stop(b)
}

func (f *faultRun) waitForRequests(p *faults.Front, match faults.Match, want int) {
	f.t.Helper()
	eventually(f.t, "the bridge asks again", time.Minute, func() []string {
		if n := len(p.Requests(match)); n < want {
			return []string{fmt.Sprintf("%d requests of %d", n, want)}
		}
		return nil
	})
}

// judge waits until the stream ends in the state of the cluster, and judges it by what witnesses
// saw: what the bridge itself reported to be missing may be missing.
func (f *faultRun) judge(b *harness.Bridge, changes []truth.Change) *crash.Findings {
	f.t.Helper()
	var exist []truth.Change
	events := f.converges(b, func(found []truth.Change) { exist = found })
	v, err := crash.Judge(changes, exist, events)
	must(f.t, err)
	for _, problem := range v.Problems {
		f.t.Error(problem)
	}
	f.t.Logf("%d changes: %v", len(changes), v)
	return v
}

// converges waits until a reader of all events has the state that the cluster has, and gives it.
func (f *faultRun) converges(b *harness.Bridge, state func([]truth.Change)) []read.Event {
	f.t.Helper()
	exist := f.exist()
	state(exist)
	stream := jetStream(b)
	var events []read.Event
	eventually(f.t, "the state of the cluster", 2*time.Minute, func() []string {
		var err error
		if events, err = stream.Refresh(f.ctx); err != nil {
			return []string{err.Error()}
		}
		return check.FinalState(exist, events, check.Options{})
	})
	f.awaitBucket(b, exist)
	return events
}

// exist are the objects that the API server has, in their newest versions.
func (f *faultRun) exist() []truth.Change {
	f.t.Helper()
	now := f.witness(f.collections()...)
	defer now.Stop()
	return truth.Snapshot(now.Changes())
}

// byPages has an API server refuse WatchLists, as one that does not know them.
func byPages(p *faults.Front) {
	for _, resource := range []string{"pods", "deployments", "configmaps"} {
		p.Answer(-1, faults.WatchLists(resource), faults.Status(http.StatusUnprocessableEntity, metav1.StatusReasonInvalid, 0))
	}
}

const twoPages = 600

// The second page of a list is asked for when its token has expired: the list begins again, and
// what it has handed on before is no event.
func continueTokenExpires(f *faultRun) {
	f.each(twoPages, func(i int) { f.createConfigMap(fmt.Sprintf("unchanged-%d", i), "stays") })
	p := f.front()
	byPages(p)
	p.Answer(2, faults.Continues("configmaps"), faults.Status(http.StatusGone, metav1.StatusReasonExpired, 0))
	b := f.faulted()
	f.start(b)
	f.change()
	time.Sleep(*faultsTime / 3)
	f.calm()
	f.exact(b)
	if n := len(p.Requests(faults.Continues("configmaps"))); n < 3 {
		f.t.Errorf("%d pages after the first were asked for, want 3 or more", n)
	}
	f.stop(b)
}
