package ask

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/testkit"
)

// askText asks, and gives the answer as JSON.
func askText(t *testing.T, h *Set, question, query string) (string, int) {
	t.Helper()
	q, err := url.ParseQuery(query)
	testkit.OK(t, err)
	answer, err := h.Ask(t.Context(), question, q)
	if err != nil {
		var e *Error
		if !errors.As(err, &e) {
			t.Fatalf("%s?%s: %v", question, query, err)
		}
		return err.Error(), e.Code
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	lines, ok := answer.(iter.Seq2[any, error])
	if !ok {
		testkit.OK(t, encoder.Encode(answer))
		return text.String(), http.StatusOK
	}
	for line, err := range lines {
		testkit.OK(t, err)
		testkit.OK(t, encoder.Encode(line))
	}
	return text.String(), http.StatusOK
}

// askedHistory has a Deployment of three versions, a Pod that is gone, and a gap.
func askedHistory(t *testing.T) *history.DB {
	t.Helper()
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	at := time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC)
	object := func(kind, resource, group, name string, op event.Op, version, previous, data string, minute int) *event.Event {
		sequence := "00000000.00000000000000000" + version
		if op == event.Deleted {
			sequence += ".deleted"
		}
		return &event.Event{
			ID: name + "/" + version, Source: "/clusters/prod", Type: "dev.kubebridge.resource." + string(op), Op: op,
			Time: at.Add(time.Duration(minute) * time.Minute), Sequence: sequence, Informer: "all", ObjectAttributes: event.ObjectAttributes{
				Resource: resource, Kind: kind, Namespace: "shop", Name: name, UID: name,
				ResourceVersion: version, Previous: previous,
			}, Routing: event.Routing{Group: group},
			OriginAttributes: event.OriginAttributes{Manager: "kubectl"},
			Data:             []byte(data),
		}
	}
	_, err = db.Writer.Append(t.Context(), []*event.Event{
		object("Deployment", "deployments", "apps", "web", event.Added, "100", "",
			`{"kind":"Deployment","metadata":{"name":"web","labels":{"app":"web"}},"spec":{"replicas":1}}`, 0),
		object("Deployment", "deployments", "apps", "web", event.Updated, "110", "100",
			`{"kind":"Deployment","metadata":{"name":"web","labels":{"app":"web"}},"spec":{"replicas":3}}`, 5),
		object("Deployment", "deployments", "apps", "web", event.Updated, "120", "110",
			`{"kind":"Deployment","metadata":{"name":"web","labels":{"app":"web"}},"spec":{"replicas":5}}`, 10),
		object("Pod", "pods", "", "web-0", event.Added, "105", "", `{"kind":"Pod","metadata":{"name":"web-0"}}`, 3),
		object("Pod", "pods", "", "web-0", event.Deleted, "115", "105", `{"kind":"Pod","metadata":{"name":"web-0"}}`, 8),
		{
			ID: "all/pods/gap", Source: "/clusters/prod", Type: "dev.kubebridge.informer.gap", Op: event.Gap, Informer: "all", ObjectAttributes: event.ObjectAttributes{
				Resource: "pods", Kind: "Pod", ResourceVersion: "112",
			},
			Time: at.Add(6 * time.Minute), Data: []byte(`{"reason":"expired","from":"106","to":"112"}`),
		},
	})
	testkit.OK(t, err)
	return db
}

