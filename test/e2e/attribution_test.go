package e2e_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// writers are clients with a field manager for each kind of write, and what they have written.
type writers struct {
	*lab
	mu sync.Mutex
	by map[string]string // version -> field manager
}

// ours begins the name of each of their field managers.
const ours = "writer-"

// deleteRequest is who asked for a delete that has to wait: the version with a deletionTimestamp.
const deleteRequest = "delete-request"

// leavesNoEntry are the writers that only remove fields or ask for a delete: managedFields do not
// show them.
var leavesNoEntry = []string{"label-removed", "annotation-removed", "finalizer-removed", "variable-removed", "owner-removed", deleteRequest}

func (w *writers) wrote(by string, obj metav1.Object, err error) {
	w.t.Helper()
	must(w.t, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.by[obj.GetResourceVersion()] = ours + by
}

// patchBy patches a Deployment as a field manager of its own.
func (w *writers) patchBy(by, name string, form types.PatchType, patch string, subresource ...string) {
	w.t.Helper()
	d, err := w.client.AppsV1().Deployments(w.namespace).
		Patch(w.ctx, name, form, []byte(patch), metav1.PatchOptions{FieldManager: ours + by}, subresource...)
	w.wrote(by, d, err)
}

func (w *writers) scale(by, name string, replicas int32) {
	w.t.Helper()
	deployments := w.client.AppsV1().Deployments(w.namespace)
	scale, err := deployments.GetScale(w.ctx, name, metav1.GetOptions{})
	must(w.t, err)
	scale.ResourceVersion, scale.Spec.Replicas = "", replicas
	scale, err = deployments.UpdateScale(w.ctx, name, scale, metav1.UpdateOptions{FieldManager: ours + by})
	w.wrote(by, scale, err)
}

// requestDelete asks for the delete of an object that has to wait for something. obj gets its new
// version.
func (w *writers) requestDelete(api rest.Interface, resource, name string, o metav1.DeleteOptions, obj interface {
	runtime.Object
	metav1.Object
},
) {
	w.t.Helper()
	must(w.t, api.Delete().Namespace(w.namespace).Resource(resource).Name(name).Body(&o).Do(w.ctx).Into(obj))
	if obj.GetDeletionTimestamp() == nil {
		w.t.Fatalf("%s %s is deleted at once", resource, name)
	}
	w.wrote(deleteRequest, obj, nil)
}

// round does each kind of write, to objects with a name of the round.
func (w *writers) round(name string) {
	w.t.Helper()
	deployments, manager := w.client.AppsV1().Deployments(w.namespace), func(by string) string { return ours + by }
	d := deployment(name, 1)
	d.Annotations = map[string]string{"note": "1"}
	d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "A", Value: "1"}, {Name: "B", Value: "2"}}
	d, err := deployments.Create(w.ctx, d, metav1.CreateOptions{FieldManager: manager("create")})
	w.wrote("create", d, err)
	must(w.t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		d, err := deployments.Get(w.ctx, name, metav1.GetOptions{})
		must(w.t, err)
		d.Spec.Template.Spec.Containers[0].Image = "app:2"
		if d, err = deployments.Update(w.ctx, d, metav1.UpdateOptions{FieldManager: manager("update")}); err == nil {
			w.wrote("update", d, nil)
		}
		return err
	}))
	w.patchBy("apply", name, types.ApplyPatchType, fmt.Sprintf(
		`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q,"annotations":{"applied":"1"}}}`, name))
	w.patchBy("status", name, types.MergePatchType, `{"status":{"collisionCount":3}}`, "status")
	w.scale("scale", name, 2)
	merge := func(by, metadata string) {
		w.t.Helper()
		w.patchBy(by, name, types.MergePatchType, `{"metadata":{`+metadata+`}}`)
	}
	merge("label-added", `"labels":{"tier":"a"}`)
	merge("label-removed", `"labels":{"tier":null}`)
	merge("annotation-removed", `"annotations":{"note":null}`)
	merge("finalizer-added", `"finalizers":["example.com/keep","example.com/more"]`)
	w.patchBy("variable-removed", name, types.JSONPatchType, `[{"op":"remove","path":"/spec/template/spec/containers/0/env/1"}]`)
	w.requestDelete(w.client.AppsV1().RESTClient(), "deployments", name, metav1.DeleteOptions{}, &appsv1.Deployment{})
	merge("finalizer-removed", `"finalizers":["example.com/keep"]`)
	// The last one ends the object and writes no version: the answer has the version before it.
	_, err = deployments.Patch(w.ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{FieldManager: manager("last-finalizer-removed")})
	must(w.t, err)

	// A grace period: the pod is on a node, of which no kubelet knows, so that the API server keeps
	// it until its delete is forced.
	pods, maps := w.client.CoreV1().Pods(w.namespace), w.client.CoreV1().ConfigMaps(w.namespace)
	pod, err := pods.Create(w.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			NodeName: "no-such-node", Containers: []corev1.Container{{Name: "main", Image: "app:1"}},
		},
	}, metav1.CreateOptions{FieldManager: manager("pod")})
	w.wrote("pod", pod, err)
	w.requestDelete(w.client.CoreV1().RESTClient(), "pods", name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(600))}, pod)
	must(w.t, pods.Delete(w.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))

	// No finalizer, and a deletecollection.
	for i := range 3 {
		cm := configMap(fmt.Sprintf("%s-%d", name, i), nil)
		cm.Labels = map[string]string{"round": name, "collection": fmt.Sprint(i > 0)}
		cm, err := maps.Create(w.ctx, cm, metav1.CreateOptions{FieldManager: manager("map")})
		w.wrote("map", cm, err)
	}
	must(w.t, maps.Delete(w.ctx, name+"-0", metav1.DeleteOptions{}))
	must(w.t, maps.DeleteCollection(w.ctx, metav1.DeleteOptions{},
		metav1.ListOptions{LabelSelector: "collection=true,round=" + name}))
}

