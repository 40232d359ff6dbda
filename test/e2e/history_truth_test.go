package e2e_test

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

var (
	historyTime   = flag.Duration("history.time", time.Second, "how long objects change between two troubles of TestHistoryIsTrue")
	historyKills  = flag.Int("history.kills", 3, "how often it kills the bridge")
	historyPairs  = flag.Int("history.pairs", 1000, "how many objects at moments it asks for")
	historyStates = flag.Int("history.states", 10, "how many states of each namespace it asks for")
	historySeed   = flag.Uint64("history.seed", 0, "what TestHistoryIsTrue changes and asks for; 0 takes a new one each time")
	historyKept   = flag.Duration("history.retention", time.Hour, "what the bridge keeps")
)

const askedConfig = `
informers:
  - {name: app, resources: [configmaps, services, widgets.example.com]}
sinks:
  - {name: kept, history: {retention: %s}}
`

// What a history answers is what a watch of its own and lists of its own saw: through kills, a 410,
// a restored etcd, objects that come back under their names, and retention. Where nobody could see
// something, the answer says so.
func TestHistoryIsTrue(t *testing.T) {
	t.Parallel()
	// Its API server is restarted and restored.
	c := ownCluster(t, "asked", noControllers, "--etcd-compaction-interval=0")
	installWidgets(t, c)
	h := &historyRun{lab: newLab(t, c), seed: cmp.Or(*historySeed, rand.Uint64()), book: newBook()}
	t.Logf("seed %d", h.seed)
	h.namespaces = []string{h.namespace, h.namespace + "-b"}
	_, err := c.client.CoreV1().Namespaces().Create(h.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: h.namespaces[1]}}, metav1.CreateOptions{})
	must(t, err)
	b := h.bridge("bridge", fmt.Sprintf(askedConfig, *historyKept))
	h.watch()
	h.start(b)
	h.first = h.reached(b).last

	h.change(*historyTime)
	for range *historyKills {
		h.killed(b)
	}
	h.absent(b)
	h.change(*historyTime)
	h.restored(b)
	h.change(*historyTime)
	h.last = h.reached(b).last
	h.book.add(h.era, h.ledger)
	if *historyKept < time.Hour { // it begins with retention
		h.stop(b)
		h.start(b)
		h.reached(b)
	}
	h.judge(b)
	h.stop(b)
}

// moment is a place in the history: of a resourceVersion, and a time.
type moment struct {
	era     int // counts restores
	version uint64
	at      time.Time
}

// historyRun is one run.
type historyRun struct {
	*lab
	namespaces []string
	seed       uint64
	ledger     *truth.Ledger
	era        int
	book       *book
	// first and last bound the moments that are asked for.
	first, last moment
	// hidden are the stretches in which the API server forgot what the bridge had not seen.
	hidden []stretch
	// late are those in which no bridge ran. What leaves no time then, as a delete, has that of
	// when the bridge learned of it.
	late []stretch
	// killedAt is when a bridge was killed before a gap: the gap begins at what was committed.
	killedAt []time.Time
	// restoredAt is from which moment on versions are those of after the restore. Those behind
	// backedUp up to twice are used twice.
	restoredAt      moment
	backedUp, twice uint64

	mu    sync.Mutex
	lists []listTaken // guarded by mu
	draws uint64      // guarded by mu
}

type stretch struct{ from, to moment }

func (h *historyRun) random() *rand.Rand {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.draws++
	return rand.New(rand.NewPCG(h.seed, h.draws))
}

var askedKinds = []schema.GroupVersionResource{{Version: "v1", Resource: "configmaps"}, {Version: "v1", Resource: "services"}, widgets}

// watch begins another witness, which has everything that exists.
func (h *historyRun) watch() {
	h.t.Helper()
	h.ledger = h.witness(
		truth.Core("configmaps", ""), truth.Core("services", ""), truth.Named("widgets", "example.com", "v1", ""),
	)
}

// change changes objects for a while, and takes lists.
func (h *historyRun) change(d time.Duration) { h.t.Helper(); h.meanwhile(func() { time.Sleep(d) }) }

