package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// book is what the witnesses saw: the lives of each object, in their order.
type book struct {
	lives map[askedObject][]life
	parts int
}

type askedObject struct{ resource, namespace, name string }

// life is what an object was from a moment on.
type life struct {
	moment
	uid, resourceVersion string
	body                 string // "" is none
}

func newBook() *book { return &book{lives: map[askedObject][]life{}} }

// add adds what one more witness saw. What it saw first is what the one before left, or there was a
// restore.
func (b *book) add(era int, ledger *truth.Ledger) {
	exists := map[askedObject]bool{}
	var began time.Time
	changes := ledger.Changes()
	for i := range changes {
		if ch := &changes[i]; ch.Initial {
			exists[b.object(ch)] = true
			b.enter(era, ch)
			began = ch.Seen
		}
	}
	if b.parts++; b.parts > 1 {
		for object, lives := range b.lives {
			if last := lives[len(lives)-1]; last.body != "" && !exists[object] {
				b.lives[object] = append(lives, life{moment: moment{era: era, at: began}})
			}
		}
	}
	for i := range changes {
		if !changes[i].Initial {
			b.enter(era, &changes[i])
		}
	}
}

func (b *book) object(ch *truth.Change) askedObject {
	return askedObject{ch.Collection.String(), ch.Metadata.Namespace, ch.Metadata.Name}
}

func (b *book) enter(era int, ch *truth.Change) {
	object := b.object(ch)
	lives := b.lives[object]
	m := &ch.Metadata
	if ch.Initial && len(lives) > 0 {
		if last := &lives[len(lives)-1]; last.body != "" && last.uid == m.UID && last.resourceVersion == m.ResourceVersion {
			return
		}
	}
	l := life{moment: moment{era, versionNumber(m.ResourceVersion), ch.Seen}, uid: m.UID, resourceVersion: m.ResourceVersion}
	if ch.Type != "DELETED" {
		l.body = canonicalText(ch.Raw)
	}
	b.lives[object] = append(lives, l)
}

func canonicalText(object []byte) string {
	var o map[string]any
	if err := json.Unmarshal(object, &o); err != nil {
		return err.Error()
	}
	return canonical(o)
}

// at is what an object was at a version.
func (b *book) at(object askedObject, m moment) (at life) {
	for _, l := range b.lives[object] {
		if l.era < m.era || l.era == m.era && l.version <= m.version {
			at = l
		}
	}
	return at
}

// timeOf is when the last change up to a version was seen.
func (b *book) timeOf(m moment) (at time.Time) {
	for _, lives := range b.lives {
		for _, l := range lives {
			if l.era == m.era && l.version <= m.version && l.at.After(at) {
				at = l.at
			}
		}
	}
	return at
}

// slack is how far times may be apart: those of the API server are whole seconds, and the witness
// and the bridge learn of a change at times of their own.
const slack = 2 * time.Second

// around is what an object may have been at a time, or what an answer may take it for, where it
// says that it is uncertain: what changed while no bridge ran became known later.
func (h *historyRun) around(object askedObject, at time.Time, isUncertain bool) (may []life) {
	lives := append([]life{{}}, h.book.lives[object]...)
	for i, l := range lives {
		if i > 0 && at.Before(l.at.Add(-slack)) {
			continue
		}
		if i+1 == len(lives) {
			return append(may, l)
		}
		ends := lives[i+1].at
		for _, s := range h.late {
			if isUncertain && !ends.Before(s.from.at.Add(-slack)) && ends.Before(s.to.at) {
				ends = s.to.at
			}
		}
		if at.Before(ends.Add(slack)) {
			may = append(may, l)
		}
	}
	return may
}

// isHidden reports whether the bridge could not see what was at a moment. It gives the begin of a
// gap by the minute.
func (h *historyRun) isHidden(m moment) bool {
	return slices.ContainsFunc(h.hidden, func(s stretch) bool {
		if !m.at.IsZero() {
			return !m.at.Before(s.from.at.Add(-time.Minute)) && !m.at.After(s.to.at)
		}
		behind := m.era > s.from.era || m.era == s.from.era && m.version > s.from.version
		return behind && (m.era < s.to.era || m.era == s.to.era && m.version <= s.to.version)
	})
}

// findings count what the answers were.
type findings struct {
	mu sync.Mutex
	// equal are those that were right, one of them where there was only one possibility; named
	// those that said what may be missing, uncertain those that were marked so, and bound the
	// change; unknown that nothing is known, refused of before the horizon.
	equal, one, named, uncertain, unknown, refused int
	problems                                       []string
}

func (v *findings) count(n *int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	*n++
}

func (v *findings) problem(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.problems = append(v.problems, fmt.Sprintf(format, args...))
}

