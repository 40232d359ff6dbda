package verify_test

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/verify"
)

// stream makes events out of lines as "added web u1 5", "updated web u1 7 previous=5 inferred",
// "gap dropped 5 9", "synced 20 selective=filter". Words behind the version are attributes.
func stream(t *testing.T, text string) (events []event.Event) {
	t.Helper()
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		isList := words[0] == "synced" && strings.Trim(words[1], "0123456789abc") == ""
		switch {
		case words[0] == "gap":
			events = append(events, aboutPods("gap", words[2], fmt.Sprintf(`{"reason":%q,"from":%q,"to":%q}`, words[1], words[2], words[3])))
		case isList:
			selective, _ := strings.CutPrefix(words[len(words)-1], "selective=")
			if len(words) == 2 {
				selective = ""
			}
			data := fmt.Sprintf(`{"version":%q}`, words[1])
			if selective != "" {
				data = fmt.Sprintf(`{"version":%q,"selective":[%q]}`, words[1], selective)
			}
			events = append(events, aboutPods("synced", words[1], data))
		case words[0] == "progress":
			data := ""
			if len(words) > 2 {
				selective, _ := strings.CutPrefix(words[2], "selective=")
				data = fmt.Sprintf(`{"version":%q,"selective":[%q]}`, words[1], selective)
			}
			events = append(events, aboutPods("progress", words[1], data))
		default:
			events = append(events, podEvent(t, words))
		}
	}
	return events
}

func aboutPods(op, version, data string) event.Event {
	return event.Event{
		ID: "all/pods/" + op + "/" + version, Source: "/clusters/dev", Type: "dev.kubebridge.informer." + op, Op: event.Op(op),
		PartitionKey: "pods", ObjectAttributes: event.ObjectAttributes{Resource: "pods", ResourceVersion: version}, Routing: event.Routing{Version: "v1"}, Informer: "all", Data: []byte(data),
	}
}

// podEvent is an event of a pod: its operation, name, uid and version, then attributes.
func podEvent(t *testing.T, words []string) event.Event {
	t.Helper()
	op, name, uid, version := words[0], words[1], words[2], words[3]
	e := event.Event{
		Source: "/clusters/dev", Type: "dev.kubebridge.resource." + op, Op: event.Op(op), Routing: event.Routing{Version: "v1"}, ObjectAttributes: event.ObjectAttributes{
			APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: "shop", Name: name,
			UID: uid, ResourceVersion: version,
		},
		Informer:     "all",
		PartitionKey: "pods/shop/" + name, Subject: "api/v1/namespaces/shop/pods/" + name,
		Data: fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":%q}}`, name, uid, version),
	}
	epoch, entered, asOf := 0, "", ""
	for _, word := range words[4:] {
		name, value, _ := strings.Cut(word, "=")
		switch name {
		case "previous":
			e.Previous = value
		case "inferred":
			e.Inferred = true
		case "initial":
			e.Initial = true
		case "epoch":
			epoch, _ = strconv.Atoi(value)
		case "entered":
			entered = value
		case "asof":
			asOf = value
		case "cause":
			e.Cause = value
		case "body":
			e.Data = fmt.Appendf(nil, `{"metadata":{"name":%q,"namespace":"shop","uid":%q,"resourceVersion":%q},"spec":%q}`, e.Name, uid, version, value)
		case "data":
			e.Data = []byte(value)
		case "id":
			e.ID = value
		case "letter":
			e.Extensions = append(e.Extensions, event.Attribute{Name: "deadletterreason", Value: "too large"})
		default:
			t.Fatalf("no attribute %q", word)
		}
	}
	padded := func(v string) string {
		if _, err := strconv.ParseUint(v, 10, 64); err != nil {
			return v
		}
		return strings.Repeat("0", 20-len(v)) + v
	}
	id := uid + "/" + version
	if op == "deleted" {
		id = uid + "/deleted"
	}
	if op == "synced" {
		id += "/sync/1"
	}
	if entered != "" {
		id += "/entered/" + entered
		entered = "entered." + padded(entered) + "."
	}
	e.Sequence = fmt.Sprintf("%08d.%s%s", epoch, entered, padded(cmp.Or(asOf, version)))
	if op == "deleted" {
		e.Sequence += ".deleted"
	}
	if epoch > 0 {
		id += fmt.Sprint("/epoch/", epoch)
	}
	if e.ID == "" {
		e.ID = id
	}
	return e
}

