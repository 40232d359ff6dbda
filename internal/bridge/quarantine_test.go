package bridge_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// quarantined is what a quarantined event says.
type quarantined struct {
	Reason, SHA256, Fingerprint, Message, Key string
	Size                                      int
	Partial                                   bool
	Raw                                       []byte
}

// quarantineOf are the quarantined events that a broker has, once for each id.
func quarantineOf(t *testing.T, b *testkit.Broker) (events []quarantined, ids []string) {
	t.Helper()
	for _, rec := range b.Records() {
		if rec.Type != "dev.kubebridge.informer.quarantined" || slices.Contains(ids, rec.ID) {
			continue
		}
		var q quarantined
		testkit.OK(t, json.Unmarshal(rec.Data, &q))
		events, ids = append(events, q), append(ids, rec.ID)
	}
	return events, ids
}

const poison = `{"poison":true,"metadata":{"namespace":"shop"}}`

// Bytes that can't be understood are reported, and reconciled by a relist.
func TestQuarantineAndRelist(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		r.start()
		r.Create("shop/a", nil)
		r.settle()
		r.Streams.Raw(`{"type":"MODIFIED","object":` + poison + `}`)
		r.Create("shop/b", nil) // behind what can't be read: only a list can report it
		r.settle()
		r.settle()
		expect(t, b, "synced", "added a", "quarantined", "gap inferred", "added b inferred", "synced")
		events, ids := quarantineOf(t, b)
		if len(events) != 1 || string(events[0].Raw) != poison || events[0].Reason != "incomplete" || events[0].Size != len(poison) {
			t.Errorf("%+v", events)
		}

		// Not acknowledged, not committed: after a crash the same is reported under the same id.
		after := r.fs.CrashClone(crashed)
		b.Set(testkit.Unreachable)
		r.Streams.Raw(`{"type":"ADDED","object":{"kind":"Table"}}`)
		r.settle()
		_, _ = r.end()
		b.Set(testkit.Healthy)
		r.fs = after
		r.start()
		r.Streams.Raw(`{"type":"MODIFIED","object":` + poison + `}`)
		r.settle()
		_, err := r.end()
		testkit.OK(t, err)
		var reported []string
		for _, rec := range b.Records() {
			if rec.Op == "quarantined" && rec.Acked {
				reported = append(reported, rec.ID)
			}
		}
		if len(reported) != 2 || reported[0] != reported[1] || reported[0] != ids[0] {
			t.Errorf("reported as %q", reported)
		}
	})
}

// Quarantined bytes beyond the limit are cut off.
func TestQuarantineCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		r.cfg.Units[0].Reflector.MaxFrame = 512 << 10
		r.start()
		r.Streams.Raw(`{"type":"ADDED","object":{"metadata":{},"spec":"` + strings.Repeat("x", 600<<10) + `"}}`)
		r.settle()
		_, err := r.end()
		testkit.OK(t, err)
		events, _ := quarantineOf(t, b)
		if len(events) != 1 || events[0].Reason != "too-large" || !events[0].Partial || len(events[0].Raw) != resource.MaxUnreadable || events[0].Size != 512<<10 || len(events[0].SHA256) != 64 {
			t.Errorf("%d events", len(events))
		}
	})
}