// judge asks for objects and states at random moments.
func (h *historyRun) judge(b *harness.Bridge) {
	h.t.Helper()
	var kept struct{ Horizon time.Time }
	_, body := h.ask(b, "resources", nil)
	must(h.t, json.Unmarshal(body, &kept))
	objects := slices.SortedFunc(maps.Keys(h.book.lives), func(a, b askedObject) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
	objects = slices.DeleteFunc(objects, func(o askedObject) bool { return !slices.Contains(h.namespaces, o.namespace) })
	changes := 0
	for _, o := range objects {
		changes += len(h.book.lives[o])
	}
	began := time.Now()
	var byVersion, byTime, states findings
	var g errgroup.Group
	g.SetLimit(4)
	r := h.random()
	for i := range *historyPairs {
		object, m := objects[r.IntN(len(objects))], h.anyMoment(r, i%2 == 0)
		g.Go(func() error {
			if m.at.IsZero() {
				h.judgeObject(b, &byVersion, object, m, kept.Horizon)
			} else {
				h.judgeObject(b, &byTime, object, m, kept.Horizon)
			}
			return nil
		})
	}
	for _, taken := range h.someLists(r, kept.Horizon) {
		g.Go(func() error { h.judgeState(b, &states, taken); return nil })
	}
	must(h.t, g.Wait())
	if kept.Horizon.IsZero() {
		h.judgeCoverage(b)
	}
	removed := max(kept.Horizon.Sub(h.first.at), 0)
	h.t.Logf("%d changes of %d objects and %d lists in %v, of which retention has removed the first %v; %d kills; asked for %v", changes, len(objects),
		len(h.lists), h.last.at.Sub(h.first.at).Round(time.Second), removed.Round(time.Second), *historyKills+1, time.Since(began).Round(time.Second))
	for _, part := range []struct {
		name string
		*findings
	}{{"objects at versions", &byVersion}, {"objects at times", &byTime}, {"states", &states}} {
		h.t.Logf("%s: %d right (%d of them with one possibility), %d uncertain, %d named a gap, %d were unknown, %d of before the horizon were refused; wrong %d",
			part.name, part.equal, part.one, part.uncertain, part.named, part.unknown, part.refused, len(part.problems))
		for _, problem := range part.problems[:min(len(part.problems), 10)] {
			h.t.Errorf("%s: %s", part.name, problem)
		}
		if part.equal == 0 {
			h.t.Errorf("%s: nothing was compared", part.name)
		}
	}
}

// judgeCoverage compares what the history has, and what it says was watched, with what the witness
// saw: each version that the history lacks lies in a gap, and no gap has a version that a watch
// brought. Versions that a restore has used twice are left out.
func (h *historyRun) judgeCoverage(b *harness.Bridge) {
	h.t.Helper()
	var coverage struct {
		Intervals []struct{ Resource, From, To, Gap string }
	}
	code, body := h.ask(b, "coverage", nil)
	if err := json.Unmarshal(body, &coverage); err != nil || code != http.StatusOK || len(coverage.Intervals) < len(askedKinds) {
		h.t.Errorf("coverage: %d %s", code, body)
		return
	}
	inGap := func(resource string, version uint64) bool {
		for _, i := range coverage.Intervals {
			if i.Gap != "" && i.Resource == resource && version > versionNumber(i.From) && version <= versionNumber(i.To) {
				return true
			}
		}
		return false
	}
	isAsked := func(version uint64) bool {
		isTwice := version > h.backedUp && version <= max(h.twice, h.restoredAt.version)
		return version > h.first.version && version <= h.last.version && !isTwice
	}
	stored, missing, wrong := 0, 0, 0
	for object, lives := range h.book.lives {
		if !slices.Contains(h.namespaces, object.namespace) {
			continue
		}
		has := h.versionsOf(b, object)
		for version, isInferred := range has {
			if stored++; isAsked(version) && !isInferred && inGap(object.resource, version) && !h.isUncommitted(lives, version) {
				wrong++
				h.t.Errorf("%v: version %d is in a gap, and a watch brought it", object, version)
			}
		}
		for _, l := range lives {
			if _, found := has[l.version]; found || l.version == 0 || !isAsked(l.version) {
				continue
			}
			if missing++; !inGap(object.resource, l.version) {
				wrong++
				h.t.Errorf("%v: version %d is missing, and in no gap", object, l.version)
			}
		}
		if wrong > 10 {
			h.t.Errorf("coverage: %s", body)
			return
		}
	}
	h.t.Logf("coverage: %d versions are there, %d are missing, each of them in a gap", stored, missing)
}

// isUncommitted reports whether a version was made right before a bridge was killed.
func (h *historyRun) isUncommitted(lives []life, version uint64) bool {
	return slices.ContainsFunc(lives, func(l life) bool {
		return l.version == version && slices.ContainsFunc(h.killedAt, func(at time.Time) bool {
			return at.Sub(l.at).Abs() < slack
		})
	})
}

// versionsOf are the versions that the history has of an object, and whether a list has brought
// them.
func (h *historyRun) versionsOf(b *harness.Bridge, object askedObject) map[uint64]bool {
	h.t.Helper()
	code, body := h.ask(b, "versions", url.Values{
		"object": {object.resource + "/" + object.name}, "namespace": {object.namespace}, "limit": {"5000"},
	})
	var got struct {
		Versions []struct {
			ResourceVersion   string
			Initial, Inferred bool
		}
		Earlier int
	}
	if code == http.StatusNotFound {
		return nil
	}
	if err := json.Unmarshal(body, &got); err != nil || code != http.StatusOK || got.Earlier > 0 {
		h.t.Errorf("versions of %v: %d, %d earlier ones, %v", object, code, got.Earlier, err)
	}
	has := map[uint64]bool{}
	for _, v := range got.Versions {
		has[versionNumber(v.ResourceVersion)] = v.Initial || v.Inferred
	}
	return has
}

// anyMoment is one of all that the bridge lived, a version or a time. Versions of before a restore
// that were used again after it name the later ones.
func (h *historyRun) anyMoment(r *rand.Rand, ofVersion bool) moment {
	if !ofVersion {
		return moment{at: h.first.at.Add(time.Duration(r.Int64N(int64(h.last.at.Sub(h.first.at)))))}
	}
	before, after := h.backedUp-h.first.version, h.last.version-h.restoredAt.version
	n := r.Uint64N(before + after)
	if n < before {
		return moment{version: h.first.version + n}
	}
	return moment{era: h.era, version: h.restoredAt.version + n - before}
}

// point is the moment as a question has it.
func (m moment) point() string {
	if m.at.IsZero() {
		return fmt.Sprint(m.version)
	}
	return m.at.UTC().Format(time.RFC3339Nano)
}

// judgeObject compares an answer with what the witness saw.
func (h *historyRun) judgeObject(b *harness.Bridge, v *findings, object askedObject, m moment, horizon time.Time) {
	code, body := h.ask(b, "object", url.Values{
		"object": {object.resource + "/" + object.name}, "namespace": {object.namespace}, "at": {m.point()},
	})
	var got struct {
		UID             string
		ResourceVersion string
		Object          json.RawMessage
		Incomplete      []struct{ What string }
		Uncertain       *struct{ NotBefore, Time time.Time }
	}
	text := string(body)
	isUnknown := code == http.StatusNotFound && strings.Contains(text, "is not known")
	isNone := code == http.StatusNotFound && (strings.Contains(text, "did not exist") || strings.Contains(text, "has never seen"))
	if code == http.StatusOK {
		if err := json.Unmarshal(body, &got); err != nil {
			v.problem("%v at %s: %v: %s", object, m.point(), err, body)
			return
		}
	} else if !isUnknown && !isNone {
		v.problem("%v at %s: %d %s", object, m.point(), code, body)
		return
	}
	may := h.around(object, m.at, false)
	if m.at.IsZero() {
		may = []life{h.book.at(object, m)}
		if m.era == h.era && m.version <= h.twice { // it names either history
			may = append(may, h.book.at(object, moment{version: m.version}))
		}
	}
	is := func(l life) bool {
		if l.body == "" {
			return isNone
		}
		return code == http.StatusOK && got.UID == l.uid && got.ResourceVersion == l.resourceVersion && canonicalText(got.Object) == l.body
	}
	isRight := slices.ContainsFunc(may, is)
	isLate := !m.at.IsZero() && slices.ContainsFunc(h.late, func(s stretch) bool {
		return m.at.After(s.from.at.Add(-slack)) && m.at.Before(s.to.at.Add(slack))
	})
	// What was right before or after the change that is uncertain, with bounds around the moment.
	isMarked := got.Uncertain != nil && !got.Uncertain.NotBefore.After(m.at) && !got.Uncertain.Time.Before(m.at) &&
		slices.ContainsFunc(h.around(object, m.at, true), is)
	at := m.at
	if at.IsZero() {
		at = h.book.timeOf(m)
	}
	switch {
	case isUnknown && at.Before(horizon.Add(2*time.Second)) && strings.Contains(text, "retention"), isUnknown && at.Before(horizon):
		v.count(&v.refused)
	case !m.at.IsZero() && at.Before(horizon):
		v.problem("%v at %s, before the horizon: %d %s", object, m.point(), code, body)
	case isRight:
		v.count(&v.equal)
		if len(may) == 1 {
			v.count(&v.one)
		}
	case isMarked:
		v.count(&v.uncertain)
	case isUnknown && isLate && strings.Contains(text, "it was added between"):
		v.count(&v.uncertain)
	case h.isHidden(m) && len(got.Incomplete) > 0:
		v.count(&v.named)
	case isUnknown && (h.isHidden(m) || h.firstIsHidden(object) || m.at.IsZero() && !horizon.IsZero()):
		v.count(&v.unknown)
	case isNone && h.isHidden(m) && strings.Contains(text, "has never seen"):
		v.count(&v.unknown)
	default:
		v.problem("%v at %s: %d %.400s\nwant one of %v\nof %v\nthe history has %s", object, m.point(), code, body, may, h.book.lives[object], h.versions(b, object))
	}
}

// String is what distinguishes a life from others.
func (l life) String() string {
	return fmt.Sprintf("{%d.%d %s %s@%s %t}", l.era, l.version, l.at.UTC().Format("05.000"), l.resourceVersion, l.uid[:min(len(l.uid), 4)], l.body != "")
}

// versions are those that the history has of an object.
func (h *historyRun) versions(b *harness.Bridge, object askedObject) (text string) {
	_, body := h.ask(b, "versions", url.Values{"object": {object.resource + "/" + object.name}, "namespace": {object.namespace}})
	var got struct {
		Versions []struct {
			Time                       time.Time
			UID                        string
			ResourceVersion, Operation string
			Inferred                   bool
		}
	}
	if err := json.Unmarshal(body, &got); err != nil {
		return string(body)
	}
	for _, v := range got.Versions {
		text += fmt.Sprintf("{%s %s@%s %s %t}", v.Time.UTC().Format("05.000"), v.ResourceVersion, v.UID[:4], v.Operation, v.Inferred)
	}
	return text
}

// firstIsHidden reports whether the first version that the bridge could see of an object came of
// a list: what was before it, the bridge can't know.
func (h *historyRun) firstIsHidden(object askedObject) bool {
	lives := h.book.lives[object]
	return len(lives) > 0 && (h.isHidden(moment{era: lives[0].era, version: lives[0].version}) || lives[0].version < h.first.version)
}

// someLists are lists of each namespace that the history can be asked for.
func (h *historyRun) someLists(r *rand.Rand, horizon time.Time) (some []listTaken) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, namespace := range h.namespaces {
		of := slices.DeleteFunc(slices.Clone(h.lists), func(l listTaken) bool {
			return l.namespace != namespace || l.version < h.first.version || l.at.Before(horizon.Add(2*time.Second)) ||
				l.era < h.era && l.version > h.backedUp || l.era == h.era && l.version <= max(h.restoredAt.version, h.twice)
		})
		r.Shuffle(len(of), func(i, j int) { of[i], of[j] = of[j], of[i] })
		some = append(some, of[:min(len(of), *historyStates)]...)
	}
	return some
}

