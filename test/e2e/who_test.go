package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/test/e2e/harness"
)

var (
	whoWrites  = flag.Int("who.writes", 1500, "writes of TestWho")
	whoObjects = flag.Int("who.objects", 6, "objects of each kind that all users of TestWho write to")
	whoKill    = flag.Duration("who.kill", 3*time.Second, "how often the bridge is killed in TestWho, and an API server every third time; 0 for never")
	whoDelay   = flag.Duration("who.delay", 2*time.Second, "how late audit events come into the stream of TestWho")
)

// whoUser is one of those who write, all at once and to the same objects.
type whoUser struct {
	name   string
	client kubernetes.Interface
	random *rand.Rand
}

// whoRun writes, and keeps who did: each write gives its object a note that names the user.
type whoRun struct {
	*lab
	bridge  *harness.Bridge
	kills   int
	servers []*rest.Config
	posted  string // the history that records what the API server posts
	// streamed is the history that records a stream; that of silent is empty.
	streamed, silent string
	mu               sync.Mutex
	// deletedBy is who deleted the object of a uid at once.
	deletedBy map[string]string // guarded by mu
	authors   map[string]string // by uid and version, once they were asked for
}

const (
	whoNote  = "who/note"
	whoUsers = 20
)

// TestWho has several users write to the same objects, with conflicts inside the API server, and
// controllers beside them. `bridge who` names the right user or none, with an audit log that has
// answers and with one that has none.
func TestWho(t *testing.T) {
	if testing.Short() {
		t.Skip("it has a control plane of its own")
	}
	t.Parallel()
	binary, err := bridgeBinary()
	must(t, err)
	policy := auditPolicyFile(t, "RequestResponse")
	webhook := newWhoWebhook(t)
	c := ownCluster(t, "who", "--apiserver-arg=--audit-policy-file="+policy,
		"--apiserver-arg=--audit-webhook-config-file="+webhook.kubeconfig, "--apiserver-arg=--audit-webhook-batch-max-wait=1s",
		"--apiserver-arg=--audit-webhook-initial-backoff=1s")
	dir := t.TempDir()
	w := &whoRun{
		lab: newLab(t, c), deletedBy: map[string]string{}, authors: map[string]string{}, posted: filepath.Join(dir, "posted"),
		streamed: filepath.Join(dir, "streamed"), silent: filepath.Join(dir, "silent"),
	}
	w.admit()
	second, secondLog := startSecondAPIServer(t, c)
	w.servers = []*rest.Config{c.Admin(), second}
	relay := startWhoRelay(t, filepath.Join(c.dir, "audit.log"))
	exporter := startWhoExporter(t, 5, filepath.Join(c.dir, "audit.log"), secondLog)
	w.bridge = w.lab.bridge("bridge", `
informers:
  - {name: app, resources: [configmaps, deployments.apps, replicasets.apps, pods]}
sinks:
  - name: kept
    history:
      retention: 0
      audit: {files: ["`+relay.dir+`/audit*.log*", "`+secondLog+`"], complete: true, sinks: [stream]}
  - {name: stream, nats: {servers: ["nats://${NATS_ADDRESS}"], embedded: true, stream: {duplicateWindow: 100ms}}}
  - name: posted
    history:
      dir: `+w.posted+`
      audit: `+webhook.section+`
  - {name: streamed, history: {dir: `+w.streamed+`, audit: {streams: [`+exporter.section("AUDIT")+`]}}}
  - {name: silent, history: {dir: `+w.silent+`, audit: {streams: [`+exporter.section("SILENT")+`]}}}
`, healthChecks)
	w.start(w.bridge)
	ended := func() {}
	if *whoKill > 0 {
		ended = w.killing()
	}
	w.write()
	ended()
	w.settle()
	relay.check()
	exporter.end()
	w.readSoFar(w.streamed, w.written())

	log := w.wholeLog(filepath.Join(c.dir, "audit.log"), secondLog)
	for _, form := range []struct {
		name     string
		answered float64  // share of the creates and updates of the users, where the bridge is killed
		calm     float64  // the same where it is not
		args     []string // of bridge who
	}{
		{"RequestResponse", 0.97, 0.999, []string{"--audit", log}},
		{"RequestResponse, complete", 0.99, 0.999, []string{"--audit", log, "--complete"}},
		{"recorded from files", 0.97, 0.999, []string{"--dir", w.kept()}},
		{"recorded from what one of the API servers posts", 0, 0, []string{"--dir", w.posted}}, // it loses events while nothing takes them
		{"RequestResponse, of which 2 % are lost", 0.9, 0.95, []string{"--audit", w.withLosses(log, 50)}},
		{"RequestResponse, of which a fifth is lost", 0.3, 0.7, []string{"--audit", w.withLosses(log, 5)}},
		{"recorded from a stream, of which a fifth is lost", 0.3, 0.7, []string{"--dir", w.streamed}},
		{"recorded from a stream into which nothing comes", 0, 0, []string{"--dir", w.silent}},
		{"Metadata", 0.3, 0.8, []string{"--audit", w.withoutAnswers(log)}}, // the more tries, the fewer
		{"Metadata, complete", 0.5, 0.98, []string{"--audit", w.withoutAnswers(log), "--complete"}},
	} {
		if *whoKill == 0 {
			form.answered = form.calm
		}
		t.Run(form.name, func(t *testing.T) {
			if wrong := w.judge(t, form.args, form.answered); wrong > 0 {
				t.Errorf("%d are wrong", wrong)
			}
		})
	}
	for one, answered := range map[int]float64{50: 0.2, 5: 0.05} { // what is measured here is in docs/consumers.md
		t.Run(fmt.Sprintf("Metadata, of which one of %d is lost", one), func(t *testing.T) {
			t.Logf("%d are wrong", w.judge(t, []string{"--audit", w.withLosses(w.withoutAnswers(log), one)}, answered))
		})
	}
	t.Run("sent behind each change", w.judgeAttributed)
	t.Run("audit check", func(t *testing.T) {
		for _, args := range [][]string{{"--audit", filepath.Join(c.dir, "audit.log"), "--complete"}, {"--dir", w.kept()}} {
			cmd := exec.CommandContext(w.ctx, binary, append([]string{
				"audit", "check", "-o", "json", "--kubeconfig", filepath.Join(c.dir, "admin.kubeconfig"),
			}, args...)...)
			out, err := cmd.Output()
			must(t, err)
			var rows []struct{ Write, Grade, Unknown, Wrong string }
			must(t, json.Unmarshal(out, &rows))
			if len(rows) < 20 {
				t.Errorf("only %d ways to write", len(rows))
			}
			for _, r := range rows {
				if r.Wrong != "" || (r.Unknown == "") == (r.Write == "eviction") { // of an eviction the API server notes nothing
					t.Errorf("%+v", r)
				}
			}
		}
	})
	t.Run("one field, one line", func(t *testing.T) {
		out, err := w.bridge.Output(w.ctx, "who", "deploy/d-0", "-n", w.namespace, "--dir", w.kept(), "--field", "spec.replicas")
		must(t, err)
		if !strings.Contains(out, "spec.replicas ") || !strings.Contains(out, "exact)") {
			t.Error(out)
		}
		t.Log(out)
	})
	w.stop(w.bridge)
}