func TestHistories(t *testing.T) {
	db := askedHistory(t)
	h := new(Set)
	end := h.Serve(db.Questions, Place{})
	const web = "object=deploy/web&namespace=shop"
	for _, test := range []struct {
		name, question, query string
		code                  int
		want                  []string
	}{
		{"versions have what changed", "versions", web, 200, []string{
			`"resource":"deployments.apps"`, `"operation":"added","resourceVersion":"100"`,
			`{"field":"spec.replicas","old":1,"new":3}`, `{"field":"spec.replicas","old":3,"new":5}`, `"incomplete":[]`,
		}},
		{"the newest come first when they are bounded", "versions", web + "&limit=1", 200, []string{
			`"earlier":2`, `{"field":"spec.replicas","old":3,"new":5}`,
		}},
		{"versions of a time have the change of the first", "versions", web + "&since=2026-03-01T13:04:00Z&until=2026-03-01T13:06:00Z", 200, []string{
			`"versions":[{"time":"2026-03-01T13:05:00Z"`, `{"field":"spec.replicas","old":1,"new":3}]`,
		}},
		{"holes are named", "versions", "object=po/web-0&namespace=shop", 200, []string{`"what":"gap (expired), versions 106 to 112"`}},
		{"the object as it was", "object", web + "&at=2026-03-01T13:06:00Z", 200, []string{`"resourceVersion":"110"`, `"replicas":3`}},
		{"the last version", "object", "object=po/web-0&namespace=shop", 200, []string{`"operation":"deleted"`}},
		{"one that was gone", "object", "object=po/web-0&namespace=shop&at=2026-03-01T13:09:00Z", 404, []string{"did not exist at", "it was deleted at"}},
		{"one that was not there yet", "object", web + "&at=50", 404, []string{"did not exist", "it was created at"}},
		{"one that nobody knows", "object", "object=deploy/other&namespace=shop", 404, []string{"has never seen deployments other"}},
		{"an unknown resource", "object", "object=deplyo/web", 404, []string{`did you mean "deploy"?`}},
		{"no object", "versions", "object=web", 400, []string{"want object=KIND/NAME"}},
		{"no time", "object", web + "&at=noon", 400, []string{`at: "noon" is no time`}},
		{"a limit that is none", "versions", web + "&limit=0", 400, []string{"want 1 to 5000"}},
		{"a diff", "diff", web + "&from=100&to=120", 200, []string{`"changed":[{"field":"spec.replicas","old":1,"new":5}]`, `"from":{"time":`}},
		{"a diff to the version before", "diff", web, 200, []string{`"changed":[{"field":"spec.replicas","old":3,"new":5}]`}},
		{"against nothing before the first", "diff", web + "&to=100", 200, []string{`"changed":[{"field":"","new":{"kind":"Deployment"`, `"to":{"time":`}},
		{"against nothing after the end", "diff", "object=po/web-0&namespace=shop&to=115", 200, []string{`"changed":[{"field":"","old":{"kind":"Pod"`, `"operation":"deleted"`}},
		{"losses", "losses", "since=2026-03-01T12:00:00Z", 200, []string{`"reason":"expired"`, `"until":"2026-03-01T13:06:00Z","resources":1`}},
		{"two times", "compare", "namespace=shop&a=2026-03-01T13:00:00Z&b=2026-03-01T15:00:00Z", 200, []string{`"operation":"updated"`, `"field":"spec.replicas"`}},
		{"two versions", "compare", "a=100", 400, []string{"a and b are times"}},
		{"a timeline", "timeline", "namespace=shop&since=2026-03-01T12:00:00Z", 200, []string{
			`"name":"web-0"`, `"operation":"deleted"`, `"old":3,"new":5`, `"more":false`, `gap (expired)`,
		}},
		{"a timeline that is cut", "timeline", "since=2026-03-01T12:00:00Z&limit=2&kind=deploy", 200, []string{`"more":true`, `"incomplete":[]`}},
		{"a timeline by version", "timeline", "since=100", 400, []string{"are times"}},
		{"a search", "search", "q=we", 200, []string{`"name":"web"`, `"name":"web-0"`, `"more":false`}},
		{"a search of a kind", "search", "q=po/we&limit=1", 200, []string{`{"objects":[{"cluster":"prod","resource":"pods","namespace":"shop","name":"web-0"}],"more":false}`}},
		{"resources", "resources", "", 200, []string{`"kept":true`, `"resources":["deployments.apps","pods"]`}},
		{"a state", "state", "namespace=shop&at=2026-03-01T13:07:00Z", 200, []string{
			"{\"at\":", `"unlisted":["deployments.apps","pods"]}` + "\n{", `"name":"web","time":"2026-03-01T13:05:00Z"`, `"name":"web-0"`, "gap (expired)",
		}},
		{"a state with labels", "state", "at=120&selector=app%3Dother&kind=deploy", 200, []string{`"unlisted":["deployments.apps"]}` + "\n"}},
		{"a selector that is none", "state", "selector=%3D", 400, []string{"selector:"}},
		{"a state of the future", "state", "at=200", 400, []string{"resourceVersion 200 is not known: the history of cluster prod reaches to 120"}},
		{"an object of the future", "object", web + "&at=200", 400, []string{"reaches to 120"}},
		{"another question", "who", "", 404, []string{"there are versions, object"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			text, code := askText(t, h, test.question, test.query)
			if code != test.code {
				t.Errorf("%d, want %d: %s", code, test.code, text)
			}
			for _, want := range test.want {
				if !strings.Contains(text, want) {
					t.Errorf("no %s in\n%s", want, text)
				}
			}
		})
	}
	t.Run("a history that closes waits for who asks, and breaks it off", func(t *testing.T) {
		ending := h.open[0].ending
		answer, err := h.Ask(t.Context(), "state", url.Values{})
		testkit.OK(t, err)
		lines, _ := answer.(iter.Seq2[any, error])
		ended, n := make(chan struct{}), 0
		for _, err := range lines {
			if n++; n == 1 {
				go func() { end(); testkit.OK(t, db.Close()); close(ended) }()
				<-ending
				continue
			}
			if err == nil || n > 2 {
				t.Errorf("line %d: %v", n, err)
			}
		}
		<-ended
		if text, code := askText(t, h, "versions", web); code != http.StatusNotFound || !strings.Contains(text, "keeps no history") {
			t.Errorf("%d %s", code, text)
		}
		if text, code := askText(t, h, "resources", ""); code != http.StatusOK || !strings.Contains(text, `"kept":false`) {
			t.Errorf("%d %s", code, text)
		}
	})
}