// meanwhile does something while objects change.
func (h *historyRun) meanwhile(do func()) {
	h.t.Helper()
	ctx, stop := context.WithCancel(h.ctx)
	defer stop()
	var g errgroup.Group
	for range 3 {
		r := h.random()
		g.Go(func() error { return h.churn(ctx, r) })
	}
	g.Go(func() error { return h.takeLists(ctx) })
	do()
	stop()
	must(h.t, g.Wait())
}

// churn writes to objects that come, change, and come back under their names.
func (h *historyRun) churn(ctx context.Context, r *rand.Rand) error {
	for ctx.Err() == nil {
		kind := askedKinds[[]int{0, 0, 0, 0, 2, 2, 1}[r.IntN(7)]]
		api := h.dynamic.Resource(kind).Namespace(h.namespaces[r.IntN(len(h.namespaces))])
		name := fmt.Sprintf("object-%d", r.IntN(map[string]int{"services": 20}[kind.Resource]+60))
		if kind.Resource == "services" {
			name = fmt.Sprintf("service-%d", r.IntN(20)) // there are few addresses
		}
		var err error
		again := true
		if r.IntN(4) == 0 {
			err = api.Delete(ctx, name, metav1.DeleteOptions{})
			again = err == nil && r.IntN(2) == 0
		}
		if again {
			value := fmt.Sprint(r.Uint64())
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"value":%q}}}`, value)
			if _, err = api.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); apierrors.IsNotFound(err) {
				_, err = api.Create(ctx, newAsked(kind, name, value), metav1.CreateOptions{})
			}
		}
		if apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return err
		}
		select {
		case <-time.After(time.Duration(30+r.IntN(60)) * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

func newAsked(kind schema.GroupVersionResource, name, value string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kind.GroupVersion().String(),
		"kind":       map[string]string{"configmaps": "ConfigMap", "services": "Service", "widgets": "Widget"}[kind.Resource],
		"metadata":   map[string]any{"name": name, "annotations": map[string]any{"value": value}, "labels": map[string]any{"app": name}},
	}}
	if kind.Resource == "services" {
		o.Object["spec"] = map[string]any{"ports": []any{map[string]any{"port": int64(80)}}}
	}
	return o
}

// listTaken is what a list had.
type listTaken struct {
	moment
	resource, namespace string
	objects             map[string]string // by name
}

func (h *historyRun) takeLists(ctx context.Context) error {
	r := h.random()
	for ctx.Err() == nil {
		kind, namespace := askedKinds[r.IntN(len(askedKinds))], h.namespaces[r.IntN(len(h.namespaces))]
		list, err := h.dynamic.Resource(kind).Namespace(namespace).List(ctx, metav1.ListOptions{})
		if err == nil {
			taken := listTaken{resource: kind.GroupResource().String(), namespace: namespace, objects: map[string]string{}}
			taken.moment = moment{h.era, versionNumber(list.GetResourceVersion()), time.Now()}
			for i := range list.Items {
				taken.objects[list.Items[i].GetName()] = canonical(list.Items[i].Object)
			}
			h.mu.Lock()
			h.lists = append(h.lists, taken)
			h.mu.Unlock()
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

func versionNumber(version string) uint64 {
	n, _ := strconv.ParseUint(version, 10, 64) // 0 is before all
	return n
}

// canonical is an object without managedFields.
func canonical(object map[string]any) string {
	unstructured.RemoveNestedField(object, "metadata", "managedFields")
	text, _ := json.Marshal(object) // of JSON it never fails
	return string(text)
}

// markers are an object of each kind, made one after the other.
type markers struct {
	name        string
	first, last moment
}

// seen waits until the witness has seen markers that are made now.
func (h *historyRun) seen() (m markers) {
	h.t.Helper()
	m.name = fmt.Sprintf("marker-%d", time.Now().UnixNano())
	for _, kind := range askedKinds {
		_, err := h.dynamic.Resource(kind).Namespace(h.namespace).Create(h.ctx, newAsked(kind, m.name, ""), metav1.CreateOptions{})
		must(h.t, err)
	}
	var versions []uint64
	eventually(h.t, "the witness", testPatience, func() []string {
		versions = nil
		for _, ch := range h.ledger.Changes() {
			if ch.Metadata.Name == m.name {
				versions = append(versions, versionNumber(ch.Metadata.ResourceVersion))
			}
		}
		if len(versions) < len(askedKinds) {
			return []string{fmt.Sprintf("it has seen %d markers", len(versions))}
		}
		return nil
	})
	must(h.t, h.ledger.Err())
	now := moment{era: h.era, at: time.Now()}
	m.first, m.last = now, now
	m.first.version, m.last.version = slices.Min(versions), slices.Max(versions)
	return m
}

// reached waits until the history has what the witness has, too.
func (h *historyRun) reached(b *harness.Bridge) markers {
	h.t.Helper()
	m := h.seen()
	eventually(h.t, "the history", 3*testPatience, func() (problems []string) {
		for _, kind := range askedKinds {
			q := url.Values{"object": {kind.GroupResource().String() + "/" + m.name}, "namespace": {h.namespace}}
			if code, body := h.ask(b, "object", q); code != http.StatusOK {
				problems = append(problems, string(body))
			}
		}
		return problems
	})
	m.first.at, m.last.at = time.Now(), time.Now()
	return m
}

// ask asks the admin server.
func (h *historyRun) ask(b *harness.Bridge, question string, q url.Values) (code int, body []byte) {
	r, err := http.NewRequestWithContext(h.ctx, http.MethodGet, b.AdminURL()+"/history/"+question+"?"+q.Encode(), nil)
	if err != nil {
		return 0, []byte(err.Error())
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, []byte(err.Error())
	}
	defer response.Body.Close()
	if body, err = io.ReadAll(response.Body); err != nil {
		return 0, []byte(err.Error())
	}
	return response.StatusCode, body
}

// killed is a bridge that is killed while objects change, and started again.
func (h *historyRun) killed(b *harness.Bridge) {
	h.t.Helper()
	h.meanwhile(func() {
		time.Sleep(time.Duration(h.random().Int64N(int64(*historyTime))))
		b.Kill()
		from := moment{at: time.Now()}
		time.Sleep(time.Duration(h.random().Int64N(int64(*historyTime))))
		h.start(b)
		h.late = append(h.late, stretch{from, moment{at: time.Now()}})
	})
}

// absent is a bridge that is killed, and an API server that forgets what happened then. Each kind
// is hidden from what the bridge had committed of it, which is its marker or later.
func (h *historyRun) absent(b *harness.Bridge) {
	h.t.Helper()
	from := h.reached(b).first
	h.seen() // a version is complete when a later one came
	eventually(h.t, "the bridge has committed the markers", testPatience, func() []string {
		return h.uncommitted(b, from.version)
	})
	h.meanwhile(func() {
		time.Sleep(*historyTime / 2)
		b.Kill()
		h.killedAt = append(h.killedAt, time.Now())
		time.Sleep(*historyTime)
	})
	h.forget("compact", "restart-apiserver")
	h.start(b)
	h.hidden = append(h.hidden, stretch{from, h.reached(b).last})
}

// uncommitted are the resources of which the bridge has not committed everything up to a version.
func (h *historyRun) uncommitted(b *harness.Bridge, version uint64) (problems []string) {
	s, err := b.Status(h.ctx)
	if err != nil {
		return []string{err.Error()}
	}
	for _, i := range s.Informers {
		if i.Watermark == "" || versionNumber(i.Watermark) < version {
			problems = append(problems, fmt.Sprintf("%s is committed up to %q, not %d", i.Resource, i.Watermark, version))
		}
	}
	return problems
}

// restored is an etcd that goes back to a backup while the bridge runs.
func (h *historyRun) restored(b *harness.Bridge) {
	h.t.Helper()
	h.backedUp = h.reached(b).last.version // the backup has it, and all before it
	h.operate("snapshot?name=history")
	h.seen()
	h.change(*historyTime)
	from := h.reached(b).first
	last := h.forget("restore?name=history")
	h.twice = last.version
	h.era++
	h.restoredAt = h.reached(b).last
	h.hidden = append(h.hidden, stretch{from, h.restoredAt})
}

// forget does what makes a witness begin again, and gives the last moment that the one before saw.
func (h *historyRun) forget(operations ...string) moment {
	h.t.Helper()
	last := h.seen().last
	h.book.add(h.era, h.ledger)
	h.ledger.Stop()
	for _, operation := range operations {
		h.operate(operation)
	}
	h.watch()
	return last
}
