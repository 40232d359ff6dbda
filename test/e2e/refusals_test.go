package e2e_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

const configMaps = `informers: [{name: app, resources: [configmaps], namespaces: ["${NS}"]}]`

// refuses starts a bridge that can't start: it has to end with exit code 2, and say why, in
// one message.
func (l *lab) refuses(b *harness.Bridge, words ...string) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(l.ctx, startTime)
	defer cancel()
	code, stderr, err := b.RunToEnd(ctx)
	if err != nil {
		l.t.Fatalf("it should have refused to start: %v; it wrote:\n%s", err, stderr)
	}
	var message []string // what it says as a program, not as a log
	for line := range strings.Lines(stderr) {
		if !strings.HasPrefix(line, "{") {
			message = append(message, line)
		}
	}
	text := strings.Join(message, "")
	if code != 2 || !containsAll(text, words) || len(text) > 2000 {
		l.t.Errorf("exit code %d, want 2, and a message with %q; it wrote:\n%s", code, words, stderr)
	}
	l.t.Logf("it says:\n%s", text)
	if strings.Count(text, "\n") == 0 {
		l.t.Error("it says nothing")
	}
}

// What is wrong at the start is refused with one message.
func TestWrongAtStart(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	for _, c := range []struct {
		name, yaml string
		words      []string
	}{
		{
			"a resource that the API server does not have", `informers: [{name: app, resources: [pods, deploymets, configmaps.example.com]}]` + embedded,
			[]string{"informer app", "deploymets", `did you mean "deployments"`, "configmaps.example.com"},
		},
		{
			"a resource that can't be watched", `informers: [{name: app, resources: [tokenreviews.authentication.k8s.io]}]` + embedded,
			[]string{"tokenreviews", "can't be watched"},
		},
		{
			"a key that does not exist", "informers: [{name: app, resource: [pods]}]" + embedded,
			[]string{"bridge.yaml:", "informers[0].resource", `did you mean "resources"`},
		},
		{
			"a cluster-scoped resource in a namespace", `informers: [{name: app, resources: [nodes], namespaces: [shop]}]` + embedded,
			[]string{"nodes is in no namespace"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := l.in(t)
			l.refuses(l.bridge("bridge", c.yaml), c.words...)
		})
	}
}

// in is the lab for a subtest.
func (l *lab) in(t *testing.T) *lab {
	sub := *l
	sub.t, sub.ctx, sub.dir = t, t.Context(), t.TempDir()
	must(t, sub.WriteKubeconfig(sub.kubeconfig(), sub.Token))
	return &sub
}

// An API server that can't be used is reported or refused.
func TestUnusableAPIServer(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	t.Run("nobody answers", func(t *testing.T) {
		l := l.in(t)
		address, err := harness.FreeAddress()
		must(t, err)
		cp := *l.ControlPlane
		cp.Server = "https://" + address
		must(t, cp.WriteKubeconfig(l.kubeconfig(), l.Token))
		b := l.bridge("bridge", configMaps+embedded)
		must(t, b.Start())
		l.saysNotReady(b, "API server", "nothing answers at", address, "is the cluster running")
		l.stop(b) // it waits, and can be stopped meanwhile
	})
	t.Run("the token is not valid", func(t *testing.T) {
		t.Parallel() // a refusal is believed when it has lasted
		l := l.in(t)
		must(t, l.WriteKubeconfig(l.kubeconfig(), "nonsense-"+l.Token))
		b := l.bridge("bridge", configMaps+embedded)
		l.refuses(b, "refuses the credentials", "expired")
		if strings.Contains(b.Log.String(), l.Token) {
			t.Error("the token is in what it wrote")
		}
	})
	t.Run("the client certificate has expired", func(t *testing.T) {
		t.Parallel() // a refusal is believed when it has lasted
		l := l.in(t)
		must(t, l.WriteExpiredKubeconfig(l.kubeconfig()))
		l.refuses(l.bridge("bridge", configMaps+embedded), "refuses the credentials", "expired")
	})
	t.Run("there is no kubeconfig", func(t *testing.T) {
		l := l.in(t)
		must(t, os.Remove(l.kubeconfig()))
		l.refuses(l.bridge("bridge", configMaps+embedded), l.kubeconfig(), "does not exist")
	})
}