// whoForger sends the same id with each request.
type whoForger struct{ http.RoundTripper }

func (f whoForger) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Audit-ID", "forged")
	return f.RoundTripper.RoundTrip(r)
}

// users impersonate.
func (w *whoRun) users() (users []*whoUser) {
	w.t.Helper()
	seed := rand.Uint64()
	w.t.Logf("seed %d", seed)
	for i := range whoUsers {
		config := rest.CopyConfig(w.servers[i%len(w.servers)])
		config.QPS = -1
		name := fmt.Sprintf("user-%d", i)
		config.Impersonate = rest.ImpersonationConfig{UserName: name, Groups: []string{"system:masters"}}
		switch i { // some want to be taken for another
		case 1:
			config.Wrap(func(next http.RoundTripper) http.RoundTripper { return whoForger{next} })
		case 2:
			name = "system:serviceaccount:kube-system:deployment-controller"
			config.Impersonate.UserName = name
		}
		client, err := kubernetes.NewForConfig(config)
		must(w.t, err)
		users = append(users, &whoUser{name, client, rand.New(rand.NewPCG(seed, uint64(i)))})
	}
	return users
}

// write has all users write at once.
func (w *whoRun) write() {
	w.t.Helper()
	for i := range *whoObjects {
		d := deployment(fmt.Sprintf("d-%d", i), 1)
		_, err := w.client.AppsV1().Deployments(w.namespace).Create(w.ctx, d, metav1.CreateOptions{})
		must(w.t, err)
	}
	var g errgroup.Group
	users := w.users()
	for _, u := range users {
		g.Go(func() error {
			for n := range *whoWrites / len(users) {
				err := w.writeOnce(u, n)
				// what another user has changed or deleted meanwhile, or a killed API server
				status, isAnswer := errors.AsType[*apierrors.StatusError](err)
				if isAnswer && status.ErrStatus.Code < http.StatusInternalServerError && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) &&
					!apierrors.IsAlreadyExists(err) && !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
					return err
				}
				if !isAnswer && err != nil {
					time.Sleep(200 * time.Millisecond)
				}
			}
			return nil
		})
	}
	must(w.t, g.Wait())
}

