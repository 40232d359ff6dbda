package informer_test

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/kubebridge/bridge/internal/informer/changelog"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

// secretly is a pod with a value in it.
func secretly(t *testing.T, version string) *resource.Object {
	raw := fmt.Sprintf(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"shop","uid":"ua","resourceVersion":%q},"spec":{"x":"hunter%s"}}`, version, version)
	obj, err := resource.Parse([]byte(raw), resource.ParseOptions{Type: pods})
	testkit.OK(t, err)
	return obj
}

// What is redacted later is redacted on disk too.
func TestRedactionOnDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, out := memory(t), newOutbox()
		r := newRig(t, db, []*outbox{out}, changes(t), spooling)
		testkit.OK(t, r.fifo.Add(t.Context(), secretly(t, "5")))
		out.wait(t, 1)
		out.setHold(true)
		testkit.OK(t, r.fifo.Update(t.Context(), secretly(t, "6")))
		testkit.OK(t, r.fifo.Update(t.Context(), secretly(t, "7")))
		r.bookmark("10")
		testkit.Eventually(t, "everything is on disk", func() bool {
			testkit.OK(t, r.committer.Commit())
			return r.informer.Log().Status().Watermark == "10"
		})

		redactor, err := resource.NewRedactor([]byte("0123456789abcdef"))
		testkit.OK(t, err)
		path, err := resource.ParsePath("spec.x")
		testkit.OK(t, err)
		rules, err := resource.NewRules(resource.RulesConfig{Redactor: redactor, Redact: []resource.Path{path}})
		testkit.OK(t, err)
		opts := resource.ParseOptions{Type: pods, Rules: rules}
		testkit.OK(t, changelog.Redact(r.indexer, opts.Again()))
		testkit.OK(t, changelog.Redact(r.indexer, opts.Again())) // a second time changes nothing

		after := newOutbox()
		r2 := newRig(t, db, []*outbox{after}, changes(t), spooling)
		obj, err := resource.Parse(secretly(t, "11").Raw, opts)
		testkit.OK(t, err)
		testkit.OK(t, r2.fifo.Update(t.Context(), obj))
		after.wait(t, 3)
		testkit.Want(t, after.steps(t), "6 from 5", "7 from 6", "11 from 7")
		once, err := resource.Parse(secretly(t, "7").Raw, opts)
		testkit.OK(t, err)
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
