package check

import (
	"fmt"
	"strings"
	"time"

	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// Options say how a stream is to compare with what was seen.
type Options struct {
	Cluster string
	// Informers are the names of the informers, by resource ("deployments.apps").
	Informers map[string]string
	// Repeats allows events that were there before: delivery is at least once, and their ids show
	// the repeats.
	Repeats bool
	// Changed says that the informers have the key changed: each update that a watch brought names
	// the parts that it changed.
	Changed bool
	// Only says which objects count; nil for all. Where tests share a cluster, cluster-scoped
	// objects of others are none of theirs.
	Only func(resource, namespace, name string) bool
	// Began is when the test began.
	Began time.Time
}

// Compare gives the problems of a stream: changes that are missing, events that are no change or
// come twice, wrong order within an object, wrong attributes, wrong payloads. Nil when there are
// none.
func Compare(changes []truth.Change, events []read.Event, o Options) (problems []string) {
	want, problems := expectAll(changes, &o)
	byID := map[string]*expected{}
	for _, e := range want {
		byID[e.id] = e
	}
	seen := map[string]*read.Event{}
	var first []*read.Event // occurrences
	for i := range events {
		got := &events[i]
		e := byID[got.ID()]
		switch {
		case !got.AboutObject() || !o.counts(got.GroupResource(), got.Attribute("namespace"), got.Attribute("name")):
			continue
		case e == nil:
			problems = append(problems, fmt.Sprintf("%s: nobody saw such a change", describe(got)))
		case seen[got.ID()] == nil:
			seen[got.ID()] = got
			first = append(first, got)
			problems = append(problems, e.differences(got, &o)...)
		case !o.Repeats:
			problems = append(problems, fmt.Sprintf("%s comes again", describe(got)))
		case string(got.Data()) != string(e.data):
			problems = append(problems, fmt.Sprintf("%s comes again with another payload", describe(got)))
		}
	}
	for _, e := range want {
		if seen[e.id] == nil {
			problems = append(problems, fmt.Sprintf("%s is missing", e))
		}
	}
	return append(problems, order(want, first)...)
}

func (o *Options) counts(resource, namespace, name string) bool {
	return o.Only == nil || o.Only(resource, namespace, name)
}

func expectAll(changes []truth.Change, o *Options) (want []*expected, problems []string) {
	histories := map[string]*history{} // by uid
	for i := range changes {
		ch := &changes[i]
		if !o.counts(ch.Collection.String(), ch.Metadata.Namespace, ch.Metadata.Name) {
			continue
		}
		if histories[ch.Metadata.UID] == nil {
			histories[ch.Metadata.UID] = &history{}
		}
		e, err := expect(ch, o.Cluster, o.Informers[ch.Collection.String()], histories[ch.Metadata.UID])
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s %s: %v", changes[i].Collection, changes[i].Key(), err))
			continue
		}
		want = append(want, e)
	}
	return want, problems
}

// order compares, for each object by its name, the order of its events with the order of its
// changes: versions of one uid ascend, the delete is the last of them, and another object of the
// same name comes after it. The time of one uid never goes back.
func order(want []*expected, got []*read.Event) (problems []string) {
	wanted, had, lanes := map[string][]string{}, map[string][]string{}, map[string]string{}
	for _, e := range want {
		key := e.attributes["partitionkey"]
		wanted[key] = append(wanted[key], e.id)
	}
	times := map[string]time.Time{} // of the last event, by uid
	for _, e := range got {
		key, uid := e.Attribute("partitionkey"), e.Attribute("uid")
		if e.Time().Before(times[uid]) {
			problems = append(problems, fmt.Sprintf("%s: its time %v is before %v, that of the event before it", describe(e), e.Time(), times[uid]))
		}
		times[uid] = e.Time()
		had[key] = append(had[key], e.ID())
		if lane, found := lanes[key]; found && lane != e.Lane {
			problems = append(problems, fmt.Sprintf("%s has events in %s and in %s", key, lane, e.Lane))
		}
		lanes[key] = e.Lane
	}
	for key, ids := range wanted {
		if have := had[key]; len(have) == len(ids) && strings.Join(have, " ") != strings.Join(ids, " ") {
			problems = append(problems, fmt.Sprintf("%s: its events come in another order than its changes:\n%v\nwant:\n%v", key, have, ids))
		}
	}
	return problems
}

func describe(e *read.Event) string {
	return fmt.Sprintf("%s %s (%s, at %s %d)", e.Type(), e.Attribute("partitionkey"), e.ID(), e.Lane, e.Place)
}
