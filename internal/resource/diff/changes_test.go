package diff_test

import (
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/resource/diff"
)

func TestChanges(t *testing.T) {
	const old = `{"metadata":{"resourceVersion":"1","labels":{"app.kubernetes.io/name":"a"}},"spec":{"replicas":1,` +
		`"containers":[{"name":"a","image":"x"},{"name":"b","image":"y"}],"args":["1","2"]},"status":{"conditions":[{"type":"Ready","lastHeartbeatTime":"1"}]}}`
	for name, c := range map[string]struct{ newer, want string }{
		"nothing but the version": {strings.Replace(old, `"1","labels`, `"2","labels`, 1), ""},
		"a scalar":                {strings.Replace(old, `"replicas":1`, `"replicas":2`, 1), "spec.replicas 1 2"},
		"a label with dots":       {strings.Replace(old, `io/name":"a"`, `io/name":"b"`, 1), `metadata.labels[app.kubernetes.io/name] "a" "b"`},
		"an item by its name":     {strings.Replace(old, `"image":"y"`, `"image":"z"`, 1), `spec.containers[b].image "y" "z"`},
		"an item that is gone":    {strings.Replace(old, `{"name":"a","image":"x"},`, ``, 1), `spec.containers[a] {"name":"a","image":"x"} `},
		"items in another order":  {strings.Replace(old, `{"name":"a","image":"x"},{"name":"b","image":"y"}`, `{"name":"b","image":"y"},{"name":"a","image":"x"}`, 1), ""},
		"an item by its place":    {strings.Replace(old, `["1","2"]`, `["1","3","4"]`, 1), `spec.args[1] "2" "3"; spec.args[2]  "4"`},
		"a member that is new":    {strings.Replace(old, `"spec":{`, `"spec":{"paused":true,`, 1), "spec.paused  true"},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, change := range diff.Changes([]byte(old), []byte(c.newer)) {
				got = append(got, change.Path+" "+string(change.Old)+" "+string(change.New))
				field := diff.Field([]byte(c.newer), change.Path)
				if string(field) != string(change.New) {
					t.Errorf("the field %s is %s, want %s", change.Path, field, change.New)
				}
			}
			if strings.Join(got, "; ") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	t.Run("a path that is printed finds the same value in both versions", func(t *testing.T) {
		const object = `{"list":[{"name":"app","env":[{"name":"LEVEL","v":"1"},{"name":"LEVEL","v":"2"}]},` +
			`{"name":"0","v":"3"},{"name":"1","v":"4"},{"name":"a]","v":"5"},{"name":"a[","v":"6"}],` +
			`"map":{"1":"7","a]":"8","a.b":"9","a\"b":"10","":"11"}}`
		for _, value := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11"} {
			newer := strings.Replace(object, `"`+value+`"`+"}", `"new"}`, 1)
			if newer == object {
				newer = strings.Replace(object, `:"`+value+`"`, `:"new"`, 1)
			}
			changes := diff.Changes([]byte(object), []byte(newer))
			if len(changes) != 1 {
				t.Fatalf("%s: %d changes", value, len(changes))
			}
			path := changes[0].Path
			if old, now := string(diff.Field([]byte(object), path)), string(diff.Field([]byte(newer), path)); old != `"`+value+`"` ||
				now != `"new"` {
				t.Errorf("%s was %s and is %s, want %q and \"new\"", path, old, now, value)
			}
		}
	})
	t.Run("of two items with one name the last counts", func(t *testing.T) {
		const object = `{"env":[{"name":"LEVEL","value":"info"},{"name":"LEVEL","value":"debug"}]}`
		if got := string(diff.Field([]byte(object), "env[LEVEL].value")); got != `"debug"` {
			t.Errorf("it is %s", got)
		}
	})
	t.Run("a heartbeat is distinguished from other changes", func(t *testing.T) {
		for path, want := range map[string]bool{
			"status.conditions[Ready].lastHeartbeatTime": true, "spec.renewTime": true, "metadata.generation": true,
			"status.conditions[Ready].lastTransitionTime": false, "status.conditions[Ready].status": false, "spec.generation": false,
		} {
			if got := (&diff.Change{Path: path}).IsHeartbeat(); got != want {
				t.Errorf("%s: %v", path, got)
			}
		}
	})
}
