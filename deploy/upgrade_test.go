//go:build linux

package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubebridge/bridge/deploy/container"
)

// TestUpgradeAndRollback runs two builds one after the other, and the first one again. Each time the
// StatefulSet's controller makes the pod, of the image that the chart names. The volume stays.
func TestUpgradeAndRollback(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip(container.ErrNotRoot)
	}
	const first, second = "v0.0.1", "v0.0.2"
	roots := map[string]string{}
	for _, version := range []string{first, second} {
		file, err := buildBridge("bridge-"+version, version)
		must(t, err)
		roots[version] = unpackImageOf(t, file)
	}
	c := live(t)
	s := broker(t)
	v := theValues(t, s)
	v["image"] = values{"tag": first}
	k := install(t, c, v, 1)[0]
	k.root = roots[first]
	grace := time.Duration(*k.pod.Spec.TerminationGracePeriodSeconds) * time.Second
	const event = "k8s.prod.core.v1.configmaps.shop.%s.%s"

	c.putConfigMap(t, "kept", "1")
	r := k.start()
	await(t, "it is ready", func() error { return r.get(k.probeURL(k.pod.Spec.Containers[0].ReadinessProbe)) })
	await(t, "its events come", contains(t, s, fmt.Sprintf(event, "kept", "added")))
	if code, said := k.helmTest(v); code != 0 || said != "ready\n" {
		t.Errorf("helm test of a bridge that is ready: exit code %d, %s", code, said)
	}
	for _, version := range []string{second, first} {
		r.stop(grace)
		missed := "before-" + strings.ReplaceAll(version, ".", "-")
		c.putConfigMap(t, missed, "1")
		v["image"] = values{"tag": version}
		must(t, c.apply(t.Context(), objects(t, mustRender(t, v)), false))
		k.awaitImage(version)
		k.root = roots[version]
		r = k.start()
		await(t, version+" is ready", func() error { return r.get(k.probeURL(k.pod.Spec.Containers[0].ReadinessProbe)) })
		await(t, "what happened meanwhile comes", contains(t, s, fmt.Sprintf(event, missed, "added")))
		if !strings.Contains(r.log.String(), version) {
			t.Errorf("%s does not run", version)
		}
	}
	list := subjects(t, s)
	if n := count(list, fmt.Sprintf(event, "kept", "added")); n != 1 {
		t.Errorf("an object of before is in the stream %d times", n)
	}
	if i := slices.IndexFunc(list, func(subject string) bool { return strings.Contains(subject, "gap") }); i >= 0 {
		t.Errorf("a gap was reported: %s", list[i])
	}
	r.stop(grace)
	if code, said := k.helmTest(v); code == 0 || !strings.Contains(said, "no bridge answers") {
		t.Errorf("helm test without a bridge: exit code %d, %s", code, said)
	}
}

