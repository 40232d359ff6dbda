package e2e_test

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/klauspost/compress/s2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// secretsInformer watches Secrets; ${SECRETS} says what happens to their values.
const secretsInformer = `
informers:
  - {name: app, resources: [secrets], namespaces: ["${NS}"], secrets: "${SECRETS}"}
`

// Five hundred Secrets are sent when asked for.
func TestSentSecrets(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	api := l.client.CoreV1().Secrets(l.namespace)
	const count = 500
	create := func(i int) {
		value := make([]byte, 16+i*7)
		rand.Read(value)
		_, err := api.Create(l.ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("secret-%d", i)},
			Data:       map[string][]byte{"random": value, "text": []byte("<&>\u2028")},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Error(err)
		}
	}
	l.each(count/2, create) // half of them exist before
	collection := truth.Core("secrets", l.namespace)
	ledger := l.witness(collection)
	b := l.bridge("bridge", secretsInformer+embedded, with(map[string]string{"SECRETS": "send", "BRIDGE_ALLOW_SECRETS": "true"}))
	l.start(b)
	l.each(count/2, func(i int) { create(count/2 + i) })
	l.complete("Secrets", jetStream(b), ledger, check.Options{Informers: informerOf("app", collection)})
	enough(t, ledger, "secrets", 0, count)
	l.stop(b)
}

// The same search finds the values where they were asked for: else it would prove nothing that it
// finds none elsewhere.
func TestSecretsStayHome(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"redacted", "send"} {
		t.Run(mode, func(t *testing.T) {
			l := newLab(t, live(t))
			var values []string
			for range 2 * plantedPerSecret {
				values = append(values, secretValue())
			}
			l.createSecret("before", values[:plantedPerSecret])
			b := l.bridge("bridge", secretsInformer+embedded, with(map[string]string{"SECRETS": mode, "BRIDGE_ALLOW_SECRETS": fmt.Sprint(mode == "send")}), withLogLevel("debug"))
			l.start(b)
			l.createSecret("after", values[plantedPerSecret:])
			must(t, l.client.CoreV1().Secrets(l.namespace).Delete(l.ctx, "before", metav1.DeleteOptions{}))

			found := l.searchEverywhere(b, values)
			for _, place := range []string{"stream", "state database", "log", "status", "metrics"} {
				asked := mode == "send" && (place == "stream" || place == "state database")
				if (found[place] > 0) != asked {
					t.Errorf("%s: the values of secrets were found %d times in: %s", mode, found[place], place)
				}
			}
			if mode == "redacted" && found["files"] > 0 {
				t.Errorf("the values of secrets were found %d times in files of the state directory", found["files"])
			}
		})
	}
}

// secretValue is a value that is nowhere else.
func secretValue() string {
	b := make([]byte, 16)
	rand.Read(b)
	return "hunter2-" + hex.EncodeToString(b)
}

const plantedPerSecret = 4

// createSecret creates a Secret with one value in its data, one in the copy that kubectl apply
// keeps, one in the annotation in which OpenShift keeps a token, and one in a packed copy.
func (l *lab) createSecret(name string, values []string) {
	l.t.Helper()
	copied, err := json.Marshal(map[string]any{"stringData": map[string]string{"password": values[1]}})
	must(l.t, err)
	_, err = l.client.CoreV1().Secrets(l.namespace).Create(l.ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			corev1.LastAppliedConfigAnnotation: string(copied), "openshift.io/token-secret.value": values[2],
			"banzaicloud.com/last-applied": base64.StdEncoding.EncodeToString([]byte(values[len(values)-1])),
		}},
		StringData: map[string]string{"password": values[0]},
	}, metav1.CreateOptions{})
	must(l.t, err)
}

// searchEverywhere counts the values in all that a bridge sends, says and keeps, and stops it.
func (l *lab) searchEverywhere(b *harness.Bridge, values []string) map[string]int {
	l.t.Helper()
	s := &search{found: map[string]int{}}
	for _, v := range values {
		s.needles = append(s.needles, []byte(v), []byte(base64.StdEncoding.EncodeToString([]byte(v))))
	}
	var messages int
	eventually(l.t, "the delete of a secret is in the stream", testPatience, func() []string {
		events, err := jetStream(b).Refresh(l.ctx)
		must(l.t, err)
		messages = len(events)
		// The events of two Secrets come in any order.
		deleted := func(e read.Event) bool { return e.Op() == "deleted" }
		after := func(e read.Event) bool { return e.Attribute("name") == "after" }
		if !slices.ContainsFunc(events, deleted) || !slices.ContainsFunc(events, after) {
			return []string{fmt.Sprintf("%d events, the last is %s", len(events), events[len(events)-1].String())}
		}
		clear(s.found)
		for i := range events {
			s.in("stream", []byte(events[i].String())) // attributes and data
			s.in("stream", events[i].Data())
		}
		return nil
	})
	for _, place := range []string{"status", "metrics"} {
		body, err := b.Get(l.ctx, "/"+place)
		must(l.t, err)
		s.in(place, body)
	}
	l.stop(b)
	s.in("log", []byte(b.Log.String()))
	l.searchFiles(s, b.StateDir)
	l.searchDatabase(s, filepath.Join(b.StateDir, "db"))
	l.t.Logf("searched %d messages, %d bytes of log, %d files, %d keys of the state", messages, b.Log.Len(), s.files, s.keys)
	return s.found
}