// Questions do not take the processor from the sinks.
func TestQuestionsAtATime(t *testing.T) {
	db := askedHistory(t)
	defer db.Close()
	h := new(Set)
	defer h.Serve(db.Questions, Place{})()
	t.Run("one more than may be waits", func(t *testing.T) {
		for range maxQuestions {
			testkit.OK(t, h.open[0].slot(t.Context()))
		}
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		for _, question := range []string{"resources", "state"} {
			_, err := h.Ask(gone, question, url.Values{})
			var e *Error
			if !errors.As(err, &e) || e.Code != http.StatusServiceUnavailable {
				t.Errorf("%s: %v", question, err)
			}
		}
		for range maxQuestions {
			h.open[0].free()
		}
		if text, code := askText(t, h, "resources", ""); code != http.StatusOK {
			t.Errorf("%d %s", code, text)
		}
	})
	t.Run("readers of a state that are slow keep nobody from asking", func(t *testing.T) {
		var read func(more int)
		read = func(more int) {
			answer, err := h.Ask(t.Context(), "state", url.Values{})
			testkit.OK(t, err)
			lines, _ := answer.(iter.Seq2[any, error])
			n := 0
			for _, err := range lines {
				testkit.OK(t, err)
				if n++; more > 0 && n == 2 {
					read(more - 1) // while this one waits
				}
			}
			if n < 2 {
				t.Errorf("%d lines", n)
			}
		}
		read(maxQuestions)
		if n := len(h.open[0].slots); n > 0 {
			t.Errorf("%d slots are taken", n)
		}
	})
}