// applyBy applies a Deployment, also where others own its fields.
func (w *writers) applyBy(by, name, metadata, rest string) {
	w.t.Helper()
	d, err := w.client.AppsV1().Deployments(w.namespace).Patch(w.ctx, name, types.ApplyPatchType,
		fmt.Appendf(nil, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q%s}%s}`, name, metadata, rest),
		metav1.PatchOptions{FieldManager: ours + by, Force: new(true)})
	w.wrote(by, d, err)
}

// rare does the kinds of writes that few clients make: fields that go to another owner or to
// several, subresources of pods, an eviction, writes that change nothing.
func (w *writers) rare(name string) {
	w.t.Helper()
	deployments, manager := w.client.AppsV1().Deployments(w.namespace), func(by string) string { return ours + by }
	d := deployment(name, 0)
	d.Spec.Paused = true // no controller writes beside
	d, err := deployments.Create(w.ctx, d, metav1.CreateOptions{FieldManager: manager("create")})
	w.wrote("create", d, err)
	const image = `,"spec":{"template":{"spec":{"containers":[{"name":"main","image":"app:3"}]}}}`
	w.patchBy("strategic", name, types.StrategicMergePatchType, `{"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":"A","value":"1"}]}]}}}}`)
	w.patchBy("json", name, types.JSONPatchType, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"app:2"}]`)
	w.applyBy("apply-forced", name, "", image)
	w.applyBy("apply-shared", name, "", image) // the value is there
	w.applyBy("apply-more", name, `,"annotations":{"a":"1"}`, "")
	w.applyBy("apply-more", name, "", "") // and drops it
	w.patchBy("two-fields", name, types.MergePatchType, `{"metadata":{"labels":{"b":"1"}},"spec":{"minReadySeconds":7}}`)
	w.patchBy("restart", name, types.StrategicMergePatchType, `{"spec":{"template":{"metadata":{"annotations":{"kubectl.kubernetes.io/restartedAt":"now"}}}}}`)
	space, err := w.client.CoreV1().Namespaces().Get(w.ctx, w.namespace, metav1.GetOptions{})
	must(w.t, err) // an owner that there is: of another the garbage collector would delete the object
	w.patchBy("owner", name, types.MergePatchType, fmt.Sprintf(
		`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Namespace","name":%q,"uid":%q}]}}`, space.Name, space.UID))
	w.patchBy("owner-removed", name, types.MergePatchType, `{"metadata":{"ownerReferences":null}}`)
	must(w.t, retry.RetryOnConflict(retry.DefaultRetry, func() error {
		d, err := deployments.Get(w.ctx, name, metav1.GetOptions{})
		must(w.t, err)
		d.Status.Conditions = append(d.Status.Conditions, appsv1.DeploymentCondition{Type: "Written", Status: corev1.ConditionTrue})
		if d, err = deployments.UpdateStatus(w.ctx, d, metav1.UpdateOptions{FieldManager: manager("status-put")}); err == nil {
			w.wrote("status-put", d, nil)
		}
		return err
	}))
	for _, o := range []metav1.PatchOptions{{FieldManager: manager("dry"), DryRun: []string{metav1.DryRunAll}}, {FieldManager: manager("nothing")}} {
		patch := `{"metadata":{"labels":{"b":"1"}}}` // has it
		if len(o.DryRun) > 0 {
			patch = `{"metadata":{"labels":{"b":"2"}}}`
		}
		_, err := deployments.Patch(w.ctx, name, types.MergePatchType, []byte(patch), o)
		must(w.t, err)
	}
	w.requestDelete(w.client.AppsV1().RESTClient(), "deployments", name,
		metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}, &appsv1.Deployment{})
	w.rarePod(name + "-rare")
	w.rareMap(name + "-rare")
}

