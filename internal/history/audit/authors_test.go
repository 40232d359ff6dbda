package audit

import (
	"fmt"
	"testing"

	"github.com/kubebridge/bridge/internal/event"
)

const held = `,"finalizers":["a"],"deletionGracePeriodSeconds":0`

func added(number int) version { return version{op: event.Added, number: number, minute: 1} }

func updated(number int, spec string) version {
	return version{op: event.Updated, number: number, minute: 1, spec: spec}
}

func deleted(number int) version { return version{op: event.Deleted, number: number, minute: 1} }

// dying is being deleted.
func dying(number int, metadata string) version {
	v := version{op: event.Updated, number: number, minute: 1}
	v.metadata = `,"deletionTimestamp":"2026-11-29T12:01:00Z"` + metadata
	return v
}

// finalized is a version with a finalizer.
func finalized(number int) version {
	return version{op: event.Updated, number: number, minute: 1, metadata: `,"finalizers":["a"]`}
}

func withSpec(v version, spec string) version {
	v.spec = spec
	return v
}

func of(uid string, v version) version {
	v.change = func(e *event.Event) { e.UID = uid }
	return v
}

// second is of the next object of that name.
func second(v version) version { return of("u2", v) }

func because(v version, cause string) version {
	v.change = func(e *event.Event) { e.Cause = cause }
	return v
}

func listed(v version) version {
	v.change = func(e *event.Event) { e.Inferred = true }
	return v
}

func uri(query string) string { return `requestURI="/api/v1/namespaces/shop/pods/web?` + query + `"` }

