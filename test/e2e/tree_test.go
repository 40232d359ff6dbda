package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
)

// recordTree has an index beside those of the default, two sinks, and no Events.
const recordTree = `
informers:
  - {name: all, resources: ["*"], exclude: [events, leases], indexes: [{label: app}]}
sinks:
  - {name: js, nats: {servers: ["nats://${NATS_ADDRESS}"], embedded: true}}
  - {name: kept, history: {}}
`

// What an object owns, now and at a time, is what the API server's own owner references say.
func TestTree(t *testing.T) {
	t.Parallel()
	c := ownCluster(t, "tree")
	installWidgets(t, c)
	l := newLab(t, c)
	b := l.bridge("bridge", recordTree)
	l.start(b)
	tr := &treeLab{l, b, jetStream(b)}
	tr.create()
	roots := []string{"deployment/web", "statefulset/db", "cronjob/backup", "widget/top"}
	first := tr.moment(roots)
	tr.change()
	second := tr.moment(roots)
	for _, root := range roots {
		t.Run("the tree of "+root, func(t *testing.T) {
			kind, _, _ := strings.Cut(root, "/")
			if len(first.trees[root]) < 2 || maps.Equal(first.trees[root], second.trees[root]) {
				t.Fatalf("the test is about nothing: %v, then %v", first.trees[root], second.trees[root])
			}
			eventually(t, "the tree of now", testPatience, func() []string { // a controller may write at any time
				want, got := tr.trees([]string{root})[root], tr.tree(t, root, "")
				if !maps.Equal(got, want) {
					return []string{fmt.Sprintf("of %s: %v, want %v", kind, got, want)}
				}
				return nil
			})
			for at, m := range map[string]*treeMoment{first.version: first, second.version: second} {
				got := tr.tree(t, root, at)
				if !maps.Equal(got, m.trees[root]) {
					t.Errorf("of %s at %q: %v, want %v", kind, at, got, m.trees[root])
				}
			}
		})
		t.Run("the timeline of "+root, func(t *testing.T) { tr.timelineIs(t, root, first, second) })
	}
	t.Run("snapshots", tr.snapshots)
	t.Run("kubectl describe node on the past", tr.describeNode)
	l.stop(b)
}

type treeLab struct {
	*lab
	bridge *harness.Bridge
	stream *read.JetStream
}

// create makes one object of each kind that owns others, and waits for these.
func (l *treeLab) create() {
	l.t.Helper()
	l.createDeployment("web", 2)
	labels := map[string]string{"app": "db"}
	pods := deployment("db", 1).Spec.Template
	_, err := l.client.AppsV1().StatefulSets(l.namespace).Create(l.ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: pods,
		},
	}, metav1.CreateOptions{})
	must(l.t, err)
	once := deployment("backup", 1).Spec.Template
	once.Spec.RestartPolicy = corev1.RestartPolicyNever
	_, err = l.client.BatchV1().CronJobs(l.namespace).Create(l.ctx, &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: "backup"},
		Spec: batchv1.CronJobSpec{
			Schedule: "0 0 1 1 *", JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: once}},
		},
	}, metav1.CreateOptions{})
	must(l.t, err)
	l.runJob("backup-1")
	l.createWidget("top")
	l.ownedWidget("below", "top")
	l.ownedMap("settings", "below")
	l.waitRolledOut("web")
	l.waitPods("app=db", 2)
	l.waitPods("app=backup", 1)
}

// runJob makes a Job as the controller of the CronJob does.
func (l *treeLab) runJob(name string) {
	l.t.Helper()
	of, err := l.client.BatchV1().CronJobs(l.namespace).Get(l.ctx, "backup", metav1.GetOptions{})
	must(l.t, err)
	_, err = l.client.BatchV1().Jobs(l.namespace).Create(l.ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(of, batchv1.SchemeGroupVersion.WithKind("CronJob"))},
		},
		Spec: of.Spec.JobTemplate.Spec,
	}, metav1.CreateOptions{})
	must(l.t, err)
}

func (l *treeLab) widgetOwner(name string) metav1.OwnerReference {
	l.t.Helper()
	of, err := l.dynamic.Resource(widgets).Namespace(l.namespace).Get(l.ctx, name, metav1.GetOptions{})
	must(l.t, err)
	return metav1.OwnerReference{APIVersion: of.GetAPIVersion(), Kind: of.GetKind(), Name: name, UID: of.GetUID()}
}

func (l *treeLab) ownedWidget(name, owner string) {
	l.t.Helper()
	o := widget(name, map[string]any{})
	o.SetOwnerReferences([]metav1.OwnerReference{l.widgetOwner(owner)})
	_, err := l.dynamic.Resource(widgets).Namespace(l.namespace).Create(l.ctx, o, metav1.CreateOptions{})
	must(l.t, err)
}