func TestStreams(t *testing.T) {
	const begin = "added web u1 5 initial\nsynced 6\n"
	for name, test := range map[string]struct {
		stream string
		want   string // kinds of faults
	}{
		"a life, and another under the name": {begin + "updated web u1 8 previous=5\ndeleted web u1 9 previous=8\nadded web u2 11\ndeleted web u2 12 previous=11", ""},

		// Repeats.
		"a stretch that comes again after a crash":           {begin + "updated web u1 8 previous=5\nupdated web u1 9 previous=8\nupdated web u1 8 previous=5\nupdated web u1 9 previous=8", ""},
		"it comes again with another body":                   {begin + "updated web u1 8 previous=5\nupdated web u1 8 previous=5 body=other", "changed"},
		"a delete comes again as a list knows it":            {begin + "updated web u1 8 previous=5\ndeleted web u1 9 previous=8\ndeleted web u1 5 previous=5 inferred asof=20 body=old", ""},
		"a repeat behind more than is remembered":            {begin + "updated web u1 7 previous=5\nupdated web u1 8 previous=7\nupdated web u1 9 previous=8\nupdated web u1 10 previous=9\nupdated web u1 7 previous=5", ""},
		"a version that was never there, behind a newer one": {begin + "updated web u1 9 previous=5\nupdated web u1 7 previous=5", "disorder"},

		// Chains.
		"a version is missing":                                               {begin + "updated web u1 9 previous=8", "break"},
		"it comes late":                                                      {begin + "updated web u1 9 previous=8\nupdated web u1 8 previous=5", "disorder"},
		"two are missing, one comes late":                                    {begin + "updated web u1 9 previous=8\nupdated web u1 7 previous=5", "break disorder"},
		"an update of an object that is deleted":                             {begin + "deleted web u1 7 previous=5\nupdated web u1 9 previous=8", "break"},
		"an update with an earlier previous":                                 {begin + "updated web u1 8 previous=5\nupdated web u1 9 previous=5", "break"},
		"a list that knows an earlier state":                                 {begin + "updated web u1 8 previous=5\ngap expired 5 9\nupdated web u1 9 previous=5 inferred", ""},
		"an object that is there is added":                                   {begin + "added web u1 8", "break"},
		"it is added by a list after a crash":                                {begin + "added web u1 8 inferred", ""},
		"the delete and the next add are swapped":                            {begin + "added web u2 9\ndeleted web u1 8 previous=5", "disorder"},
		"another object without a delete":                                    {begin + "added web u2 9", "no-delete"},
		"a delete of what was never added":                                   {begin + "deleted api u2 9 previous=7", "no-add"},
		"a delete of what nobody knew":                                       {begin + "deleted api u2 9", ""},
		"an update of what was never added":                                  {begin + "updated api u2 9 previous=7", "break"},
		"the same where nothing says how it began":                           {"added web u1 5\nupdated api u2 9 previous=7", ""},
		"a delete that a list reports, of what a crash kept from being sent": {begin + "gap expired 5 20\ndeleted api u2 9 previous=9 inferred\nsynced 20", ""},
		"a delete that a list reports, of an earlier state than was sent":    {begin + "updated web u1 8 previous=5\ngap expired 5 20\ndeleted web u1 5 previous=5 inferred asof=11\nadded web u2 12 inferred\nsynced 20", ""},
		"the same, and it sorts before what was sent":                        {begin + "updated web u1 8 previous=5\ngap expired 5 20\ndeleted web u1 5 previous=5 inferred\nadded web u2 12 inferred\nsynced 20", "disorder no-delete"},
		"two lives of a name that a list after a rewind lacks":               {begin + "gap rewound 9 4\ndeleted web u1 5 previous=5 inferred asof=4 epoch=1\ndeleted web u2 8 previous=8 inferred asof=4 epoch=1\nsynced 4", ""},
		"events without previous":                                            {begin + "updated web u1 8\nupdated web u1 9", ""},
		"an object that comes into a selection again":                        {begin + "deleted web u1 7 previous=5\nadded web u1 7 entered=9\ndeleted web u1 7 previous=7 entered=9 asof=13 cause=left-selector\nadded web u1 7 entered=11\nupdated web u1 12 previous=7", ""},

		// What the stream itself reports.
		"versions that were dropped":                   {begin + "gap dropped 7 8\nupdated web u1 9 previous=8", ""},
		"another version than was dropped":             {begin + "gap dropped 7 8\nupdated web u1 20 previous=12", "break"},
		"a delete that was dropped":                    {begin + "gap dropped 7 8\nadded web u2 9", ""},
		"a gap that a list heals is no excuse":         {begin + "gap expired 7 8\nupdated web u1 9 previous=8", "break"},
		"a dead letter in place of its event":          {begin + "updated web u1 8 previous=5 letter\nupdated web u1 9 previous=8", ""},
		"a state that was lost: everything again":      {begin + "gap forgotten 5 9\nadded web u1 9 epoch=1\nadded api u2 9 epoch=1\nsynced 9", ""},
		"a server that went back: versions come again": {begin + "updated web u1 9 previous=5\ngap rewound 9 6\nupdated web u1 5 previous=9 inferred epoch=1\nsynced 6\nupdated web u1 7 previous=5 epoch=1", ""},
		"a delete because it went back":                {begin + "gap rewound 9 6\ndeleted web u1 5 previous=5 inferred asof=3 epoch=1\nadded web u2 4 inferred epoch=1\nsynced 6", ""},

		// Streams that leave versions out.
		"a filter":                             {begin + "synced 6 selective=filter\nupdated web u1 9 previous=8\nadded web u2 12", ""},
		"a filter, reported after the updates": {"added web u1 5 initial\nupdated web u1 9 previous=8\nsynced 10 selective=filter", ""},
		"a filter that is added, reported by a progress event": {begin + "updated web u1 9 previous=8\nprogress 20 selective=filter", ""},
		"disorder in spite of a filter":                        {begin + "synced 6 selective=filter\nupdated web u1 9 previous=8\nupdated web u1 7 previous=5", "disorder"},
		"an older state after a crash, with delivery latest":   {begin + "synced 6 selective=latest\nupdated web u1 9 previous=5\nupdated web u1 7 previous=5\nupdated web u1 9 previous=5", ""},

		// Syncs.
		"a sync of a known state":                {begin + "synced web u1 5", ""},
		"a sync of a state that was never there": {begin + "synced web u1 8", "break"},

		// Contradictions.
		"an id of another version":                {begin + "updated web u1 8 previous=5 id=u1/7", "contradiction"},
		"an id of another object":                 {begin + "updated web u1 8 previous=5 id=u2/8", "contradiction"},
		"an id of another epoch":                  {begin + "updated web u1 8 previous=5 id=u1/8/epoch/1", "contradiction"},
		"a delete that is later than its version": {begin + "deleted web u1 8 previous=5 asof=9", "contradiction"},
		"an id of another form":                   {begin + "updated web u1 8 previous=5 id=17", "contradiction"},
		"data of another object":                  {begin + `updated web u1 8 previous=5 data={"metadata":{"name":"web","namespace":"shop","uid":"u2","resourceVersion":"8"}}`, "contradiction"},
		"data of another version":                 {begin + `updated web u1 8 previous=5 data={"metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"7"}}`, "contradiction"},
		"data that is no JSON":                    {begin + `updated web u1 8 previous=5 data={"metadata":`, "contradiction"},
		"an old object of another time":           {begin + `updated web u1 8 previous=5 data={"object":{"metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"8"}},"old":{"metadata":{"name":"web","namespace":"shop","uid":"u1","resourceVersion":"4"}}}`, "contradiction"},
		"data without metadata":                   {begin + `updated web u1 8 previous=5 data={"kind":"Pod"}`, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := check(stream(t, test.stream))
			var kinds []string
			for kind, n := range r.Faults {
				kinds = append(kinds, slices.Repeat([]string{string(kind)}, n)...)
			}
			slices.Sort(kinds)
			if got := strings.Join(kinds, " "); got != test.want || r.OK != (got == "") {
				t.Errorf("faults %q, want %q\n%s", got, test.want, describe(r))
			}
		})
	}
}