func TestNewest(t *testing.T) {
	for name, tt := range map[string]struct {
		count, bytes int
		sizes        []int // of the versions, whose names are their places
		want         string
	}{
		"all":                  {count: 3, bytes: 10, sizes: []int{1, 2, 3}, want: "012, 0 earlier"},
		"by their count":       {count: 2, bytes: 10, sizes: []int{1, 2, 3}, want: "12 after 0, 1 earlier"},
		"by their bytes":       {count: 9, bytes: 5, sizes: []int{1, 2, 3}, want: "12 after 0, 1 earlier"},
		"one that is too big":  {count: 9, bytes: 5, sizes: []int{1, 2, 9}, want: "2 after 1, 2 earlier"},
		"small ones behind it": {count: 9, bytes: 5, sizes: []int{9, 1, 2}, want: "12 after 0, 1 earlier"},
		"none":                 {count: 9, bytes: 5, want: ", 0 earlier"},
	} {
		t.Run(name, func(t *testing.T) {
			n := newest{count: tt.count, bytes: tt.bytes}
			for i, size := range tt.sizes {
				n.add(&query.Version{Event: event.Event{
					ObjectAttributes: event.ObjectAttributes{Name: strconv.Itoa(i)}, Data: make([]byte, size),
				}})
			}
			got := ""
			for _, v := range n.versions {
				got += v.Event.Name
			}
			if n.before != nil {
				got += " after " + n.before.Event.Name
			}
			if got += fmt.Sprintf(", %d earlier", n.earlier); got != tt.want {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// A history of two clusters is asked about the one of the bridge that writes it, and the answer
// says which one it is.
func TestTwoClusters(t *testing.T) {
	db := askedHistory(t)
	defer db.Close()
	_, err := db.Writer.Append(t.Context(), []*event.Event{{
		ID: "other/7", Source: "/clusters/staging", Type: "dev.kubebridge.resource.added", Op: event.Added,
		Time: time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC), Sequence: "00000000.00000000000000000007", Informer: "all",
		ObjectAttributes: event.ObjectAttributes{Resource: "pods", Kind: "Pod", Namespace: "lab", Name: "other", UID: "other", ResourceVersion: "7"},
		Data:             []byte(`{"kind":"Pod","metadata":{"name":"other"}}`),
	}})
	testkit.OK(t, err)
	const since = "since=2026-03-01T12:00:00Z"
	for _, test := range []struct{ own, question, query, want, not string }{
		{"staging", "timeline", since, `"name":"other"`, `"name":"web"`},
		{"staging", "timeline", since, `{"cluster":"staging",`, ""},
		{"staging", "lanes", since, `{"cluster":"staging",`, `"name":"web"`},
		{"staging", "compare", "a=2026-03-01T12:00:00Z", `{"cluster":"staging",`, `"name":"web"`},
		{"staging", "losses", since, `{"cluster":"staging",`, "expired"},
		{"staging", "coverage", since, `{"cluster":"staging",`, "expired"},
		{"staging", "state", "", `"cluster":"staging"`, `"name":"web"`},
		{"staging", "search", "q=", `"name":"other"`, `"name":"web"`},
		{"staging", "object", "object=po/other&namespace=lab", `"cluster":"staging"`, ""},
		{"staging", "versions", "object=po/web-0&namespace=shop", `of cluster staging (cluster=: one of prod, staging)`, ""},
		{"staging", "versions", "object=po/web-0&namespace=shop&cluster=prod", `"cluster":"prod"`, ""},
		{"staging", "timeline", since + "&cluster=prod", `{"cluster":"prod",`, `"name":"other"`},
		{"staging", "timeline", since + "&cluster=none", `the history has no cluster "none": it has prod, staging`, ""},
		{"staging", "resources", "", `"clusters":["prod","staging"],"cluster":"staging","resources":["pods"],"namespaces":["lab"],"dir":"kept"`, ""},
		{"elsewhere", "timeline", since, "the history has several clusters, give one with cluster=: prod, staging", ""},
		{"elsewhere", "resources", "", `"clusters":["prod","staging"],"resources":["deployments.apps","pods"]`, ""},
	} {
		t.Run(test.own+" "+test.question+" "+test.query, func(t *testing.T) {
			h := new(Set)
			defer h.Serve(db.Questions, Place{Cluster: test.own, Dir: "kept"})()
			text, _ := askText(t, h, test.question, test.query)
			if !strings.Contains(text, test.want) || test.not != "" && strings.Contains(text, test.not) {
				t.Errorf("want %s and not %s in\n%s", test.want, test.not, text)
			}
		})
	}
}

// Each answer says where the history ended, where that is before the time that was asked for.
func TestHistoryEnds(t *testing.T) {
	db := askedHistory(t)
	defer db.Close()
	h := new(Set)
	defer h.Serve(db.Questions, Place{})()
	const web = "object=deploy/web&namespace=shop"
	const ends = `"ends":"2026-03-01T13:10:00Z"`
	for _, question := range []string{
		"versions?" + web, "object?" + web + "&at=2026-03-01T13:20:00Z", "diff?" + web, "timeline?since=2026-03-01T12:00:00Z",
		"lanes?since=2026-03-01T12:00:00Z", "compare?a=2026-03-01T12:00:00Z", "state?at=2026-03-01T13:20:00Z", "losses?",
	} {
		name, query, _ := strings.Cut(question, "?")
		if text, _ := askText(t, h, name, query); !strings.Contains(text, ends) {
			t.Errorf("%s: no %s in\n%s", question, ends, text)
		}
	}
	for _, question := range []string{
		"versions?" + web + "&until=2026-03-01T13:09:00Z", "object?" + web + "&at=2026-03-01T13:09:00Z", "object?" + web + "&at=110",
		"timeline?since=2026-03-01T12:00:00Z&until=2026-03-01T13:09:00Z", "lanes?since=2026-03-01T12:00:00Z&until=2026-03-01T13:09:00Z",
		"compare?a=2026-03-01T12:00:00Z&b=2026-03-01T13:09:00Z", "state?at=2026-03-01T13:09:00Z",
	} {
		name, query, _ := strings.Cut(question, "?")
		if text, _ := askText(t, h, name, query); strings.Contains(text, `"ends"`) {
			t.Errorf("%s: it has not ended before:\n%s", question, text)
		}
	}
	t.Run("one that is written now has not ended, whatever the page says that now is", func(t *testing.T) {
		_, err := db.Writer.Append(t.Context(), []*event.Event{{
			ID: "late/130", Source: "/clusters/prod", Type: "dev.kubebridge.resource.added", Op: event.Added,
			Time: time.Now().Add(-2 * time.Minute), Sequence: "00000000.00000000000000000130", Informer: "all",
			ObjectAttributes: event.ObjectAttributes{Resource: "pods", Kind: "Pod", Namespace: "shop", Name: "late", UID: "late", ResourceVersion: "130"},
			Data:             []byte(`{"kind":"Pod","metadata":{"name":"late"}}`),
		}})
		testkit.OK(t, err)
		for _, until := range []string{"", "&until=" + time.Now().UTC().Format(time.RFC3339)} {
			if text, _ := askText(t, h, "timeline", "since=2026-03-01T12:00:00Z"+until); strings.Contains(text, `"ends"`) {
				t.Errorf("until %s:\n%s", until, text)
			}
		}
	})
}
