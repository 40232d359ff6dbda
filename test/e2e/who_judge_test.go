package e2e_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/history/audit"
	"github.com/kubebridge/bridge/test/e2e/read"
)

// wholeLog writes the logs of all API servers into one file.
func (w *whoRun) wholeLog(logs ...string) (path string) {
	w.t.Helper()
	var all []byte
	for _, log := range logs {
		text, err := os.ReadFile(log)
		must(w.t, err)
		for line := range bytes.Lines(text) {
			if json.Valid(line) { // a killed API server may leave a part of one
				all = append(all, line...)
			}
		}
	}
	path = filepath.Join(w.dir, "whole.log")
	must(w.t, os.WriteFile(path, all, 0o600))
	return path
}

// withoutAnswers writes a log as the level Metadata has it. It says how many requests were repeated
// within the API server: each try leaves two notes of the policy, beside the uid.
func (w *whoRun) withoutAnswers(log string) (path string) {
	w.t.Helper()
	text, err := os.ReadFile(log)
	must(w.t, err)
	var out bytes.Buffer
	requests, repeated := 0, 0
	for line := range bytes.Lines(text) {
		var e map[string]json.RawMessage
		must(w.t, json.Unmarshal(line, &e))
		notes := bytes.Count(e["annotations"], []byte(`"`+audit.PolicyName+`/`))
		if notes > 0 {
			requests++
		}
		if notes > 3 {
			repeated++
		}
		delete(e, "requestObject")
		delete(e, "responseObject")
		e["level"] = json.RawMessage(`"Metadata"`)
		line, err = json.Marshal(e)
		must(w.t, err)
		out.Write(append(line, '\n'))
	}
	w.t.Logf("of %d requests that the policy saw, the API server repeated %d", requests, repeated)
	path = filepath.Join(w.dir, "metadata.log")
	must(w.t, os.WriteFile(path, out.Bytes(), 0o600))
	return path
}

// withLosses writes a log as a bad exporter makes it, which loses one of so many events.
func (w *whoRun) withLosses(log string, one int) (path string) {
	w.t.Helper()
	text, err := os.ReadFile(log)
	must(w.t, err)
	lines := slices.Collect(bytes.Lines(text))
	path = filepath.Join(w.dir, fmt.Sprintf("losses-%d.log", one))
	must(w.t, os.WriteFile(path, bytes.Join(exportBadly(lines, one), nil), 0o600))
	return path
}

// whoVersion is a version as `bridge who` and `bridge history` print it.
type whoVersion struct {
	ResourceVersion, Operation, UID string
	Initial, Inferred               bool
	Actor                           struct{ User, Grade, Unknown string }
	Changed                         []whoChange
}

type whoChange struct {
	Field string
	New   json.RawMessage
}

// judge compares who is named with whom the objects themselves name. It returns how many are wrong.
func (w *whoRun) judge(t *testing.T, args []string, share float64) (wrong int) {
	t.Helper()
	known, answered, deletes, deletesAnswered, changes, named := 0, 0, 0, 0, 0, 0 // changes: those of controllers too
	unknown := map[string]int{}
	for _, object := range w.written() {
		versions := func(command string, args ...string) (list []whoVersion) {
			out, err := w.bridge.Output(w.ctx, command, append([]string{object, "-n", w.namespace, "-o", "json"}, args...)...)
			must(t, err)
			must(t, json.Unmarshal([]byte(out), &list))
			return list
		}
		dir := w.kept()
		if args[0] == "--dir" {
			dir = args[1] // before a gap one may have versions that another has not
		}
		truth, got := versions("history", "--dir", dir), versions("who", args...)
		if len(truth) != len(got) {
			t.Fatalf("%s: %d versions, and %d with users", object, len(truth), len(got))
		}
		for i, v := range got {
			if !truth[i].Initial && !truth[i].Inferred {
				changes++
				if v.Actor.User != "" {
					named++
				}
			}
			user := w.authorOf(object, &truth[i])
			switch isDelete := strings.HasPrefix(v.Operation, "deleted"); {
			case user == "":
				if strings.HasPrefix(v.Actor.User, "user-") && v.Operation == "updated" && !w.mayBeByUser(&truth[i]) {
					t.Logf("%s: version %s is by no user, and named is %s: %v", object, v.ResourceVersion, v.Actor.User, truth[i].Changed)
					wrong++
				}
				continue
			case isDelete:
				deletes++
			case !truth[i].Initial && !truth[i].Inferred: // else several writes may have made it
				known++
			}
			switch {
			case v.Actor.User == user && strings.HasPrefix(v.Operation, "deleted"):
				deletesAnswered++
			case v.Actor.User == user:
				answered++
			case v.Actor.User != "":
				t.Logf("%s: version %s is by %s, and named is %s (%s)", object, v.ResourceVersion, user, v.Actor.User, v.Actor.Grade)
				wrong++
			default:
				unknown[v.Actor.Unknown]++
			}
		}
	}
	t.Logf("of %d creates and updates by users %d are named, of %d deletes %d, of all %d changes %d; the others: %v",
		known, answered, deletes, deletesAnswered, changes, named, unknown)
	if known == 0 || float64(answered) < share*float64(known) {
		t.Errorf("%d of %d are named", answered, known)
	}
	return wrong
}

