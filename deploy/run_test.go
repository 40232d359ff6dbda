//go:build linux

package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/kubebridge/bridge/deploy/container"
	"github.com/kubebridge/bridge/deploy/image"
	"github.com/kubebridge/bridge/test/e2e/harness"
)

const brokerPassword = "correct horse"

// broker is a JetStream server that wants a password.
func broker(t *testing.T) *server.Server {
	t.Helper()
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), Username: "bridge", Password: brokerPassword, NoSigs: true,
	})
	must(t, err)
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("the broker does not start")
	}
	return s
}

// unpackImage makes the file system of this tree's image.
func unpackImage(t *testing.T) string {
	t.Helper()
	file, err := bridgeBinary()
	must(t, err)
	return unpackImageOf(t, file)
}

// unpackImageOf makes the file system of the image of a binary.
func unpackImageOf(t *testing.T, file string) string {
	t.Helper()
	binary, err := os.ReadFile(file)
	must(t, err)
	img, err := image.Build(&image.Config{Arch: runtime.GOARCH, Content: image.Content{Binary: binary, Licence: []byte("-"), Notices: []byte("-")}})
	must(t, err)
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	must(t, image.Unpack(img, dir))
	return dir
}

// running is a container that was started.
type running struct {
	t     *testing.T
	cmd   *exec.Cmd
	log   *harness.Log
	ended chan struct{}
}

func (k *kubelet) start() *running {
	k.t.Helper()
	cmd, err := container.Command(k.spec())
	must(k.t, err)
	r := &running{t: k.t, cmd: cmd, log: &harness.Log{}, ended: make(chan struct{})}
	cmd.Stderr = r.log
	must(k.t, cmd.Start())
	go func() {
		defer close(r.ended)
		_ = cmd.Wait() // how it ended is in its state
	}()
	k.t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-r.ended
		if k.t.Failed() {
			k.t.Logf("the bridge wrote:\n%s", r.log.Tail(30))
		}
	})
	return r
}

// stop is what the kubelet does when a pod is deleted.
func (r *running) stop(grace time.Duration) {
	r.t.Helper()
	must(r.t, r.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-r.ended:
	case <-time.After(grace):
		r.t.Fatal("it has not ended in its grace period")
	}
	if code := r.cmd.ProcessState.ExitCode(); code != 0 {
		r.t.Fatalf("it ended with exit code %d", code)
	}
}

// get asks a URL; an answer that is not 200 is an error.
func (r *running) get(url string) error {
	select {
	case <-r.ended:
		return fmt.Errorf("it ended with exit code %d:\n%s", r.cmd.ProcessState.ExitCode(), r.log.Tail(20))
	default:
	}
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return err
}

// subjects are those of all messages in the stream, in order.
func subjects(t *testing.T, s *server.Server) []string {
	t.Helper()
	conn, err := nats.Connect(s.ClientURL(), nats.UserInfo("bridge", brokerPassword))
	must(t, err)
	defer conn.Close()
	js, err := jetstream.New(conn)
	must(t, err)
	stream, err := js.Stream(t.Context(), "K8S")
	must(t, err)
	var list []string
	for i := uint64(1); i <= stream.CachedInfo().State.LastSeq; i++ {
		m, err := stream.GetMsg(t.Context(), i)
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			continue // only the last ones of a fence are kept
		}
		must(t, err)
		list = append(list, m.Subject)
	}
	return list
}

// theValues are what the bridge is installed with in this test.
func theValues(t *testing.T, s *server.Server) values {
	t.Helper()
	v := readValues(t, fmt.Sprintf(`
config:
  cluster: ${CLUSTER}
  admin: {address: ":%d"}
  informers:
    - {name: maps, resources: [configmaps], namespaces: [shop], labelSelector: test=run}
    - {name: classes, resources: [ingressclasses.networking.k8s.io]}
  sinks:
    - name: audit
      nats: {servers: [%q], username: bridge, passwordFile: /etc/bridge/secrets/nats/password, stream: {name: K8S}}
env: [{name: CLUSTER, valueFrom: {secretKeyRef: {name: nats, key: cluster}}}]
secrets: [{name: nats}]
serviceMonitor: {enabled: true}
`, freePort(t), s.ClientURL()))
	return v
}

// install applies what the chart makes, and waits for the pods that the StatefulSet's controller
// makes of it. At the end all of that goes.
func install(t *testing.T, c *cluster, v values, replicas int) (pods []*kubelet) {
	t.Helper()
	c.createSecret(t)
	list := objects(t, mustRender(t, v))
	t.Cleanup(func() { uninstall(t, c, list) })
	must(t, c.apply(t.Context(), list, false))
	root := unpackImage(t)
	for i := range replicas {
		k := newKubelet(t, c, fmt.Sprint("bridge-", i), root)
		if i > 0 {
			k.port = freePort(t)
		}
		pods = append(pods, k)
	}
	if warnings := c.takeWarnings(); len(warnings) > 0 {
		t.Errorf("the API server warns: %s", strings.Join(warnings, "; "))
	}
	return pods
}

