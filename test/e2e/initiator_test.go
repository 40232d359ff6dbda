package e2e_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// initiatorRun has three users change the same Deployments at once. One change sets an image. Alice
// sets odd numbers of replicas, bob even ones, and eve what no controller acts on.
type initiatorRun struct {
	*whoRun
	images map[string]string // image -> user
	named  map[string]int    // what was named, by kind of change
	scaled map[string]bool   // ReplicaSets, each with the version of a Deployment that has scaled it
}

const initiatorDeployments = 5

// TestInitiator: where `bridge who` names the change of a Deployment that a controller has carried
// out, that is the change, whoever changes the Deployment meanwhile.
func TestInitiator(t *testing.T) {
	if testing.Short() {
		t.Skip("it has a control plane of its own")
	}
	t.Parallel()
	c := ownCluster(t, "initiator", "--apiserver-arg=--audit-policy-file="+auditPolicyFile(t, "RequestResponse"))
	r := &initiatorRun{
		whoRun: &whoRun{lab: newLab(t, c)},
		images: map[string]string{}, named: map[string]int{}, scaled: map[string]bool{},
	}
	r.admit()
	r.bridge = r.lab.bridge("bridge", `
informers:
  - {name: app, resources: [configmaps, deployments.apps, replicasets.apps, pods], sinks: [{name: kept, progress: 2s}]}
sinks:
  - {name: kept, history: {retention: 0, audit: {files: ["`+filepath.Join(c.dir, "audit.log")+`"], complete: true}}}
`, healthChecks)
	r.start(r.bridge)
	r.write()
	for _, kind := range []string{"rs", "pod"} {
		judge := r.judgeReplicaSet
		if kind == "pod" {
			judge = r.judgePod
		}
		for _, object := range r.all(kind) {
			for _, v := range r.who(object) {
				switch {
				case v.Initiator == nil:
					r.named[kind+" "+v.Operation+": none"]++
				case v.Initiator.Actor.User == "eve":
					t.Errorf("%s, version %s: eve has changed nothing that a controller acts on", object, v.ResourceVersion)
				default:
					if err := judge(object, &v); err != nil {
						t.Errorf("%s, version %s, for %+v: %v", object, v.ResourceVersion, v.Initiator, err)
					}
				}
			}
		}
	}
	t.Log(r.named)
	for _, kind := range []string{"rs added", "rs scaled", "pod by image", "pod by scale"} {
		if r.named[kind] == 0 {
			t.Errorf("%s: no initiator was named", kind)
		}
	}
	t.Run("serve --who", r.serves)
	r.stop(r.bridge)
}

// serves: kubectl and typed clients see the users that bridge who names.
func (r *initiatorRun) serves(t *testing.T) {
	client, err := kubernetes.NewForConfig(r.servedAs("users.yaml", r.bridge, "--live", "--who"))
	must(t, err)
	list, err := client.AppsV1().Deployments(r.namespace).List(r.ctx, metav1.ListOptions{})
	must(t, err)
	if len(list.Items) != initiatorDeployments {
		t.Errorf("%d Deployments", len(list.Items))
	}
	for i := range list.Items {
		d := &list.Items[i]
		versions := r.who("deploy/" + d.Name)
		last := versions[len(versions)-1]
		if user := d.Annotations["attribution.kubebridge.dev/actor"]; user == "" || d.ResourceVersion != last.ResourceVersion || user != last.Actor.User {
			t.Errorf("%s, version %s, is by %q; who names %+v", d.Name, d.ResourceVersion, user, last)
		}
	}
	out, err := r.kubectl(t, "users.yaml", "get", "deployments").Output()
	must(t, err)
	head, _, _ := strings.Cut(string(out), "\n")
	if !strings.HasSuffix(strings.Join(strings.Fields(head), " "), "AGE USER") || strings.Count(string(out), "system:kube-controller-manager") != initiatorDeployments {
		t.Errorf("%s", out)
	}
}