func (l *treeLab) ownedMap(name, owner string) {
	l.t.Helper()
	m := configMap(name, nil)
	m.OwnerReferences = []metav1.OwnerReference{l.widgetOwner(owner)}
	_, err := l.client.CoreV1().ConfigMaps(l.namespace).Create(l.ctx, m, metav1.CreateOptions{})
	must(l.t, err)
}

// waitPods waits until pods with labels are on nodes, and run or have ended.
func (l *treeLab) waitPods(selector string, n int) {
	l.t.Helper()
	eventually(l.t, "pods "+selector, time.Minute, func() []string {
		pods, err := l.client.CoreV1().Pods(l.namespace).List(l.ctx, metav1.ListOptions{LabelSelector: selector})
		must(l.t, err)
		ready := 0
		for i := range pods.Items {
			if p := &pods.Items[i]; p.DeletionTimestamp == nil && p.Spec.NodeName != "" && p.Status.Phase != corev1.PodPending {
				ready++
			}
		}
		if ready != n || len(pods.Items) != n {
			return []string{fmt.Sprintf("%d of %d pods, want %d", ready, len(pods.Items), n)}
		}
		return nil
	})
}

// change gives each object others to own.
func (l *treeLab) change() {
	l.t.Helper()
	l.roll("web", "app:2")
	_, err := l.client.AppsV1().StatefulSets(l.namespace).Patch(l.ctx, "db", types.MergePatchType, []byte(`{"spec":{"replicas":1}}`), metav1.PatchOptions{})
	must(l.t, err)
	must(l.t, l.client.BatchV1().Jobs(l.namespace).Delete(l.ctx, "backup-1", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}))
	l.runJob("backup-2")
	l.deleteConfigMap("settings")
	l.ownedMap("others", "below")
	l.waitRolledOut("web")
	l.waitPods("app=web", 2)
	l.waitPods("app=db", 1)
	l.waitPods("app=backup", 1)
}

// treeMoment is what the API server has at a version: of each root, the objects in its tree with
// their versions.
type treeMoment struct {
	version string
	trees   map[string]map[string]string
}

// moment reads it while nothing changes, and waits until the history has it.
func (l *treeLab) moment(roots []string) *treeMoment {
	l.t.Helper()
	var m *treeMoment
	eventually(l.t, "a moment in which nothing changes", time.Minute, func() []string {
		before := l.trees(roots)
		name := fmt.Sprint("mark-", time.Now().UnixNano())
		l.createConfigMap(name, "1")
		mark, err := l.client.CoreV1().ConfigMaps(l.namespace).Get(l.ctx, name, metav1.GetOptions{})
		must(l.t, err)
		m = &treeMoment{mark.ResourceVersion, l.trees(roots)}
		l.recorded(l.bridge, "cm/"+name)
		for _, root := range roots {
			if !maps.Equal(before[root], m.trees[root]) {
				return []string{root + " changes"}
			}
		}
		return nil
	})
	return m
}

// trees follows the owner references of all objects in the namespace.
func (l *treeLab) trees(roots []string) map[string]map[string]string {
	l.t.Helper()
	var all []unstructured.Unstructured
	kinds := slices.Collect(maps.Keys(l.listedKinds()))
	for _, kind := range append(kinds, widgets) {
		list, err := l.dynamic.Resource(kind).Namespace(l.namespace).List(l.ctx, metav1.ListOptions{})
		if err != nil || kind.Resource == "events" {
			continue // what is in no namespace
		}
		all = append(all, list.Items...)
	}
	trees := map[string]map[string]string{}
	for _, root := range roots {
		found, uids := map[string]string{}, map[types.UID]bool{}
		for grown := true; grown; {
			grown = false
			for i := range all {
				o := &all[i]
				isRoot := strings.EqualFold(o.GetKind()+"/"+o.GetName(), root)
				isOwned := slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return uids[r.UID] })
				if (isRoot || isOwned) && !uids[o.GetUID()] {
					grown, uids[o.GetUID()] = true, true
					found[o.GetKind()+"/"+o.GetName()+" "+string(o.GetUID())] = o.GetResourceVersion()
				}
			}
		}
		trees[root] = found
	}
	return trees
}

// tree asks the bridge, or for a version the history.
func (l *treeLab) tree(t *testing.T, root, at string) map[string]string {
	t.Helper()
	args := []string{root, "-n", l.namespace, "-o", "json"}
	if at != "" {
		args = append(args, "--at", at)
	}
	out, err := l.bridge.Output(l.ctx, "tree", args...)
	must(t, err)
	type node struct {
		Kind, Name, UID, Version string
		Owns                     []node
	}
	var n node
	must(t, json.Unmarshal([]byte(out), &n))
	found := map[string]string{}
	var add func(n node)
	add = func(n node) {
		found[n.Kind+"/"+n.Name+" "+n.UID] = n.Version
		for _, o := range n.Owns {
			add(o)
		}
	}
	add(n)
	return found
}