// awaitImage waits for the pod of another image, and takes it as the one to run.
func (k *kubelet) awaitImage(tag string) {
	k.t.Helper()
	await(k.t, "the pod of "+tag+" is made", func() error {
		pod, err := k.client.CoreV1().Pods(namespace).Get(k.t.Context(), k.pod.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if image := pod.Spec.Containers[0].Image; pod.UID == k.pod.UID || !strings.HasSuffix(image, ":"+tag) {
			return fmt.Errorf("it is of %s", image)
		}
		k.pod = pod
		return nil
	})
}

// helmTest does what `helm test` does: it makes the hooks' objects, runs the pod, and removes them.
func (k *kubelet) helmTest(v values) (code int, said string) {
	k.t.Helper()
	ctx := k.t.Context()
	hooks := objects(k.t, renderHooks(k.t, v))
	must(k.t, k.apply(ctx, hooks, false))
	defer func() {
		for _, o := range hooks {
			client, err := k.resource(o)
			must(k.t, err)
			must(k.t, client.Delete(ctx, o.GetName(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
		}
	}()
	pod, err := k.client.CoreV1().Pods(namespace).Get(ctx, find(k.t, hooks, "Pod", "").GetName(), metav1.GetOptions{})
	must(k.t, err)
	// What the cluster's DNS would answer for the headless Service.
	hosts := filepath.Join(k.root, "etc", "hosts")
	must(k.t, os.WriteFile(hosts, []byte("127.0.0.1 bridge-0.bridge."+namespace+".svc\n"), 0o644))
	tester := &kubelet{cluster: k.cluster, t: k.t, dir: k.t.TempDir(), root: k.root, pod: pod}
	cmd, err := container.Command(tester.spec())
	must(k.t, err)
	out, _ := cmd.CombinedOutput() // its exit code says how it went
	return cmd.ProcessState.ExitCode(), string(out)
}

// TestVolumeGrows does what docs/operations.md says under "Growing the volume".
func TestVolumeGrows(t *testing.T) {
	c := live(t)
	ctx := t.Context()
	v := volumeValues(t, "growing")
	class := &storagev1.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: "growing"}, Provisioner: "kubernetes.io/no-provisioner", AllowVolumeExpansion: new(true),
	}
	_, err := c.client.StorageV1().StorageClasses().Create(ctx, class, metav1.CreateOptions{})
	must(t, err)
	_, err = c.client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "growing"},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: "growing", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("20Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: t.TempDir()}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
	t.Cleanup(func() {
		ctx := context.WithoutCancel(ctx)
		must(t, c.client.StorageV1().StorageClasses().Delete(ctx, "growing", metav1.DeleteOptions{}))
		must(t, c.client.CoreV1().PersistentVolumes().Delete(ctx, "growing", metav1.DeleteOptions{}))
		must(t, c.client.CoreV1().PersistentVolumeClaims(namespace).Delete(ctx, "state-growing-0", metav1.DeleteOptions{}))
		must(t, c.client.AppsV1().StatefulSets(namespace).Delete(ctx, "growing", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}))
		must(t, wait(ctx, "the pods are gone", func() error { return c.noPods(ctx) }))
	})
	must(t, c.apply(ctx, objects(t, mustRender(t, v)), false))
	await(t, "the claim is bound", func() error {
		claim, err := c.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, "state-growing-0", metav1.GetOptions{})
		if err == nil && claim.Status.Phase != corev1.ClaimBound {
			err = fmt.Errorf("it is %s", claim.Status.Phase)
		}
		return err
	})
	pod, err := c.client.CoreV1().Pods(namespace).Get(ctx, "growing-0", metav1.GetOptions{})
	must(t, err)

	larger := volumeValues(t, "growing")
	larger["persistence"].(values)["size"] = "50Gi"
	if err := c.apply(ctx, objects(t, mustRender(t, larger)), true); err == nil || !strings.Contains(err.Error(), "updates to statefulset spec") {
		t.Errorf("a changed size alone: %v", err)
	}
	patch := `{"spec":{"resources":{"requests":{"storage":"50Gi"}}}}`
	_, err = c.client.CoreV1().PersistentVolumeClaims(namespace).Patch(ctx, "state-growing-0", types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	must(t, err)
	must(t, c.client.AppsV1().StatefulSets(namespace).Delete(ctx, "growing", metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationOrphan)}))
	await(t, "the StatefulSet is gone", func() error {
		_, err := c.client.AppsV1().StatefulSets(namespace).Get(ctx, "growing", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is there"))
	})
	must(t, c.apply(ctx, objects(t, mustRender(t, larger)), false))
	await(t, "the new StatefulSet has the pod", func() error {
		now, err := c.client.CoreV1().Pods(namespace).Get(ctx, "growing-0", metav1.GetOptions{})
		if err != nil {
			return err
		}
		set, err := c.client.AppsV1().StatefulSets(namespace).Get(ctx, "growing", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if now.UID != pod.UID {
			t.Error("it is another pod")
		}
		if owner := metav1.GetControllerOf(now); owner == nil || owner.UID != set.UID {
			return fmt.Errorf("its owner is %v", owner)
		}
		return nil
	})
}

// volumeValues are values for an installation of a name, with volumes of a storage class of that name.
func volumeValues(t *testing.T, name string) values {
	t.Helper()
	return readValues(t, minimal+"fullnameOverride: "+name+"\npersistence: {storageClassName: "+name+"}\n")
}
