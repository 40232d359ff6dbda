//go:build linux

package deploy_test

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/deploy/container"
)

// needRoot skips the test for other users, which can't make containers. With NEED_ROOT in the
// environment, as CI has it, that is a failure.
func needRoot(t *testing.T) {
	t.Helper()
	switch {
	case os.Geteuid() == 0:
	case os.Getenv("NEED_ROOT") != "":
		t.Fatal(container.ErrNotRoot)
	default:
		t.Skip(container.ErrNotRoot)
	}
}

// kubelet runs the container of a pod on this machine, as the pod says: its arguments, variables,
// volumes, user, and a read-only root.
type kubelet struct {
	*cluster
	t    *testing.T
	pod  *corev1.Pod
	dir  string // of the pod's volumes: they stay when its container ends
	root string // file system of the image
	port int    // in place of the admin port, where another pod has it: pods have addresses of their own, and here they share that of the machine
}

// spec is the container of the pod, made of what the API server has now.
func (k *kubelet) spec() *container.Spec {
	k.t.Helper()
	c := &k.pod.Spec.Containers[0]
	uid, gid, group := k.identity()
	s := &container.Spec{
		Hostname: k.pod.Name, Root: k.root, ReadOnlyRoot: *c.SecurityContext.ReadOnlyRootFilesystem,
		Args: append([]string{"/usr/bin/bridge"}, c.Args...), Env: k.env(c), Dir: "/var/lib/bridge",
		UID: uid, GID: gid, Groups: []int{group},
	}
	for _, m := range c.VolumeMounts {
		i := slices.IndexFunc(k.pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })
		if i < 0 {
			k.t.Fatalf("the pod has no volume %s", m.Name)
		}
		s.Mounts = append(s.Mounts, container.Mount{Source: k.volume(&k.pod.Spec.Volumes[i], group), Target: m.MountPath, ReadOnly: m.ReadOnly})
	}
	return s
}

// identity is that of the pod's processes. What the pod leaves out is what OpenShift gives to it:
// the user and the group of volumes from a range of the namespace, and group 0.
func (k *kubelet) identity() (uid, gid, group int) {
	const ofNamespace = 1000660000
	get := func(value *int64, otherwise int) int {
		if value == nil {
			return otherwise
		}
		return int(*value)
	}
	ps := k.pod.Spec.SecurityContext
	return get(ps.RunAsUser, ofNamespace), get(ps.RunAsGroup, 0), get(ps.FSGroup, ofNamespace)
}

// env are the variables of a container, and those that every container gets.
func (k *kubelet) env(c *corev1.Container) []string {
	k.t.Helper()
	server, err := url.Parse(k.Server)
	must(k.t, err)
	env := []string{
		"PATH=/usr/bin", "HOME=/nonexistent", "HOSTNAME=" + k.pod.Name,
		"KUBERNETES_SERVICE_HOST=" + server.Hostname(), "KUBERNETES_SERVICE_PORT=" + server.Port(),
	}
	for _, v := range c.Env {
		value := v.Value
		if from := v.ValueFrom; from != nil {
			secret, err := k.client.CoreV1().Secrets(k.pod.Namespace).Get(k.t.Context(), from.SecretKeyRef.Name, metav1.GetOptions{})
			must(k.t, err)
			value = string(secret.Data[from.SecretKeyRef.Key])
		}
		env = append(env, v.Name+"="+value)
	}
	if k.port != 0 {
		env = append(env, fmt.Sprintf("BRIDGE_ADMIN_ADDRESS=:%d", k.port))
	}
	return env
}

// volume makes the directory of a volume.
func (k *kubelet) volume(v *corev1.Volume, group int) string {
	k.t.Helper()
	dir := filepath.Join(k.dir, v.Name)
	must(k.t, os.MkdirAll(dir, 0o755))
	ctx := k.t.Context()
	switch {
	case v.PersistentVolumeClaim != nil || v.EmptyDir != nil:
		must(k.t, os.Chown(dir, 0, group))
		must(k.t, os.Chmod(dir, 0o2775|os.ModeSetgid))
		must(k.t, os.MkdirAll(filepath.Join(dir, "lost+found"), 0o700)) // as a new ext4 has it
	case v.ConfigMap != nil:
		k.configMap(ctx, dir, v.ConfigMap.Name, v.ConfigMap.DefaultMode, v.ConfigMap.Items)
	case v.Secret != nil:
		secret, err := k.client.CoreV1().Secrets(k.pod.Namespace).Get(ctx, v.Secret.SecretName, metav1.GetOptions{})
		must(k.t, err)
		for key, data := range secret.Data {
			k.file(dir, key, data, *v.Secret.DefaultMode, group)
		}
	case v.Projected != nil:
		for _, source := range v.Projected.Sources {
			k.projected(ctx, dir, &source, group)
		}
	default:
		k.t.Fatalf("volume %s is of a kind that this kubelet does not know", v.Name)
	}
	return dir
}

func (k *kubelet) configMap(ctx context.Context, dir, name string, mode *int32, items []corev1.KeyToPath) {
	k.t.Helper()
	m, err := k.client.CoreV1().ConfigMaps(k.pod.Namespace).Get(ctx, name, metav1.GetOptions{})
	must(k.t, err)
	for key, text := range m.Data {
		if i := slices.IndexFunc(items, func(p corev1.KeyToPath) bool { return p.Key == key }); i >= 0 {
			key = items[i].Path
		}
		permissions := int32(0o644)
		if mode != nil {
			permissions = *mode
		}
		k.file(dir, key, []byte(text), permissions, 0)
	}
}

// projected makes the files of a service account's volume, the token for this pod among them.
func (k *kubelet) projected(ctx context.Context, dir string, source *corev1.VolumeProjection, group int) {
	k.t.Helper()
	switch {
	case source.ServiceAccountToken != nil:
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			ExpirationSeconds: source.ServiceAccountToken.ExpirationSeconds,
			BoundObjectRef:    &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: k.pod.Name, UID: k.pod.UID},
		}}
		answer, err := k.client.CoreV1().ServiceAccounts(k.pod.Namespace).CreateToken(ctx, k.pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
		must(k.t, err)
		k.file(dir, source.ServiceAccountToken.Path, []byte(answer.Status.Token), 0o640, group)
	case source.ConfigMap != nil:
		k.configMap(ctx, dir, source.ConfigMap.Name, nil, source.ConfigMap.Items)
	case source.DownwardAPI != nil:
		k.file(dir, source.DownwardAPI.Items[0].Path, []byte(k.pod.Namespace), 0o644, 0)
	}
}

func (k *kubelet) file(dir, name string, data []byte, mode int32, group int) {
	k.t.Helper()
	file := filepath.Join(dir, filepath.Clean("/"+name))
	must(k.t, os.RemoveAll(file))
	must(k.t, os.WriteFile(file, data, 0o600))
	must(k.t, os.Chown(file, 0, group))
	must(k.t, os.Chmod(file, os.FileMode(mode)))
}

// probeURL is what a probe of the container asks for, on this machine.
func (k *kubelet) probeURL(p *corev1.Probe) string {
	k.t.Helper()
	c := &k.pod.Spec.Containers[0]
	i := slices.IndexFunc(c.Ports, func(port corev1.ContainerPort) bool { return port.Name == p.HTTPGet.Port.String() })
	if i < 0 {
		k.t.Fatalf("the probe asks port %v, which the container does not have", p.HTTPGet.Port.String())
	}
	return fmt.Sprintf("http://127.0.0.1:%d%s", cmp.Or(k.port, int(c.Ports[i].ContainerPort)), p.HTTPGet.Path)
}