// write has the users write at once, then settles.
func (r *initiatorRun) write() {
	r.t.Helper()
	seed := rand.Uint64()
	r.t.Logf("seed %d", seed)
	for i := range initiatorDeployments {
		d := deployment(fmt.Sprintf("d-%d", i), 1)
		d.Spec.RevisionHistoryLimit = new(int32(1000))
		image := fmt.Sprintf("app:first-%d", i)
		d.Spec.Template.Spec.Containers[0].Image, r.images[image] = image, "alice"
		_, err := r.as("alice").AppsV1().Deployments(r.namespace).Create(r.ctx, d, metav1.CreateOptions{})
		must(r.t, err)
	}
	var g errgroup.Group
	for number, user := range []string{"alice", "bob", "eve"} {
		random := rand.New(rand.NewPCG(seed, uint64(number)))
		client := r.as(user).AppsV1().Deployments(r.namespace)
		g.Go(func() error {
			for n := range 60 {
				patch := fmt.Sprintf(`{"metadata":{"annotations":{"eve":"%d"}}}`, n)
				if user != "eve" {
					patch = fmt.Sprintf(`{"spec":{"replicas":%d}}`, 1+number+2*random.IntN(3))
					if random.IntN(2) == 0 {
						image := fmt.Sprintf("app:%s-%d", user, n)
						r.mu.Lock()
						r.images[image] = user
						r.mu.Unlock()
						patch = fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":%q}]}}}}`, image)
					}
				}
				name := fmt.Sprintf("d-%d", random.IntN(initiatorDeployments))
				if _, err := client.Patch(r.ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
					return err
				}
				if random.IntN(3) > 0 { // else at once
					time.Sleep(time.Duration(random.IntN(600)) * time.Millisecond)
				}
			}
			return nil
		})
	}
	must(r.t, g.Wait())
	// Then one after the other: nothing else is between.
	r.complete()
	r.images["app:last"] = "bob"
	for _, change := range []struct{ user, patch string }{
		{"bob", `{"spec":{"template":{"spec":{"containers":[{"name":"main","image":"app:last"}]}}}}`},
		{"alice", `{"spec":{"replicas":9}}`},
	} {
		_, err := r.as(change.user).AppsV1().Deployments(r.namespace).Patch(r.ctx, "d-0", types.StrategicMergePatchType, []byte(change.patch), metav1.PatchOptions{})
		must(r.t, err)
		r.complete()
	}
	r.createConfigMap("marker", "")
	eventually(r.t, "what the bridge has recorded", testPatience, func() []string {
		out, err := r.bridge.Output(r.ctx, "who", "cm/marker", "-n", r.namespace, "--dir", r.kept())
		if err != nil || !strings.Contains(out, "exact") {
			return []string{fmt.Sprint(out, err)}
		}
		return nil
	})
	r.readSoFar(r.kept(), r.all("deploy"))
	marker, err := r.client.CoreV1().ConfigMaps(r.namespace).Get(r.ctx, "marker", metav1.GetOptions{})
	must(r.t, err)
	end, err := strconv.ParseUint(marker.ResourceVersion, 10, 64)
	must(r.t, err)
	eventually(r.t, "all Pods are known up to the end, as a bookmark of each minute says", 3*testPatience, func() []string {
		out, err := r.bridge.Output(r.ctx, "coverage", "pods", "-o", "json", "--dir", r.kept())
		must(r.t, err)
		for line := range strings.Lines(out) {
			var interval struct{ To, Gap string }
			must(r.t, json.Unmarshal([]byte(line), &interval))
			if to, _ := strconv.ParseUint(interval.To, 10, 64); interval.Gap == "" && to >= end {
				return nil
			}
		}
		return []string{out}
	})
}

// complete waits until the controllers have done what the Deployments want.
func (r *initiatorRun) complete() {
	r.t.Helper()
	eventually(r.t, "the Deployments are complete", 5*testPatience, func() (problems []string) {
		list, err := r.client.AppsV1().Deployments(r.namespace).List(r.ctx, metav1.ListOptions{})
		must(r.t, err)
		for i := range list.Items {
			d := &list.Items[i]
			if d.Status.ObservedGeneration != d.Generation || d.Status.UpdatedReplicas != *d.Spec.Replicas || d.Status.Replicas != *d.Spec.Replicas {
				problems = append(problems, d.Name)
			}
		}
		return problems
	})
}

func (r *initiatorRun) as(user string) kubernetes.Interface {
	r.t.Helper()
	config := rest.CopyConfig(r.cluster.Admin())
	config.Impersonate = rest.ImpersonationConfig{UserName: user, Groups: []string{"system:masters"}}
	client, err := kubernetes.NewForConfig(config)
	must(r.t, err)
	return client
}

// all returns the objects of a kind that ever were, as kind/name.
func (r *initiatorRun) all(kind string) (objects []string) {
	r.t.Helper()
	_, body := (&historyRun{lab: r.lab}).ask(r.bridge, "search", url.Values{"q": {kind + "/"}, "namespace": {r.namespace}, "limit": {"1000"}})
	var found struct{ Objects []struct{ Name string } }
	must(r.t, json.Unmarshal(body, &found))
	for _, o := range found.Objects {
		objects = append(objects, kind+"/"+o.Name)
	}
	if len(objects) == 0 {
		r.t.Fatalf("no %s: %s", kind, body)
	}
	return objects
}

