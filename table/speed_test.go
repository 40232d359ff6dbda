package table

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/iceberg-go"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
	"github.com/kubebridge/bridge/internal/testkit"
)

var (
	speedRows  = flag.Int("table.rows", 2000, "rows of TestSpeed")
	speedToday = flag.Bool("table.today", false, "the rows of TestSpeed are of today: no snapshot rows, no compaction")
	speedDir   = flag.String("table.dir", "", "where TestSpeed leaves its table; none: nowhere")
)

const speedObjects = 10_000

var speedBegan = morning.Truncate(day)

// speedEvent is one of the changes of a day: n is its place. Objects have 5.9 KB, of which a part
// is their own, and change their status.
func speedEvent(random *rand.Rand, n, of int) *event.Event {
	i, version := random.IntN(speedObjects), 1000+n
	kind, group, plural := "Pod", "", "pods"
	if i%5 == 0 {
		kind, group, plural = "Deployment", "apps", "deployments"
	}
	typ := strings.TrimSuffix(plural+"."+group, ".")
	namespace, name := fmt.Sprint("shop-", i/500), fmt.Sprint("web-", i)
	e := &event.Event{
		ID: fmt.Sprintf("%s/%d", name, version), Source: "/clusters/prod", Informer: "all",
		Type: "dev.kubebridge.resource.updated", Op: event.Updated,
		Time:         speedBegan.Add(time.Duration(n) * (day / time.Duration(of))),
		Subject:      "api/v1/namespaces/" + namespace + "/" + plural + "/" + name,
		PartitionKey: typ + "/" + namespace + "/" + name, Sequence: fmt.Sprintf("00000000.%020d", version),
		ObjectAttributes: event.ObjectAttributes{
			APIVersion: "v1", Kind: kind, Resource: plural, Namespace: namespace, Name: name, UID: name,
			ResourceVersion: fmt.Sprint(version),
		},
		OriginAttributes: event.OriginAttributes{Manager: "kubelet", ManagerSubresource: "status"},
		Routing:          event.Routing{Version: "v1", Cluster: "prod"},
	}
	own := rand.New(rand.NewPCG(uint64(i), 1))
	var spec strings.Builder
	for v := range 60 {
		fmt.Fprintf(&spec, `{"name":"SETTING_%d","value":"value-of-%x-in-all-replicas"},`, v, own.Uint64()>>40)
	}
	e.Data = fmt.Appendf(nil, `{"apiVersion":"v1","kind":%q,"metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":"%d",`+
		`"labels":{"app":%q,"tier":"web"},"annotations":{"checksum/config":"%x%x"}},"spec":{"env":[%s{}]},`+
		`"status":{"phase":"Running","podIP":"10.0.%d.%d","restartCount":%d,"conditions":[%s]}}`,
		kind, name, namespace, name, version, name, own.Uint64(), own.Uint64(), spec.String(), i/250, i%250, n/speedObjects,
		strings.TrimSuffix(strings.Repeat(fmt.Sprintf(`{"type":"Ready","status":"True","lastTransitionTime":"%s","reason":"ContainersReady","message":""},`,
			e.Time.Format(time.RFC3339)), 18), ","))
	return e
}

// TestSpeed measures what a row costs: make bench-table.
func TestSpeed(t *testing.T) {
	if testing.Short() {
		t.Skip("measures")
	}
	if *speedToday {
		speedBegan = time.Now().UTC().Truncate(day)
	}
	url, dir := jetStream(t), tableDir(t)
	if *speedDir != "" {
		dir = *speedDir
	}
	s, err := nats.New(nats.Options{
		Config: testkit.WithDefaults(nats.Config{Servers: []settings.URL{settings.URL(url)}}),
		Common: sinks.Common{Name: "nats", Encoding: sinks.Binary}, Env: sinks.Env{Cluster: "prod"},
	})
	testkit.OK(t, err)
	testkit.OK(t, s.Open(t.Context()))
	random := rand.New(rand.NewPCG(1, 2))
	const each = 500
	bytes := 0
	for n := 0; n < *speedRows; n += each {
		var batch []*sinks.Message
		for i := range min(each, *speedRows-n) {
			e := speedEvent(random, n+i, *speedRows)
			bytes += len(e.Data)
			batch = append(batch, &sinks.Message{Event: e})
		}
		s.Publish(t.Context(), batch)
		for _, m := range batch {
			testkit.OK(t, m.Err)
		}
	}
	testkit.OK(t, s.Close())
	t.Logf("%d changes, %d bytes of JSON each", *speedRows, bytes / *speedRows)
	measured := func(what string, args ...string) {
		cmd := program(t, append(args, placeArgs(dir)...)...)
		began := time.Now()
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		took := time.Since(began)
		used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		files, err := openTest(t, dir).files(t.Context(), iceberg.AlwaysTrue{})
		testkit.OK(t, err)
		rows, bytes := total(files)
		t.Logf("%s: %.1f s, %.1f µs CPU a row, %.0f rows/s, peak %d MB; %d rows in %d files, %d bytes a row\n%s", what, took.Seconds(),
			float64(used.Microseconds())/float64(*speedRows), float64(*speedRows)/took.Seconds(),
			cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss>>10, rows, len(files), bytes/max(rows, 1), out)
	}
	measured("written", "run", "--once", "--from", url+"/K8S")
	measured("nothing new", "run", "--once", "--from", url+"/K8S")
	measured("compacted", "maintain", "--only", "compact")
}