// createSecret makes the Secret that the values name.
func (c *cluster) createSecret(t *testing.T) {
	t.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "nats"}, StringData: map[string]string{"password": brokerPassword, "cluster": "prod"}}
	_, err := c.client.CoreV1().Secrets(namespace).Create(t.Context(), secret, metav1.CreateOptions{})
	must(t, err)
}

// newKubelet waits for a pod, to run it out of the file system of an image.
func newKubelet(t *testing.T, c *cluster, name, root string) *kubelet {
	t.Helper()
	k := &kubelet{cluster: c, t: t, dir: t.TempDir(), root: root}
	must(t, os.Chmod(k.dir, 0o755))
	await(t, "the pod is made", func() (err error) {
		k.pod, err = c.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		return err
	})
	return k
}

// uninstall takes away what would be in the way of another installation: what the chart has made,
// and the Secret.
func uninstall(t *testing.T, c *cluster, list []*unstructured.Unstructured) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), patience)
	defer cancel()
	must(t, c.client.CoreV1().Secrets(namespace).Delete(ctx, "nats", metav1.DeleteOptions{}))
	for _, o := range list {
		client, err := c.resource(o)
		must(t, err)
		err = client.Delete(ctx, o.GetName(), metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
		if !apierrors.IsNotFound(err) { // the test may have removed it
			must(t, err)
		}
	}
	must(t, wait(ctx, "the pods are gone", func() error { return c.noPods(ctx) }))
}

func (c *cluster) noPods(ctx context.Context) error {
	list, err := c.client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err == nil && len(list.Items) > 0 {
		err = fmt.Errorf("there are %d", len(list.Items))
	}
	return err
}

func freePort(t *testing.T) int {
	t.Helper()
	address, err := harness.FreeAddress()
	must(t, err)
	_, text, err := net.SplitHostPort(address)
	must(t, err)
	port, err := strconv.Atoi(text)
	must(t, err)
	return port
}

func (c *cluster) putConfigMap(t *testing.T, name, value string) {
	t.Helper()
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": "run"}}, Data: map[string]string{"k": value}}
	maps := c.client.CoreV1().ConfigMaps("shop")
	_, err := maps.Create(t.Context(), m, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = maps.Update(t.Context(), m, metav1.UpdateOptions{})
	}
	must(t, err)
}

// The whole of it: what the chart makes is applied, admitted under PodSecurity's strictest level,
// and what the pod says is run here, out of the image's own file system, with the token, the
// configuration and the secrets that the API server gives to that pod.
func TestChartPod(t *testing.T) {
	needRoot(t)
	c := live(t)
	s := broker(t)
	k := install(t, c, theValues(t, s), 1)[0]
	pod := &k.pod.Spec.Containers[0]
	grace := time.Duration(*k.pod.Spec.TerminationGracePeriodSeconds) * time.Second

	c.putConfigMap(t, "a", "1")
	r := k.start()
	await(t, "it is alive", func() error { return r.get(k.probeURL(pod.LivenessProbe)) })
	await(t, "it is ready", func() error { return r.get(k.probeURL(pod.ReadinessProbe)) })
	c.putConfigMap(t, "a", "2")
	await(t, "the update comes", contains(t, s, "k8s.prod.core.v1.configmaps.shop.a.added", "k8s.prod.core.v1.configmaps.shop.a.updated"))
	k.reloads(theValues(t, s), r, s)
	r.stop(grace)

	before := len(subjects(t, s))
	c.putConfigMap(t, "b", "1") // while no pod runs
	r = k.start()
	await(t, "it is ready again", func() error { return r.get(k.probeURL(pod.ReadinessProbe)) })
	await(t, "what it missed comes", contains(t, s, "k8s.prod.core.v1.configmaps.shop.b.added"))
	if more := subjects(t, s)[before:]; slices.Contains(more, "k8s.prod.core.v1.configmaps.shop.a.added") {
		t.Errorf("it started from nothing, so its state was not on the volume: %v", more)
	}
	if strings.Contains(r.log.String(), "forbidden") || strings.Contains(r.log.String(), brokerPassword) {
		t.Error("its log reports missing rights, or the password")
	}
	r.stop(grace)

	must(t, c.client.RbacV1().RoleBindings("shop").Delete(t.Context(), "bridge", metav1.DeleteOptions{}))
	r = k.start()
	await(t, "a right that is missing is reported", func() error {
		err := r.get(k.probeURL(pod.ReadinessProbe))
		if err != nil && strings.Contains(err.Error(), "configmaps") && strings.Contains(err.Error(), "bridge rbac") {
			return nil
		}
		return fmt.Errorf("readiness says %w", errors.Join(err, errors.New("(nil: ready)")))
	})
	must(t, r.get(k.probeURL(pod.LivenessProbe))) // a restart would not give it the right
	r.stop(grace)
}

