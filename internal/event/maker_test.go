package event_test

import (
	"encoding/json"
	"net/url"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/resource"
)

var (
	deployments = resource.Type{Group: "apps", Version: "v1", Resource: "deployments", Kind: "Deployment", Namespaced: true}
	nodes       = resource.Type{Version: "v1", Resource: "nodes", Kind: "Node"}
	observed    = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
)

func newMaker(t *testing.T, cfg event.MakerConfig) *event.Maker {
	t.Helper()
	cfg.Cluster, cfg.Informer = "prod", "workloads"
	m, err := event.NewMaker(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Ids are the same for the same change.
func TestStableIDs(t *testing.T) {
	for name, test := range map[string]struct {
		change    event.Change
		selective bool
		want      string
	}{
		"added":                {event.Change{Op: event.Added, UID: "u", Version: "7"}, false, "u/7"},
		"updated":              {event.Change{Op: event.Updated, UID: "u", Version: "8", Before: "7"}, false, "u/8"},
		"found by a relist":    {event.Change{Op: event.Updated, UID: "u", Version: "8", Inferred: true}, false, "u/8"},
		"deleted, watched":     {event.Change{Op: event.Deleted, UID: "u", Version: "9", Before: "8"}, false, "u/deleted"},
		"deleted, inferred":    {event.Change{Op: event.Deleted, UID: "u", Version: "8", Inferred: true}, false, "u/deleted"},
		"left a selector":      {event.Change{Op: event.Deleted, UID: "u", Version: "9", Before: "8"}, true, "u/8/deleted"},
		"synced in round five": {event.Change{Op: event.Synced, UID: "u", Version: "8", Round: 5}, false, "u/8/sync/5"},
	} {
		t.Run(name, func(t *testing.T) {
			test.change.Key = "shop/web"
			e := newMaker(t, event.MakerConfig{Type: deployments, Selective: test.selective}).Object(&test.change)
			if e.ID != test.want {
				t.Errorf("id %q, want %q", e.ID, test.want)
			}
		})
	}
}

func TestAnObjectsEvent(t *testing.T) {
	object := &resource.Object{Raw: []byte(`{"kind":"Deployment"}`)}
	change := event.Change{
		Op: event.Updated, Key: "shop/web", Object: object, UID: "u", Version: "123", Before: "122", Observed: observed,
		Origin: event.Origin{
			By:   resource.FieldManager{Manager: "kubelet", Operation: "Update", Subresource: "status"},
			Time: observed.Add(-time.Second), TimeSource: event.TimeManagedFields,
		},
	}

	e := newMaker(t, event.MakerConfig{Type: deployments}).Object(&change)
	_, got := attributes(&e)
	for name, want := range map[string]string{
		"source": "/clusters/prod", "type": "dev.kubebridge.resource.updated",
		"subject": "apis/apps/v1/namespaces/shop/deployments/web", "partitionkey": "deployments.apps/shop/web",
		"sequence": "00000000.00000000000000000123", "previous": "122", "informer": "workloads", "apiversion": "apps/v1", "kind": "Deployment", "resource": "deployments",
		"namespace": "shop", "name": "web", "uid": "u", "resourceversion": "123", "manager": "kubelet", "lastmanager": "",
		"managersubresource": "status", "manageroperation": "Update",
		"time": "2026-11-21T11:59:59Z", "timesource": "managedfields", "initial": "", "inferred": "", "cause": "",
	} {
		if got[name] != want {
			t.Errorf("%s = %q, want %q", name, got[name], want)
		}
	}
	if &e.Data[0] != &object.Raw[0] {
		t.Error("the payload was copied")
	}
	if e.MessageID() != "workloads/u/123" {
		t.Errorf("message id %q", e.MessageID())
	}

	change = event.Change{
		Op: event.Deleted, Key: "shop/web", Object: object, Origin: event.Origin{LastManager: "kubectl", Time: observed, TimeSource: event.TimeObserved},
	}
	_, got = attributes(new(newMaker(t, event.MakerConfig{Type: deployments}).Object(&change)))
	for name, want := range map[string]string{
		"manager": "", "managersubresource": "", "manageroperation": "", "lastmanager": "kubectl",
		"time": "2026-11-21T12:00:00Z", "timesource": "observed",
	} {
		if got[name] != want {
			t.Errorf("of a deleted event %s = %q, want %q", name, got[name], want)
		}
	}
	if e := newMaker(t, event.MakerConfig{Type: deployments, Payload: event.PayloadReference}).Object(&change); e.Data != nil {
		t.Errorf("a reference with data %s", e.Data)
	}
}

// The event of a cluster-scoped object.
func TestClusterScopedObject(t *testing.T) {
	e := newMaker(t, event.MakerConfig{Type: nodes}).Object(&event.Change{Op: event.Deleted, Key: "n1", UID: "u", Version: "9", Observed: observed})
	if e.Subject != "api/v1/nodes/n1" || e.PartitionKey != "nodes//n1" || e.Namespace != "" || e.Name != "n1" {
		t.Errorf("subject %q, partition key %q, namespace %q, name %q", e.Subject, e.PartitionKey, e.Namespace, e.Name)
	}
}

// TestSequence has the events of one object in the order in which a sink gets them.
func TestSequence(t *testing.T) {
	added, updated, deleted := event.Added, event.Updated, event.Deleted
	first, second := event.IDSuffix{}, event.IDSuffix{Epoch: 1}
	for name, events := range map[string][]event.Change{
		"versions of other lengths": {
			{Op: added, Version: "1"},
			{Op: updated, Version: "9"},
			{Op: updated, Version: "10"},
			{Op: updated, Version: "999"},
			{Op: updated, Version: "18446744073709551615"},
		},
		"an inferred delete, and another object of the name": {
			{Op: updated, Version: "48"},
			{Op: deleted, Version: "48", GoneAsOf: "48", Inferred: true},
			{Op: added, Version: "49"},
			{Op: deleted, Version: "50"},
			{Op: added, Version: "51"},
		},
		"an inferred delete of an earlier state than was sent before a crash": {
			{Op: updated, Version: "48"},
			{Op: updated, Version: "50"},
			{Op: deleted, Version: "48", GoneAsOf: "100", Inferred: true},
			{Op: added, Version: "101"},
		},
		"a restored etcd has an older state of the object": {
			{Op: updated, Version: "900"},
			{Op: updated, Version: "300", IDSuffix: second},
			{Op: updated, Version: "301", IDSuffix: second},
		},
		"a restored etcd does not have the object, which is created again": {
			{Op: updated, Version: "900"},
			{Op: deleted, Version: "900", GoneAsOf: "299", Inferred: true, IDSuffix: second},
			{Op: added, Version: "300", IDSuffix: second},
		},
		"an object that the restored etcd has had unchanged is deleted in a gap": {
			{Op: updated, Version: "300", IDSuffix: first},
			{Op: deleted, Version: "300", Inferred: true, IDSuffix: second},
			{Op: added, Version: "310", IDSuffix: second},
		},
		"another selection": {
			{Op: updated, Version: "300"},
			{Op: deleted, Version: "300", IDSuffix: event.IDSuffix{Selection: 1}},
			{Op: added, Version: "300", IDSuffix: event.IDSuffix{Selection: 2}},
		},
		"a namespace that leaves the selection and comes in again": {
			{Op: updated, Version: "300"},
			{Op: deleted, Version: "300", GoneAsOf: "310"},
			{Op: added, Version: "300", Entered: "305"},
			{Op: deleted, Version: "300", Entered: "305"},
			{Op: added, Version: "300", Entered: "1020"},
			{Op: updated, Version: "1021", Entered: "1020"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			m, last := newMaker(t, event.MakerConfig{Type: nodes}), ""
			for i := range events {
				events[i].Key, events[i].UID = "n1", "u"
				e := m.Object(&events[i])
				if e.Sequence <= last {
					t.Errorf("%s @%s has %q, after %q", e.Op, e.ResourceVersion, e.Sequence, last)
				}
				last = e.Sequence
			}
		})
	}
	m := newMaker(t, event.MakerConfig{Type: nodes})
	e := m.Object(&event.Change{Op: added, Key: "n1", UID: "u", Version: "abc"})
	if e.Sequence != "00000000.abc" {
		t.Errorf("sequence %q of a version that is no number", e.Sequence)
	}
	e = m.Object(&event.Change{Op: added, Key: "n1", UID: "u", Version: "7", IDSuffix: event.IDSuffix{Epoch: 123456789}})
	if e.Sequence != "123456789.00000000000000000007" {
		t.Errorf("sequence %q of a very late epoch", e.Sequence)
	}
}

func TestEventsAboutTheInformer(t *testing.T) {
	m := newMaker(t, event.MakerConfig{Type: deployments})
	gap := m.Gap(&resource.Relist{Reason: resource.ReasonExpired, From: "5", To: "900"}, time.Time{}, event.IDSuffix{}, observed)
	if gap.Type != "dev.kubebridge.informer.gap" || gap.ID != "workloads/deployments.apps/gap/5/900" || gap.Subject != "apis/apps/v1/deployments" || !gap.Inferred {
		t.Errorf("gap event %+v", gap)
	}
	var data struct{ Reason, From, To, Note string }
	if err := json.Unmarshal(gap.Data, &data); err != nil || data.Reason != "expired" || data.From != "5" || data.To != "900" || data.Note == "" {
		t.Errorf("gap data %s, %v", gap.Data, err)
	}
	synced := m.Synced("900", event.Listing{Items: 17}, event.IDSuffix{}, observed)
	if synced.Type != "dev.kubebridge.informer.synced" || synced.ID != "workloads/deployments.apps/synced/900" || string(synced.Data) != `{"version":"900","items":17}` {
		t.Errorf("synced event %+v with data %s", synced, synced.Data)
	}
	synced = m.Synced("900", event.Listing{Items: 17, Unreadable: 2, DeletesUnknown: true}, event.IDSuffix{}, observed)
	if want := `{"version":"900","items":17,"unreadable":2,"deletesUnknown":true}`; string(synced.Data) != want {
		t.Errorf("synced data %s, want %s", synced.Data, want)
	}
	m = newMaker(t, event.MakerConfig{Type: deployments, Omits: []string{"filter", "latest"}})
	synced = m.Synced("900", event.Listing{Items: 17}, event.IDSuffix{}, observed)
	if want := `{"version":"900","items":17,"selective":["filter","latest"]}`; string(synced.Data) != want {
		t.Errorf("synced data %s, want %s", synced.Data, want)
	}
	progress := m.Progress("950", event.Unwatched{}, event.IDSuffix{}, observed)
	if want := `{"version":"950","selective":["filter","latest"]}`; string(progress.Data) != want {
		t.Errorf("progress data %s, want %s", progress.Data, want)
	}
}

// An unknown payload is refused.
func TestUnknownPayload(t *testing.T) {
	if _, err := event.NewMaker(event.MakerConfig{Payload: "everything"}); err == nil {
		t.Error("NewMaker took it")
	}
}

// The source is a URI, whatever the name of the cluster is.
func TestSourceURI(t *testing.T) {
	for cluster, want := range map[string]string{
		"prod-eu-1":                            "/clusters/prod-eu-1",
		"arn:aws:eks:eu-west-1:1:cluster/prod": "/clusters/arn:aws:eks:eu-west-1:1:cluster/prod",
		"admin@prod":                           "/clusters/admin@prod",
		"eu west 5%":                           "/clusters/eu%20west%205%25",
	} {
		m, err := event.NewMaker(event.MakerConfig{Cluster: cluster, Informer: "all", Type: deployments})
		if err != nil {
			t.Fatal(err)
		}
		got := m.Object(&event.Change{Op: event.Added, UID: "u", Version: "7"}).Source
		if parsed, err := url.Parse(got); got != want || err != nil || parsed.Path != "/clusters/"+cluster {
			t.Errorf("of %q: %q (%v), want %q", cluster, got, err, want)
		}
	}
}