// timelineIs compares the objects of a timeline with those of both moments, and what is gone.
func (l *treeLab) timelineIs(t *testing.T, root string, moments ...*treeMoment) {
	t.Helper()
	out, err := l.bridge.Output(l.ctx, "timeline", root, "-n", l.namespace, "--with-owned", "--since", "1h", "-o", "json")
	must(t, err)
	want, got, ended := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, m := range moments {
		for object := range m.trees[root] {
			name, _, _ := strings.Cut(object, " ")
			want[strings.ToLower(name)] = true
		}
	}
	for line := range strings.SplitSeq(strings.TrimSpace(out), "\n") {
		var e struct {
			Resource, Name, Operation string
			Gap                       any
		}
		must(t, json.Unmarshal([]byte(line), &e))
		if e.Gap != nil {
			continue
		}
		resource, _, _ := strings.Cut(e.Resource, ".")
		name := strings.TrimSuffix(resource, "s") + "/" + e.Name
		if got[name] = true; e.Operation == "deleted" {
			ended[name] = true
		}
	}
	// Objects may have come and gone between the moments: a Pod of the first ReplicaSet that was
	// replaced, what belongs to the StatefulSet (ControllerRevisions).
	for name := range want {
		if !got[name] {
			t.Errorf("%s is not in the timeline", name)
		}
	}
	others := regexp.MustCompile(`^(pod|replicaset|controllerrevision|job|statefulset|deployment|cronjob|widget|configmap|endpointslice)/` +
		`(web|db|backup|top|below|settings|others)(-|$)`)
	for name := range got {
		if !others.MatchString(name) {
			t.Errorf("%s does not belong to it", name)
		}
	}
	for object := range moments[0].trees[root] {
		name, _, _ := strings.Cut(object, " ")
		if _, lives := moments[1].trees[root][object]; !lives && !ended[strings.ToLower(name)] {
			t.Errorf("the end of %s is not in the timeline", name)
		}
	}
}

// snapshots asks for some objects again in each way.
func (l *treeLab) snapshots(t *testing.T) {
	pods, err := l.client.CoreV1().Pods(l.namespace).List(l.ctx, metav1.ListOptions{})
	must(t, err)
	var onNode, labelled []string
	node := pods.Items[0].Spec.NodeName
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Spec.NodeName == node {
			onNode = append(onNode, "Pod/"+p.Name)
		}
		if p.Labels["app"] == "db" {
			labelled = append(labelled, "Pod/"+p.Name)
		}
	}
	var owned []string
	for object := range l.trees([]string{"deployment/web"})["deployment/web"] {
		if name, _, _ := strings.Cut(object, " "); name != "Deployment/web" {
			owned = append(owned, name)
		}
	}
	for _, c := range []struct {
		args []string
		want []string
	}{
		{[]string{"--owner", "deploy/web", "-n", l.namespace}, owned},
		{[]string{"--node", node}, onNode},
		{[]string{"all", "-l", "app=db", "--resource", "pods"}, labelled},
	} {
		before := l.synced(t)
		_, err := l.bridge.Output(l.ctx, "snapshot", append(c.args, "--sink", "js")...)
		must(t, err)
		slices.Sort(c.want)
		eventually(t, "the snapshot "+strings.Join(c.args, " "), time.Minute, func() []string {
			got := l.synced(t)[len(before):]
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				return []string{fmt.Sprintf("%q, want %q", got, c.want)}
			}
			return nil
		})
	}
}

// synced returns the objects of the synced events in the stream.
func (l *treeLab) synced(t *testing.T) (names []string) {
	t.Helper()
	events, err := l.stream.Refresh(l.ctx)
	must(t, err)
	for i := range events {
		if e := &events[i]; strings.HasSuffix(e.Type(), "resource.synced") {
			names = append(names, e.Attribute("kind")+"/"+e.Attribute("name"))
		}
	}
	return names
}

// describeNode compares what kubectl prints of a node with what it prints of the API server.
func (l *treeLab) describeNode(t *testing.T) {
	pods, err := l.client.CoreV1().Pods(l.namespace).List(l.ctx, metav1.ListOptions{LabelSelector: "app=web"})
	must(t, err)
	name := pods.Items[0].Spec.NodeName
	l.served(l.bridge, "--live")
	describe := func(kubeconfig string) []string {
		out, err := l.kubectl(t, kubeconfig, "describe", "node", name).Output()
		if e, failed := errors.AsType[*exec.ExitError](err); failed {
			t.Fatalf("%s", e.Stderr)
		}
		must(t, err)
		_, pods, _ := strings.Cut(string(out), "Non-terminated Pods:")
		pods, _, _ = strings.Cut(pods, "Allocated resources:")
		return regexp.MustCompile(`(?m) +\S+$`).Split(pods, -1) // ages differ
	}
	got, want := describe("past.yaml"), describe("admin.yaml")
	if !slices.Equal(got, want) || !strings.Contains(strings.Join(want, ""), l.namespace) {
		t.Errorf("%q, want %q", got, want)
	}
}