// TestAnyUser runs the pod as OpenShift does, which chooses the user. It keeps its state over a
// start.
func TestAnyUser(t *testing.T) {
	needRoot(t)
	c := live(t)
	s := broker(t)
	v := theValues(t, s)
	v["podSecurityContext"] = values{"runAsUser": nil, "runAsGroup": nil, "fsGroup": nil}
	k := install(t, c, v, 1)[0]
	if ps := k.pod.Spec.SecurityContext; ps.RunAsUser != nil || ps.RunAsGroup != nil || ps.FSGroup != nil {
		t.Fatalf("the chart still chooses: %v", ps)
	}
	grace := time.Duration(*k.pod.Spec.TerminationGracePeriodSeconds) * time.Second
	for _, name := range []string{"first", "second"} {
		r := k.start()
		await(t, "it is ready", func() error { return r.get(k.probeURL(k.pod.Spec.Containers[0].ReadinessProbe)) })
		c.putConfigMap(t, name, "1")
		await(t, "the event comes", contains(t, s, "k8s.prod.core.v1.configmaps.shop."+name+".added"))
		r.stop(grace)
	}
}

// reloads installs another configuration: the pod stays, and what the kubelet brings to it is taken
// over.
func (k *kubelet) reloads(v values, r *running, s *server.Server) {
	k.t.Helper()
	c := v["config"].(values)
	c["admin"].(values)["address"] = fmt.Sprintf(":%d", k.pod.Spec.Containers[0].Ports[0].ContainerPort)
	c["informers"] = append(c["informers"].([]any), values{"name": "accounts", "resources": []any{"serviceaccounts"}, "namespaces": []any{"shop"}})
	must(k.t, k.apply(k.t.Context(), objects(k.t, mustRender(k.t, v)), false))
	k.spec() // makes the volumes again
	await(k.t, "the other configuration is taken over", contains(k.t, s, "k8s.prod.core.v1.serviceaccounts.shop.default.added"))
	pod, err := k.client.CoreV1().Pods(namespace).Get(k.t.Context(), k.pod.Name, metav1.GetOptions{})
	must(k.t, err)
	revision := func(p *corev1.Pod) string { return p.Labels["controller-revision-hash"] }
	set, err := k.client.AppsV1().StatefulSets(namespace).Get(k.t.Context(), "bridge", metav1.GetOptions{})
	must(k.t, err)
	if pod.UID != k.pod.UID || set.Status.UpdateRevision != revision(k.pod) {
		k.t.Errorf("another pod is made: revision %s, was %s", set.Status.UpdateRevision, revision(k.pod))
	}
}

// contains waits for subjects in the stream.
func contains(t *testing.T, s *server.Server, wanted ...string) func() error {
	return func() error {
		list := subjects(t, s)
		for _, want := range wanted {
			if !slices.Contains(list, want) {
				return fmt.Errorf("no %s in %v", want, list)
			}
		}
		return nil
	}
}

// The image's program must need nothing but itself.
func TestTheBinaryIsStatic(t *testing.T) {
	file, err := bridgeBinary()
	must(t, err)
	must(t, image.CheckStatic(file))
	if err := image.CheckStatic(filepath.Join("/bin", "sh")); err == nil {
		t.Error("/bin/sh is static too, or the check sees nothing")
	}
}

// What the pod may not do, the container here may not do either: else the test above would show
// nothing.
func TestTheContainerIsConfined(t *testing.T) {
	needRoot(t)
	root, tools := unpackImage(t), t.TempDir()
	must(t, os.Chmod(tools, 0o755))
	build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(tools, "look"), "./testdata/look")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	run := func(args ...string) string {
		cmd, err := container.Command(&container.Spec{
			Root: root, ReadOnlyRoot: true, Args: args, Dir: "/", UID: image.User, GID: image.User,
			Mounts: []container.Mount{{Source: tools, Target: "/tools", ReadOnly: true}},
		})
		must(t, err)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%v: %v", args, err)
		}
		return string(out)
	}
	if said := run("/usr/bin/bridge", "version"); !strings.HasPrefix(said, "bridge ") {
		t.Errorf("bridge version: %s", said)
	}
	golden(t, filepath.Join("testdata", "look", "confined.golden"), run("/tools/look"))
}
