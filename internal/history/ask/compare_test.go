package ask

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/testkit"
)

// What is left out of a comparison is counted: fields beyond the most that are shown, and objects
// that are as before but for their status.
func TestCompare(t *testing.T) {
	db, err := history.Open(history.Options{Dir: t.TempDir()})
	testkit.OK(t, err)
	began := time.Date(2026, 3, 1, 13, 0, 0, 0, time.UTC)
	version := 100
	change := func(op event.Op, name, uid, rest string) *event.Event {
		version++
		return &event.Event{
			ID: fmt.Sprint(name, "/", version), Source: "/clusters/prod", Type: "dev.kubebridge.resource." + string(op),
			Op: op, Time: began.Add(time.Duration(version) * time.Second), Informer: "all",
			Sequence: fmt.Sprintf("00000000.%020d", version),
			ObjectAttributes: event.ObjectAttributes{
				Resource: "pods", Kind: "Pod", Namespace: "shop", Name: name, UID: uid, ResourceVersion: fmt.Sprint(version),
			},
			Data: fmt.Appendf(nil, `{"metadata":{"name":%q,"uid":%q},%s}`, name, uid, rest),
		}
	}
	fields := func(value int) string {
		list := make([]string, 40)
		for i := range list {
			list[i] = fmt.Sprintf(`"f%d":%d`, i, value)
		}
		return `"spec":{` + strings.Join(list, ",") + `}`
	}
	events := []*event.Event{
		change(event.Added, "many", "1", fields(1)), change(event.Added, "status", "2", `"status":{"phase":"Pending"}`),
		change(event.Added, "again", "3", `"spec":{}`),
	}
	middle := began.Add(time.Duration(version) * time.Second).Add(500 * time.Millisecond)
	events = append(events,
		change(event.Updated, "many", "1", fields(2)), change(event.Updated, "status", "2", `"status":{"phase":"Running"}`),
		change(event.Deleted, "again", "3", `"spec":{}`), change(event.Added, "again", "4", `"spec":{}`),
		change(event.Added, "brief", "5", `"spec":{}`), change(event.Deleted, "brief", "5", `"spec":{}`))
	_, err = db.Writer.Append(t.Context(), events)
	testkit.OK(t, err)
	h := new(Set)
	defer h.Serve(db.Questions, Place{})()
	text, code := askText(t, h, "compare", "namespace=shop&a="+middle.Format(time.RFC3339Nano)+"&b=2026-03-01T14:00:00Z")
	type compared struct {
		Name, Operation string
		Changed         []any
		MoreChanged     int
		Recreated       bool
	}
	var answer struct {
		Same    int
		Objects []compared
	}
	if err := json.Unmarshal([]byte(text), &answer); err != nil || code != http.StatusOK || len(answer.Objects) != 2 {
		t.Fatalf("%d %s", code, text)
	}
	slices.SortFunc(answer.Objects, func(a, b compared) int { return cmp.Compare(a.Name, b.Name) })
	if o := answer.Objects[1]; o.Name != "many" || o.Operation != "updated" || len(o.Changed) != 32 || o.MoreChanged != 8 {
		t.Errorf("%+v", o)
	}
	if o := answer.Objects[0]; o.Name != "again" || !o.Recreated {
		t.Errorf("%+v", o)
	}
	if answer.Same != 2 { // status, and brief
		t.Errorf("%d are the same", answer.Same)
	}
}