// The bytes of a Secret that can't be understood are not sent.
func TestQuarantinedSecretBytes(t *testing.T) {
	secrets := resource.Type{Version: "v1", Resource: "secrets", Kind: "Secret", Namespaced: true}
	const hidden = "hunter2"
	coded := base64.StdEncoding.EncodeToString([]byte(hidden))
	for name, data := range map[string]string{
		"of a wrong type": fmt.Sprintf("%q", hidden), "as bad JSON": `{"p":` + hidden + `}`, "in base64": `["` + coded + `"]`, "without a name": `{"p":"` + coded + `"}},{`,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				redactor, err := resource.NewRedactor([]byte("0123456789abcdef"))
				testkit.OK(t, err)
				b := calmBroker(t, "sink")
				r := newRig(t)
				r.Server = testkit.NewServer(t, secrets)
				r.cfg.Client.HTTP, r.cfg.Client.Base = r.HTTP(), r.URL()
				r.cfg.Units[0].Type, r.cfg.Units[0].Parse.Redactor = secrets, redactor
				r.addSink(b.Name, b.Connect(0))
				r.start()
				r.Streams.Raw(`{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"98"},"data":` + data + `}}`)
				r.settle()
				status := fmt.Sprintf("%+v %v", r.Status(), r.Ready())
				_, err = r.end()
				testkit.OK(t, err)
				events, _ := quarantineOf(t, b)
				if len(events) != 1 || events[0].Raw != nil || events[0].SHA256 != "" || events[0].Message != "" || len(events[0].Fingerprint) != 64 || events[0].Size == 0 {
					t.Errorf("%+v", events)
				}
				all := status + r.log.String()
				for _, rec := range b.Records() {
					all += string(rec.Data) + rec.ID
				}
				for _, path := range files(t, r, "state") {
					all += path
				}
				for _, word := range []string{hidden, coded, "hunter"} {
					if strings.Contains(all, word) {
						t.Errorf("%q got out", word)
					}
				}
			})
		})
	}
}

// files are the contents of a directory of the rig's disk.
func files(t *testing.T, r *rig, dir string) (contents []string) {
	t.Helper()
	names, err := r.fs.List(dir)
	testkit.OK(t, err)
	for _, name := range names {
		f, err := r.fs.Open(r.fs.PathJoin(dir, name))
		testkit.OK(t, err)
		var content bytes.Buffer
		_, _ = content.ReadFrom(f) // of a directory it fails
		contents = append(contents, content.String())
		testkit.OK(t, f.Close())
	}
	return contents
}

