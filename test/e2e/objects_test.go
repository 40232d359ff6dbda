package e2e_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

func deployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "app:1"}}},
			},
		},
	}
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

func (l *lab) createDeployment(name string, replicas int32) {
	l.t.Helper()
	_, err := l.client.AppsV1().Deployments(l.namespace).Create(l.ctx, deployment(name, replicas), metav1.CreateOptions{})
	must(l.t, err)
}

func (l *lab) patchDeployment(name, patch string) {
	l.t.Helper()
	_, err := l.client.AppsV1().Deployments(l.namespace).Patch(l.ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	must(l.t, err)
}

// scale sets how many replicas a deployment is to have.
func (l *lab) scale(name string, replicas int) {
	l.t.Helper()
	l.patchDeployment(name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

// roll gives a deployment another image, so that all its pods are replaced.
func (l *lab) roll(name, image string) {
	l.t.Helper()
	l.patchDeployment(name, fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":%q}]}}}}`, image))
}

func (l *lab) deleteDeployment(name string) {
	l.t.Helper()
	must(l.t, l.client.AppsV1().Deployments(l.namespace).Delete(l.ctx, name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationForeground)}))
}

// waitRolledOut waits until a deployment has exactly its pods, all of the newest template and
// ready.
func (l *lab) waitRolledOut(name string) {
	l.t.Helper()
	eventually(l.t, "deployment "+name, time.Minute, func() []string {
		d, err := l.client.AppsV1().Deployments(l.namespace).Get(l.ctx, name, metav1.GetOptions{})
		must(l.t, err)
		want, s := *d.Spec.Replicas, d.Status
		if s.ObservedGeneration != d.Generation || s.UpdatedReplicas != want || s.ReadyReplicas != want || s.Replicas != want {
			return []string{fmt.Sprintf("%+v", s)}
		}
		return nil
	})
}

// waitNoPods waits until the namespace has no pods and no deployments any more.
func (l *lab) waitNoPods() {
	l.t.Helper()
	eventually(l.t, "everything is deleted", time.Minute, func() []string {
		pods, err := l.client.CoreV1().Pods(l.namespace).List(l.ctx, metav1.ListOptions{})
		must(l.t, err)
		deployments, err := l.client.AppsV1().Deployments(l.namespace).List(l.ctx, metav1.ListOptions{})
		must(l.t, err)
		if n := len(pods.Items) + len(deployments.Items); n > 0 {
			return []string{fmt.Sprintf("%d pods and deployments are left", n)}
		}
		return nil
	})
}

func (l *lab) createConfigMap(name, value string) {
	l.t.Helper()
	_, err := l.client.CoreV1().ConfigMaps(l.namespace).Create(l.ctx, configMap(name, map[string]string{"value": value}), metav1.CreateOptions{})
	must(l.t, err)
}

func (l *lab) updateConfigMap(name, value string) {
	l.t.Helper()
	patch := fmt.Appendf(nil, `{"data":{"value":%q}}`, value)
	_, err := l.client.CoreV1().ConfigMaps(l.namespace).Patch(l.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	must(l.t, err)
}

func (l *lab) deleteConfigMap(name string) {
	l.t.Helper()
	must(l.t, l.client.CoreV1().ConfigMaps(l.namespace).Delete(l.ctx, name, metav1.DeleteOptions{}))
}

// each does something for 0 to n-1, several at a time.
func (l *lab) each(n int, do func(i int)) {
	l.t.Helper()
	var g errgroup.Group
	g.SetLimit(8)
	for i := range n {
		g.Go(func() error { do(i); return nil })
	}
	must(l.t, g.Wait())
}

// widgets is a custom resource; installWidgets makes it known to a cluster.
var widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}

const widgetsName = "widgets.example.com"

func installWidgets(t *testing.T, c *cluster) {
	t.Helper()
	crds := c.dynamic.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	_, err := crds.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": widgetsName},
		"spec": map[string]any{
			"group": widgets.Group, "scope": "Namespaced",
			"names": map[string]any{"plural": "widgets", "singular": "widget", "kind": "Widget"},
			"versions": []any{map[string]any{
				"name": widgets.Version, "served": true, "storage": true,
				"schema": map[string]any{"openAPIV3Schema": map[string]any{"type": "object", "x-kubernetes-preserve-unknown-fields": true}},
			}},
		},
	}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) { // left by an earlier run with -count
		t.Fatal(err)
	}
	eventually(t, "widgets are served", 30*time.Second, func() []string {
		if _, err := c.dynamic.Resource(widgets).List(t.Context(), metav1.ListOptions{}); err != nil {
			return []string{err.Error()}
		}
		return nil
	})
}

func widget(name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}

// churn changes an object of its own in a namespace until ctx ends, over and over from its creation
// to its delete. What fails is tried again: the API server may be unavailable.
func churn(ctx context.Context, c *cluster, namespace string, number int) error {
	name := fmt.Sprintf("churn-%d", number)
	for i := 0; ctx.Err() == nil; i++ {
		if err := churnOnce(ctx, c, namespace, name, i); err != nil && isAnswer(err) {
			return fmt.Errorf("churn %s: %w", name, err)
		}
	}
	return nil
}

// isAnswer reports whether an error is the API server's word that a test is wrong, rather than its
// absence.
func isAnswer(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
}

// persist calls until the API server has done it, or says that the call is wrong, or ctx ends: the
// API server may have too much to do.
func persist(ctx context.Context, call func() error) error {
	for {
		err := call()
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if isAnswer(err) || apierrors.IsNotFound(err) {
			return err
		}
	}
}

// churnOnce makes ten changes in 50 ms or more: the machine has other things to do.
func churnOnce(ctx context.Context, c *cluster, namespace, name string, round int) error {
	maps := c.client.CoreV1().ConfigMaps(namespace)
	if _, err := maps.Create(ctx, configMap(name, nil), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	for i := range 8 {
		patch := fmt.Appendf(nil, `{"data":{"round":"%d","value":"%d"}}`, round, i)
		if _, err := maps.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	return maps.Delete(ctx, name, metav1.DeleteOptions{})
}
