package e2e_test

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubebridge/bridge/test/e2e/faults"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/oracle"
)

var (
	proofTime  = flag.Duration("proof.time", 0, "how long TestProof makes disturbance; 0 has each disturbance once")
	proofPause = flag.Duration("proof.pause", 4*time.Second, "how long each disturbance of TestProof lasts at most; an hour's run has some of minutes")
	proofStop  = flag.Duration("proof.stop", 0, "how long a clean stop of TestProof lasts at most; 0: as proof.pause")
	proofAsked = flag.Int("proof.questions", 2000, "how many objects at moments TestProof asks for")
	proofSeed  = flag.Uint64("proof.seed", 0, "what TestProof does; 0 takes a new one each time")
)

const proofConfig = `
informers:
  - {name: app, resources: [configmaps, deployments.apps, widgets.example.com]}
sinks:
  - {name: kept, history: {retention: 0}}
`

// proofKind is a kind that is watched.
type proofKind struct {
	schema.GroupVersionResource
	kind string
	keys string // the prefix of its keys in etcd
}

// There are kinds that etcd has in protobuf, and one that it has in JSON.
var proofKinds = []proofKind{
	{schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "ConfigMap", "/registry/configmaps/"},
	{schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}, "Deployment", "/registry/deployments/"},
	{widgets, "Widget", "/registry/example.com/widgets/"},
}

// What a history answers is what etcd has, or the answer says what it does not know: the oracle
// reads etcd itself and has every revision. Each one that the history lacks lies in a declared gap,
// and no declared gap has one that was delivered.
func TestProof(t *testing.T) {
	if testing.Short() {
		t.Skip("it has ten disturbances; make test-proof")
	}
	t.Parallel()
	c := ownCluster(t, "proof", noControllers, "--etcd-compaction-interval=0")
	installWidgets(t, c)
	p := newProof(t, c)
	p.start(p.bridge)
	p.first = p.caughtUp()

	disturbances := []disturbance{
		{"kill", (*proofRun).killed},
		{"stop", (*proofRun).stopped},
		{"stop past a compaction", (*proofRun).compacted},
		{"network cut", (*proofRun).unreachable},
		{"connections cut", (*proofRun).cut},
		{"half-dead TCP", (*proofRun).deaf},
		{"API server restarted", (*proofRun).restarted},
		{"etcd restored", (*proofRun).restored},
		{"rights taken away", (*proofRun).forbidden},
		{"CRD removed", (*proofRun).undefined},
	}
	for began := time.Now(); ; {
		p.random.Shuffle(len(disturbances), func(i, j int) { disturbances[i], disturbances[j] = disturbances[j], disturbances[i] })
		for _, disturbance := range disturbances {
			p.have(disturbance)
		}
		if time.Since(began) >= *proofTime {
			break
		}
	}
	p.last = p.caughtUp()
	p.judge()
	p.stop(p.bridge)
}

// disturbance is something that happens while objects change.
type disturbance struct {
	name string
	have func(*proofRun)
}

// proofRun is one run. One goroutine owns it, but for what churn draws.
type proofRun struct {
	*lab
	bridge     *harness.Bridge
	wire       *faults.Wire
	oracle     *oracle.Oracle
	seed       uint64
	random     *rand.Rand
	namespaces []string
	// first and last bound what is asked for.
	first, last proofMoment
	// blind are the times of disturbances, from before each until the history has caught up.
	blind    []blindTime
	kills    []time.Time
	restores []proofRestore
	churn    func() // ends it
}

// proofMoment is a revision of etcd and when it was the newest one.
type proofMoment struct {
	era      int
	revision int64
	at       time.Time
}

// proofRestore is a restore of etcd. The new era begins behind the revision of the backup.
type proofRestore struct {
	proofMoment
	began time.Time // what was backed up may have been read since then
	last  int64     // the last revision of the era before
}

type blindTime struct {
	name     string
	from, to time.Time
}

func newProof(t *testing.T, c *cluster) *proofRun {
	t.Helper()
	p := &proofRun{lab: newLab(t, c), seed: cmp.Or(*proofSeed, rand.Uint64())}
	p.random = rand.New(rand.NewPCG(p.seed, 0))
	t.Logf("seed %d", p.seed)
	p.namespaces = []string{p.namespace, p.namespace + "-b"}
	_, err := c.dynamic.Resource(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}).Create(p.ctx,
		&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": p.namespaces[1]}}},
		metav1.CreateOptions{})
	must(t, err)
	p.oracle, err = oracle.Open(p.ctx, c.Etcd)
	must(t, err)
	t.Cleanup(func() { _ = p.oracle.Close() }) // what it has was judged
	server, err := url.Parse(c.Server)
	must(t, err)
	p.wire, err = faults.NewWire(server.Host)
	must(t, err)
	t.Cleanup(p.wire.Stop)
	must(t, p.WriteKubeconfigThrough(p.kubeconfig(), "https://"+p.wire.Address(), p.Admin().CAData, p.Token))
	p.bridge = p.lab.bridge("bridge", proofConfig, healthChecks)
	return p
}

