package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// proofObject is an object of a kind, by the kind's place in proofKinds.
type proofObject struct {
	kind            int
	namespace, name string
}

func (o proofObject) resource() string { return proofKinds[o.kind].GroupResource().String() }

func (o proofObject) String() string { return o.resource() + " " + o.namespace + "/" + o.name }

// proofLife is what an object was from a revision on.
type proofLife struct {
	proofMoment
	uid  string
	body string // canonical; "" for none
}

func (l proofLife) String() string {
	return fmt.Sprintf("{%d.%d %s %s %t}", l.era, l.revision, l.at.UTC().Format("04:05.000"), l.uid[:min(len(l.uid), 4)], l.body != "")
}

// proofBook is what the oracle saw of each object.
type proofBook struct {
	lives   map[proofObject][]proofLife
	objects []proofObject
	// begins has how each era began.
	begins []proofRestore
}

func (p *proofRun) book() *proofBook {
	p.t.Helper()
	b := &proofBook{lives: map[proofObject][]proofLife{}, begins: append([]proofRestore{{proofMoment: p.first, began: p.first.at}}, p.restores...)}
	for kind := range proofKinds {
		for _, r := range p.oracle.Revisions(proofKinds[kind].keys) {
			o := proofObject{kind: kind}
			if o.namespace, o.name = splitKey(proofKinds[kind], r.Key); !slices.Contains(p.namespaces, o.namespace) {
				continue
			}
			l := proofLife{proofMoment: proofMoment{r.Era, r.Revision, r.Seen}}
			object, err := r.Object()
			must(p.t, err)
			if object != nil {
				l.uid, l.body = string(object.GetUID()), canonical(object.Object)
			}
			b.lives[o] = append(b.lives[o], l)
		}
	}
	for o := range b.lives {
		b.objects = append(b.objects, o)
	}
	slices.SortFunc(b.objects, func(a, b proofObject) int { return strings.Compare(a.String(), b.String()) })
	return b
}

// at is what an object was at a revision of an era.
func (b *proofBook) at(o proofObject, era int, revision int64) (at proofLife) {
	for ; era >= 0; era-- {
		found := false
		for _, l := range b.lives[o] {
			if l.era == era && l.revision <= revision {
				at, found = l, true
			}
		}
		if found {
			return at
		}
		revision = min(revision, b.begins[era].revision)
	}
	return at
}

// around is what an object may have been at a time, by the oracle's clock and slack.
func (b *proofBook) around(o proofObject, at time.Time) (may []proofLife) {
	// What a restore brought back is one of its lives, perhaps since the restore began.
	lives, began := []proofLife{{}}, []time.Time{{}}
	for era := range b.begins {
		if begin := b.begins[era]; era > 0 {
			l := b.at(o, era-1, begin.revision)
			l.at = begin.at
			lives, began = append(lives, l), append(began, begin.began)
		}
		for _, l := range b.lives[o] {
			if l.era == era {
				lives, began = append(lives, l), append(began, l.at)
			}
		}
	}
	for i, l := range lives {
		isBegun := !at.Before(began[i].Add(-slack))
		isOver := i+1 < len(lives) && at.After(lives[i+1].at.Add(slack))
		if isBegun && !isOver {
			may = append(may, l)
		}
	}
	return may
}

// proofGap is a gap that the history declares.
type proofGap struct {
	resource, reason string
	// Versions behind from, up to to, of an era.
	era      int
	from, to int64
	// The times of the gap.
	since, until time.Time
}

// gaps are those that `bridge coverage` prints. A rewound one is of the versions of the era before
// that were not read, and of those up to the list in the new one.
func (p *proofRun) gaps() (gaps []proofGap) {
	p.t.Helper()
	out, err := p.bridge.Output(p.ctx, "coverage", "-o", "json")
	must(p.t, err)
	eras := map[string]int{}
	for line := range strings.Lines(out) {
		var i struct {
			Resource, From, To, Gap string
			Since, Until            time.Time
		}
		must(p.t, json.Unmarshal([]byte(line), &i))
		if i.Gap == "" {
			continue
		}
		g := proofGap{i.Resource, i.Gap, eras[i.Resource], int64(versionNumber(i.From)), int64(versionNumber(i.To)), i.Since, i.Until}
		if i.Gap == "rewound" {
			g.to = math.MaxInt64
			gaps = append(gaps, g)
			eras[i.Resource]++
			g = proofGap{i.Resource, i.Gap, eras[i.Resource], 0, int64(versionNumber(i.To)), i.Since, i.Until}
		}
		gaps = append(gaps, g)
	}
	p.t.Logf("the history declares:\n%s", out)
	return gaps
}

