package filter_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/event/filter"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

var (
	pods   = testkit.Pods
	nodes  = resource.Type{Version: "v1", Resource: "nodes", Kind: "Node"}
	leases = resource.Type{Group: "coordination.k8s.io", Version: "v1", Resource: "leases", Kind: "Lease", Namespaced: true}
)

const (
	before = `{"metadata":{"name":"web","namespace":"shop","uid":"u","resourceVersion":"7","generation":1,"labels":{"app":"web","x.io/y":"z"}},
		"spec":{"nodeName":"n1","containers":[{"name":"c","image":"web:1","resources":{"limits":{"memory":"64Mi"}}}],"replicas":2},"status":{"phase":"Running"}}`
	after = `{"metadata":{"name":"web","namespace":"shop","uid":"u","resourceVersion":"8","generation":1,"labels":{"app":"web","x.io/y":"z"}},
		"spec":{"nodeName":"n1","containers":[{"name":"c","image":"web:1","resources":{"limits":{"memory":"64Mi"}}}],"replicas":2},"status":{"phase":"Failed","ratio":0.5,"big":9007199254740993}}`
)

func parse(t testing.TB, raw string) *resource.Object {
	t.Helper()
	obj, err := resource.Parse([]byte(raw), resource.ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return obj
}

func change(t testing.TB, op event.Op) *event.Change {
	c := &event.Change{Op: op, Key: "shop/web", Object: parse(t, after), UID: "u", Version: "8", Origin: event.Origin{By: resource.FieldManager{Manager: "kubectl"}}}
	if op == event.Updated {
		c.Old = parse(t, before)
	}
	return c
}

func compile(t testing.TB, text string) *filter.Expression {
	t.Helper()
	e, err := filter.Compile(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return e
}

func TestExpressions(t *testing.T) {
	for text, want := range map[string]bool{
		`object.status.phase == "Failed"`:                                  true,
		`object.status.phase == "Failed" && old.status.phase != "Failed"`:  true,
		`"status" in meta.changed`:                                         true,
		`"spec" in meta.changed || "labels" in meta.changed`:               false,
		`meta.changed == ["status"]`:                                       true,
		`object.status.phase in ["Failed", "Unknown"]`:                     true,
		`old.status.phase == "Failed"`:                                     false,
		`object.status == old.status`:                                      false,
		`object.spec == old.spec`:                                          true,
		`object.spec.containers == old.spec.containers`:                    true,
		`object.metadata.labels == {"x.io/y": "z", "app": "web"}`:          true,
		`{"x.io/y": "z", "app": "web"} == object.metadata.labels`:          true,
		`op == "updated"`:                                                  true,
		`op in ["added", "deleted"]`:                                       false,
		`object.metadata.labels.app == "web"`:                              true,
		`object.metadata.labels["x.io/y"] == "z"`:                          true,
		`meta.labels["x.io/y"] == "z" && meta.labels.app.startsWith("we")`: true,
		`"app" in meta.labels && !("web" in meta.labels)`:                  true,
		`meta.annotations["none"] == "x"`:                                  false,
		`meta.namespace == "shop" && meta.name == "web" && meta.kind == "Pod" && meta.resource == "pods"`:        true,
		`meta.apiVersion == "v1" && meta.group == "" && meta.uid == "u" && meta.resourceVersion == "8"`:          true,
		`meta.manager == "kubectl" && meta.generation == 1 && !meta.deleting && !meta.initial && !meta.inferred`: true,
		// What is not there is null, also in the middle of a path.
		`object.metadata.annotations["x"] == "y"`:                        false,
		`object.metadata.annotations["x"] != "y"`:                        true,
		`object.metadata.deletionTimestamp == null`:                      true,
		`object.metadata.deletionTimestamp != null`:                      false,
		`has(object.metadata.annotations)`:                               false,
		`has(object.metadata.labels) && has(object.metadata.labels.app)`: true,
		`has(meta.annotations)`:                                          false,
		`object.?spec.?priority.orValue(5) == 5`:                         true,
		`object.spec.hostNetwork`:                                        false,
		`"x" in object.metadata.annotations`:                             false,
		`size(object.metadata.annotations) == 0`:                         true,
		`object.metadata.finalizers.exists(f, f == "x")`:                 false,
		// Lists, maps, numbers, and Kubernetes' helpers.
		`object.spec.containers.exists(c, c.image.endsWith(":1"))`:                                          true,
		`object.metadata.labels.all(k, object.metadata.labels[k] != "")`:                                    true,
		`size(object.spec.containers) == 1 && size(object.metadata.labels) == 2`:                            true,
		`object.spec.replicas > 1 && object.status.ratio < 1`:                                               true,
		`object.status.big == 9007199254740993`:                                                             true,
		`object.spec.containers.all(c, quantity(c.resources.limits.memory).isGreaterThan(quantity("63M")))`: true,
		`object.metadata.name.find("w.b") == "web"`:                                                         true,
		`"a,b".split(",").size() == 2`:                                                                      true,
	} {
		t.Run(text, func(t *testing.T) {
			f := filter.New(filter.Rules{Expression: compile(t, text)}, pods)
			reason, err := f.Rejects(change(t, event.Updated))
			if err != nil || (reason == "") != want || reason != "" && reason != filter.ByExpression {
				t.Errorf("%q, %v", reason, err)
			}
		})
	}
}

// An expression knows which objects it needs.
func TestExpressionNeeds(t *testing.T) {
	for text, want := range map[string]bool{
		`object.status.phase == "Failed"`: false, `meta.name == "old"`: false, `old.spec != object.spec`: true,
		`object.spec.containers.exists(c, c.image != old.spec.image)`: true,
	} {
		if got := filter.New(filter.Rules{Expression: compile(t, text)}, pods).NeedsOld(); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
}

// Bad expressions are refused, with the place of the mistake.
func TestBadExpressions(t *testing.T) {
	for text, want := range map[string]string{
		``:                          "Syntax error",
		`object.status.phase = "x"`: `1:21: "=" is not CEL: write "=="`,
		"op == 'a=b' &&\n op = 'c'": `2:5: "=" is not CEL: write "=="`,
		`op == "=" && op >= "a" )`:  "1:24: Syntax error",
		`obj.status == "x"`:         "1:1: undeclared reference to 'obj'",
		`meta.nmae == "x"`:          "undefined field 'nmae'",
		`meta.generation == "x"`:    "no matching overload for '_==_'",
		`op > 3`:                    "no matching overload",
		`meta.name`:                 "want a condition, which is true or false; this is of type string",
		`object.x.matches("(")`:     "invalid matches argument",
		`object.metadata`:           "1:1: want a condition, which is true or false; object.metadata is neither: compare it, or write has(object.metadata)",
		`old`:                       "1:1: want a condition, which is true or false; old is neither: compare it",
		`op == "added" || !object.metadata.labels.app`: "1:19: want a condition, which is true or false; object.metadata.labels.app is neither",
		`true ? object.kind : false`:                   "1:8: want a condition",
		"true &&\n nope":                               "2:2: undeclared reference to 'nope'",
	} {
		_, err := filter.Compile(text)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// A change whose filter fails is sent.
func TestFilterFailure(t *testing.T) {
	long := fmt.Sprintf(`{"metadata":{"name":"a","resourceVersion":"8"},"l":[%s1]}`, strings.Repeat("1,", 2000))
	for name, test := range map[string]struct{ text, object, want string }{
		"a type that does not fit": {`object.spec.replicas.startsWith("x")`, after, "no such overload"},
		"no condition":             {`object.spec.replicas`, after, "gave int"},
		"too expensive":            {`object.l.all(x, object.l.all(y, x == y))`, long, "cost limit exceeded"},
		"a quantity that is none":  {`quantity(object.metadata.name).isInteger()`, after, "quantit"},
	} {
		t.Run(name, func(t *testing.T) {
			c := change(t, event.Added)
			c.Object = parse(t, test.object)
			reason, err := filter.New(filter.Rules{Expression: compile(t, test.text)}, pods).Rejects(c)
			if reason != "" || err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%q, %v", reason, err)
			}
		})
	}
}

// An unknown object is null.
func TestUnknownObject(t *testing.T) {
	c := &event.Change{Op: event.Deleted, Key: "shop/web", UID: "u", Version: "8"}
	for text, want := range map[string]string{
		`object == null && old == null`: "", `object.spec.x == 1`: filter.ByExpression, `op == "deleted" && meta.labels.x != "y" && meta.generation == 0`: "",
	} {
		if reason, err := filter.New(filter.Rules{Expression: compile(t, text)}, pods).Rejects(c); reason != want || err != nil {
			t.Errorf("%s: %q, %v", text, reason, err)
		}
	}
}

func TestOperations(t *testing.T) {
	f := filter.New(filter.Rules{Operations: []event.Op{event.Added, event.Deleted}}, pods)
	for op, want := range map[event.Op]string{event.Added: "", event.Deleted: "", event.Updated: filter.ByOperation, event.Synced: filter.ByOperation} {
		if reason, _ := f.Rejects(change(t, op)); reason != want {
			t.Errorf("%s: %q", op, reason)
		}
	}
	if f.NeedsOld() {
		t.Error("operations need no old object")
	}
}

// Updates that touch only ignored paths.
func TestIgnoredUpdates(t *testing.T) {
	path := func(text string) []resource.Path {
		p, err := resource.ParsePath(text)
		if err != nil {
			t.Fatal(err)
		}
		return []resource.Path{p}
	}
	replace := func(raw, old, changed string) string {
		out := strings.Replace(raw, old, changed, 1)
		if out == raw {
			t.Fatalf("%s is not there", old)
		}
		return out
	}
	newer := replace(before, `"resourceVersion":"7"`, `"resourceVersion":"8"`)
	for name, test := range map[string]struct {
		rules   filter.Rules
		typ     resource.Type
		old, is string
		want    string
	}{
		"only the version":            {filter.Rules{Ignore: path("x")}, pods, before, newer, filter.ByIgnored},
		"something ignored":           {filter.Rules{Ignore: path("status.phase")}, pods, before, replace(newer, "Running", "Pending"), filter.ByIgnored},
		"something else":              {filter.Rules{Ignore: path("status.phase")}, pods, before, replace(newer, "n1", "n2"), ""},
		"the spec, on spec":           {filter.Rules{On: []string{"spec"}}, pods, before, replace(newer, "n1", "n2"), ""},
		"the status, on spec":         {filter.Rules{On: []string{"spec"}}, pods, before, replace(newer, "Running", "Pending"), filter.ByIgnored},
		"the status, on both":         {filter.Rules{On: []string{"spec", "status"}}, pods, before, replace(newer, "Running", "Pending"), ""},
		"a label, on metadata":        {filter.Rules{On: []string{"metadata"}}, pods, before, replace(newer, `"web","x`, `"shop","x`), ""},
		"the spec, on metadata":       {filter.Rules{On: []string{"metadata"}}, pods, before, replace(replace(newer, "n1", "n2"), `"generation":1`, `"generation":2`), filter.ByIgnored},
		"status comes, on status":     {filter.Rules{On: []string{"status"}}, pods, replace(before, `"status"`, `"stat"`), newer, ""},
		"ignored below, on status":    {filter.Rules{On: []string{"status"}, Ignore: path("status.phase")}, pods, before, replace(newer, "Running", "Pending"), filter.ByIgnored},
		"a lease that is renewed":     {filter.Rules{Heartbeats: true}, leases, lease("7", "a", "1"), lease("8", "a", "2"), filter.ByIgnored},
		"a lease that is taken":       {filter.Rules{Heartbeats: true}, leases, lease("7", "a", "1"), lease("8", "b", "2"), ""},
		"a node that is alive":        {filter.Rules{Heartbeats: true}, nodes, node("7", "1", "True"), node("8", "2", "True"), filter.ByIgnored},
		"a node that is not":          {filter.Rules{Heartbeats: true}, nodes, node("7", "1", "True"), node("8", "2", "Unknown"), ""},
		"a leader that continues":     {filter.Rules{Heartbeats: true}, resource.Type{Version: "v1", Resource: "endpoints", Kind: "Endpoints"}, leader("7", "1"), leader("8", "2"), filter.ByIgnored},
		"an update of an unknown old": {filter.Rules{Ignore: path("*")}, pods, "", newer, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c := &event.Change{Op: event.Updated, Key: "shop/web", Object: parse(t, test.is), UID: "u", Version: "8"}
			if test.old != "" {
				c.Old = parse(t, test.old)
			}
			f := filter.New(test.rules, test.typ)
			if reason, err := f.Rejects(c); reason != test.want || err != nil {
				t.Errorf("%q, %v", reason, err)
			}
			if !f.NeedsOld() {
				t.Error("it does not ask for the old object")
			}
			for _, op := range []event.Op{event.Added, event.Deleted, event.Synced} {
				c.Op = op
				if reason, _ := f.Rejects(c); reason != "" {
					t.Errorf("%s: %q", op, reason)
				}
			}
		})
	}
	if f := filter.New(filter.Rules{Heartbeats: true}, pods); f != nil {
		t.Error("pods have no heartbeats, and a filter")
	}
}

func lease(version, holder, renewed string) string {
	return fmt.Sprintf(`{"metadata":{"name":"l","resourceVersion":%q},"spec":{"holderIdentity":%q,"renewTime":%q}}`, version, holder, renewed)
}

func node(version, beat, ready string) string {
	return fmt.Sprintf(`{"metadata":{"name":"n","resourceVersion":%q},"status":{"conditions":[{"lastHeartbeatTime":%q,"status":%q,"type":"Ready"}]}}`, version, beat, ready)
}

func leader(version, renewed string) string {
	return fmt.Sprintf(`{"metadata":{"name":"e","resourceVersion":%q,"annotations":{"control-plane.alpha.kubernetes.io/leader":%q}}}`, version, renewed)
}

func BenchmarkRejects(b *testing.B) {
	for name, text := range map[string]string{
		"meta": `meta.namespace == "kube-system"`, "phase": `object.status.phase == "Running"`, "old": `object.status != old.status`,
	} {
		b.Run(name, func(b *testing.B) {
			f, c := filter.New(filter.Rules{Expression: compile(b, text)}, pods), change(b, event.Updated)
			b.ReportAllocs()
			for b.Loop() {
				if _, err := f.Rejects(c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkWide is of an object of many members that were all renamed.
func BenchmarkWide(b *testing.B) {
	seen, err := resource.ParsePath("metadata.annotations.seen")
	if err != nil {
		b.Fatal(err)
	}
	version := func(round int) *resource.Object {
		return &resource.Object{Raw: testkit.Wide(30_000, round, false)}
	}
	c := &event.Change{Op: event.Updated, Key: "evil/wide", Object: version(2), Old: version(1)}
	for name, rules := range map[string]filter.Rules{
		"ignore": {Ignore: []resource.Path{seen}},
		"filter": {Expression: compile(b, `op == "deleted" || object != old`)},
		"a part": {Expression: compile(b, `object.data != old.data`)},
		"both": {
			Ignore:     []resource.Path{seen},
			Expression: compile(b, `op == "deleted" || object != old`),
		},
	} {
		b.Run(name, func(b *testing.B) {
			f := filter.New(rules, pods)
			b.ReportAllocs()
			for b.Loop() {
				if reason, err := f.Rejects(c); err != nil || reason != "" {
					b.Fatal(reason, err)
				}
			}
		})
	}
}

func TestKeys(t *testing.T) {
	paths, err := resource.ParsePath("status.phase")
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		rules filter.Rules
		typ   resource.Type
		want  string
	}{
		"no rules":                           {filter.Rules{}, pods, ""},
		"every operation that is a version":  {filter.Rules{Operations: []event.Op{event.Deleted, event.Updated, event.Added}}, pods, ""},
		"deletes only":                       {filter.Rules{Operations: []event.Op{event.Deleted}}, pods, "operations"},
		"an expression":                      {filter.Rules{Expression: compile(t, "true")}, pods, "filter"},
		"paths and members":                  {filter.Rules{Ignore: []resource.Path{paths}, On: []string{"spec"}}, pods, "ignoreChanges changedParts"},
		"heartbeats of a kind that has some": {filter.Rules{Heartbeats: true}, leases, "ignoreHeartbeats"},
		"heartbeats of a kind without":       {filter.Rules{Heartbeats: true}, pods, ""},
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(test.rules.Keys(test.typ), " "); got != test.want {
				t.Errorf("keys %q, want %q", got, test.want)
			}
		})
	}
}

// meta.changed needs the version before. Where it is not known, every part may have changed, and
// nothing is kept back.
func TestChangedParts(t *testing.T) {
	f := filter.New(filter.Rules{Expression: compile(t, `"spec" in meta.changed`)}, pods)
	if !f.NeedsOld() {
		t.Error("the version before is not asked for")
	}
	for name, c := range map[string]*event.Change{"added": change(t, event.Added), "deleted": change(t, event.Deleted)} {
		if reason, err := f.Rejects(c); err != nil || reason != "" {
			t.Errorf("%s: %q, %v", name, reason, err)
		}
	}
	c := change(t, event.Updated)
	if reason, err := f.Rejects(c); err != nil || reason == "" {
		t.Errorf("an update of the status: %q, %v", reason, err)
	}
	c.Old = nil
	if reason, err := f.Rejects(c); err != nil || reason != "" {
		t.Errorf("an update of what is not known: %q, %v", reason, err)
	}
}