// Bytes that stop every list are reported once, and stop no other resource.
func TestQuarantinedListBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t)
		other := testkit.NewServer(t, widgets)
		r.cfg.Client.HTTP = &http.Client{Transport: byPath{other.HTTP().Transport, r.HTTP().Transport}}
		r.cfg.Units = append(r.cfg.Units, informer.Config{Informer: "all", Type: widgets})
		r.addSink(b.Name, b.Connect(0))
		r.SetFeatures(testkit.Features{NoWatchList: true})
		r.Faults.Answer(testkit.Lists, -1, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"98"},"items":[{"metadata":nobody}]}`)
		})
		r.start()
		time.Sleep(time.Hour)
		other.Create("shop/w", nil)
		r.settle()
		if lists := len(r.Requests(testkit.Lists)); lists < 30 || lists > 300 {
			t.Errorf("%d lists in an hour", lists)
		}
		if reasons := r.Ready(); len(reasons) != 1 || reasons[0].Component != "informer all/pods" || !strings.Contains(reasons[0].Message, "unreadable") {
			t.Errorf("ready: %v", reasons)
		}
		_, err := r.end()
		testkit.OK(t, err)
		expect(t, b, "quarantined", "synced", "added w")
	})
}

// tooDeep gives an object more levels than are followed.
func tooDeep(obj map[string]any) {
	obj["spec"] = json.RawMessage(strings.Repeat("[", resource.MaxDepth) + strings.Repeat("]", resource.MaxDepth))
}

func TestDepth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := calmBroker(t, "sink")
		r := newRig(t, b)
		r.Create("shop/a", nil)
		r.Create("shop/b", nil)
		r.start()
		r.settle()
		expect(t, b, "added a", "added b", "synced")

		r.Create("shop/deep", tooDeep)
		r.Create("shop/deep2", tooDeep)
		r.Update("shop/b", tooDeep)
		r.Create("shop/c", nil)
		r.settle()
		expect(t, b, "quarantined", "quarantined", "quarantined", "added c")

		r.Delete("shop/deep")
		r.Delete("shop/b")
		r.Create("shop/d", nil)
		r.settle()
		expect(t, b, "deleted b", "added d") // with what was last known of it
		for _, record := range b.Records() {
			if record.Op == "deleted" && (!strings.Contains(string(record.Data), `"name":"b"`) || strings.Contains(string(record.Data), "[[[")) {
				t.Errorf("%s", record.Data)
			}
		}

		_, err := r.end()
		testkit.OK(t, err)
		r.Update("shop/c", tooDeep)
		at := r.Update("shop/d", nil)
		r.Expire()
		r.start()
		r.settle()
		expect(t, b, "gap inferred", "quarantined", "quarantined", "updated d inferred", "synced")
		if _, ids := quarantineOf(t, b); len(ids) != 4 { // one is reported again, under the same id
			t.Errorf("%q", ids)
		}

		r.Skip(100)
		r.Create("shop/e", nil)
		r.settle()
		expect(t, b, "added e")
		r.Rewind(at)
		time.Sleep(time.Minute)
		r.settle()
		expect(t, b, "gap inferred", "deleted c inferred", "deleted e inferred", "synced")
		r.Update("shop/c", func(obj map[string]any) { delete(obj, "spec") })
		r.settle()
		expect(t, b, "added c")
		_, err = r.end()
		testkit.OK(t, err)
	})
}

// An object that can't be understood is not deleted, and holds up no other.
func TestQuarantinedObject(t *testing.T) {
	garble := func(obj map[string]any) { obj["metadata"].(map[string]any)["generation"] = "poison" }
	tests := map[string]struct {
		garble   func(map[string]any)
		key      string
		reported []string // of the gap in which b was garbled, c deleted, and d created
		later    []string // when b is well again
	}{
		"of a known key: the rest of the list counts": {
			garble, "shop/b",
			[]string{"gap inferred", "quarantined", "added d inferred", "deleted c inferred", "synced"},
			[]string{"gap inferred", "added e inferred", "synced"},
		},
		"of nobody knows which: nothing is taken for gone until a list can be understood": {
			func(obj map[string]any) {
				garble(obj)
				delete(obj["metadata"].(map[string]any), "name")
			}, "",
			[]string{"gap inferred", "quarantined", "added d inferred", "synced"},
			// a start behind such a list lists again: the gap is "interrupted"
			[]string{"gap inferred", "added e", "deleted c inferred", "synced"},
		},
	}
	for name, tt := range tests {
		for _, features := range []testkit.Features{{}, {NoWatchList: true}} {
			t.Run(fmt.Sprintf("%s %+v", name, features), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := calmBroker(t, "sink")
					r := newRig(t, b)
					r.SetFeatures(features)
					for _, key := range []resource.Key{"shop/a", "shop/b", "shop/c"} {
						r.Create(key, nil)
					}
					r.start()
					r.settle()
					_, err := r.end()
					testkit.OK(t, err)
					expect(t, b, "added a", "added b", "added c", "synced")

					r.Update("shop/b", tt.garble)
					r.Delete("shop/c")
					r.Create("shop/d", nil)
					r.Expire()
					r.start()
					r.settle()
					if reasons := r.Ready(); len(reasons) > 0 {
						t.Errorf("ready: %v", reasons)
					}
					expect(t, b, tt.reported...)
					if events, _ := quarantineOf(t, b); len(events) != 1 || events[0].Key != tt.key {
						t.Errorf("%+v", events)
					}

					r.Update("shop/b", func(obj map[string]any) {
						m := obj["metadata"].(map[string]any)
						delete(m, "generation")
						m["name"] = "b"
					})
					r.settle()
					expect(t, b, "updated b")

					_, err = r.end()
					testkit.OK(t, err)
					r.Create("shop/e", nil)
					r.Expire()
					r.start()
					r.settle()
					_, err = r.end()
					testkit.OK(t, err)
					expect(t, b, tt.later...)
				})
			})
		}
	}
}
