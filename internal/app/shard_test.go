package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/config"
)

// A shard has the number of its pod.
func TestShardOfPod(t *testing.T) {
	for host, want := range map[string]string{"bridge-0": "0/3", "kube-bridge-2": "2/3", "bridge-3": "", "bridge": "", "bridge-x": "", "": ""} {
		checkShardOfHost(t, host, want, false)
	}
}

// Pods with a number beyond the last shard are replicas of the first shards.
func TestShardReplicas(t *testing.T) {
	for host, want := range map[string]string{
		"bridge-0": "0/3", "bridge-2": "2/3", "bridge-3": "0/3", "bridge-4": "1/3", "bridge-11": "2/3",
		"bridge": "", "bridge-x": "", "bridge--": "", "": "",
	} {
		checkShardOfHost(t, host, want, true)
	}
}

// checkShardOfHost wants an error when want is "".
func checkShardOfHost(t *testing.T, host, want string, replicas bool) {
	t.Helper()
	s, err := shardOfHost(host, "3", replicas)
	switch {
	case want == "" && (err == nil || !strings.Contains(err.Error(), "StatefulSet")):
		t.Errorf("%q: %v, %v", host, s, err)
	case want != "" && (err != nil || s.String() != want):
		t.Errorf("%q: %v, %v; want %s", host, s, err, want)
	}
}

// TestShardLeases: replicas of two shards that had one of them in common would
// keep each other out.
func TestShardLeases(t *testing.T) {
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, []byte(`
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for shard, want := range map[string]string{"": "bridge", "0/1": "bridge", "0/3": "bridge-0-of-3", "2/3": "bridge-2-of-3"} {
		c := config.Default()
		c.Kubernetes.Kubeconfig, c.Shard = kubeconfig, shard
		c.Standby.Enabled, c.Standby.Lease.Namespace = true, "tools"
		r, err := (&assembler{config: c}).newReplicas()
		if err != nil {
			t.Fatal(err)
		}
		if got := r.fence().Name; got != "tools_"+want {
			t.Errorf("shard %q: the fence is %s, want tools_%s", shard, got, want)
		}
		if got := r.lease.Name(); got != "tools/"+want {
			t.Errorf("shard %q: the lease is %s, want tools/%s", shard, got, want)
		}
	}
}
