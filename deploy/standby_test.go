//go:build linux

package deploy_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Two pods as the chart makes them, out of the image's file system, each with its token, rights and
// volume: one leads, and when it is killed the other continues where it was. The first one comes
// back with its volume, and stands by.
func TestChartStandby(t *testing.T) {
	needRoot(t)
	c := live(t)
	s := broker(t)
	v := theValues(t, s)
	v["replicas"] = 2
	v["config"].(map[string]any)["standby"] = map[string]any{
		"enabled": true, "lease": map[string]any{"name": "shop-bridge"}, "leaseDuration": "12s", "renewDeadline": "9s", "retryPeriod": "100ms",
	}
	pods := install(t, c, v, 2)
	running := map[string]*running{}
	ready := func(k *kubelet) func() error {
		return func() error { return running[k.pod.Name].get(k.probeURL(k.pod.Spec.Containers[0].ReadinessProbe)) }
	}
	for _, k := range pods {
		running[k.pod.Name] = k.start()
	}
	write := writes(t, c)
	write("two-a")
	for _, k := range pods {
		await(t, k.pod.Name+" is ready", func() error {
			write("pulse") // an idle cluster reports how far it is once a minute
			return ready(k)()
		})
	}
	leader, standby := byRole(t, c, pods)
	write("two-b")
	const event = "k8s.prod.core.v1.configmaps.shop.%s.%s"
	await(t, "the leader sends", contains(t, s, fmt.Sprintf(event, "two-b", "added")))

	killed := time.Now()
	must(t, running[leader.pod.Name].cmd.Process.Kill())
	<-running[leader.pod.Name].ended
	write("two-c")
	await(t, "the other sends", contains(t, s, fmt.Sprintf(event, "two-c", "added")))
	t.Logf("%s was killed, and %s has sent what came then after %v", leader.pod.Name, standby.pod.Name, time.Since(killed).Round(10*time.Millisecond))
	if now, _ := byRole(t, c, pods); now != standby {
		t.Errorf("%s leads", now.pod.Name)
	}

	running[leader.pod.Name] = leader.start()
	await(t, leader.pod.Name+" stands by", func() error {
		write("pulse")
		return ready(leader)()
	})
	write("two-d")
	await(t, "it continues", contains(t, s, fmt.Sprintf(event, "two-d", "added")))
	list := subjects(t, s)
	for _, name := range []string{"two-a", "two-b", "two-c", "two-d"} {
		if n := count(list, fmt.Sprintf(event, name, "added")); n != 1 {
			t.Errorf("%s is in the stream %d times", name, n)
		}
	}
	if i := slices.IndexFunc(list, func(subject string) bool { return strings.Contains(subject, "gap") }); i >= 0 {
		t.Errorf("a gap was reported: %s", list[i])
	}
	for name, r := range running {
		if strings.Contains(r.log.String(), "forbidden") {
			t.Errorf("%s reports missing rights", name)
		}
	}
	for _, k := range []*kubelet{leader, standby} { // the standby first
		running[k.pod.Name].stop(time.Duration(*k.pod.Spec.TerminationGracePeriodSeconds) * time.Second)
	}
}

// writes gives a function that writes a ConfigMap, with another value each time.
func writes(t *testing.T, c *cluster) func(name string) {
	prefix, n := fmt.Sprint(time.Now().UnixNano(), "-"), 0
	return func(name string) {
		t.Helper()
		n++
		c.putConfigMap(t, name, fmt.Sprint(prefix, n))
	}
}

// byRole gives the pod that has the lease, and the other.
func byRole(t *testing.T, c *cluster, pods []*kubelet) (leader, standby *kubelet) {
	t.Helper()
	lease, err := c.client.CoordinationV1().Leases(namespace).Get(t.Context(), "shop-bridge", metav1.GetOptions{})
	must(t, err)
	i := slices.IndexFunc(pods, func(k *kubelet) bool { return strings.HasPrefix(*lease.Spec.HolderIdentity, k.pod.Name+"_") })
	if i < 0 {
		t.Fatalf("%s leads", *lease.Spec.HolderIdentity)
	}
	return pods[i], pods[1-i]
}

func count(list []string, wanted string) (n int) {
	for _, one := range list {
		if one == wanted {
			n++
		}
	}
	return n
}