// Versions that are no numbers.
func TestOddVersions(t *testing.T) {
	r := check(stream(t, "added web u1 abc initial\nsynced abc\nupdated web u1 def previous=abc\nupdated web u1 def previous=abc\nupdated web u1 xyz previous=ghi"))
	if r.Faults[verify.Break] != 1 || len(r.Found) != 1 || r.Repeats != 1 || len(r.Notes) == 0 {
		t.Errorf("report %+v\n%s", r, describe(r))
	}
}

func TestCompleteUpTo(t *testing.T) {
	for name, test := range map[string]struct{ stream, want string }{
		"nothing says":                 {"added web u1 5 initial", ""},
		"a list":                       {"added web u1 5 initial\nsynced 6\nupdated web u1 9 previous=5", "6"},
		"a progress event":             {"synced 6\nprogress 20", "20"},
		"a gap that is open":           {"synced 6\nprogress 20\ngap expired 15 30", "15"},
		"a gap that a list has healed": {"synced 6\ngap expired 6 30\nsynced 31", "31"},
		"a version that is missing":    {"added web u1 5 initial\nsynced 6\nupdated web u1 9 previous=8\nprogress 20", "5"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := check(stream(t, test.stream)).Resources[0].Complete; got != test.want {
				t.Errorf("complete up to %q, want %q", got, test.want)
			}
		})
	}
}

