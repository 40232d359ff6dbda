package ask

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/history/audit"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/metric"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Answers name the users that an audit log has, and are asked for by them.
func TestActors(t *testing.T) {
	t.Parallel()
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	defer db.Close()
	begin := time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC)
	var events []*event.Event
	var log strings.Builder
	previous := ""
	for i, user := range []string{"ann", "bob", "", "system:controller", "bob"} {
		at, version := begin.Add(time.Duration(i)*25*time.Minute), fmt.Sprint(100+i)
		op, claim := event.Updated, "U"+previous
		if previous == "" {
			op, claim = event.Added, "Cu1"
		}
		events = append(events, &event.Event{
			ID: "u1/" + version, Source: "/clusters/prod", Type: "dev.kubebridge.resource." + string(op), Op: op, Time: at, Informer: "all",
			Sequence: fmt.Sprintf("00000000.%020s", version),
			ObjectAttributes: event.ObjectAttributes{
				Resource: "deployments", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "u1", ResourceVersion: version, Previous: previous,
			},
			OriginAttributes: event.OriginAttributes{TimeSource: event.TimeManagedFields},
			Data:             fmt.Appendf(nil, `{"kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":%d}}`, i),
		})
		previous = version
		if user == "" { // nothing of this one is in the log
			continue
		}
		text, err := json.Marshal(map[string]any{
			"kind": "Event", "stage": "ResponseComplete", "auditID": version, "verb": "patch", "user": map[string]any{"username": user},
			"objectRef": map[string]any{"resource": "deployments", "namespace": "shop", "name": "web"}, "responseStatus": map[string]any{"code": 200},
			"requestReceivedTimestamp": at.Add(-time.Second), "stageTimestamp": at,
			"annotations": map[string]string{audit.PolicyName + "/uid": "u1", audit.PolicyName + "/a0": claim},
		})
		testkit.OK(t, err)
		log.Write(append(text, '\n'))
	}
	_, err = db.Writer.Append(t.Context(), events)
	testkit.OK(t, err)
	h := new(Set)
	defer h.Serve(db.Questions, Place{})()
	if text, code := askText(t, h, "timeline", "namespace=shop&since=2026-03-01T12:00:00Z&actor=bob"); code != http.StatusBadRequest || !strings.Contains(text, "no audit log") {
		t.Errorf("%d %s", code, text)
	}
	recordLog(t, db, log.String())

	users := func(question, query string) (users []string, unattributed int) {
		t.Helper()
		text, code := askText(t, h, question, "namespace=shop&since=2026-03-01T12:00:00Z"+query)
		if code != http.StatusOK {
			t.Fatal(text)
		}
		type version struct {
			Actor struct{ User, Unknown string }
		}
		var answer struct {
			Changes, Versions []version
			Unattributed      int
		}
		testkit.OK(t, json.Unmarshal([]byte(text), &answer))
		for _, v := range append(answer.Changes, answer.Versions...) {
			if (v.Actor.User == "") == (v.Actor.Unknown == "") {
				t.Errorf("%+v", v)
			}
			users = append(users, v.Actor.User)
		}
		return users, answer.Unattributed
	}
	all := []string{"ann", "bob", "", "system:controller", "bob"}
	for query, want := range map[string][]string{
		"": all, "&actor=bob": {"bob", "bob"}, "&actor=b*b,system:*": {"bob", "system:controller", "bob"}, "&actor=carl": nil,
		"&notActor=system:*,ann": {"bob", "", "bob"}, "&actor=*&notActor=*o*": {"ann"},
		"&order=newest": {"bob", "system:controller", "", "bob", "ann"},
	} {
		got, unattributed := users("timeline", query)
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", query, got, want)
		}
		if isAsked := strings.Contains(query, "actor="); (unattributed == 1) != isAsked {
			t.Errorf("%q: %d are not attributed", query, unattributed)
		}
	}
	if got, _ := users("versions", "&object=deploy/web"); !slices.Equal(got, all) {
		t.Errorf("%q", got)
	}
	for _, question := range []string{"object", "diff"} {
		if text, _ := askText(t, h, question, "namespace=shop&object=deploy/web"); !strings.Contains(text, `"user":"bob"`) {
			t.Error(text)
		}
	}

	// What came meanwhile is read again.
	actors := NewActors(db.Questions)
	whoMadeLast := func() *query.ActorReport {
		var last *query.Version
		object := &query.Object{Unit: db.Questions.Resources.Units()[0], Namespace: "shop", Name: "web"}
		for v, err := range db.Questions.Objects.Versions(object, time.Time{}, time.Time{}) {
			testkit.OK(t, err)
			last = v
		}
		actor, err := actors.of(last)
		testkit.OK(t, err)
		return actor
	}
	if got := whoMadeLast(); got.User != "bob" {
		t.Errorf("%+v", got)
	}
	late := *events[4]
	late.ID, late.Sequence, late.ResourceVersion, late.Previous = "u1/200", "00000000.00000000000000000200", "200", "104"
	late.Time = late.Time.Add(time.Minute)
	_, err = db.Writer.Append(t.Context(), []*event.Event{&late})
	testkit.OK(t, err)
	if got := whoMadeLast(); got.User != "" || strings.Contains(got.Unknown, "meanwhile") {
		t.Errorf("%+v", got)
	}
}