// rarePod writes to a pod that no scheduler and no kubelet takes.
func (w *writers) rarePod(name string) {
	w.t.Helper()
	pods := w.client.CoreV1().Pods(w.namespace)
	pod, err := pods.Create(w.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PodSpec{
			SchedulerName: "none", Containers: []corev1.Container{{Name: "main", Image: "app:1"}},
		},
	}, metav1.CreateOptions{FieldManager: ours + "pod"})
	w.wrote("pod", pod, err)
	written := func(by string, err error) { // the answer has no version
		w.t.Helper()
		must(w.t, err)
		pod, err := pods.Get(w.ctx, name, metav1.GetOptions{})
		w.wrote(by, pod, err)
	}
	patch := func(by, text string, subresource ...string) {
		w.t.Helper()
		pod, err := pods.Patch(w.ctx, name, types.StrategicMergePatchType, []byte(text), metav1.PatchOptions{FieldManager: ours + by}, subresource...)
		w.wrote(by, pod, err)
	}
	patch("gate", `{"spec":{"tolerations":[{"key":"written","operator":"Exists"}]}}`)
	written("binding", pods.Bind(w.ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: "no-such-node"},
	}, metav1.CreateOptions{FieldManager: ours + "binding"}))
	patch("pod-status", `{"status":{"conditions":[{"type":"Written","status":"True"}]}}`, "status")
	patch("ephemeral", `{"spec":{"ephemeralContainers":[{"name":"debug","image":"app:1"}]}}`, "ephemeralcontainers")
	patch("pod-label", `{"metadata":{"labels":{"a":"1"}}}`)
	written(deleteRequest, pods.EvictV1(w.ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	must(w.t, pods.Delete(w.ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
}

func (w *writers) rareMap(name string) {
	w.t.Helper()
	maps := w.client.CoreV1().ConfigMaps(w.namespace)
	cm, err := maps.Create(w.ctx, configMap(name, map[string]string{"a": "1", "b": "1"}), metav1.CreateOptions{FieldManager: ours + "map"})
	w.wrote("map", cm, err)
	patch := func(by, text string) {
		w.t.Helper()
		cm, err = maps.Patch(w.ctx, name, types.MergePatchType, []byte(text), metav1.PatchOptions{FieldManager: ours + by})
		w.wrote(by, cm, err)
	}
	patch("map-binary", `{"binaryData":{"c":"AA=="}}`)
	cm.Data = map[string]string{"b": "2", "d": "1"} // a is removed
	cm, err = maps.Update(w.ctx, cm, metav1.UpdateOptions{FieldManager: ours + "map-replaced"})
	w.wrote("map-replaced", cm, err)
	patch("map-immutable", `{"immutable":true}`)
	must(w.t, maps.Delete(w.ctx, name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}))
}

var stormWrites = flag.Int("attribution.writes", 400, "how many writes to the same objects TestAttribution makes at once")

// storm has writers write to the same objects at once, each as a field manager of its own: several
// writes of one manager in a second, fields that go from one to the other, scales without a time.
func (w *writers) storm() {
	w.t.Helper()
	const objects, many = 5, 8
	for i := range objects {
		d := deployment(fmt.Sprint("storm-", i), 0)
		d.Spec.Paused = true // no controller makes pods
		d, err := w.client.AppsV1().Deployments(w.namespace).Create(w.ctx, d, metav1.CreateOptions{FieldManager: ours + "storm"})
		w.wrote("storm", d, err)
	}
	var all sync.WaitGroup
	for n := range many {
		all.Go(func() {
			random, by := rand.New(rand.NewPCG(1, uint64(n))), fmt.Sprint("storm-", n)
			for i := range *stormWrites / many {
				w.write(random, by, fmt.Sprint("storm-", random.IntN(objects)), fmt.Sprint(n, "-", i))
			}
		})
	}
	all.Wait()
}

// write sets some value of an object.
func (w *writers) write(random *rand.Rand, by, name, value string) {
	one := fmt.Sprint("a", random.IntN(3))
	switch random.IntN(6) {
	case 0:
		w.patchBy(by, name, types.MergePatchType, fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, one, value))
	case 1:
		w.patchBy(by, name, types.MergePatchType, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, one, value))
	case 2:
		w.patchBy(by, name, types.StrategicMergePatchType, fmt.Sprintf(
			`{"spec":{"template":{"spec":{"containers":[{"name":"main","env":[{"name":%q,"value":%q}]}]}}}}`, one, value))
	case 3:
		w.scale(by, name, random.Int32N(1e6))
	case 4:
		w.patchBy(by, name, types.StrategicMergePatchType, fmt.Sprintf(
			`{"status":{"conditions":[{"type":%q,"status":"True","message":%q}]}}`, one, value), "status")
	default:
		d, err := w.client.AppsV1().Deployments(w.namespace).Patch(w.ctx, name, types.ApplyPatchType, fmt.Appendf(nil,
			`{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":%q,"annotations":{%q:%q}}}`, name, one, value),
			metav1.PatchOptions{FieldManager: ours + by, Force: new(true)})
		w.wrote(by, d, err)
	}
}

