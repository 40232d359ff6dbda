package diff_test

import (
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/diff"
)

func TestEqualButForPaths(t *testing.T) {
	node := `{"metadata":{"name":"n"},"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":"1","status":"True"},{"type":"Disk","lastHeartbeatTime":"1"}]}}`
	for _, tt := range []struct {
		name, old, changed string
		paths              []string
		want               bool
	}{
		{"nothing differs", node, node, nil, true},
		{"only the order differs", `{"a":1,"b":{"c":2,"d":3}}`, `{"b":{"d":3,"c":2},"a":1}`, nil, true},
		{
			"heartbeats", node, `{"metadata":{"name":"n"},"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":"2","status":"True"},{"type":"Disk"}]}}`,
			[]string{"status.conditions.*.lastHeartbeatTime"},
			true,
		},
		{
			"a heartbeat and a status", node, `{"metadata":{"name":"n"},"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":"2","status":"False"},{"type":"Disk"}]}}`,
			[]string{"status.conditions.*.lastHeartbeatTime"},
			false,
		},
		{"an item more", `{"a":[1]}`, `{"a":[1,2]}`, []string{"a.*.b"}, false},
		{"an item more that is ignored", `{"a":[1]}`, `{"a":[1,2]}`, []string{"a.*"}, true},
		{"every member of one level", `{"a":{"x":1},"b":{"x":1}}`, `{"a":{"x":2},"b":{"x":3}}`, []string{"*.x"}, true},
		{"a member that comes with its object", `{}`, `{"annotations":{"x.io/y":"1"}}`, []string{`annotations["x.io/y"]`}, true},
		{"a member that comes with another", `{}`, `{"annotations":{"x.io/y":"1","z":""}}`, []string{`annotations["x.io/y"]`}, false},
		{"an empty object that comes", `{}`, `{"annotations":{}}`, []string{`annotations["x.io/y"]`}, false},
		{"a member that changes its kind", `{"a":{"b":1}}`, `{"a":[1]}`, []string{"a.b"}, false},
		{"what lies below the path", `{"a":{"b":{"c":1}}}`, `{"a":{"b":2}}`, []string{"a.b"}, true},
		{"a path beside it", `{"a":{"b":1}}`, `{"a":{"b":2}}`, []string{"a.c", "b"}, false},
		{"two paths that share a beginning", `{"a":{"b":1,"c":1}}`, `{"a":{"b":2,"c":2}}`, []string{"a.b", "a.*"}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var paths []resource.Path
			for _, text := range tt.paths {
				p, err := resource.ParsePath(text)
				if err != nil {
					t.Fatal(err)
				}
				paths = append(paths, p)
			}
			except := resource.NewPaths(paths...)
			for _, got := range []bool{diff.Equal([]byte(tt.old), []byte(tt.changed), except), diff.Equal([]byte(tt.changed), []byte(tt.old), except)} {
				if got != tt.want {
					t.Errorf("%v, want %v", got, tt.want)
				}
			}
		})
	}
}