type search struct {
	needles     [][]byte
	found       map[string]int
	files, keys int
}

func (s *search) in(place string, text []byte) {
	for _, needle := range s.needles {
		s.found[place] += bytes.Count(text, needle)
	}
}

func (l *lab) searchFiles(s *search, dir string) {
	l.t.Helper()
	must(l.t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		s.in("files", text)
		s.files++
		return err
	}))
}

// searchDatabase looks into the state database with the library that it is made of: what lies there
// may be compressed.
func (l *lab) searchDatabase(s *search, dir string) {
	l.t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{ReadOnly: true, Logger: quiet{}})
	must(l.t, err)
	defer db.Close()
	all, err := db.NewIter(nil)
	must(l.t, err)
	defer all.Close()
	for ok := all.First(); ok; ok = all.Next() {
		s.keys++
		s.in("state database", all.Key())
		s.in("state database", all.Value())
		// A body is an S2 block behind one byte.
		if value := all.Value(); len(value) > 1 {
			if body, err := s2.Decode(nil, value[1:]); err == nil {
				s.in("state database", body)
			}
		}
	}
	must(l.t, all.Error())
	if s.keys == 0 {
		l.t.Error("the state database is empty: the search shows nothing")
	}
}

// quiet is a logger for Pebble.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}

// A changed key looks in the stream like no rotated Secret: the fingerprints name it. It is changed
// in its file, under a running bridge.
func TestChangedRedactionKey(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	file := filepath.Join(l.dir, "redaction-key")
	must(t, os.WriteFile(file, []byte("a key of 16 bytes or more"), 0o600))
	l.createSecret("db", []string{"one", "", ""})
	api := l.client.CoreV1().Secrets(l.namespace)
	b := l.bridge("bridge", `
informers: [{name: app, resources: [secrets], namespaces: ["${NS}"], sinks: [{name: js, payload: change}]}]
redaction: {keyFile: "${KEY}"}
reloadInterval: 1s`+embedded, with(map[string]string{"KEY": file}))
	l.start(b)
	stream := jetStream(b)
	// patched are the password's fingerprints in the update that a patch makes.
	patched := func(patch string) (old, object fingerprint) {
		t.Helper()
		s, err := api.Patch(l.ctx, "db", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		must(t, err)
		eventually(t, "the update", testPatience, func() []string {
			events, err := stream.Refresh(l.ctx)
			must(t, err)
			i := slices.IndexFunc(events, func(e read.Event) bool { return e.Attribute("resourceversion") == s.ResourceVersion })
			if i < 0 {
				return []string{"it is missing"}
			}
			var data struct{ Old, Object redactedSecret }
			must(t, json.Unmarshal(events[i].Data(), &data))
			old, object = newFingerprint(t, data.Old.Data.Password), newFingerprint(t, data.Object.Data.Password)
			return nil
		})
		return old, object
	}
	touch := func(n int) string { return fmt.Sprintf(`{"metadata":{"labels":{"touched":"%d"}}}`, n) }

	if old, object := patched(touch(0)); old != object {
		t.Errorf("an update of something else: %v and %v", old, object)
	}
	if old, object := patched(`{"stringData":{"password":"two"}}`); old.key != object.key || old.hash == object.hash {
		t.Errorf("a rotated Secret: %v and %v, want one key and two hashes", old, object)
	}
	must(t, os.WriteFile(file, []byte("another key of 16 bytes"), 0o600))
	n := 1
	eventually(t, "the new key", testPatience, func() []string {
		old, object := patched(touch(n))
		n++
		if old.key == object.key {
			return []string{fmt.Sprintf("%v and %v have one key", old, object)}
		}
		return nil
	})
	if old, object := patched(touch(n)); old != object {
		t.Errorf("an update after that: %v and %v", old, object)
	}
	l.stop(b)
}

// redactedSecret is what is read of a redacted Secret, whose values are no base64.
type redactedSecret struct{ Data struct{ Password string } }

type fingerprint struct{ key, hash string }

func newFingerprint(t *testing.T, text string) fingerprint {
	t.Helper()
	parts := strings.Split(text, ":")
	if len(parts) != 3 || parts[0] != "redacted" {
		t.Fatalf("%q is no fingerprint", text)
	}
	return fingerprint{parts[1], parts[2]}
}
