package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
)

// Churn creates, updates, scales, deletes and re-creates objects of a namespace until it is
// stopped. Of an API server that is unavailable it thinks nothing: it continues when the server is
// back.
type Churn struct {
	client    kubernetes.Interface
	namespace string
	slower    float64
	cancel    context.CancelFunc
	wg        sync.WaitGroup

	mu  sync.Mutex
	err error // guarded by mu: the API server's word that the churn itself is wrong
}

// The workers. Names are few, so that objects come back under the name of one that was deleted all
// the time.
const (
	mapWorkers, mapNames = 4, 6
	podNames             = 4
	deploymentNames      = 2
)

// StartChurn begins. The seed decides what is changed, not when: that is up to the API server. The
// pauses are so many times as long as they are when there is no hurry: 1 asks for some 300 changes
// a second.
func StartChurn(ctx context.Context, client kubernetes.Interface, namespace string, seed uint64, slower float64) *Churn {
	ctx, cancel := context.WithCancel(ctx)
	c := &Churn{client: client, namespace: namespace, slower: slower, cancel: cancel}
	for i := range mapWorkers {
		c.work(ctx, rand.New(rand.NewPCG(seed, uint64(i))), 15*time.Millisecond, func(r *rand.Rand) error {
			return c.changeMap(ctx, r, fmt.Sprintf("map-%d-%d", i, r.IntN(mapNames)))
		})
	}
	c.work(ctx, rand.New(rand.NewPCG(seed, 100)), 30*time.Millisecond, func(r *rand.Rand) error {
		return c.changePod(ctx, r, fmt.Sprintf("pod-%d", r.IntN(podNames)))
	})
	c.work(ctx, rand.New(rand.NewPCG(seed, 200)), 40*time.Millisecond, func(r *rand.Rand) error {
		return c.changeDeployment(ctx, r, fmt.Sprintf("web-%d", r.IntN(deploymentNames)))
	})
	return c
}

// Stop ends the changes, and gives an error when the API server has refused one as wrong.
func (c *Churn) Stop() error {
	c.cancel()
	c.wg.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// work changes something, with a pause of about the given length between.
func (c *Churn) work(ctx context.Context, r *rand.Rand, pause time.Duration, change func(*rand.Rand) error) {
	pause = time.Duration(float64(pause) * c.slower)
	c.wg.Go(func() {
		for ctx.Err() == nil {
			wait := pause/2 + time.Duration(r.Int64N(int64(pause)))
			if err := change(r); err != nil && !expected(err) {
				c.note(err)
				wait = 100 * time.Millisecond // the server is unavailable
			}
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
		}
	})
}

// expected are the answers to a change of what somebody has created or deleted, or is about to.
func expected(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err) || apierrors.IsConflict(err)
}

func (c *Churn) note(err error) {
	if !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
}

func (c *Churn) changeMap(ctx context.Context, r *rand.Rand, name string) error {
	maps := c.client.CoreV1().ConfigMaps(c.namespace)
	if r.IntN(4) == 0 {
		err := maps.Delete(ctx, name, metav1.DeleteOptions{})
		if err != nil || r.IntN(2) == 0 {
			return err
		}
	}
	value := fmt.Sprint(r.Uint64())
	_, err := maps.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"data":{"value":%q}}`, value), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}, metav1.CreateOptions{})
	}
	return err
}

func (c *Churn) changePod(ctx context.Context, r *rand.Rand, name string) error {
	pods := c.client.CoreV1().Pods(c.namespace)
	if r.IntN(3) == 0 {
		return pods.Delete(ctx, name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(r.IntN(2)))})
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"value":"%d"}}}`, r.Uint64())
	_, err := pods.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		_, err = pods.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podSpec()}, metav1.CreateOptions{})
	}
	return err
}

func (c *Churn) changeDeployment(ctx context.Context, r *rand.Rand, name string) error {
	deployments := c.client.AppsV1().Deployments(c.namespace)
	if r.IntN(8) == 0 {
		return deployments.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
	}
	replicas := int32(r.IntN(4))
	_, err := deployments.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		labels := map[string]string{"app": name}
		_, err = deployments.Create(ctx, &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: appsv1.DeploymentSpec{
				Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec()},
			},
		}, metav1.CreateOptions{})
	}
	return err
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "app:1"}}}
}