// judge compares the events with what was written. It gives how many had the manager, and how many
// are of requests for a delete.
func (w *writers) judge(events []read.Event) (known, requests int) {
	w.t.Helper()
	stormy, named := 0, 0
	times := map[string]time.Time{}
	for i := range events {
		e := &events[i]
		if !e.AboutObject() || e.Attribute("namespace") != w.namespace {
			continue
		}
		manager, by := e.Attribute("manager"), w.by[e.Attribute("resourceversion")]
		if strings.HasPrefix(by, ours+"storm") {
			stormy++
			if manager != "" {
				named++
			}
		}
		isSilent := slices.Contains(leavesNoEntry, strings.TrimPrefix(by, ours))
		if by == ours+deleteRequest {
			requests++
			if !bytes.Contains(e.Data(), []byte(`"deletionTimestamp"`)) {
				w.t.Errorf("%s is of a request for a delete, and has no deletionTimestamp: %s", e.ID(), e.Data())
			}
		}
		switch {
		case manager == "":
		case e.Op() == "deleted" || isSilent:
			w.t.Errorf("%s by %q has manager %q", e.ID(), by, manager)
		case by == "" && strings.HasPrefix(manager, ours) || by != "" && manager != by:
			w.t.Errorf("%s by %q has manager %q", e.ID(), by, manager)
		case by != "":
			known++
		}
		uid := e.Attribute("uid")
		if e.Time().Before(times[uid]) {
			w.t.Errorf("%s: time %v after %v", e.ID(), e.Time(), times[uid])
		}
		times[uid] = e.Time()
	}
	if w.t.Logf("%d of %d writes at once have their manager", named, stormy); named*10 < stormy*8 {
		w.t.Error("want eight of ten")
	}
	return known - named, requests
}