// judgeAttributed compares the events about users with whom the objects themselves name: one for
// each change, behind it.
func (w *whoRun) judgeAttributed(t *testing.T) {
	type sent struct {
		at    int
		actor string
	}
	changes, users := map[string]int{}, map[string]sent{}
	stream := &read.JetStream{URL: w.bridge.NATS, Stream: "K8S"}
	eventually(t, "an event for each change", startTime, func() (problems []string) {
		events, err := stream.Refresh(w.ctx)
		must(t, err)
		clear(changes)
		clear(users)
		for i := range events {
			e := &events[i]
			switch id, isUser := strings.CutSuffix(e.ID(), "/actor"); {
			case !e.AboutObject() || e.Attribute("initial") != "":
			case !isUser:
				if _, isTwice := changes[id]; !isTwice {
					changes[id] = i
				}
			default:
				if _, isTwice := users[id]; isTwice {
					t.Fatalf("%s is there twice", e.ID())
				}
				users[id] = sent{i, e.Attribute("actor")}
			}
		}
		for id := range changes {
			if _, isSent := users[id]; !isSent {
				problems = append(problems, id)
			}
		}
		return problems
	})
	for id, u := range users {
		if at, isSent := changes[id]; !isSent || at > u.at {
			t.Errorf("%s: the user came as %d, the change %v as %d", id, u.at, isSent, at)
		}
	}
	known, named := 0, 0
	for _, object := range w.written() {
		out, err := w.bridge.Output(w.ctx, "history", object, "-n", w.namespace, "-o", "json", "--dir", w.kept())
		must(t, err)
		var versions []whoVersion
		must(t, json.Unmarshal([]byte(out), &versions))
		for i := range versions {
			v := &versions[i]
			id := v.UID + "/" + v.ResourceVersion
			if v.Operation == "deleted" {
				id = v.UID + "/deleted"
			}
			user := w.authorOf(object, v)
			if user == "" {
				continue
			}
			known++
			switch actor := users[id].actor; actor {
			case user:
				named++
			case "":
			default:
				t.Errorf("%s: version %s is by %s, and sent is %s", object, v.ResourceVersion, user, actor)
			}
		}
	}
	t.Logf("%d changes, %d with an author, of which %d were sent", len(changes), known, named)
	if named < known/2 {
		t.Error("most have no user")
	}
}

// authorOf is who wrote a version, as the object or the answer to the delete says; "" for none.
func (w *whoRun) authorOf(object string, v *whoVersion) string {
	if v.Operation == "deleted" {
		return w.deletedBy[v.UID]
	}
	id := v.UID + "/" + v.ResourceVersion
	author, isKnown := w.authors[id]
	if !isKnown {
		author = w.noteOf(object, v)
		w.authors[id] = author
	}
	return author
}

func (w *whoRun) noteOf(object string, v *whoVersion) string {
	isNoted := v.Operation == "added" || slices.ContainsFunc(v.Changed, func(c whoChange) bool {
		return strings.Contains(c.Field, whoNote) || c.Field == "metadata.annotations"
	})
	if !isNoted {
		return ""
	}
	for _, c := range v.Changed {
		var note string
		if strings.Contains(c.Field, whoNote) && json.Unmarshal(c.New, &note) == nil && note != "" {
			user, _, _ := strings.Cut(note, "/")
			return user
		}
	}
	_, body := (&historyRun{lab: w.lab}).ask(w.bridge, "object", url.Values{"object": {object}, "namespace": {w.namespace}, "at": {v.ResourceVersion}})
	var found struct {
		Object struct {
			Metadata struct{ Annotations map[string]string }
		}
	}
	must(w.t, json.Unmarshal(body, &found))
	user, _, _ := strings.Cut(found.Object.Metadata.Annotations[whoNote], "/")
	return user
}

// mayBeByUser reports whether a version without a note may be by a user: what users change without
// one, what a delete leaves that has to wait, and who owns fields.
func (w *whoRun) mayBeByUser(v *whoVersion) bool {
	return len(v.Changed) == 0 || slices.ContainsFunc(v.Changed, func(c whoChange) bool {
		return slices.ContainsFunc([]string{"spec.replicas", "status.collisionCount", "metadata.labels", "metadata.deletion"}, func(field string) bool {
			return strings.HasPrefix(c.Field, field)
		})
	})
}

func (w *whoRun) written() (objects []string) {
	for i := range *whoObjects {
		objects = append(objects, fmt.Sprintf("cm/c-%d", i), fmt.Sprintf("deploy/d-%d", i))
	}
	return objects
}
