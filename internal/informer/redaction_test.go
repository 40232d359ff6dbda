package informer_test

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/changelog"
	"github.com/kubebridge/bridge/internal/resource"
)

// secretly is a pod with a value in it.
func secretly(t *testing.T, version string) *resource.Object {
	raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":"ua","resourceVersion":%q},"spec":{"x":"hunter%s"}}`, version, version)
	obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: pods})
	ok(t, err)
	return obj
}

// What is redacted later is redacted on disk too.
func TestRedactionOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		r := newRig(t, db, []*outbox{out}, changes(t), spooling)
		ok(t, r.fifo.Add(t.Context(), secretly(t, "5")))
		out.wait(t, 1)
		out.setHold(true)
		ok(t, r.fifo.Update(t.Context(), secretly(t, "6")))
		ok(t, r.fifo.Update(t.Context(), secretly(t, "7")))
		r.bookmark("10")
		eventually(t, "everything is on disk", func() bool {
			ok(t, r.committer.Commit())
			return r.informer.Log().Status().Watermark == "10"
		})

		redactor, err := resource.NewRedactor([]byte("0123456789abcdef"))
		ok(t, err)
		path, err := resource.ParsePath("spec.x")
		ok(t, err)
		rules, err := resource.NewRules(resource.RulesConfig{Redactor: redactor, Redact: []resource.Path{path}})
		ok(t, err)
		opts := resource.ParseOptions{Type: pods, Rules: rules}
		ok(t, changelog.Redact(r.indexer, opts.Again()))
		ok(t, changelog.Redact(r.indexer, opts.Again())) // a second time changes nothing

		after := newOutbox()
		r2 := newRig(t, db, []*outbox{after}, changes(t), spooling)
		obj, err := resource.Parse(secretly(t, "11").Raw, opts)
		ok(t, err)
		ok(t, r2.fifo.Update(t.Context(), obj))
		after.wait(t, 3)
		want(t, after.steps(t), "6 from 5", "7 from 6", "11 from 7")
		once, err := resource.Parse(secretly(t, "7").Raw, opts)
		ok(t, err)
		for i, e := range after.raw {
			if bytes.Contains(e.Data, []byte("hunter")) {
				t.Errorf("%d: %s", i, e.Data)
			}
		}
		if !bytes.Contains(after.raw[2].Data, once.Raw) {
			t.Errorf("%s\nhas not the old object as it would be now,\n%s", after.raw[2].Data, once.Raw)
		}
		r2.stop()
	})
}