// judge compares the history with what the oracle saw.
func (p *proofRun) judge() {
	p.t.Helper()
	b, gaps := p.book(), p.gaps()
	p.judgeCompleteness(b, gaps)
	j := &proofJudge{proofRun: p, book: b, gaps: gaps, answers: map[string]int{}}
	var g errgroup.Group
	g.SetLimit(4)
	began := time.Now()
	for i := range *proofAsked {
		o, revision := b.objects[p.random.IntN(len(b.objects))], j.anyRevision()
		at := p.first.at.Add(p.upTo(p.last.at.Sub(p.first.at)))
		g.Go(func() error {
			switch {
			case i%50 == 0:
				j.state(o.kind, o.namespace, revision)
			case i%2 == 0:
				j.atRevision(o, revision)
			default:
				j.atTime(o, at)
			}
			return nil
		})
	}
	must(p.t, g.Wait())
	p.t.Logf("%d questions in %v: %v; wrong: %d", *proofAsked, time.Since(began).Round(time.Second), j.answers, len(j.problems))
	for _, problem := range j.problems[:min(len(j.problems), 10)] {
		p.t.Error(problem)
	}
	for _, kind := range []string{"revision: right", "time: right", "state: right"} {
		if j.answers[kind] == 0 {
			p.t.Errorf("%s: none", kind)
		}
	}
}

// proofVersion is one that the history has.
type proofVersion struct {
	ResourceVersion, Operation, UID string
	Initial, Inferred               bool
	Time                            time.Time
}

// isOf reports whether the version is that of a revision, or of the same one of another era.
func (v proofVersion) isOf(l proofLife) bool {
	return versionNumber(v.ResourceVersion) == uint64(l.revision) &&
		(v.Operation == "deleted") == (l.body == "") && (l.uid == "" || v.UID == l.uid)
}

func (v proofVersion) String() string {
	return fmt.Sprintf("{%s@%s %s %s %t %t}", v.ResourceVersion, v.UID[:min(len(v.UID), 4)], v.Time.UTC().Format("04:05.000"), v.Operation, v.Initial, v.Inferred)
}

func (p *proofRun) versions(o proofObject) []proofVersion {
	var got struct {
		Versions []proofVersion
		Earlier  int
	}
	code, body := p.ask("versions", url.Values{
		"object": {o.resource() + "/" + o.name}, "namespace": {o.namespace}, "limit": {"5000"},
	})
	if code == http.StatusNotFound {
		return nil
	}
	if err := json.Unmarshal(body, &got); err != nil || code != http.StatusOK || got.Earlier > 0 {
		p.t.Errorf("versions of %v: %d, %d earlier ones, %v", o, code, got.Earlier, err)
	}
	return got.Versions
}

// judgeCompleteness compares which versions there are. One that the history has of no revision of
// etcd is wrong too, unless a list has shown that an object was gone.
func (p *proofRun) judgeCompleteness(b *proofBook, gaps []proofGap) {
	p.t.Helper()
	gapOf := func(o proofObject, l proofLife) *proofGap {
		i := slices.IndexFunc(gaps, func(g proofGap) bool {
			return g.resource == o.resource() && g.era == l.era && l.revision > g.from && l.revision <= g.to
		})
		if i < 0 {
			return nil
		}
		return &gaps[i]
	}
	delivered, missing, newest, uncommitted, wrong := 0, 0, 0, 0, 0
	report := func(format string, args ...any) {
		if wrong++; wrong <= 10 {
			p.t.Errorf(format, args...)
		}
	}
	for _, o := range b.objects {
		has := p.versions(o)
		used := make([]bool, len(has))
		for _, l := range b.lives[o] {
			i := -1
			for at, v := range has { // the same revision of an earlier era is used already
				if !used[at] && v.isOf(l) {
					i = at
					break
				}
			}
			if l.era == 0 && l.revision <= p.first.revision {
				if i >= 0 {
					used[i] = true
				}
				continue // the bridge was starting
			}
			gap := gapOf(o, l)
			switch {
			case i < 0 && gap != nil:
				missing++
				continue
			case i < 0:
				report("%v: revision %v is missing, and in no gap\nthe history has %v", o, l, has)
				continue
			}
			used[i] = true
			switch isRead := !has[i].Inferred && !has[i].Initial; {
			case gap == nil || !isRead:
				delivered++
			case l.revision == b.firstBehind(gap):
				newest++
			case p.isKilledRightAfter(l.at):
				uncommitted++
			default:
				report("%v: revision %v was delivered, and lies in a gap\nthe history has %v", o, l, has)
			}
		}
		for i, v := range has {
			isKnown := slices.ContainsFunc(b.lives[o], func(l proofLife) bool { return uint64(l.revision) == versionNumber(v.ResourceVersion) })
			if !used[i] && !isKnown && !v.Inferred && !v.Initial {
				report("%v: etcd has no revision of version %v: %v", o, v, b.lives[o])
			}
		}
	}
	p.t.Logf("%d revisions of %d objects were delivered, %d are missing, each in a gap; of gaps %d were the newest that was read, and %d came right before a kill",
		delivered+newest+uncommitted, len(b.objects), missing, newest, uncommitted)
	if wrong > 10 {
		p.t.Errorf("%d are wrong", wrong)
	}
}

