package history_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/history"
	"github.com/kubebridge/bridge/internal/testkit"
)

// BenchmarkAppend stores versions of pods of 6 KB that change their status, in batches of 1,000:
// processor time, compactions included, and bytes on disk, of each version.
func BenchmarkAppend(b *testing.B) {
	const objects = 10_000
	random := rand.New(rand.NewPCG(1, 2))
	fixed := make([]string, objects)
	for i := range fixed {
		var pad strings.Builder
		for pad.Len() < 5500 {
			fmt.Fprintf(&pad, `{"name":"env-%d","value":"%x"},`, pad.Len(), random.Uint64())
		}
		fixed[i] = pad.String()
	}
	previous := make([]int, objects)
	dir := b.TempDir()
	db, err := history.Open(history.Options{Dir: dir})
	testkit.OK(b, err)
	at := time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC)
	began := processorTime(b)
	var batch []*event.Event
	version := 1000
	for b.Loop() {
		version++
		i := random.IntN(objects)
		at = at.Add(10 * time.Millisecond)
		batch = append(batch, podVersion(i, version, previous[i], at, fixed[i]))
		previous[i] = version
		if len(batch) == 1000 {
			_, err := db.Writer.Append(b.Context(), batch)
			testkit.OK(b, err)
			batch = batch[:0]
		}
	}
	used := processorTime(b) - began
	b.ReportMetric(float64(used.Microseconds())/float64(b.N), "µs-cpu/version")
	testkit.OK(b, db.Close())
	db, err = history.Open(history.Options{Dir: dir}) // what lay in the log is a table afterwards
	testkit.OK(b, err)
	b.ReportMetric(float64(db.Maintenance.DiskBytes())/float64(b.N), "B-disk/version")
	testkit.OK(b, db.Close())
}

func podVersion(i, version, previous int, at time.Time, fixed string) *event.Event {
	return podVersionIn("shop", i, version, previous, at, fixed)
}

func podVersionIn(namespace string, i, version, previous int, at time.Time, fixed string) *event.Event {
	name := fmt.Sprintf("web-%d", i)
	v := fmt.Sprint(version)
	e := &event.Event{
		ID: name + "/" + v, Source: "/clusters/prod", Type: "dev.kubebridge.resource.updated", Op: event.Updated, Time: at,
		OriginAttributes: event.OriginAttributes{
			TimeSource: event.TimeManagedFields, Manager: "kubelet",
			ManagerSubresource: "status", ManagerOperation: "Update",
		}, Subject: "api/v1/namespaces/" + namespace + "/pods/" + name, PartitionKey: "pods/" + namespace + "/" + name,
		Sequence: fmt.Sprintf("00000000.%020d", version), ObjectAttributes: event.ObjectAttributes{
			APIVersion: "v1", Kind: "Pod", Resource: "pods", Namespace: namespace,
			Name: name, UID: name, ResourceVersion: v,
		}, Routing: event.Routing{Version: "v1"}, Informer: "all",
	}
	if previous > 0 {
		e.Previous = fmt.Sprint(previous)
	}
	e.Data = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"namespace":%q,"uid":%q,"resourceVersion":%q},`+
		`"spec":{"env":[%s{}]},"status":{"phase":"Running","conditions":[{"type":"Ready","status":"%t","lastTransitionTime":%q}],`+
		`"podIP":"10.0.%d.%d","restartCount":%d}}`, name, namespace, name, v, fixed, version%2 == 0, at.Format(time.RFC3339), version%250, i%250, version%7)
	return e
}

// processorTime is what this process has used.
func processorTime(b testing.TB) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	testkit.OK(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