const written = `
informers:
  - {name: app, resources: [pods, configmaps, deployments.apps, replicasets.apps], namespaces: ["${NS}"]}
`

func (l *lab) written() []truth.Collection {
	return []truth.Collection{
		truth.Core("pods", l.namespace), truth.Core("configmaps", l.namespace),
		truth.Named("deployments", "apps", "v1", l.namespace), truth.Named("replicasets", "apps", "v1", l.namespace),
	}
}

// entries is how many writes of a round leave an entry: create, update, apply, status, scale, a
// label and a finalizer added, a pod and three config maps.
const entries = 11

// rareEntries is the same of the rare ones.
const rareEntries = 19

// TestAttribution writes as people and controllers do, through restarts. That each event has the
// manager which managedFields show is compared with the witness, that it is the right one with who
// wrote the version, and with the API server's audit log.
func TestAttribution(t *testing.T) {
	t.Parallel()
	l := newLab(t, auditedCluster(t))
	w := &writers{lab: l, by: map[string]string{}}
	ledger := l.witness(l.written()...)
	b := l.bridge("bridge", written+embedded)
	l.start(b)
	w.round("running")
	w.rare("rare-running")
	w.autoscale("scaled")
	w.storm()
	l.stop(b)
	w.round("stopped")
	w.rare("rare-stopped")
	l.start(b)
	w.round("resumed")
	b.Kill()
	w.round("killed")
	l.start(b)
	events := l.complete("all writes", jetStream(b), ledger, check.Options{Informers: informerOf("app", l.written()...)})
	w.judgeAudited(events)
	known, requests := w.judge(events)
	if t.Logf("%d writes one by one have their manager", known); known < 4*entries+2*rareEntries {
		t.Errorf("%d of %d events have the manager that wrote them", known, 4*entries+2*rareEntries)
	}
	if want := 4*2 + 2*2; requests != want { // a Deployment and a pod each time
		t.Errorf("%d events are of requests for a delete, want %d", requests, want)
	}
	l.stop(b)
}

// attributedThroughAGap writes while a bridge is unavailable, until the API server has forgotten.
func attributedThroughAGap(t *testing.T, c *cluster) {
	l := newLab(t, c)
	w := &writers{lab: l, by: map[string]string{}}
	b := l.bridge("bridge", written+embedded)
	l.start(b)
	keep, err := l.client.CoreV1().ConfigMaps(l.namespace).
		Create(l.ctx, configMap("kept", nil), metav1.CreateOptions{FieldManager: ours + "kept"})
	w.wrote("kept", keep, err)
	w.round("before")
	l.stop(b)
	patch := func(by, text string) {
		t.Helper()
		cm, err := l.client.CoreV1().ConfigMaps(l.namespace).
			Patch(l.ctx, "kept", types.MergePatchType, []byte(text), metav1.PatchOptions{FieldManager: ours + by})
		w.wrote(by, cm, err)
	}
	patch("unseen", `{"data":{"a":"1"}}`)
	patch("label-removed", `{"data":{"a":null}}`)
	w.round("gap")
	l.operate("compact")
	l.operate("restart-apiserver")
	l.start(b)
	patch("label-removed", `{"metadata":{"labels":null},"data":null}`)
	patch("seen", `{"data":{"b":"1"}}`)
	w.round("after")
	l.createConfigMap("marker", "")
	var events []read.Event
	stream := jetStream(b)
	eventually(t, "the last write", testPatience, func() []string {
		events, err = stream.Refresh(l.ctx)
		must(t, err)
		if !slices.ContainsFunc(events, func(e read.Event) bool { return e.Attribute("name") == "marker" }) {
			return []string{"it is missing"}
		}
		return nil
	})
	// The marker orders config maps only.
	l.stop(b)
	l.start(b)
	events, err = jetStream(b).Refresh(l.ctx)
	must(t, err)
	gapsComeFirst(t, events, "expired", "configmaps")
	if known, _ := w.judge(events); known < 2*entries {
		t.Errorf("%d of %d events have the manager that wrote them", known, 2*entries)
	}
	l.stop(b)
}
