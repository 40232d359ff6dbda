package main_test

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const namespace = metav1.NamespaceDefault

// The subtests share one control plane and run in order.
func TestControlPlane(t *testing.T) {
	c := start(t)
	t.Run("a deployment becomes running pods", c.testDeployment)
	t.Run("the server announces the version it was built from", c.testVersion)
	t.Run("a watch with initial events marks their end with a bookmark", c.testWatchList)
	t.Run("requests are counted by user agent", c.testRequests)
	t.Run("a service account may do what its role allows", c.testServiceAccount)
	t.Run("the API server goes away and comes back", c.testAPIServerAway)
	t.Run("a deleted deployment takes its pods along while controllers run", c.testPause)
	t.Run("an old resourceVersion is gone after compaction and restart", c.testCompaction)
	t.Run("restore takes the resourceVersion back", c.testRestore)
	t.Run("a termination signal ends everything", c.testStop)
}

func (c *controlPlane) in(t *testing.T) *controlPlane {
	sub := *c
	sub.t = t
	return &sub
}

func (c *controlPlane) testDeployment(t *testing.T) {
	begin := time.Now()
	c.createDeployment(t, "web", 3)
	c.waitForPods(t, "web", 3)
	t.Logf("3 pods are ready after %v", time.Since(begin))

	begin = time.Now()
	c.createDeployment(t, "many", 20)
	c.waitForPods(t, "many", 20)
	t.Logf("20 pods are ready after %v", time.Since(begin))
}

func (c *controlPlane) testVersion(t *testing.T) {
	v, err := c.client.Discovery().ServerVersion()
	must(t, err)
	if v.Major != "1" || v.Minor == "" || strings.HasPrefix(v.GitVersion, "v0.") {
		t.Errorf("the server says it is %s, major %q, minor %q", v.GitVersion, v.Major, v.Minor)
	}
}

func (c *controlPlane) testWatchList(t *testing.T) {
	w, err := c.client.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{
		SendInitialEvents:    new(true),
		ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		AllowWatchBookmarks:  true,
	})
	must(t, err)
	defer w.Stop()
	added := 0
	for event := range w.ResultChan() {
		switch event.Type {
		case watch.Added:
			added++
		case watch.Bookmark:
			if event.Object.(*corev1.Pod).Annotations[metav1.InitialEventsAnnotationKey] != "true" {
				t.Fatalf("the first bookmark is not the end of the initial events: %v", event.Object)
			}
			if added != 23 {
				t.Errorf("there were %d initial events, want 23", added)
			}
			return
		default:
			t.Fatalf("initial events hold %s %v", event.Type, event.Object)
		}
	}
	t.Fatal("the watch ended without the bookmark")
}

func (c *controlPlane) testRequests(t *testing.T) {
	c = c.in(t)
	config := rest.CopyConfig(c.config)
	config.UserAgent = "counted"
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	_, err = client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{Limit: 1})
	must(t, err)
	w, err := client.CoreV1().Pods(namespace).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "0"})
	must(t, err)
	<-w.ResultChan()

	for _, verb := range []string{"list", "watch"} {
		count, uris := c.requests(url.Values{"verb": {verb}, "userAgent": {"counted"}})
		if count != 1 {
			t.Errorf("counted %d %s requests, want 1: %v", count, verb, uris)
		}
	}
	w.Stop()
	if count, uris := c.requests(url.Values{"userAgent": {"counted"}, "uri": {"limit=1"}}); count != 1 {
		t.Errorf("counted %d requests with limit=1, want 1: %v", count, uris)
	}
}

func (c *controlPlane) testServiceAccount(t *testing.T) {
	core := c.client.CoreV1()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "reader"}}
	_, err := core.ServiceAccounts(namespace).Create(t.Context(), sa, metav1.CreateOptions{})
	must(t, err)
	token, err := core.ServiceAccounts(namespace).CreateToken(t.Context(), "reader", &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	must(t, err)
	config := rest.AnonymousClientConfig(c.config)
	config.BearerToken = token.Status.Token
	client, err := kubernetes.NewForConfig(config)
	must(t, err)
	if _, err := client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a service account without a role may list pods: %v", err)
	}
	_, err = c.client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reader"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "reader"}},
	}, metav1.CreateOptions{})
	must(t, err)
	eventually(t, 10*time.Second, "the role counts", func(ctx context.Context) error {
		_, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		return err
	})
}

func (c *controlPlane) testAPIServerAway(t *testing.T) {
	c = c.in(t)
	before := c.children()["kube-apiserver"]
	c.post("/stop-apiserver?signal=KILL")
	if _, err := c.client.Discovery().ServerVersion(); err == nil {
		t.Error("the API server answers although it is stopped")
	}
	c.post("/start-apiserver")
	if _, err := c.client.Discovery().ServerVersion(); err != nil {
		t.Errorf("the API server is not back at its address: %v", err)
	}
	if after := c.children()["kube-apiserver"]; after == before {
		t.Error("the API server is the same process as before")
	}
	c.createDeployment(t, "later", 1)
	c.waitForPods(t, "later", 1)
}