// have has one disturbance while objects change, and waits until the history has caught up.
func (p *proofRun) have(what disturbance) {
	p.t.Helper()
	p.beginChurn()
	time.Sleep(p.upTo(*proofPause / 4))
	blind := blindTime{name: what.name, from: time.Now()}
	what.have(p)
	p.churn()
	now := p.caughtUp()
	blind.to = time.Now()
	p.blind = append(p.blind, blind)
	p.t.Logf("%s: %v, until revision %d.%d", what.name, blind.to.Sub(blind.from).Round(100*time.Millisecond), now.era, now.revision)
}

func (p *proofRun) upTo(most time.Duration) time.Duration {
	return time.Duration(p.random.Int64N(int64(most)))
}

// beginChurn has objects change until churn is called.
func (p *proofRun) beginChurn() {
	ctx, cancel := context.WithCancel(p.ctx)
	var g errgroup.Group
	for range 3 {
		r := rand.New(rand.NewPCG(p.random.Uint64(), 1))
		g.Go(func() error { return p.change(ctx, r) })
	}
	p.churn = func() {
		p.t.Helper()
		cancel()
		must(p.t, g.Wait())
	}
}

// change writes to objects that come, change, and come back under their names. Where the API server
// is unavailable, nothing changes.
func (p *proofRun) change(ctx context.Context, r *rand.Rand) error {
	for ctx.Err() == nil {
		kind := proofKinds[r.IntN(len(proofKinds))]
		api := p.dynamic.Resource(kind.GroupVersionResource).Namespace(p.namespaces[r.IntN(len(p.namespaces))])
		name := fmt.Sprintf("object-%d", r.IntN(40))
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
				_, err = api.Create(ctx, newProofObject(kind, name, value), metav1.CreateOptions{})
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

func newProofObject(kind proofKind, name, value string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": kind.GroupVersion().String(), "kind": kind.kind,
		"metadata": map[string]any{"name": name, "annotations": map[string]any{"value": value}, "labels": map[string]any{"app": name}},
	}}
	if kind.Resource == "deployments" {
		app := map[string]any{"app": name}
		o.Object["spec"] = map[string]any{
			"selector": map[string]any{"matchLabels": app},
			"template": map[string]any{
				"metadata": map[string]any{"labels": app},
				"spec":     map[string]any{"containers": []any{map[string]any{"name": "web", "image": "web:" + value}}},
			},
		}
	}
	return o
}

// caughtUp waits until the history has an object of each kind that is made now, and everything
// before is committed.
func (p *proofRun) caughtUp() proofMoment {
	p.t.Helper()
	name := fmt.Sprintf("marker-%d", time.Now().UnixNano())
	for _, kind := range proofKinds {
		eventually(p.t, "a marker is made", testPatience, func() []string {
			_, err := p.dynamic.Resource(kind.GroupVersionResource).Namespace(p.namespace).Create(p.ctx, newProofObject(kind, name, ""), metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				return []string{err.Error()}
			}
			return nil
		})
	}
	revision, err := p.oracle.Reach(p.ctx)
	must(p.t, err)
	eventually(p.t, "the history", 3*testPatience, func() (problems []string) {
		for _, kind := range proofKinds {
			q := url.Values{"object": {kind.GroupResource().String() + "/" + name}, "namespace": {p.namespace}}
			if code, body := p.ask("object", q); code != http.StatusOK {
				problems = append(problems, string(body))
			}
		}
		return problems
	})
	return proofMoment{p.oracle.Era(), revision, time.Now()}
}

// killed is a bridge that ends as by kill -9.
func (p *proofRun) killed() {
	p.bridge.Kill()
	p.kills = append(p.kills, time.Now())
	time.Sleep(p.upTo(*proofPause))
	p.start(p.bridge)
}

// stopped is a bridge that is stopped cleanly.
func (p *proofRun) stopped() {
	p.stop(p.bridge)
	time.Sleep(min(time.Second, *proofPause) + p.upTo(cmp.Or(*proofStop, *proofPause)))
	p.start(p.bridge)
}

// compacted is a bridge that is stopped for so long that the API server has forgotten versions.
func (p *proofRun) compacted() {
	p.t.Helper()
	if p.random.IntN(2) == 0 {
		p.bridge.Kill()
		p.kills = append(p.kills, time.Now())
	} else {
		p.stop(p.bridge)
	}
	time.Sleep(time.Second + p.upTo(*proofPause))
	p.operate("compact")
	p.operate("restart-apiserver")
	p.start(p.bridge)
}