// firstBehind is the first revision of a gap. It is the newest one that was read, unless that was
// complete: etcd deletes several objects in one revision, and a gap begins before what may lack
// some.
func (b *proofBook) firstBehind(gap *proofGap) int64 {
	first := int64(math.MaxInt64)
	for o, lives := range b.lives {
		for _, l := range lives {
			if o.resource() == gap.resource && l.era == gap.era && l.revision > gap.from {
				first = min(first, l.revision)
			}
		}
	}
	return first
}

// isKilledRightAfter reports whether a bridge was killed before it could commit what it read at a
// time: the gap begins at what was committed.
func (p *proofRun) isKilledRightAfter(at time.Time) bool {
	return slices.ContainsFunc(p.kills, func(killed time.Time) bool { return killed.Sub(at).Abs() < slack })
}

// proofJudge asks, and counts what the answers were.
type proofJudge struct {
	*proofRun
	book *proofBook
	gaps []proofGap

	mu       sync.Mutex
	answers  map[string]int // guarded by mu
	problems []string       // guarded by mu
}

func (j *proofJudge) count(what string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.answers[what]++
}

func (j *proofJudge) problem(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.problems = append(j.problems, fmt.Sprintf(format, args...))
}

// anyRevision is one of those that the run has lived.
func (j *proofJudge) anyRevision() int64 {
	era := j.random.IntN(len(j.book.begins))
	from, to := j.book.begins[era].revision, j.last.revision
	if era+1 < len(j.book.begins) {
		to = j.book.begins[era+1].last
	}
	return from + 1 + j.random.Int64N(to-from)
}

// eras are those that have a revision: a restore makes some come twice, and the newest one of the
// backup is the first one of the new era too. The newest era still gets revisions while questions
// are asked.
func (j *proofJudge) eras(revision int64) (eras []int) {
	newest, err := j.oracle.Now(j.ctx)
	if err != nil {
		j.problem("the newest revision: %v", err)
	}
	for era, begin := range j.book.begins {
		last := newest
		if era+1 < len(j.book.begins) {
			last = j.book.begins[era+1].last
		}
		if revision >= begin.revision && revision <= last {
			eras = append(eras, era)
		}
	}
	return eras
}

// proofAnswer is the answer to a question for an object.
type proofAnswer struct {
	code, body      string
	UID             string
	ResourceVersion string
	Object          json.RawMessage
	Incomplete      []struct{ What, Reason string }
	Uncertain       *struct {
		NotBefore, Time time.Time
		ResourceVersion string
	}
}

func (j *proofJudge) object(o proofObject, at string) (a proofAnswer) {
	code, body := j.ask("object", url.Values{
		"object": {o.resource() + "/" + o.name}, "namespace": {o.namespace}, "at": {at},
	})
	a.code, a.body = fmt.Sprint(code), string(body)
	if code == http.StatusOK {
		if err := json.Unmarshal(body, &a); err != nil {
			j.problem("%v at %s: %v: %s", o, at, err, body)
		}
	}
	return a
}

// isNone reports whether the answer is that there was no object, isUnknown that the history does
// not know.
func (a *proofAnswer) isNone() bool {
	return strings.Contains(a.body, "did not exist") || strings.Contains(a.body, "has never seen")
}

func (a *proofAnswer) isUnknown() bool { return strings.Contains(a.body, "is not known") }

func (a *proofAnswer) is(l proofLife) bool {
	if l.body == "" {
		return a.isNone()
	}
	return a.UID == l.uid && versionNumber(a.ResourceVersion) == uint64(l.revision) && canonicalText(a.Object) == l.body
}

// isNamed reports whether the answer names something that may be missing.
func (a *proofAnswer) isNamed() bool {
	return len(a.Incomplete) > 0 || a.isUnknown() || strings.Contains(a.body, "has never seen")
}

func (j *proofJudge) atRevision(o proofObject, revision int64) {
	a := j.object(o, fmt.Sprint(revision))
	var may []proofLife
	isInGap := false
	for _, era := range j.eras(revision) {
		may = append(may, j.book.at(o, era, revision))
		for _, g := range j.gaps {
			isInGap = isInGap || g.resource == o.resource() && g.era == era && revision > g.from && revision <= g.to
		}
	}
	switch {
	case slices.ContainsFunc(may, a.is) && !isInGap && len(a.Incomplete) > 0:
		j.problem("%v at revision %d, in no gap: %s", o, revision, a.body)
	case slices.ContainsFunc(may, a.is):
		j.count("revision: right")
	case isInGap && a.isNamed():
		j.count("revision: in a gap, and says so")
	case a.isUnknown() && j.isFirstInGap(o):
		j.count("revision: before the first that the history could see")
	default:
		j.problem("%v at revision %d: %s %.400s\nwant one of %v\nof %v\nthe history has %v", o, revision, a.code, a.body, may, j.book.lives[o], j.versions(o))
	}
}