func TestPartitions(t *testing.T) {
	events := stream(t, "added web u1 5 initial\nupdated web u1 9 previous=5\nsynced 20 selective=filter")
	c := verify.New(verify.Config{Whole: func() bool { return true }})
	for i := range events {
		c.Feed(&events[i], verify.Position{Lane: fmt.Sprint("topic/", i), Offset: 1})
	}
	if r := c.Report(); r.Faults[verify.Scattered] != 1 {
		t.Errorf("an object in two partitions: faults %v", r.Faults)
	}
}

// partitions feeds the streams of partitions, one behind the other, with a copy of each event about
// the informer in each.
func partitions(t *testing.T, streams ...string) *verify.Report {
	t.Helper()
	c := verify.New(verify.Config{Whole: func() bool { return true }})
	for part, text := range streams {
		events := stream(t, text)
		for i := range events {
			if events[i].AboutInformer() {
				events[i] = events[i].Copy(part)
			}
			c.Feed(&events[i], verify.Position{Lane: fmt.Sprint("topic/", part), Offset: uint64(i)})
		}
	}
	return c.Report()
}

func TestCopies(t *testing.T) {
	t.Run("a progress event is missing in a partition", func(t *testing.T) {
		r := partitions(t, "added web u1 5 initial\nsynced 6\nprogress 20", "added api u2 4 initial\nsynced 6")
		if got := r.Resources[0].Complete; got != "6" {
			t.Errorf("complete up to %q, want 6", got)
		}
	})
	t.Run("a partition without such an event is named", func(t *testing.T) {
		r := partitions(t, "added web u1 5 initial\nsynced 6\nprogress 20", "added api u2 4 initial")
		if got := r.Resources[0].Complete; got != "" {
			t.Errorf("complete up to %q, though partition 1 does not say so", got)
		}
		if notes := strings.Join(r.Notes, "\n"); !strings.Contains(notes, "partition topic/1 ") || len(r.Notes) != 1 {
			t.Errorf("notes %q", notes)
		}
	})
	t.Run("a gap is reported in each partition, and is one gap", func(t *testing.T) {
		r := partitions(t,
			"added web u1 5 initial\nsynced 6\ngap forgotten 6 30\nadded web u1 5 epoch=1\nsynced 30",
			"added api u2 4 initial\nadded gone u3 6 initial\nsynced 6\ngap forgotten 6 30\nadded api u2 4 epoch=1\nsynced 30")
		if x := r.Resources[0]; x.Alive != 2 || len(x.Reported) != 1 || x.Complete != "30" || !r.OK {
			t.Errorf("%d objects are there, %d gaps, complete up to %q; want 2, 1 and 30\n%s", x.Alive, len(x.Reported), x.Complete, describe(r))
		}
	})
}