func (w *whoRun) kept() string { return filepath.Join(w.bridge.StateDir, "history") }

// killing kills the bridge again and again, and an API server every third time, until the function
// that it returns is called.
func (w *whoRun) killing() (end func()) {
	ctx, cancel := context.WithCancel(w.ctx)
	var killing errgroup.Group
	killing.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(*whoKill):
			}
			w.bridge.Kill()
			if err := w.bridge.StartAndWait(w.ctx); err != nil {
				return err
			}
			if w.kills++; w.kills%3 == 2 {
				if _, err := w.Operate(w.ctx, "restart-apiserver?signal=KILL"); err != nil {
					return err
				}
			}
		}
	})
	return func() {
		cancel()
		must(w.t, killing.Wait())
		w.t.Logf("the bridge was killed %d times", w.kills)
	}
}

// writeOnce does one of the kinds of write.
func (w *whoRun) writeOnce(u *whoUser, n int) error {
	maps, deployments := u.client.CoreV1().ConfigMaps(w.namespace), u.client.AppsV1().Deployments(w.namespace)
	name := fmt.Sprintf("c-%d", u.random.IntN(*whoObjects))
	deployment := fmt.Sprintf("d-%d", u.random.IntN(*whoObjects))
	note := fmt.Sprintf("%s/%d", u.name, n)
	merge := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, whoNote, note)
	mine := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{whoNote: note}}}
	if u.random.IntN(4) == 0 {
		mine.UID = "forged" // which the API server does not take from a new object
	}
	patch := func(name string, form types.PatchType, text []byte, o metav1.PatchOptions) error {
		_, err := maps.Patch(w.ctx, name, form, text, o)
		if apierrors.IsNotFound(err) {
			_, err = maps.Create(w.ctx, mine, metav1.CreateOptions{})
		}
		return err
	}
	switch u.random.IntN(16) {
	case 0, 1, 2:
		return patch(name, types.MergePatchType, merge, metav1.PatchOptions{})
	case 3:
		return patch(name, types.ApplyPatchType, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"annotations":{%q:%q}}}`, name, whoNote, note),
			metav1.PatchOptions{FieldManager: u.name, Force: new(true)})
	case 4, 5: // with a version, perhaps an old one
		cm, err := maps.Get(w.ctx, name, metav1.GetOptions{})
		if err == nil {
			cm.Annotations = map[string]string{whoNote: note}
			_, err = maps.Update(w.ctx, cm, metav1.UpdateOptions{})
		}
		return err
	case 6: // without one
		_, err := maps.Update(w.ctx, mine, metav1.UpdateOptions{})
		return err
	case 7: // nothing changes
		_, err := maps.Patch(w.ctx, name, types.MergePatchType, []byte(`{"metadata":{"labels":{"same":"same"}}}`), metav1.PatchOptions{})
		return err
	case 8:
		_, err := maps.Patch(w.ctx, name, types.MergePatchType, merge, metav1.PatchOptions{DryRun: []string{"All"}})
		return err
	case 9:
		cm, err := maps.Get(w.ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		answer, err := u.client.CoreV1().RESTClient().Delete().Namespace(w.namespace).Resource("configmaps").Name(name).
			Body(&metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &cm.UID}}).Do(w.ctx).Raw()
		// Else it waits for a finalizer, which somebody may have added meanwhile.
		if err == nil && bytes.Contains(answer, []byte(`"kind":"Status"`)) {
			w.mu.Lock()
			defer w.mu.Unlock()
			if w.deletedBy[string(cm.UID)] != "" {
				w.t.Errorf("%s (%s): two users have deleted it", name, cm.UID)
			}
			w.deletedBy[string(cm.UID)] = u.name
		}
		return err
	case 10: // a finalizer comes, and goes
		return patch(name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"finalizers":%s,"annotations":{%q:%q}}}`,
			[]string{`["who/keep"]`, "null"}[n%2], whoNote, note), metav1.PatchOptions{})
	case 11:
		_, err := deployments.UpdateScale(w.ctx, deployment, &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: deployment, Namespace: w.namespace}, Spec: autoscalingv1.ScaleSpec{Replicas: int32(u.random.IntN(3))},
		}, metav1.UpdateOptions{})
		return err
	case 12:
		_, err := deployments.Patch(w.ctx, deployment, types.MergePatchType, fmt.Appendf(nil, `{"status":{"collisionCount":%d}}`, n), metav1.PatchOptions{}, "status")
		return err
	default:
		_, err := deployments.Patch(w.ctx, deployment, types.StrategicMergePatchType, merge, metav1.PatchOptions{})
		return err
	}
}