// isFirstInGap reports whether the first version that the history has of an object came of a list.
func (j *proofJudge) isFirstInGap(o proofObject) bool {
	has := j.versions(o)
	return len(has) > 0 && (has[0].Inferred || has[0].Initial)
}

func (j *proofJudge) atTime(o proofObject, at time.Time) {
	a := j.object(o, at.UTC().Format(time.RFC3339Nano))
	may := j.book.around(o, at)
	isInGap := slices.ContainsFunc(j.gaps, func(g proofGap) bool {
		return g.resource == o.resource() && !at.Before(g.since.Add(-slack)) && !at.After(g.until.Add(slack))
	})
	disturbance, isBlind := j.isBlind(at)
	isUncertain := a.Uncertain != nil || strings.Contains(a.body, "it was added between") || len(a.Incomplete) > 0
	switch {
	case isUncertain && !isBlind:
		j.problem("%v at %v, when all was well: %s", o, at, a.body)
	case slices.ContainsFunc(may, a.is):
		j.count("time: right")
		if len(may) == 1 {
			j.count("time: right, with one possibility")
		}
	case j.isBounded(o, &a, at, may):
		j.count("time: uncertain, and the truth lies in the bounds")
	case strings.Contains(a.body, "it was added between") && isBlind:
		j.count("time: uncertain whether it was there")
	case isInGap && a.isNamed():
		j.count("time: in a gap, and says so")
	case a.isUnknown() && j.isFirstInGap(o):
		j.count("time: before the first that the history could see")
	default:
		j.problem("%v at %v (%s): %s %.400s\nwant one of %v\nof %v\nthe history has %v", o, at.UTC().Format("15:04:05.000"), disturbance, a.code, a.body, may, j.book.lives[o], j.versions(o))
	}
}

// isBounded reports whether the answer has bounds around the time, the change between them was made
// there, and the truth is the answer or came of that change or a later one.
func (j *proofJudge) isBounded(o proofObject, a *proofAnswer, at time.Time, may []proofLife) bool {
	u := a.Uncertain
	if u == nil || u.NotBefore.After(at) || u.Time.Add(slack).Before(at) {
		return false
	}
	lives := j.book.lives[o]
	i := slices.IndexFunc(lives, func(l proofLife) bool {
		return uint64(l.revision) == versionNumber(u.ResourceVersion) && l.at.After(u.NotBefore.Add(-slack)) && l.at.Before(u.Time.Add(slack))
	})
	return i >= 0 && slices.ContainsFunc(may, func(l proofLife) bool {
		return l.era > lives[i].era || l.era == lives[i].era && l.revision >= lives[i].revision || a.is(l)
	})
}

// state compares all objects of a kind in a namespace at a revision.
func (j *proofJudge) state(kind int, namespace string, revision int64) {
	resource := proofKinds[kind].GroupResource().String()
	code, body := j.ask("state", url.Values{"namespace": {namespace}, "kind": {resource}, "at": {fmt.Sprint(revision)}})
	got := map[string]string{}
	var head struct{ Incomplete []struct{ What string } }
	for i, line := range strings.Split(strings.TrimSpace(string(body)), "\n") {
		var o struct {
			Name   string
			Object json.RawMessage
		}
		var into any = &o
		if i == 0 {
			into = &head
		}
		if err := json.Unmarshal([]byte(line), into); err != nil || code != http.StatusOK {
			j.problem("%s of %s at %d: %d %s", resource, namespace, revision, code, line)
			return
		}
		if i > 0 {
			got[o.Name] = canonicalText(o.Object)
		}
	}
	name, what := "", ""
	for _, era := range j.eras(revision) {
		want := map[string]string{}
		for _, o := range j.book.objects {
			if o.kind == kind && o.namespace == namespace {
				if l := j.book.at(o, era, revision); l.body != "" {
					want[o.name] = l.body
				}
			}
		}
		if maps.Equal(got, want) {
			j.count("state: right")
			return
		}
		name, what = differences(got, want)
	}
	if len(head.Incomplete) > 0 {
		j.count("state: in a gap, and says so")
		return
	}
	o := proofObject{kind, namespace, name}
	j.problem("%s of %s at %d: %s\nof %v\nthe history has %v", resource, namespace, revision, what, j.book.lives[o], j.versions(o))
}
