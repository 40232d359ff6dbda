package event_test

import (
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
)

func TestAttributesOfOnesOwn(t *testing.T) {
	custom := func(name, text string) event.CustomAttribute {
		p, err := resource.ParsePath(text)
		if err != nil {
			t.Fatal(err)
		}
		return event.CustomAttribute{Name: name, Path: p}
	}
	m := newMaker(t, event.MakerConfig{Type: deployments, CustomAttributes: []event.CustomAttribute{
		custom("team", `metadata.labels["x.io/team"]`), custom("replicas", "spec.replicas"), custom("paused", "spec.paused"),
		custom("missing", "spec.missing"), custom("list", "spec.list"), custom("bad", "spec.bad"), custom("null", "spec.null"),
	}})
	c := event.Change{Op: event.Added, Key: "shop/web", UID: "u", Version: "1", Object: &resource.Object{Raw: []byte(
		`{"metadata":{"labels":{"x.io/team":"a\u0062"}},"spec":{"replicas":3,"paused":true,"list":[1],"bad":"a\u0000b","null":null}}`)}}
	e := m.Object(&c)
	_, got := attributes(&e)
	for name, want := range map[string]string{"team": "ab", "replicas": "3", "paused": "true", "missing": "", "list": "", "bad": "", "null": ""} {
		if got[name] != want {
			t.Errorf("%s: %q, want %q", name, got[name], want)
		}
	}
	template, err := event.ParseTemplate("k8s.{attributes.team}.{name}.{attributes.missing}")
	if err != nil {
		t.Fatal(err)
	}
	if subject := string(template.Append(nil, &e, event.AppendSubjectToken)); subject != "k8s.ab.web.-" {
		t.Error(subject)
	}
	if pattern := template.Pattern("*", nil, event.AppendSubjectToken); pattern != "k8s.*.*.*" {
		t.Error(pattern)
	}
	if _, err := event.ParseTemplate("k8s.{attributes.Team}"); err == nil {
		t.Error("a template may name what can't be an attribute")
	}
}

// A broker takes 64 KiB of headers, an annotation may have 256: an attribute that does not fit is
// left out and named, in each event of the object.
func TestAttributesTooLarge(t *testing.T) {
	var custom []event.CustomAttribute
	for _, name := range []string{"team", "dashboard", "note"} {
		p, err := resource.ParsePath("metadata.annotations." + name)
		if err != nil {
			t.Fatal(err)
		}
		custom = append(custom, event.CustomAttribute{Name: name, Path: p})
	}
	m := newMaker(t, event.MakerConfig{Type: deployments, CustomAttributes: custom})
	for _, op := range []event.Op{event.Added, event.Updated, event.Deleted} {
		raw := `{"metadata":{"annotations":{"team":"a","dashboard":"` + strings.Repeat("x", 200<<10) + `","note":"b"}}}`
		e := m.Object(&event.Change{Op: op, Key: "shop/web", UID: "u", Version: "1", Object: &resource.Object{Raw: []byte(raw)}})
		_, got := attributes(&e)
		if _, has := got["dashboard"]; has || got["team"] != "a" || got["note"] != "b" || got["omittedattributes"] != "dashboard" {
			t.Errorf("%s: %.300v", op, got)
		}
		half := strings.Repeat("x", 9<<10) // each fits, and not both
		raw = `{"metadata":{"annotations":{"team":"` + half + `","dashboard":"` + half + `","note":"b"}}}`
		e = m.Object(&event.Change{Op: op, Key: "shop/web", UID: "u", Version: "1", Object: &resource.Object{Raw: []byte(raw)}})
		if _, got := attributes(&e); got["team"] != half || got["note"] != "b" || got["omittedattributes"] != "dashboard" {
			t.Errorf("%s, of two: %.300v", op, got)
		}
	}
}

func TestNamesOfAttributes(t *testing.T) {
	for name, ok := range map[string]bool{"team": true, "team2": true, "Team": false, "my-team": false, "2team": false, "": false, "id": false, "owners": false, "abcdefghijklmnopqrstu": false} {
		if err := event.CheckAttribute(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