// A right that is missing for one resource stops neither the others nor the bridge, and needs no
// restart once it is given.
func TestMissingRight(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	maps := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch"}}
	limited, err := l.NewIdentity(l.ctx, l.namespace, "limited", maps, harness.ReadClusterID())
	must(t, err)
	must(t, l.WriteKubeconfig(l.kubeconfig(), limited.Token))
	collections := []truth.Collection{truth.Core("configmaps", l.namespace), truth.Core("services", l.namespace)}
	ledger := l.witness(collections...)
	b := l.bridge("bridge", `informers: [{name: app, resources: [configmaps, services], namespaces: ["${NS}"]}]`+embedded)
	must(t, b.Start())

	l.saysNotReady(b, "informer app/services/"+l.namespace, "services", "forbidden")
	l.createConfigMap("goes-on", "1")
	l.updateConfigMap("goes-on", "2")
	o := check.Options{Informers: informerOf("app", collections...)}
	l.complete("config maps", jetStream(b), ledger, o)
	r, err := b.Readiness(l.ctx)
	must(t, err)
	for _, reason := range r.Reasons {
		if !strings.Contains(reason.What, "services") {
			t.Errorf("not ready for more than the missing right: %+v", reason)
		}
	}

	role, err := l.client.RbacV1().ClusterRoles().Get(l.ctx, limited.Role, metav1.GetOptions{})
	must(t, err)
	role.Rules[0].Resources = append(role.Rules[0].Resources, "services")
	_, err = l.client.RbacV1().ClusterRoles().Update(l.ctx, role, metav1.UpdateOptions{})
	must(t, err)
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	must(t, b.WaitReady(ctx))
	l.stop(b)
}