// judgeState compares a state with a list of the same version.
func (h *historyRun) judgeState(b *harness.Bridge, v *findings, taken listTaken) {
	code, body := h.ask(b, "state", url.Values{
		"namespace": {taken.namespace}, "kind": {taken.resource}, "at": {fmt.Sprint(taken.version)},
	})
	var head struct{ Incomplete []struct{ What string } }
	got := map[string]string{}
	for i, line := range bytes.Split(bytes.TrimSpace(body), []byte("\n")) {
		var o struct {
			Name   string
			Object json.RawMessage
		}
		if i == 0 {
			if err := json.Unmarshal(line, &head); err != nil || code != http.StatusOK {
				v.problem("%s of %s at %d: %d %s", taken.resource, taken.namespace, taken.version, code, body)
				return
			}
			continue
		}
		if err := json.Unmarshal(line, &o); err != nil {
			v.problem("%s of %s at %d: %v: %s", taken.resource, taken.namespace, taken.version, err, line)
			return
		}
		got[o.Name] = canonicalText(o.Object)
	}
	isHidden := h.isHidden(moment{era: taken.era, version: taken.version})
	switch {
	case maps.Equal(got, taken.objects):
		v.count(&v.equal)
		if len(head.Incomplete) == 0 {
			v.count(&v.one)
		}
	case isHidden && len(head.Incomplete) > 0:
		v.count(&v.named)
	default:
		name, what := differences(got, taken.objects)
		object := askedObject{taken.resource, taken.namespace, name}
		v.problem("%s of %s at %d.%d (hidden: %t): %s\nof %v\nthe history has %s", taken.resource, taken.namespace, taken.era,
			taken.version, isHidden, what, h.book.lives[object], h.versions(b, object))
	}
}

// differences are between two states, and the first object that differs.
func differences(got, want map[string]string) (name, what string) {
	var names []string
	for n, object := range want {
		if got[n] != object {
			names = append(names, n)
		}
	}
	for n := range got {
		if _, found := want[n]; !found {
			names = append(names, n)
		}
	}
	slices.Sort(names)
	return names[0], fmt.Sprintf("%d differ, of them %s: %q, want %q", len(names), names[0], got[names[0]], want[names[0]])
}