// initiatorVersion is a version as `bridge who` prints it.
type initiatorVersion struct {
	ResourceVersion, Operation string
	Actor                      struct{ User string }
	Initiator                  *struct {
		Resource, Name, ResourceVersion, Grade string
		Actor                                  struct{ User, Impersonator, Grade string }
	}
}

func (r *initiatorRun) who(object string) (versions []initiatorVersion) {
	r.t.Helper()
	out, err := r.bridge.Output(r.ctx, "who", object, "-n", r.namespace, "--dir", r.kept(), "-o", "json")
	must(r.t, err)
	must(r.t, json.Unmarshal([]byte(out), &versions))
	return versions
}

// at returns what a controller acts on of an object at a version.
func (r *initiatorRun) at(object, version string) (image string, replicas, desired int) {
	r.t.Helper()
	_, body := (&historyRun{lab: r.lab}).ask(r.bridge, "object", url.Values{"object": {object}, "namespace": {r.namespace}, "at": {version}})
	var found struct {
		Object struct {
			Metadata struct{ Annotations map[string]string }
			Spec     struct {
				Replicas int
				Template struct {
					Spec struct{ Containers []struct{ Image string } }
				}
				Containers []struct{ Image string }
			}
		}
	}
	must(r.t, json.Unmarshal(body, &found))
	spec := found.Object.Spec
	for _, c := range slices.Concat(spec.Template.Spec.Containers, spec.Containers) {
		image = c.Image
	}
	_, _ = fmt.Sscan(found.Object.Metadata.Annotations["deployment.kubernetes.io/desired-replicas"], &desired) // 0: it has none
	return image, spec.Replicas, desired
}

// before returns what the Deployment was right before the version of an initiator; nothing where
// that is the first.
func (r *initiatorRun) before(v *initiatorVersion) (image string, replicas int) {
	list := r.who("deploy/" + v.Initiator.Name)
	i := slices.IndexFunc(list, func(of initiatorVersion) bool { return of.ResourceVersion == v.Initiator.ResourceVersion })
	if i <= 0 {
		return "", 0
	}
	image, replicas, _ = r.at("deploy/"+v.Initiator.Name, list[i-1].ResourceVersion)
	return image, replicas
}

func (r *initiatorRun) judgeReplicaSet(object string, v *initiatorVersion) error {
	image, _, desired := r.at(object, v.ResourceVersion)
	now, replicas, _ := r.at("deploy/"+v.Initiator.Name, v.Initiator.ResourceVersion)
	was, had := r.before(v)
	user := v.Initiator.Actor.User
	if v.Operation == "added" {
		r.named["rs added"]++
		if r.images[image] != user || now != image || was == image {
			return fmt.Errorf("%s is of %s; the Deployment had %s, then %s", image, r.images[image], was, now)
		}
		return nil
	}
	r.named["rs scaled"]++
	r.scaled[strings.TrimPrefix(object, "rs/")+v.Initiator.ResourceVersion] = true
	if by := []string{"bob", "alice"}[desired%2]; by != user || replicas != desired || had == desired {
		return fmt.Errorf("%d is of %s; the Deployment had %d, then %d", desired, by, had, replicas)
	}
	return nil
}

// judgePod: the change has set the image of the Pod, or scaled its ReplicaSet: that may be an older
// one, while a rollout is not complete.
func (r *initiatorRun) judgePod(object string, v *initiatorVersion) error {
	image, _, _ := r.at(object, v.ResourceVersion)
	now, replicas, _ := r.at("deploy/"+v.Initiator.Name, v.Initiator.ResourceVersion)
	was, had := r.before(v)
	user := v.Initiator.Actor.User
	owner := strings.TrimPrefix(object[:strings.LastIndexByte(object, '-')], "pod/")
	switch {
	case v.Operation == "added" && now == image && was != image && r.images[image] == user:
		r.named["pod by image"]++
		return nil
	case v.Operation == "added" && replicas > had && r.scaled[owner+v.Initiator.ResourceVersion]:
		r.named["pod by scale"]++
		return nil
	}
	return fmt.Errorf("%s, %s is of %s; the Deployment had %s and %d, then %s and %d", v.Operation, image, r.images[image], was, had, now, replicas)
}
