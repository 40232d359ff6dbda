package audit

import (
	"testing"

	"github.com/kubebridge/bridge/internal/event"
)

// A delete may have several steps and several authors: an update that leaves no finalizers deletes
// whatever version is there then, and the API server deletes by itself.
func TestDeletes(t *testing.T) {
	const eviction = `objectRef.subresource="eviction"`
	initial := dying(30, held)
	initial.change = func(e *event.Event) { e.Initial = true }
	for name, c := range map[string]answerCase{
		"a failed delete long before": {
			historyOf(added(10), version{op: event.Deleted, number: 20, minute: 60}),
			[]string{line("bob", "delete", 1, 500, "uid:u1 D10")},
			0, reasonNone,
		},
		"a second delete beside an eviction": {
			historyOf(added(10), dying(20, ""), dying(30, `,"deletionGracePeriodSeconds":1`)),
			[]string{
				line("ann", "delete", 1, 200, "uid:u1 D10"),
				line("bob", "delete", 1, 200, "uid:u1 D10 D20"),
				line("eve", "create", 1, 201, "", eviction),
			},
			0, reasonSeveral,
		},
		"deletecollection beside an eviction that was refused": {
			historyOf(added(10), deleted(30)),
			[]string{
				line("ann", "deletecollection", 1, 200, "uid:u7 D5 D10"),
				line("eve", "create", 1, 429, "", eviction),
			},
			0, reasonSeveral,
		},
		"two of deletecollection": {
			historyOf(added(10), updated(20, `"a":1`), deleted(30)),
			[]string{
				line("bob", "deletecollection", 1, 200, "uid:u7 D1 D8 D13"),
				line("ann", "deletecollection", 1, 200, "uid:u9 D3 D20"),
			},
			0, reasonSeveral,
		},
		"a delete in the foreground, then one in the background": {
			historyOf(added(10), dying(20, `,"finalizers":["foregroundDeletion"]`), deleted(30)),
			[]string{
				line("gc", "patch", 1, 200, "uid:u1 U20", answered("20")),
				line("bob", "delete", 1, 200, "uid:u1 D20"),
			},
			0, reasonSeveral,
		},
		"deletecollection that was refused in the middle": {
			historyOf(added(10), deleted(30)),
			[]string{
				line("ann", "deletecollection", 1, 403, "uid:u7 D5 D10"),
				line("bob", "deletecollection", 1, 200, "uid:u1 D10"),
			},
			0, reasonSeveral,
		},
		"a delete that met a conflict when it had begun": {
			historyOf(added(10), dying(20, "")),
			[]string{line("ann", "delete", 1, 409, "uid:u1 D10 D20"), line("bob", "delete", 1, 500, "uid:u1 D10")},
			0, reasonSeveral,
		},
		// The body's options count, the query's do not: handlers/delete.go:96-128.
		"delete with a body and ?dryRun=All": {
			historyOf(added(10), deleted(20)),
			[]string{
				line("eve", "delete", 1, 200, "uid:u1 D10", uri("dryRun=All")),
				line("ann", "delete", 1, 500, "uid:u1 D10"),
			},
			0, reasonSeveral, // it was eve
		},
		"400 after a delete": {
			historyOf(added(10), deleted(20)),
			[]string{
				line("eve", "delete", 1, 400, "uid:u1 D10", uri("includeObject=x")),
				line("ann", "delete", 1, 504, "uid:u1 D10"),
			},
			0, reasonSeveral, // it was eve
		},
		// The second phase of a delete is refused, when the first has written.
		"delete --now with a precondition of the version, conflict": {
			historyOf(added(10), dying(20, ""), dying(25, `,"labels":{"a":"b"}`)),
			[]string{
				line("eve", "delete", 1, 409, "uid:u1 D10"),
				line("bob", "patch", 1, 200, "uid:u1 U20"),
				line("ann", "delete", 1, 500, "uid:u1 D10"),
			},
			2, reasonSeveral, // it was eve
		},
		"a webhook refuses the second phase": {
			historyOf(added(10), dying(20, "")),
			[]string{line("eve", "delete", 1, 403, "uid:u1 D10 D20"), line("ann", "delete", 1, 500, "uid:u1 D10")},
			0, reasonSeveral, // it was eve
		},
		// An update that empties the finalizers deletes whatever version is there by then.
		"the last finalizer, then a change, then the delete": {
			historyOf(added(10), dying(20, held), dying(30, held+`,"labels":{"a":"b"}`), deleted(40)),
			[]string{
				line("eve", "patch", 1, 200, "uid:u1 U20", answered("20")),
				line("bob", "patch", 1, 200, "uid:u1 U20", answered("30")),
				line("ann", "patch", 1, 200, "uid:u1 U30", answered("30")),
			},
			0, reasonSeveral, // it was eve
		},
		"the last finalizer, by a request that first saw an old version": {
			historyOf(added(10), dying(20, held), deleted(40)),
			[]string{line("ann", "delete", 1, 200, "uid:u1 D10"), line("ann", "patch", 1, 200, "uid:u1 U10 U20")},
			0, "ann complete-log",
		},
		"an update that deletes has not made the change beside it": {
			historyOf(added(10), dying(20, held), dying(30, held+`,"labels":{"a":"b"}`), deleted(40)),
			[]string{ // bob, who made 30, is lost; nothing has answers
				line("eve", "patch", 1, 200, "uid:u1 U20"), line("kubelet", "delete", 1, 200, "uid:u1 D30"),
				line("ann", "patch", 1, 200, "uid:u1 U30"),
			},
			3, "eve complete-log", // it was bob (lost); eve has deleted it
		},
		"an update that empties the finalizers deletes the next object of that name": {
			historyOf(added(10), dying(20, held), deleted(30), second(added(40)),
				second(deleted(50))),
			[]string{
				line("eve", "patch", 1, 200, "uid:u1 U20", answered("20")),
				line("bob", "patch", 1, 200, "uid:u1 U20", answered("20")),
				line("dan", "create", 1, 201, "uid:u2 Cu2"), line("ann", "delete", 1, 504, "uid:u2 D40"),
			},
			0, reasonSeveral, // it was eve
		},
		"an update that can't have begun the delete": {
			historyOf(added(10), dying(20, "")),
			[]string{line("ann", "patch", 1, 200, "uid:u1 U10"), line("bob", "delete", 1, 200, "uid:u1 D9 D10")},
			0, "bob exact",
		},
		// A no-op deletes too, where the first phase of a delete is through.
		"a no-op between the phases of a delete": {
			historyOf(added(10), dying(20, `,"deletionGracePeriodSeconds":0`), deleted(30)),
			[]string{
				line("ann", "delete", 1, 200, "uid:u1 D10 D20"),
				line("eve", "patch", 1, 200, "uid:u1 U20=", `objectRef.subresource="status"`, answered("20")),
			},
			0, reasonSeveral, // it was eve
		},
		// The API server deletes them.
		"Endpoints go with their Service": {
			historyIn("endpoints", "", "shop", added(10), deleted(20)),
			[]string{
				line("eve", "delete", 1, 200, "uid:s1 D9",
					`objectRef={"resource":"services","namespace":"shop","name":"web"}`,
				),
				line("ann", "deletecollection", 1, 200, "uid:u1 D10",
					`objectRef={"resource":"endpoints","namespace":"shop"}`,
				),
			},
			0, reasonSeveral, // it was eve
		},
		// Its lease in etcd does.
		"an Event ends by itself": {
			historyIn("events", "", "shop", added(10), deleted(20)),
			[]string{
				line("ann", "deletecollection", 1, 200, "uid:u1 D10",
					`objectRef={"resource":"events","namespace":"shop"}`,
				),
			},
			0, reasonSeveral, // it was its TTL
		},
		// The API server looks for finalizers where the policy sees nothing.
		"a delete of what got a finalizer meanwhile": {
			historyOf(added(10), finalized(20), deleted(30)),
			[]string{line("eve", "delete", 1, 200, "uid:u1 D20"), line("ann", "delete", 1, 500, "uid:u1 D10 D20")},
			0, "eve exact",
		},
		"a delete of what got a finalizer meanwhile, beside a deletecollection": {
			historyOf(added(10), finalized(20), deleted(30)),
			[]string{line("eve", "delete", 1, 200, "uid:u1 D20"), line("ann", "deletecollection", 1, 200, "uid:u7 D5 D20")},
			0, "eve exact",
		},
		"an update with a version that deletes a later one": {
			historyOf(added(10), dying(20, held), withSpec(dying(30, held), `"a":1`), deleted(40)),
			[]string{line("bob", "update", 1, 200, "uid:u1 U20", `objectRef.resourceVersion="20"`)},
			3, reasonHole, // bob has deleted it; who made 30 is lost
		},
		"an update that deletes what it read unseen": {
			historyOf(added(10), updated(20, `"a":1`), withSpec(dying(94, held), `"a":1`), withSpec(dying(95, held), `"a":2`), deleted(100)),
			[]string{
				line("ann", "patch", 1, 200, "uid:u1 U10"), line("carol", "delete", 1, 200, "uid:u1 D20"),
				line("dan", "patch", 1, 200, "uid:u1 U94"),
			},
			2, reasonHole, // it was bob (lost); ann has deleted 95
		},
		"the last finalizer of a version before a list": {
			historyOf(initial, deleted(40)),
			[]string{line("eve", "patch", 1, 200, "uid:u1 U25"), line("carol", "patch", 1, 200, "uid:u1 U30=")},
			0, reasonSeveral, // it was eve
		},
		// The API server deletes them without requests.
		"custom objects go with their definition": {
			historyIn("widgets", "example.com", "shop", added(10), deleted(20)),
			[]string{
				line("eve", "delete", 1, 200, "uid:d1 D9",
					`objectRef={"resource":"customresourcedefinitions","apiGroup":"apiextensions.k8s.io","name":"widgets.example.com"}`,
				),
				line("ann", "delete", 1, 504, "uid:u1 D10",
					`objectRef={"resource":"widgets","apiGroup":"example.com","namespace":"shop","name":"web"}`,
				),
			},
			0, reasonSeveral, // it was the API server, since eve has deleted the definition
		},
		// The object after it is deleted by the same request.
		"a delete that has deleted the next object": {
			historyOf(added(10), deleted(20), second(added(94)),
				second(deleted(95))),
			[]string{line("ann", "delete", 1, 200, "uid:u1 D10"), line("dan", "create", 1, 201, "uid:u2 Cu2")},
			2, "ann complete-log", // it was bob (lost); ann has deleted the next one
		},
		"a delete that can't have added a finalizer": {
			historyOf(added(10), finalized(20)),
			[]string{line("ann", "delete", 1, 200, "uid:u1 D10")},
			0, reasonNone,
		},
		"a hidden try of a delete, beside who has added a finalizer": {
			historyOf(
				added(8), updated(13, ""),
				finalized(20),
			),
			[]string{line("ann", "patch", 1, 200, "uid:u1 U13"), line("bob", "delete", 1, 200, "uid:u1 D1 D6 D8")},
			0, "ann exact",
		},
		"the last finalizer, beside one that has made the version before": {
			historyOf(added(10), dying(20, held), dying(30, held+`,"labels":{"a":"b"}`), deleted(40)),
			[]string{
				line("bob", "patch", 1, 200, "uid:u1 U20", answered("30")),
				line("ann", "patch", 1, 200, "uid:u1 U30", answered("30")),
			},
			0, "ann complete-log",
		},
		"the last finalizer of a version outside of the selector": {
			historyOf(
				added(10), because(deleted(20), event.CauseLeft),
				because(version{op: event.Added, number: 30, minute: 1, metadata: dying(0, held).metadata}, event.CauseEntered),
				deleted(40),
			),
			[]string{line("eve", "patch", 1, 200, "uid:u1 U25"), line("carol", "patch", 1, 200, "uid:u1 U30=")},
			0, reasonSeveral, // it was eve
		},
	} {
		t.Run(name, func(t *testing.T) { c.check(t) })
	}
}
