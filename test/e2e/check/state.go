package check

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// FinalState compares what a reader of all events ends up with with the objects that exist: one
// that takes them in their order, and one that keeps a table sorted by sequence. It is for cases
// where versions are lost to everybody, so that no witness can say which events there have to be.
func FinalState(exist []truth.Change, events []read.Event, o Options) (problems []string) {
	inOrder := func(_, _ *read.Event) bool { return true }
	bySequence := func(e, newest *read.Event) bool {
		return e.Attribute("sequence") >= newest.Attribute("sequence")
	}
	problems = differences(exist, state(events, o, inOrder), o)
	for _, problem := range differences(exist, state(events, o, bySequence), o) {
		problems = append(problems, "sorted by sequence: "+problem)
	}
	return problems
}

// state is the newest event of each object, without those that are deleted.
func state(events []read.Event, o Options, isNewer func(e, newest *read.Event) bool) map[string]*read.Event {
	last := map[string]*read.Event{}
	for i := range events {
		e := &events[i]
		if !e.AboutObject() || !o.counts(e.GroupResource(), e.Attribute("namespace"), e.Attribute("name")) {
			continue
		}
		key := e.Attribute("partitionkey")
		if newest := last[key]; newest == nil || isNewer(e, newest) {
			last[key] = e
		}
	}
	for key, e := range last {
		if e.Op() == "deleted" {
			delete(last, key)
		}
	}
	return last
}

// differences compares a state with the objects that exist.
func differences(exist []truth.Change, last map[string]*read.Event, o Options) (problems []string) {
	for i := range exist {
		ch := &exist[i]
		if !o.counts(ch.Collection.String(), ch.Metadata.Namespace, ch.Metadata.Name) {
			continue
		}
		key := ch.Collection.String() + "/" + ch.Metadata.Namespace + "/" + ch.Metadata.Name
		problems = append(problems, stale(key, ch, last[key])...)
		delete(last, key)
	}
	for key, e := range last {
		problems = append(problems, fmt.Sprintf("%s does not exist, but its last event is %s", key, describe(e)))
	}
	slices.Sort(problems)
	return problems
}

// stale says in what the last event of an object is not the object as it is.
func stale(key string, ch *truth.Change, last *read.Event) []string {
	want, err := ch.WithoutManagedFields()
	switch {
	case err != nil:
		return []string{fmt.Sprintf("%s: %v", key, err)}
	case last == nil:
		return []string{fmt.Sprintf("%s exists (uid %s, version %s), but has no event, or its last is a deleted", key, ch.Metadata.UID, ch.Metadata.ResourceVersion)}
	case !bytes.Equal(last.Data(), want):
		return []string{fmt.Sprintf("%s: its last event is not its state:\n%s\nwant:\n%s", key, last.Data(), want)}
	}
	return nil
}

// Order gives the events that come in a wrong order within one object, without knowing which there
// have to be: versions of a uid ascend, nothing of it comes after its delete, and no event comes
// twice.
func Order(events []read.Event) (problems []string) {
	last, ids := map[string]string{}, map[string]bool{}
	for i := range events {
		e := &events[i]
		if !e.AboutObject() {
			continue
		}
		uid, sequence := e.Attribute("uid"), e.Attribute("sequence")
		if ids[e.ID()] {
			problems = append(problems, describe(e)+" comes again")
		}
		ids[e.ID()] = true
		if strings.Compare(last[uid], sequence) > 0 {
			problems = append(problems, fmt.Sprintf("%s comes after %s", describe(e), last[uid]))
		}
		last[uid] = sequence
		if e.Op() == "deleted" {
			last[uid] = "deleted"
		}
	}
	return problems
}