// startNATS runs a NATS server of the test's own.
func startNATS(t *testing.T, address string) (url string) {
	t.Helper()
	host, port := "127.0.0.1", -1
	if address != "" {
		a, err := net.ResolveTCPAddr("tcp", address)
		must(t, err)
		port = a.Port
	}
	s, err := server.NewServer(&server.Options{Host: host, Port: port, JetStream: true, StoreDir: t.TempDir(), NoSigs: true, NoLog: true})
	must(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(10 * time.Second) {
		t.Fatal("the NATS server is not ready")
	}
	return s.ClientURL()
}

const outside = `
sinks: [{name: js, nats: {servers: ["${NATS_URL}"]}}]
`

// A NATS server that is unavailable is reported, and waited for.
func TestUnavailableNATS(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	address, err := harness.FreeAddress()
	must(t, err)
	l.createConfigMap("before", "1")
	collection := truth.Core("configmaps", l.namespace)
	ledger := l.witness(collection)
	b := l.bridge("bridge", configMaps+outside, with(map[string]string{"NATS_URL": "nats://" + address}))
	must(t, b.Start())
	l.saysNotReady(b, "sink js", address)
	l.waitsOnlyFor(b, "js") // it has listed
	l.createConfigMap("meanwhile", "1")

	url := startNATS(t, address)
	ctx, cancel := context.WithTimeout(l.ctx, time.Minute)
	defer cancel()
	must(t, b.WaitReady(ctx))
	l.complete("JetStream", &read.JetStream{URL: url, Stream: "K8S"}, ledger, check.Options{Informers: informerOf("app", collection)})
	l.stop(b)
}

// A stream with another configuration is refused, and left as it is.
func TestOtherStreamConfiguration(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	url := startNATS(t, "")
	conn, err := nats.Connect(url)
	must(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	must(t, err)
	theirs := jetstream.StreamConfig{Name: "K8S", Subjects: []string{"k8s.other.>"}, Retention: jetstream.WorkQueuePolicy}
	_, err = js.CreateStream(l.ctx, theirs)
	must(t, err)

	b := l.bridge("bridge", configMaps+outside, with(map[string]string{"NATS_URL": url}))
	l.refuses(b, "sink", "js", "stream K8S is not as configured", "k8s.other.>", "retention", "choose another stream.name")
	stream, err := js.Stream(l.ctx, "K8S")
	must(t, err)
	if c := stream.CachedInfo().Config; c.Retention != theirs.Retention || c.Subjects[0] != theirs.Subjects[0] {
		t.Errorf("the stream was changed: %+v", c)
	}
}

// A state directory that is not ours is refused.
func TestForeignStateDirectory(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	t.Run("another bridge uses it", func(t *testing.T) {
		l := l.in(t)
		first := l.bridge("bridge", configMaps+embedded)
		l.start(first)
		second := l.bridge("bridge", configMaps+embedded) // same directory, other ports
		l.refuses(second, first.StateDir, "in use by another process")
		l.stop(first)
	})
	t.Run("another version of the format", func(t *testing.T) {
		l := l.in(t)
		b := l.bridge("bridge", configMaps+embedded)
		l.start(b)
		l.stop(b)
		changeFormat(t, filepath.Join(b.StateDir, "db"))
		l.refuses(b, b.StateDir, "format", `"999"`)
	})
	t.Run("other files", func(t *testing.T) {
		l := l.in(t)
		b := l.bridge("bridge", configMaps+embedded)
		must(t, os.MkdirAll(filepath.Join(b.StateDir, "db"), 0o700))
		must(t, os.WriteFile(filepath.Join(b.StateDir, "db", "thesis.txt"), []byte("mine"), 0o600))
		l.refuses(b, b.StateDir, "other files")
	})
	t.Run("a file where the directory should be", func(t *testing.T) {
		l := l.in(t)
		b := l.bridge("bridge", configMaps+embedded)
		must(t, os.WriteFile(b.StateDir, []byte("mine"), 0o600))
		l.refuses(b, b.StateDir, "state.dir")
	})
}

// changeFormat makes a state database one of another version of the bridge.
func changeFormat(t *testing.T, dir string) {
	t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}, FormatMajorVersion: pebble.FormatNewest})
	must(t, err)
	all, err := db.NewIter(nil)
	must(t, err)
	changed := 0
	for ok := all.First(); ok; ok = all.Next() {
		if strings.HasSuffix(string(all.Key()), "format") {
			must(t, db.Set(all.Key(), []byte("999"), pebble.Sync))
			changed++
		}
	}
	must(t, errors.Join(all.Error(), all.Close(), db.Close()))
	if changed != 1 {
		t.Fatalf("%d keys of the state database are called format, want 1", changed)
	}
}

// An admin address that is in use is refused.
func TestAdminAddressInUse(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	address, err := harness.FreeAddress()
	must(t, err)
	listener, err := net.Listen("tcp", address)
	must(t, err)
	defer listener.Close()
	t.Run("of the admin server", func(t *testing.T) {
		l := l.in(t)
		b := l.bridge("bridge", configMaps+embedded, with(map[string]string{"BRIDGE_ADMIN_ADDRESS": address}))
		l.refuses(b, address, "admin")
	})
	t.Run("of the embedded NATS server", func(t *testing.T) {
		l := l.in(t)
		b := l.bridge("bridge", configMaps+embedded, with(map[string]string{"NATS_ADDRESS": address}))
		l.refuses(b, address, "in use")
	})
}

// otherClustersStateIsRefused needs two clusters.
func otherClustersStateIsRefused(t *testing.T, one, other *cluster) {
	l := newLab(t, one)
	b := l.bridge("bridge", configMaps+embedded)
	l.start(b)
	l.stop(b)
	elsewhere := newLab(t, other)
	must(t, other.WriteKubeconfig(l.kubeconfig(), elsewhere.Token))
	l.refuses(b, b.StateDir, "belongs to another cluster", "state.dir")
	must(t, one.WriteKubeconfig(l.kubeconfig(), l.Token))
	l.start(b) // nothing was broken by the attempt
	l.stop(b)
}