// settle waits until the history has everything.
func (w *whoRun) settle() {
	w.t.Helper()
	shows := func(object, what string) {
		w.t.Helper()
		eventually(w.t, "the history", testPatience, func() []string {
			out, err := w.bridge.Output(w.ctx, "show", object, "-n", w.namespace, "--dir", w.kept())
			if err != nil || !strings.Contains(out, what) {
				return []string{fmt.Sprint(out, err)}
			}
			return nil
		})
	}
	for i, name := range []string{"listed", "marker"} { // after the kills a list may have shown the first ones
		w.createConfigMap(name, "")
		shows("cm/"+name, name)
		replicas := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, 3+i)
		_, err := w.client.AppsV1().Deployments(w.namespace).Patch(w.ctx, "d-0", types.MergePatchType, replicas, metav1.PatchOptions{})
		must(w.t, err)
		shows("deploy/d-0", fmt.Sprint("replicas: ", 3+i))
	}
	eventually(w.t, "the log", testPatience, func() []string {
		text, err := os.ReadFile(filepath.Join(w.cluster.dir, "audit.log"))
		must(w.t, err)
		if !bytes.Contains(text, []byte(`"name":"marker"`)) {
			return []string{"it lacks the last request"}
		}
		return nil
	})
	for _, of := range [][]string{{"--dir", w.kept()}, {"--dir", w.posted}} {
		eventually(w.t, fmt.Sprint("what the bridge has recorded ", of), testPatience, func() []string {
			out, err := w.bridge.Output(w.ctx, "who", append([]string{"cm/marker", "-n", w.namespace}, of...)...)
			if err != nil || !strings.Contains(out, "exact") {
				return []string{fmt.Sprint(out, err)}
			}
			return nil
		})
	}
	w.readSoFar(w.kept(), w.written())
}

// readSoFar waits until a history has recorded what there is of the audit log about objects, and a
// minute more: a request may have ended late.
func (w *whoRun) readSoFar(dir string, objects []string) {
	w.t.Helper()
	eventually(w.t, "the log is read so far", startTime+*whoDelay, func() (problems []string) {
		for _, object := range objects {
			out, err := w.bridge.Output(w.ctx, "who", object, "-n", w.namespace, "--dir", dir)
			if err != nil || strings.Contains(out, "not recorded so far yet") {
				problems = append(problems, fmt.Sprint(object, " ", err))
			}
		}
		return problems
	})
}