// recordLog records an audit log in a history.
func recordLog(t *testing.T, db *history.DB, text string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit.log")
	testkit.OK(t, os.WriteFile(path, []byte(text), 0o600))
	registry := prometheus.NewPedanticRegistry()
	ctx, cancel := context.WithCancel(t.Context())
	var recording sync.WaitGroup
	recording.Go(func() {
		(&audit.Recorder{
			Config: audit.Config{Files: []string{path}}, Cluster: "prod", Store: db.Requests,
			Metrics: audit.NewMetrics(metric.With(registry)), Log: slog.New(slog.DiscardHandler),
		}).Run(ctx)
	})
	testkit.Eventually(t, "the log is read", func() bool { return testkit.Metrics(t, registry)["bridge_audit_read_timestamp_seconds"] > 0 })
	cancel()
	recording.Wait()
}

// A history that was read from a stream has the users that the stream has, and keeps them as long
// as the versions.
func TestActorsOfStream(t *testing.T) {
	t.Parallel()
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	defer db.Close()
	begin := time.Date(2026, 3, 1, 13, 0, 0, 5, time.UTC)
	var events []*event.Event
	for i, of := range []struct {
		op    event.Op
		actor string
	}{{event.Added, `"user":"ann","impersonator":"root","grade":"exact"`}, {event.Updated, ""}, {event.Deleted, `"unknown":"a hole"`}} {
		version := fmt.Sprint(100 + i)
		e := &event.Event{
			ID: "u1/" + version, Source: "/clusters/prod", Type: "dev.kubebridge.resource." + string(of.op), Op: of.op,
			Time: begin.Add(time.Duration(i) * time.Hour), Informer: "all", Sequence: fmt.Sprintf("00000000.%020s", version),
			ObjectAttributes: event.ObjectAttributes{
				APIVersion: "apps/v1", Resource: "deployments", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "u1", ResourceVersion: version,
			},
			Routing: event.Routing{Group: "apps"},
			Data:    fmt.Appendf(nil, `{"kind":"Deployment","metadata":{"name":"web"},"spec":{"replicas":%d}}`, i),
		}
		if of.op == event.Deleted {
			e.Sequence += ".deleted"
		}
		events = append(events, e)
		about := *e
		about.ID, about.Type, about.Op = e.ID+event.AttributedSuffix, event.TypeAttributed, event.Attributed
		if about.Data = []byte(`{"change":"` + e.ID + `",` + of.actor + "}"); of.actor == "" {
			about.Data = []byte(`{"user":3`) // as somebody else may write it
		}
		events = append(events, &about)
	}
	stored, err := db.Writer.Append(t.Context(), events)
	testkit.OK(t, err)
	if stored.Versions != 3 || stored.Notices != 0 {
		t.Errorf("%+v", stored)
	}
	users := func() (users []string) {
		actors := NewActors(db.Questions)
		isRecorded, err := actors.IsRecorded("prod")
		testkit.OK(t, err)
		object := &query.Object{Unit: db.Questions.Resources.Units()[0], Namespace: "shop", Name: "web"}
		for v, err := range db.Questions.Objects.Versions(object, time.Time{}, time.Time{}) {
			testkit.OK(t, err)
			var r query.VersionReport
			testkit.OK(t, actors.AddTo(&r, v))
			if (r.Actor != nil) != isRecorded {
				t.Error(r.Actor, isRecorded)
			}
			users = append(users, r.Actor.String())
		}
		return users
	}
	want := []string{"ann (impersonated by root)", "(the stream does not say it)", "(a hole)"}
	if got := users(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	testkit.OK(t, db.Maintenance.Retain(t.Context(), history.Retention{Age: time.Hour}, begin.Add(150*time.Minute)))
	if got := users(); !slices.Equal(got, want[1:]) {
		t.Errorf("after retention: %q", got)
	}
}