func TestNotWhole(t *testing.T) {
	events := stream(t, "added web u1 5 initial\nsynced 6\nupdated api u2 9 previous=7\ndeleted db u3 10 previous=2")
	c := verify.New(verify.Config{Whole: func() bool { return false }})
	feed(c, events)
	if r := c.Report(); !r.OK || r.Whole || len(r.Notes) != 1 {
		t.Errorf("the beginning was removed by the broker: %+v\n%s", r, describe(r))
	}
}

func TestCompare(t *testing.T) {
	listed := func(name, uid, version string) verify.Listed {
		return verify.Listed{Namespace: "shop", Name: name, UID: uid, Version: version}
	}
	const begin = "added web u1 5 initial\nadded api u2 6 initial\nsynced 8\n"
	for name, test := range map[string]struct {
		stream, later string
		cluster       []verify.Listed
		want          string
	}{
		"equal":                       {begin, "", []verify.Listed{listed("web", "u1", "5"), listed("api", "u2", "6")}, ""},
		"a newer version":             {begin, "", []verify.Listed{listed("web", "u1", "9"), listed("api", "u2", "6")}, "stale pods/shop/web"},
		"it was in flight":            {begin, "updated web u1 9 previous=5", []verify.Listed{listed("web", "u1", "9"), listed("api", "u2", "6")}, ""},
		"another object of the name":  {begin, "", []verify.Listed{listed("web", "u9", "9"), listed("api", "u2", "6")}, "stale pods/shop/web"},
		"more in the cluster":         {begin, "", []verify.Listed{listed("web", "u1", "5"), listed("api", "u2", "6"), listed("db", "u3", "7")}, "absent pods/shop/db"},
		"less in the cluster":         {begin, "", []verify.Listed{listed("web", "u1", "5")}, "extra pods/shop/api"},
		"its delete was in flight":    {begin, "deleted api u2 9 previous=6", []verify.Listed{listed("web", "u1", "5")}, ""},
		"added behind the list":       {begin, "added db u3 50", []verify.Listed{listed("web", "u1", "5"), listed("api", "u2", "6")}, ""},
		"changed behind the list":     {begin, "updated web u1 50 previous=5", []verify.Listed{listed("web", "u1", "5"), listed("api", "u2", "6")}, ""},
		"added before the list":       {begin + "added db u3 50\n", "", []verify.Listed{listed("web", "u1", "5"), listed("api", "u2", "6")}, "ahead pods/shop/db"},
		"changed before the list":     {begin + "updated web u1 50 previous=5\n", "", []verify.Listed{listed("web", "u1", "5"), listed("api", "u2", "6")}, "ahead pods/shop/web"},
		"before etcd was restored":    {begin + "updated web u1 50 previous=5\ngap rewound 50 10\nupdated web u1 9 epoch=1\nsynced 10\n", "", []verify.Listed{listed("web", "u1", "9"), listed("api", "u2", "6")}, ""},
		"gone with a forgotten state": {begin + "gap forgotten 6 10\nadded web u1 5 epoch=1\nsynced 10\n", "", []verify.Listed{listed("web", "u1", "5")}, ""},
		"updates are left out":        {begin + "synced 9 selective=on\n", "", []verify.Listed{listed("web", "u1", "9"), listed("api", "u2", "6")}, ""},
		"a filter can't be compared":  {begin + "synced 9 selective=filter\n", "", []verify.Listed{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := verify.New(verify.Config{Whole: func() bool { return true }})
			feed(c, stream(t, test.stream))
			comparison := c.Compare()
			for _, target := range comparison.Targets() {
				for _, l := range test.cluster {
					comparison.Object(&target, l)
				}
				comparison.End(&target, "20")
			}
			feed(c, stream(t, test.later))
			comparison.Pending()
			r := c.Report()
			got := ""
			for _, f := range r.Found {
				got += string(f.Kind) + " " + f.Object
			}
			if got != test.want {
				t.Errorf("found %q, want %q", got, test.want)
			}
		})
	}
}
