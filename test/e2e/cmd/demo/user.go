package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	app      = "web"
	settings = "settings"
)

// user does what somebody with kubectl would, and says so.
type user struct {
	screen    *screen
	config    *rest.Config
	namespace string
	images    func(round int) (first, second string) // of the deployment
	client    kubernetes.Interface
	made      bool // the namespace
	// beforeDeletes is called once, when there is something to ask about.
	beforeDeletes func()
}

// deletes is the place of the first delete in a round.
const deletes = 6

// action is one command, and what it does.
type action struct {
	command string // as kubectl has it
	do      func(context.Context) error
}

// run does one thing after the other, over and over, until ctx ends.
func (u *user) run(ctx context.Context) (err error) {
	u.config.UserAgent = "demo-user" // what managedFields, and so the events, call us
	if u.client, err = kubernetes.NewForConfig(u.config); err != nil {
		return err
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: u.namespace}}
	if _, err := u.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make the namespace of the demo: %w", err)
	}
	u.made = true
	for round := 1; ; round++ {
		for i, a := range u.round(round) {
			if !pause(ctx, 3*time.Second) {
				return nil
			}
			if round == 1 && i == deletes {
				u.beforeDeletes()
			}
			u.screen.headline("$ kubectl --namespace %s %s", u.namespace, a.command)
			if err := a.do(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("kubectl %s: %w", a.command, err)
			}
		}
	}
}

// cleanUp deletes the namespace, if run has made it.
func (u *user) cleanUp(ctx context.Context) error {
	if !u.made {
		return nil
	}
	return u.client.CoreV1().Namespaces().Delete(ctx, u.namespace, metav1.DeleteOptions{})
}

// pause waits, and reports whether to continue.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// round is the life of an application.
func (u *user) round(n int) []action {
	first, second := u.images(n)
	return []action{
		{"create configmap " + settings + " --from-literal colour=green", u.createSettings("green")},
		{"create deployment " + app + " --image " + first + " --replicas 3", u.createDeployment(first, 3)},
		{"scale deployment " + app + " --replicas 5", u.scale(5)},
		{"patch configmap " + settings + ` --patch '{"data":{"colour":"blue"}}'`, u.paint("blue")},
		{"set image deployment " + app + " main=" + second, u.setImage(second)},
		{"scale deployment " + app + " --replicas 2", u.scale(2)},
		{"delete configmap " + settings, u.deleteSettings},
		{"create configmap " + settings + " --from-literal colour=red     # another object under the old name", u.createSettings("red")},
		{"delete deployment " + app, u.deleteDeployment},
		{"delete configmap " + settings, u.deleteSettings},
	}
}

func (u *user) createSettings(colour string) func(context.Context) error {
	return func(ctx context.Context) error {
		m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: settings}, Data: map[string]string{"colour": colour}}
		_, err := u.client.CoreV1().ConfigMaps(u.namespace).Create(ctx, m, metav1.CreateOptions{})
		return err
	}
}

func (u *user) paint(colour string) func(context.Context) error {
	return func(ctx context.Context) error {
		patch := fmt.Appendf(nil, `{"data":{"colour":%q}}`, colour)
		_, err := u.client.CoreV1().ConfigMaps(u.namespace).Patch(ctx, settings, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
}

func (u *user) deleteSettings(ctx context.Context) error {
	return u.client.CoreV1().ConfigMaps(u.namespace).Delete(ctx, settings, metav1.DeleteOptions{})
}

func (u *user) createDeployment(image string, replicas int32) func(context.Context) error {
	labels := map[string]string{"app": app}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: app, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
			},
		},
	}
	return func(ctx context.Context) error {
		_, err := u.client.AppsV1().Deployments(u.namespace).Create(ctx, d, metav1.CreateOptions{})
		return err
	}
}

func (u *user) scale(replicas int) func(context.Context) error {
	return u.patchDeployment(fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

func (u *user) setImage(image string) func(context.Context) error {
	return u.patchDeployment(fmt.Sprintf(`{"spec":{"template":{"spec":{"containers":[{"name":"main","image":%q}]}}}}`, image))
}

func (u *user) patchDeployment(patch string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := u.client.AppsV1().Deployments(u.namespace).Patch(ctx, app, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
}

func (u *user) deleteDeployment(ctx context.Context) error {
	return u.client.AppsV1().Deployments(u.namespace).Delete(ctx, app, metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)})
}