// Another request may have made a version: without a claim of the one before, long before, or of
// which the API server notes something else, or nothing.
func TestOtherAuthors(t *testing.T) {
	const (
		binding = `objectRef.subresource="binding"`
		bound   = `"nodeName":"n1"`
		widget  = `objectRef={"resource":"widgets","apiGroup":"example.com","namespace":"shop","name":"web"}`
	)
	entered := because(version{op: event.Added, number: 10, minute: 1, spec: bound}, event.CauseEntered)
	// Ann has made 20, and may have read the later version.
	mayHaveRead := func(later int, notes, want string) answerCase {
		return answerCase{
			historyOf(added(10), updated(20, `"a":1`), updated(later, `"a":2`), updated(later+1, `"a":3`)),
			[]string{
				line("ann", "patch", 1, 200, "uid:u1 "+notes),
				line("carol", "patch", 1, 200, "uid:u1 U20"),
				line("dan", "patch", 1, 200, fmt.Sprint("uid:u1 U", later)),
			},
			2, want,
		}
	}
	for name, c := range map[string]answerCase{
		"a no-op that answers what another has made": {
			historyOf(added(10), updated(15, `"a":2`), updated(20, "")),
			[]string{line("eve", "patch", 1, 200, "uid:u1 U10=", answered("20"))},
			0, reasonNone,
		},
		"a no-op of the version before": {
			historyOf(added(10), updated(20, "")),
			[]string{line("eve", "patch", 1, 200, "uid:u1 U10=", answered("20"))},
			0, reasonNone,
		},
		"bound before it was selected": {
			historyOf(entered),
			[]string{line("scheduler", "create", 1, 201, "", binding, `objectRef.uid="u1"`)},
			0, reasonEntered,
		},
		"the binding of another pod of that name": {
			historyOf(added(10), updated(20, bound), deleted(30), second(added(40)), second(updated(50, bound))),
			[]string{
				line("ann", "create", 1, 201, "", binding, `objectRef.uid="u1"`),
				line("bob", "create", 1, 201, "", binding, `objectRef.uid="u2"`),
			},
			0, "bob exact",
		},
		"a binding whose answer was lost": {
			historyOf(added(10), updated(20, bound)),
			[]string{line("ann", "create", 1, 504, "", binding), line("bob", "patch", 1, 500, "uid:u1 U10")},
			0, reasonSeveral,
		},
		"a dry run, spelled otherwise": {
			historyOf(added(10), updated(20, bound)),
			[]string{
				line("eve", "create", 1, 201, "",
					binding,
					`requestURI="/api/v1/namespaces/shop/pods/web/binding?dry%52un=All"`,
				),
			},
			0, reasonNone,
		},
		"a hidden try of an update": {
			historyOf(added(8), updated(13, ""), updated(20, `"a":1`), updated(97, `"a":3`)),
			[]string{
				line("ann", "patch", 1, 200, "uid:u1 U8 U13", answered("97")),
				line("carol", "patch", 1, 500, "uid:u1 U20"),
			},
			0, reasonSeveral,
		},
		"an answer that the policy has not seen": {
			historyOf(added(10), updated(20, `"a":1`)),
			[]string{line("bob", "patch", 1, 200, "", answered("20")), line("ann", "patch", 1, 500, "uid:u1 U10")},
			0, reasonSeveral,
		},
		"a hidden try behind one to create": {
			historyOf(added(10), updated(84, `"a":1`), updated(168, `"a":3`)),
			[]string{line("ann", "patch", 1, 200, "uid:u7 Cu7"), line("carol", "patch", 1, 500, "uid:u1 U84")},
			0, reasonSeveral,
		},
		"a hidden try behind one of the object before": {
			historyOf(of("u0", added(104)), of("u0", deleted(110)), added(188), updated(189, `"a":3`)),
			[]string{line("ann", "patch", 1, 200, "uid:u0 U104"), line("carol", "patch", 1, 500, "uid:u1 U188")},
			0, reasonSeveral,
		},
		"one whose first try was of the object before": {
			historyOf(added(10), updated(20, `"a":1`)),
			[]string{line("ann", "patch", 1, 200, "uid:u0 U9 U10"), line("carol", "patch", 1, 500, "uid:u1 U10")},
			0, reasonSeveral,
		},
		"one whose first try was of the object before, alone": {
			historyOf(added(10), updated(20, `"a":1`)),
			[]string{line("ann", "patch", 1, 200, "uid:u0 U9 U10")},
			0, "ann complete-log",
		},
		// 94 hides behind 10 from the first policy, 2782 from both.
		"one that may have read a later version":              mayHaveRead(94, "U10", "ann complete-log"),
		"one that can't have, by the second policy":           mayHaveRead(94, "U10 2:U10", "ann exact"),
		"one that may have, as the second policy lacks a try": mayHaveRead(94, "U9 U10 2:U10", "ann complete-log"),
		"one that may have, hidden from both policies":        mayHaveRead(2782, "U10 2:U10", "ann complete-log"),
		"a no-op that may have been stored": {
			historyOf(added(10), updated(20, "")),
			[]string{line("migrator", "update", 1, 200, "uid:u1 U10="), line("ann", "patch", 1, 500, "uid:u1 U10")},
			0, reasonSeveral,
		},
		"a no-op that was answered": {
			historyOf(added(10), updated(20, "")),
			[]string{
				line("bob", "update", 1, 200, "uid:u1 U10=", answered("10")),
				line("ann", "patch", 1, 200, "uid:u1 U9 U10"),
			},
			0, "ann exact",
		},
		"a later change that may be of the same request": {
			historyOf(added(10), updated(20, `"a":1`), updated(94, `"a":2`), updated(95, `"a":3`)),
			[]string{
				line("ann", "patch", 1, 200, "uid:u1 U10"),
				line("carol", "patch", 1, 200, "uid:u1 U20"),
				line("dan", "patch", 1, 500, "uid:u1 U94"),
			},
			2, reasonHole,
		},
		"keys that others have used": {
			historyOf(added(10), updated(20, `"a":1`), updated(30, `"a":2`)),
			[]string{line("ann", "patch", 1, 200, "uid:u1 U10 junk"), line("bob", "patch", 1, 500, "uid:u1 U20")},
			0, reasonSeveral,
		},
		// TransformResponseObject answers 400 and 406 when everything is written.
		"400 after the write": {
			historyOf(added(10), updated(20, `"a":1`)),
			[]string{
				line("eve", "patch", 1, 400, "uid:u1 U10", uri("includeObject=x")),
				line("ann", "patch", 1, 500, "uid:u1 U10"),
			},
			0, reasonSeveral, // it was eve
		},
		"406 after the write": {
			historyOf(added(10), updated(20, `"a":1`)),
			[]string{line("eve", "patch", 1, 406, "uid:u1 U10"), line("ann", "patch", 1, 504, "uid:u1 U10")},
			0, reasonSeveral, // it was eve
		},
		"400 after a binding": {
			historyOf(added(10), updated(20, bound)),
			[]string{
				line("eve", "create", 1, 400, "", binding, `objectRef.uid="u1"`, uri("includeObject=x")),
				line("ann", "patch", 1, 500, "uid:u1 U10"),
			},
			0, reasonSeveral, // it was eve
		},
		// The API server logs the body's namespace before it clears it.
		"an update of a cluster-scoped object with a namespace in its body": {
			historyIn("nodes", "", "", added(10), updated(20, `"a":1`)),
			[]string{
				line("eve", "update", 1, 200, "uid:u1 U10",
					`objectRef={"resource":"nodes","name":"web","namespace":"x"}`,
				),
				line("ann", "patch", 1, 500, "uid:u1 U10", `objectRef={"resource":"nodes","name":"web"}`),
			},
			0, "eve exact", // it was eve
		},
		// "00" is 0 to the API server, so the update has no version.
		"an update with version 00": {
			historyOf(added(10), updated(20, `"a":1`), updated(94, `"a":2`), updated(95, `"a":3`)),
			[]string{ // bob, who made 20, is lost
				line("ann", "update", 1, 200, "uid:u1 U10", `objectRef.resourceVersion="00"`),
				line("carol", "patch", 1, 200, "uid:u1 U20"), line("dan", "patch", 1, 500, "uid:u1 U94"),
			},
			2, reasonHole, // it was bob (lost); ann has made 95
		},
		"one that has certainly written, beside one that may have": {
			historyOf(added(10), updated(20, `"a":1`), updated(30, `"a":2`)),
			[]string{
				line("ann", "update", 1, 200, "uid:u1 U20", `objectRef.resourceVersion="20"`),
				line("bob", "patch", 1, 200, "uid:u0 U19 U20"),
			},
			0, "ann exact",
		},
		// They have no subresource.
		"the bindings of v1": {
			historyOf(added(10), updated(20, bound)),
			[]string{
				line("eve", "create", 1, 201, "",
					`objectRef={"resource":"bindings","namespace":"shop","name":"web","uid":"u1"}`,
				),
				line("ann", "patch", 1, 500, "uid:u1 U10"),
			},
			0, reasonFailed, // it was eve
		},
		// Null and [] are the same bytes in protobuf.
		"a list that is null or empty": {
			historyIn("clusterroles", "rbac.authorization.k8s.io", "",
				version{op: event.Added, number: 10, minute: 1, spec: `"rules":null`},
				updated(20, `"a":1`),
			),
			[]string{
				line("ann", "update", 1, 200, "uid:u1 U10",
					`objectRef={"resource":"clusterroles","apiGroup":"rbac.authorization.k8s.io","name":"web"}`,
				),
			},
			0, "ann complete-log", // it was bob (lost); ann has written nothing
		},
		// The API server reads again when a no-op was one of a cached version.
		"a no-op of an older version that answers what entered": {
			historyOf(because(added(10), event.CauseEntered)),
			[]string{
				line("bob", "patch", 1, 200, "uid:u1 U7"),
				line("eve", "patch", 1, 200, "uid:u1 U5=", answered("10")),
			},
			0, reasonEntered, // it was bob
		},
		"a no-op of an older version that answers what left": {
			historyOf(added(10), because(deleted(30), event.CauseLeft)),
			[]string{
				line("bob", "patch", 1, 200, "uid:u1 U10"),
				line("eve", "patch", 1, 200, "uid:u1 U5=", answered("30")),
			},
			0, "bob complete-log", // it was bob
		},
		"a no-op of an older version with hidden keys": {
			historyOf(added(9), updated(93, `"a":1`), updated(100, "")),
			[]string{line("eve", "patch", 1, 200, "uid:u1 U9=", answered("100"))},
			0, reasonNone, // it was bob (lost)
		},
		// Versions of a custom resource may have other fields: to one an update changes nothing,
		// and what is stored lacks the fields of the other.
		"a no-op in another version of a custom resource": {
			historyIn("widgets", "example.com", "shop", added(10), withSpec(dying(20, held), `"x":1`), dying(30, held), deleted(40)),
			[]string{
				line("eve", "patch", 1, 200, "uid:u1 U20=", widget),
				line("bob", "patch", 1, 200, "uid:u1 U20", widget),
				line("carol", "patch", 1, 200, "uid:u1 U30=", widget),
			},
			3, reasonSeveral, // it was eve; bob has deleted it
		},
		"an answer of the next object, which is outside of the selector": {
			historyOf(added(10), updated(20, ""), updated(30, `"a":1`), because(deleted(40), event.CauseDeleted)),
			[]string{
				line("ann", "patch", 1, 200, "uid:u1 U20", `responseObject={"metadata":{"uid":"u2","resourceVersion":"105"}}`),
				line("carol", "delete", 1, 200, "uid:u1 D30"),
			},
			3, reasonNone, // it was bob (lost)
		},
		"a later object, which is outside of the selector": {
			historyOf(added(10), updated(20, `"a":1`), because(deleted(25), event.CauseDeleted)),
			[]string{line("ann", "patch", 1, 200, "uid:u1 U10"), line("carol", "delete", 1, 200, "uid:u1 D20")},
			2, "ann complete-log", // it was bob (lost); ann has changed the later object
		},
		// A server whose policy informer has no policy yet; its request has no notes.
		"a request that the policy has not seen, without answers": {
			historyOf(added(10), updated(20, `"a":1`)),
			[]string{line("bob", "patch", 1, 200, ""), line("ann", "patch", 1, 504, "uid:u1 U10")},
			0, reasonFailed, // it was bob
		},
		// Of the versions before a list, a gap or a selector nothing is known.
		"a hidden try of versions before a list": {
			historyOf(
				version{op: event.Updated, number: 20, minute: 1, change: func(e *event.Event) { e.Initial = true }},
				updated(97, `"a":3`),
			),
			[]string{line("eve", "patch", 1, 200, "uid:u1 U8 U13"), line("ann", "patch", 1, 500, "uid:u1 U20")},
			0, reasonFailed, // it was eve
		},
		"a hidden try outside of the selector": {
			historyOf(added(10), updated(20, `"a":1`), because(deleted(30), event.CauseLeft)),
			[]string{line("ann", "patch", 1, 200, "uid:u1 U10"), line("carol", "patch", 1, 200, "uid:u1 U20")},
			2, "ann complete-log", // it was bob (lost); ann has made 95, outside
		},
		// The claim of a creation takes the keys of 0.
		"an update that has created the next object": {
			historyOf(added(84), updated(90, `"a":1`), deleted(95),
				second(added(96))),
			[]string{line("ann", "patch", 1, 201, "uid:u1 U84"), line("carol", "delete", 1, 200, "uid:u1 D90")},
			2, reasonNone, // it was bob (lost); ann has created the next one
		},
		"a no-op beside a change of fields": {
			historyOf(added(10), dying(20, held), withSpec(dying(30, held), `"a":1`)),
			[]string{line("eve", "patch", 1, 200, "uid:u1 U20="), line("bob", "patch", 1, 200, "uid:u1 U20")},
			0, "bob complete-log",
		},
		"one that can't have made a later change, by its version": {
			historyOf(added(10), updated(20, `"a":1`), updated(94, `"a":2`), updated(95, `"a":3`)),
			[]string{
				line("ann", "update", 1, 200, "uid:u1 U10", `objectRef.resourceVersion="10"`),
				line("carol", "patch", 1, 200, "uid:u1 U20"), line("dan", "patch", 1, 500, "uid:u1 U94"),
			},
			2, "ann exact",
		},
		"a later version that a list has shown": {
			historyOf(added(10), updated(20, `"a":1`), listed(updated(30, `"a":2`))),
			[]string{line("ann", "patch", 1, 200, "uid:u1 U10")},
			2, reasonHole,
		},
	} {
		t.Run(name, func(t *testing.T) { c.check(t) })
	}
}