func (c *controlPlane) testPause(t *testing.T) {
	c = c.in(t)
	c.post("/pause-controllers")
	must(t, c.client.AppsV1().Deployments(namespace).Delete(t.Context(), "later", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}))
	time.Sleep(200 * time.Millisecond)
	if pods := c.pods(t, "later"); len(pods) != 1 {
		t.Errorf("%d pods are left while the controllers are paused, want 1", len(pods))
	}
	c.post("/resume-controllers")
	eventually(t, 20*time.Second, "the pods are gone", func(context.Context) error {
		if pods := c.pods(t, "later"); len(pods) > 0 {
			return fmt.Errorf("%d are left", len(pods))
		}
		return nil
	})
}

func (c *controlPlane) testCompaction(t *testing.T) {
	c = c.in(t)
	stale := c.createConfigMap(t, "before-compaction")
	c.createConfigMap(t, "also-before-compaction")
	c.post("/compact")
	c.post("/restart-apiserver")

	w, err := c.client.CoreV1().ConfigMaps(namespace).Watch(t.Context(), metav1.ListOptions{ResourceVersion: stale})
	if apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
		return
	}
	must(t, err)
	defer w.Stop()
	event := <-w.ResultChan()
	if err := apierrors.FromObject(event.Object); event.Type != watch.Error || !apierrors.IsResourceExpired(err) {
		t.Errorf("a watch from resourceVersion %s got %s %v, want 410", stale, event.Type, event.Object)
	}
}

func (c *controlPlane) testRestore(t *testing.T) {
	c = c.in(t)
	saved := c.post("/snapshot?name=early")
	var latest string
	for i := range 50 {
		latest = c.createConfigMap(t, fmt.Sprintf("after-snapshot-%d", i))
	}
	c.post("/restore?name=early")

	if _, err := c.client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "after-snapshot-0", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("an object made after the snapshot is still there: %v", err)
	}
	now := c.createConfigMap(t, "after-restore")
	if version(t, now) >= version(t, latest) || version(t, now) <= saved {
		t.Errorf("resourceVersion after the restore is %s, want more than %d and less than %s", now, saved, latest)
	}
	// The controllers are at work in the restored cluster.
	c.createDeployment(t, "restored", 2)
	c.waitForPods(t, "restored", 2)
}

func (c *controlPlane) testStop(t *testing.T) {
	c = c.in(t)
	pids := c.children()
	begin := time.Now()
	must(t, c.cmd.Process.Signal(syscall.SIGTERM))
	if err := c.cmd.Wait(); err != nil {
		t.Errorf("the program ended with %v", err)
	}
	if took := time.Since(begin); took > 30*time.Second {
		t.Errorf("the end took %v", took)
	}
	waitGone(t, pids)
}

// A control plane without controllers is the API server alone.
func TestAPIServerAlone(t *testing.T) {
	t.Run("a pod can be created and stays pending", func(t *testing.T) {
		c := start(t, "--controllers=false")
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "lonely"}, Spec: podSpec()}
		_, err := c.client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{})
		must(t, err)
	})
	t.Run("kill -9 leaves no child behind", func(t *testing.T) {
		c := start(t, "--controllers=false")
		pids := c.children()
		must(t, c.cmd.Process.Kill())
		waitGone(t, pids)
	})
	t.Run("it ends with its parent", func(t *testing.T) {
		c := start(t, "--controllers=false")
		pids := c.children()
		must(t, c.stdin.Close())
		if err := c.cmd.Wait(); err != nil {
			t.Errorf("the program ended with %v", err)
		}
		waitGone(t, pids)
	})
	t.Run("it ends with an error that names the log when the API server dies", func(t *testing.T) {
		c := start(t, "--controllers=false")
		must(t, syscall.Kill(c.children()["kube-apiserver"], syscall.SIGKILL))
		if err := c.cmd.Wait(); err == nil || c.cmd.ProcessState.ExitCode() != 1 {
			t.Errorf("the program ended with %v, want exit code 1", err)
		}
	})
}

func (c *controlPlane) createDeployment(t *testing.T, name string, replicas int32) {
	t.Helper()
	labels := map[string]string{"app": name}
	_, err := c.client.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(replicas),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
		},
	}, metav1.CreateOptions{})
	must(t, err)
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "example.invalid/image"}}}
}

// waitForPods waits until a deployment has that many pods, all running and ready.
func (c *controlPlane) waitForPods(t *testing.T, app string, want int) {
	t.Helper()
	eventually(t, time.Minute, "the pods of "+app+" are ready", func(context.Context) error {
		ready := 0
		for _, pod := range c.pods(t, app) {
			if pod.Status.Phase == corev1.PodRunning && podReady(&pod) {
				ready++
			}
		}
		if ready != want {
			return fmt.Errorf("%d of %d are", ready, want)
		}
		return nil
	})
}

func (c *controlPlane) pods(t *testing.T, app string) []corev1.Pod {
	t.Helper()
	list, err := c.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + app})
	must(t, err)
	return list.Items
}

func podReady(pod *corev1.Pod) bool {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// createConfigMap returns the resourceVersion of the new object.
func (c *controlPlane) createConfigMap(t *testing.T, name string) string {
	t.Helper()
	cm, err := c.client.CoreV1().ConfigMaps(namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	must(t, err)
	return cm.ResourceVersion
}

func version(t *testing.T, resourceVersion string) int64 {
	t.Helper()
	v, err := strconv.ParseInt(resourceVersion, 10, 64)
	must(t, err)
	return v
}
