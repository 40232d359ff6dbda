package cli

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app"
	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/publisher"
	"github.com/kubebridge/bridge/internal/testkit"
)

func TestProgressLines(t *testing.T) {
	listing := func(pods int) informer.Status {
		return informer.Status{Informer: "all", Resource: "pods", Phase: "listing", Listed: pods}
	}
	secrets := informer.Status{
		Informer: "all", Resource: "secrets", Namespace: "shop", Phase: "backing-off", LastError: "is\nforbidden",
	}
	synced := func(objects int) informer.Status {
		return informer.Status{
			Informer: "all", Resource: "nodes", Phase: "watching", Synced: true, Listed: objects, Objects: &objects,
		}
	}
	sink := func(sent uint64, connected bool, queued int) bridge.SinkStatus {
		return bridge.SinkStatus{
			Name: "audit", Status: publisher.Status{Published: sent, Connected: connected, QueuedItems: queued},
		}
	}
	status := func(sink bridge.SinkStatus, units ...informer.Status) *app.ProcessStatus {
		return &app.ProcessStatus{Status: &bridge.Status{Informers: units, Sinks: []bridge.SinkStatus{sink}}}
	}
	p, at := &progress{}, time.Unix(0, 0)
	for _, step := range []struct {
		what   string
		status *app.ProcessStatus
		want   string
	}{
		{
			"before the API server answers",
			&app.ProcessStatus{Starting: "the API server has not been asked yet"},
			"starting: the API server has not been asked yet",
		},
		{
			"a list begins",
			status(sink(0, true, 0), listing(100), secrets, synced(3)),
			"syncing: 1 of 3 resources in sync, 103 objects listed\n" +
				"  pods                               listing     100 objects\n" +
				"  secrets in shop                    backing-off is forbidden",
		},
		{
			"two seconds later there are rates",
			status(sink(50, true, 0), listing(700), secrets, synced(3)),
			"syncing: 1 of 3 resources in sync, 703 objects listed, 300/s\n" +
				"  pods                               listing     700 objects, 300/s\n" +
				"  secrets in shop                    backing-off is forbidden",
		},
		{
			"in sync it is one line",
			status(sink(250, true, 12), synced(3)),
			"in sync: 1 resource, 3 objects | audit: 250 sent, 62/s, 12 queued",
		},
		{
			"a broker is unavailable",
			func() *app.ProcessStatus {
				s := status(sink(250, false, 12), synced(3))
				s.Reasons = []admin.Reason{{What: "sink audit", Message: "connection refused"}}
				return s
			}(),
			"not ready | audit: 250 sent, 42/s, unavailable, 12 queued | sink audit: connection refused",
		},
	} {
		if got := strings.Join(p.lines(step.status, at, 24), "\n"); got != step.want {
			t.Errorf("%s:\n%s\nwant\n%s", step.what, got, step.want)
		}
		at = at.Add(2 * time.Second)
	}
	t.Run("many resources take half of the terminal", func(t *testing.T) {
		units := slices.Repeat([]informer.Status{listing(1)}, 40)
		lines := (&progress{}).lines(status(sink(0, true, 0), units...), at, 24)
		if len(lines) != 13 || lines[12] != "  and 29 more" {
			t.Errorf("%d lines:\n%s", len(lines), strings.Join(lines, "\n"))
		}
	})
}

func TestProgressElsewhere(t *testing.T) {
	if newProgress(config.Default(), &testkit.Buffer{}, &testkit.Buffer{}) != nil {
		t.Error("it is shown where there is no terminal")
	}
}

// The banner says once where to look, when everything is in sync for the first time.
func TestBanner(t *testing.T) {
	unit := informer.Status{Resource: "pods"}
	s := &app.ProcessStatus{Status: &bridge.Status{Informers: []informer.Status{unit}, Sinks: []bridge.SinkStatus{{Name: "nats"}, {Name: "history"}}}}
	p := &progress{command: "bin/bridge", address: "127.0.0.1:9090"}
	if got := p.banner(s); got != "" {
		t.Errorf("before everything is in sync: %s", got)
	}
	s.Informers[0].Synced = true
	got := p.banner(s)
	for _, want := range []string{"page     http://127.0.0.1:9090/\n", "1 resource, 0 objects\n", "nats, history\n", "bin/bridge status --admin-address 127.0.0.1:9090\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in\n%s", want, got)
		}
	}
	if strings.Contains(got, "timeline") {
		t.Errorf("it names a question to a history that is not kept:\n%s", got)
	}
	if again := p.banner(s); again != "" {
		t.Errorf("a second time: %s", again)
	}
	if got := (&progress{command: "bridge", keeps: true}).banner(s); !strings.Contains(got, "bridge timeline -n default\n") {
		t.Errorf("it names no question to the history:\n%s", got)
	}
}

// Each command is in a group, and each name of a group is a command.
func TestGroups(t *testing.T) {
	root := newRoot(Build{})
	named := 0
	for _, g := range groups {
		named += len(strings.Fields(g.names))
	}
	for _, c := range root.Commands() {
		if named--; c.GroupID == "" {
			t.Errorf("%s is in no group", c.Name())
		}
	}
	if named != 0 {
		t.Errorf("the groups have %d names more than there are commands", named)
	}
}

// A refusal comes with the commands that grant the right.
func TestGrant(t *testing.T) {
	for reason, want := range map[string]string{
		`deployments.apps is forbidden: User "ann" cannot list resource "deployments" in API group "apps" at the cluster scope`: "  kubectl create clusterrole bridge-reader --verb=get,list,watch --resource=deployments.apps\n" +
			`  kubectl create clusterrolebinding bridge-reader --clusterrole=bridge-reader --user="ann"`,
		`pods is forbidden: User "system:serviceaccount:ops:bridge" cannot watch resource "pods" in API group "" in the namespace "shop"`: "  kubectl create role bridge-reader -n shop --verb=get,list,watch --resource=pods\n" +
			"  kubectl create rolebinding bridge-reader -n shop --role=bridge-reader --serviceaccount=\"ops:bridge\"",
		"forbidden": "",
		`pods is forbidden: User "$(id)" cannot list resource "pods" in API group ""`:      "",
		`pods is forbidden: User "ann" cannot list resource "pods;id" in API group ""`:     "",
		`pods is forbidden: User "ann" cannot list resource "pods" in API group "x $(id)"`: "",
	} {
		if got := grantOf(reason); got != want {
			t.Errorf("%s:\n%s\nwant:\n%s", reason, got, want)
		}
	}
	if text := (&forbiddenError{`User "ann" cannot list resource "pods" in API group ""`}).Error(); !strings.Contains(text, "create clusterrolebinding") {
		t.Errorf("the error: %s", text)
	}
}
