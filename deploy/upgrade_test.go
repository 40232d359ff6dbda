//go:build linux

package deploy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	"sigs.k8s.io/yaml"

	"github.com/kubebridge/bridge/deploy/container"
)

// helmVersion is the package of Helm 3 with its version, in the Makefile.
var helmVersion = regexp.MustCompile(`helm\.sh/helm/v3/cmd/helm@\S+`)

// helm runs Helm, and has the chart as Helm packs it.
type helm struct {
	t              *testing.T
	program, chart string
	env            []string
}

func newHelm(t *testing.T, c *cluster) *helm {
	t.Helper()
	dir := t.TempDir()
	h := &helm{t: t, program: filepath.Join(workDir, "helm")}
	makefile, err := os.ReadFile(filepath.Join("..", "Makefile"))
	must(t, err)
	install := exec.CommandContext(t.Context(), "go", "install", string(helmVersion.Find(makefile)))
	install.Env = append(os.Environ(), "GOBIN="+workDir)
	if said, err := install.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	h.env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig, "HELM_NAMESPACE="+namespace,
		"HELM_CACHE_HOME="+dir, "HELM_CONFIG_HOME="+dir, "HELM_DATA_HOME="+dir)
	h.run("package", chartDir, "--destination", dir)
	packed, err := filepath.Glob(filepath.Join(dir, "bridge-*.tgz"))
	if err != nil || len(packed) != 1 {
		t.Fatalf("helm package made %v, %v", packed, err)
	}
	h.chart = packed[0]
	return h
}

func (h *helm) try(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, h.program, args...)
	cmd.Env = h.env
	said, err := cmd.CombinedOutput()
	return string(said), err
}

func (h *helm) run(args ...string) {
	h.t.Helper()
	if said, err := h.try(h.t.Context(), args...); err != nil {
		h.t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, said)
	}
}

// values writes a file of values.
func (h *helm) values(v values) string {
	h.t.Helper()
	text, err := yaml.Marshal(v)
	must(h.t, err)
	file := filepath.Join(h.t.TempDir(), "values.yaml")
	must(h.t, os.WriteFile(file, text, 0o600))
	return file
}

// uninstall leaves nothing that would be in the way of another installation.
func (h *helm) uninstall(c *cluster) {
	h.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(h.t.Context()), patience)
	defer cancel()
	if said, err := h.try(ctx, "uninstall", "bridge"); err != nil {
		h.t.Errorf("helm uninstall: %v\n%s", err, said)
	}
	must(h.t, c.client.CoreV1().Secrets(namespace).Delete(ctx, "nats", metav1.DeleteOptions{}))
	now := metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	if err := c.client.CoreV1().Pods(namespace).Delete(ctx, testPod, now); !apierrors.IsNotFound(err) {
		must(h.t, err) // Helm keeps the pod of a test that failed
	}
	must(h.t, wait(ctx, "the pods are gone", func() error { return c.noPods(ctx) }))
}

// TestUpgradeAndRollback has Helm install the packed chart, upgrade it to a second build, and roll
// it back. Each time the StatefulSet's controller makes the pod, of the image that the chart names.
// The volume stays.
func TestUpgradeAndRollback(t *testing.T) {
	needRoot(t)
	const first, second = "v0.0.1", "v0.0.2"
	roots := map[string]string{}
	for _, version := range []string{first, second} {
		file, err := buildBridge("bridge-"+version, version)
		must(t, err)
		roots[version] = unpackImageOf(t, file)
	}
	c := live(t)
	s := broker(t)
	h := newHelm(t, c)
	v := theValues(t, s)
	v["image"] = values{"tag": first}
	c.createSecret(t)
	t.Cleanup(func() { h.uninstall(c) })
	h.run("install", "bridge", h.chart, "--values", h.values(v))
	k := newKubelet(t, c, "bridge-0", roots[first])
	grace := time.Duration(*k.pod.Spec.TerminationGracePeriodSeconds) * time.Second
	const event = "k8s.prod.core.v1.configmaps.shop.%s.%s"

	c.putConfigMap(t, "kept", "1")
	r := k.start()
	await(t, "it is ready", func() error { return r.get(k.probeURL(k.pod.Spec.Containers[0].ReadinessProbe)) })
	await(t, "its events come", contains(t, s, fmt.Sprintf(event, "kept", "added")))
	if said, err := k.helmTest(h); err != nil || said != "ready\n" {
		t.Errorf("helm test of a bridge that is ready: %v, its pod says %s", err, said)
	}
	for _, version := range []string{second, first} {
		r.stop(grace)
		missed := "before-" + strings.ReplaceAll(version, ".", "-")
		c.putConfigMap(t, missed, "1")
		if version == second {
			v["image"] = values{"tag": second}
			h.run("upgrade", "bridge", h.chart, "--values", h.values(v))
		} else {
			h.run("rollback", "bridge", "1")
		}
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
	if said, err := k.helmTest(h); err == nil || !strings.Contains(said, "no bridge answers") {
		t.Errorf("helm test without a bridge: %v, its pod says %s", err, said)
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

// testPod is the pod of helm test.
const testPod = "bridge-test"

// helmTest has Helm test the release. It runs the pod that Helm makes, and returns what that says,
// and what Helm makes of it.
func (k *kubelet) helmTest(h *helm) (said string, err error) {
	k.t.Helper()
	ctx := k.t.Context()
	ended := make(chan error, 1)
	go func() {
		out, err := h.try(ctx, "test", "bridge", "--timeout", "2m")
		if err != nil {
			err = fmt.Errorf("%w: %s", err, out)
		}
		ended <- err
	}()
	tester := newKubelet(k.t, k.cluster, testPod, k.root)
	// What the cluster's DNS would answer for the headless Service.
	hosts := filepath.Join(k.root, "etc", "hosts")
	must(k.t, os.WriteFile(hosts, []byte("127.0.0.1 bridge-0.bridge."+namespace+".svc\n"), 0o644))
	cmd, err := container.Command(tester.spec())
	must(k.t, err)
	out, failed := cmd.CombinedOutput()
	phase := corev1.PodSucceeded
	if failed != nil {
		phase = corev1.PodFailed
	}
	status := fmt.Appendf(nil, `{"status":{"phase":%q}}`, phase)
	_, err = k.client.CoreV1().Pods(namespace).Patch(ctx, testPod, types.MergePatchType, status, metav1.PatchOptions{}, "status")
	must(k.t, err)
	return string(out), <-ended
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

// volumeValues are values for an installation of a name, with volumes of a storage class of that
// name.
func volumeValues(t *testing.T, name string) values {
	t.Helper()
	return readValues(t, minimal+"fullnameOverride: "+name+"\npersistence: {storageClassName: "+name+"}\n")
}