// unreachable is an API server that the bridge can't reach.
func (p *proofRun) unreachable() {
	p.wire.Refuse()
	time.Sleep(p.upTo(*proofPause))
	must(p.t, p.wire.Accept())
}

// cut has each connection end amid an answer.
func (p *proofRun) cut() {
	seed := p.random.Uint64()
	p.wire.CutAfter(func(cuts int) int64 { return rand.New(rand.NewPCG(seed, uint64(cuts))).Int64N(64 << 10) })
	time.Sleep(*proofPause)
	p.wire.CutAfter(nil)
}

// deaf are connections that stay open, and nothing passes.
func (p *proofRun) deaf() {
	made := p.wire.Made()
	p.wire.Deafen()
	eventually(p.t, "another connection", testPatience, func() []string {
		if p.wire.Made() == made {
			return []string{"none was made"}
		}
		return nil
	})
}

// restarted is an API server that ends and starts again.
func (p *proofRun) restarted() {
	p.operate("restart-apiserver?signal=" + []string{"TERM", "KILL"}[p.random.IntN(2)])
}

// restored is an etcd that goes back to a backup of some seconds ago.
func (p *proofRun) restored() {
	p.t.Helper()
	backedUp, err := p.oracle.Reach(p.ctx)
	must(p.t, err)
	p.operate("snapshot?name=proof")
	time.Sleep(2*time.Second + p.upTo(*proofPause))
	p.churn()
	p.caughtUp()
	last, err := p.oracle.Pause(p.ctx)
	must(p.t, err)
	began := time.Now()
	p.operate("restore?name=proof")
	p.oracle.Restored(p.ctx, backedUp)
	p.restores = append(p.restores, proofRestore{proofMoment{p.oracle.Era(), backedUp, time.Now()}, began, last})
	p.caughtUp() // the bridge has seen that history went back
	p.beginChurn()
}

// forbidden takes the right to read a kind away, and gives it back.
func (p *proofRun) forbidden() {
	p.t.Helper()
	p.grantAll("deployments", "widgets", "namespaces", "customresourcedefinitions")
	p.wire.Refuse() // a watch that runs is not asked for its rights
	must(p.t, p.wire.Accept())
	time.Sleep(p.upTo(*proofPause))
	p.grantAll("*")
}

// grantAll has the bridge read these resources and no others.
func (p *proofRun) grantAll(resources ...string) {
	p.t.Helper()
	eventually(p.t, "the rights change", testPatience, func() []string {
		role, err := p.client.RbacV1().ClusterRoles().Get(p.ctx, p.Role, metav1.GetOptions{})
		if err == nil {
			role.Rules = []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: resources, Verbs: []string{"list", "watch"}}, harness.ReadClusterID()}
			_, err = p.client.RbacV1().ClusterRoles().Update(p.ctx, role, metav1.UpdateOptions{})
		}
		if err != nil {
			return []string{err.Error()}
		}
		return nil
	})
}

// undefined is a definition that is deleted with all its objects, and comes again.
func (p *proofRun) undefined() {
	p.t.Helper()
	crds := p.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	must(p.t, crds.Delete(p.ctx, widgetsName, metav1.DeleteOptions{}))
	eventually(p.t, "the definition is gone", testPatience, func() []string {
		if _, err := crds.Get(p.ctx, widgetsName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return []string{fmt.Sprint(err)}
		}
		return nil
	})
	time.Sleep(p.upTo(*proofPause))
	installWidgets(p.t, p.cluster)
}

// ask asks the bridge's history.
func (p *proofRun) ask(question string, q url.Values) (code int, body []byte) {
	return (&historyRun{lab: p.lab}).ask(p.bridge, question, q)
}

// clockPeriod is how often the bridge asks for the newest version: what it learns late may have
// been made since the answer before.
const clockPeriod = 10 * time.Second

// isBlind reports whether a time lies in a disturbance, and in which.
func (p *proofRun) isBlind(at time.Time) (name string, isBlind bool) {
	i := slices.IndexFunc(p.blind, func(b blindTime) bool {
		return at.After(b.from.Add(-clockPeriod-slack)) && at.Before(b.to.Add(slack))
	})
	if i < 0 {
		return "", false
	}
	return p.blind[i].name, true
}

// splitKey reads a key of etcd.
func splitKey(kind proofKind, key string) (namespace, name string) {
	namespace, name, _ = strings.Cut(strings.TrimPrefix(key, kind.keys), "/")
	return namespace, name
}
