package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

var listPods = flag.Int("list.pods", 5000, "how many pods TestLongList lists; make bench-list has 100,000")

// longListMemory is the most that bridge serve may have in memory while it lists pods of 5 KB, 100
// or 100,000: it sends a list as it reads it.
const longListMemory = 200 << 20

// A long list is read in pages, by a program whose memory does not grow with it. What a page takes
// of both servers is printed: beside the API server, which has the same pods.
func TestLongList(t *testing.T) {
	if testing.Short() {
		t.Skip("it fills a cluster; make bench-list")
	}
	l := newLab(t, ownCluster(t, "long", noControllers, "--etcd-compaction-interval=0"))
	b := l.bridge("bridge", `
informers: [{name: pods, resources: [pods]}]`+kept)
	l.storePods(*listPods)
	l.start(b)
	l.recorded(b, fmt.Sprintf("pod/checkout-%08d", *listPods-1))
	l.stop(b)
	served, cmd := l.servedProcess("past.yaml", b, "--live")
	api := &listedServer{l.Admin(), l.Pid()}
	past := &listedServer{served, cmd.Process.Pid}
	const limit = 500
	for _, form := range []struct{ name, accept, encoding string }{
		{"objects", "application/json", "identity"},
		{"objects, gzip", "application/json", "gzip"},
		{"a table, gzip", "application/json;as=Table;v=v1;g=meta.k8s.io", "gzip"},
	} {
		want := api.list(t, l.namespace, limit, form.accept, form.encoding)
		got := past.list(t, l.namespace, limit, form.accept, form.encoding)
		if got.objects != *listPods || want.objects != *listPods {
			t.Errorf("%s: %d pods, and %d of the API server, want %d", form.name, got.objects, want.objects, *listPods)
		}
		t.Logf("%s: first page %v (API server %v), CPU per object %.1f µs (API server %.1f µs): %.2f of it", form.name,
			got.first, want.first, got.cpu, want.cpu, got.cpu/want.cpu)
	}
	list := past.list(t, l.namespace, 0, "application/json", "identity") // in one answer
	t.Logf("without a limit: %d pods, %v", list.objects, list.first)
	if peak := peakMemory(t, past.pid); peak > longListMemory && !raceEnabled { // which takes twice as much
		t.Errorf("bridge serve had %d MB, at most %d", peak>>20, longListMemory>>20)
	} else {
		t.Logf("bridge serve had at most %d MB", peak>>20)
	}
}

// storePods writes pods into etcd, as the API server would: that takes a tenth of the time.
func (l *lab) storePods(n int) {
	l.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "bench", "apiserver", "pod.json"))
	must(l.t, err)
	for mark, value := range map[string]string{"TIMETIMETIMETIMETIME": "2026-11-02T09:14:21Z", "VERSIONNNN": ""} {
		text = bytes.ReplaceAll(text, []byte(mark), []byte(value))
	}
	var pod corev1.Pod
	must(l.t, json.Unmarshal(text, &pod))
	pod.Namespace, pod.ManagedFields = l.namespace, nil
	pod.TypeMeta = metav1.TypeMeta{Kind: "Pod", APIVersion: "v1"}
	store, err := clientv3.New(clientv3.Config{Endpoints: []string{l.Etcd}, DialTimeout: 10 * time.Second, Context: l.ctx})
	must(l.t, err)
	defer store.Close()
	encoder := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	// One write each: of several in one revision the API server's cache takes the first for all.
	var writes errgroup.Group
	writes.SetLimit(32)
	for i := range n {
		pod.Name = fmt.Sprintf("checkout-%08d", i)
		pod.UID = types.UID(fmt.Sprintf("5f0c6a4e-2a3d-4d7b-9c1e-0000%08d", i))
		key := "/registry/pods/" + l.namespace + "/" + pod.Name
		var value bytes.Buffer
		must(l.t, encoder.Encode(&pod, &value))
		writes.Go(func() error {
			_, err := store.Put(l.ctx, key, value.String())
			return err
		})
	}
	must(l.t, writes.Wait())
}

// listedServer is an API server, and the process that it is.
type listedServer struct {
	*rest.Config
	pid int
}

// listCost is what a list took.
type listCost struct {
	objects int
	first   time.Duration // until the first page was read, the median of some
	cpu     float64       // µs of the server for each object
}

// list reads all pages of a list. A limit of 0 has one.
func (s *listedServer) list(t *testing.T, namespace string, limit int, accept, encoding string) (cost listCost) {
	t.Helper()
	var times []time.Duration
	for range 9 {
		began := time.Now()
		s.page(t, namespace, limit, "", accept, encoding)
		times = append(times, time.Since(began))
		if limit == 0 {
			break
		}
	}
	slices.Sort(times)
	cost.first = times[len(times)/2].Round(100 * time.Microsecond)
	before := usageOf(t, s.pid)
	for next, isFirst := "", true; next != "" || isFirst; isFirst = false {
		var n int
		n, next = s.page(t, namespace, limit, next, accept, encoding)
		cost.objects += n
	}
	cost.cpu = float64((usageOf(t, s.pid).cpu - before.cpu).Microseconds()) / float64(max(cost.objects, 1))
	return cost
}

// page reads one page: how many pods it has, and where the next one begins.
func (s *listedServer) page(t *testing.T, namespace string, limit int, next, accept, encoding string) (n int, behind string) {
	t.Helper()
	transport, err := rest.TransportFor(s.Config)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	url := fmt.Sprintf("%s/api/v1/namespaces/%s/pods?limit=%d&continue=%s", strings.TrimSuffix(s.Host, "/"), namespace, limit, next)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	must(t, err)
	r.Header.Set("Accept", accept)
	if encoding == "identity" { // else the transport asks for gzip, and unpacks it
		r.Header.Set("Accept-Encoding", encoding)
	}
	response, err := transport.RoundTrip(r)
	must(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	must(t, err)
	if response.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s %.300s", url, response.Status, body)
	}
	const mark = `"continue":"`
	if at := bytes.LastIndex(body, []byte(mark)); at >= 0 {
		behind, _, _ = strings.Cut(string(body[at+len(mark):]), `"`)
	}
	return bytes.Count(body, []byte(`"uid":"5f0c6a4e-`)), behind
}

// peakMemory is the most that a process had in memory.
func peakMemory(t *testing.T, pid int) (bytes int64) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	_, err = fmt.Sscan(rest, &bytes)
	must(t, err)
	return bytes << 10
}
