package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubebridge/bridge/test/e2e/read"
)

const redactingReplicas = `
standby: {enabled: true, lease: {name: redaction, namespace: "${NS}"}, leaseDuration: 12s, renewDeadline: 9s, retryPeriod: 100ms}
redaction: {keyFile: "${KEY}"}
informers:
  - {name: app, resources: [secrets], namespaces: ["${NS}"]}
sinks:
  - {name: js, retry: {initial: 100ms, max: 1s}, nats: {servers: ["nats://${JETSTREAM}"], stream: {storage: memory, duplicateWindow: 2m}}}
`

// TestRedactionKeyOfReplicas kills the leader of two replicas that have one key file, and state
// directories of their own. The fingerprint of a Secret's value is the same before and after, also
// from a replica that has lost its state. A rotated value has another one.
func TestRedactionKeyOfReplicas(t *testing.T) {
	f := newReplicas(t)
	key := filepath.Join(f.dir, "redaction-key")
	must(t, os.WriteFile(key, []byte("a key of 16 bytes or more"), 0o600))
	for i := range f.replicas {
		f.replicas[i] = f.newReplica(fmt.Sprint("replica-", i), redactingReplicas, map[string]string{"KEY": key})
	}
	f.createSecret("db", []string{"one", "", ""})
	f.start(f.replicas[0].Bridge)
	f.leads(f.replicas[0])
	changes := 0
	// patched is the fingerprint of the password in the event of a patch.
	patched := func(patch string) (hash fingerprint) {
		t.Helper()
		s, err := f.client.CoreV1().Secrets(f.namespace).
			Patch(f.ctx, "db", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		must(t, err)
		eventually(t, "the update", testPatience, func() []string {
			events, err := f.jetStream.Refresh(f.ctx)
			must(t, err)
			i := slices.IndexFunc(events, func(e read.Event) bool { return e.Attribute("resourceversion") == s.ResourceVersion })
			if i < 0 {
				return []string{"it is missing"}
			}
			var data redactedSecret
			must(t, json.Unmarshal(events[i].Data(), &data))
			hash = newFingerprint(t, data.Data.Password)
			return nil
		})
		return hash
	}
	touched := func() fingerprint {
		t.Helper()
		changes++
		return patched(fmt.Sprintf(`{"metadata":{"labels":{"touched":"%d"}}}`, changes))
	}
	// standsBy starts a replica. It is ready when the leader has delivered something newer than its
	// list.
	standsBy := func(r *replica) {
		t.Helper()
		must(t, r.Start())
		eventually(t, r.name+" stands by", 2*testPatience, func() []string {
			touched()
			if state, err := r.Readiness(f.ctx); err != nil || !state.Ready {
				return []string{fmt.Sprint(state.Reasons, err)}
			}
			return nil
		})
	}
	// killLeader leaves the replica that led without its state.
	killLeader := func() {
		t.Helper()
		leader, successor := f.replicas[0], f.replicas[1]
		leader.Kill()
		f.leads(successor)
		must(t, os.RemoveAll(leader.StateDir))
		standsBy(leader)
		f.replicas[0], f.replicas[1] = successor, leader
	}

	standsBy(f.replicas[1])
	before := touched()
	killLeader()
	if after := touched(); after != before {
		t.Errorf("the fingerprint is %v, and %v after a failover", before, after)
	}
	rotated := patched(`{"stringData":{"password":"two"}}`)
	if rotated.key != before.key || rotated.hash == before.hash {
		t.Errorf("a rotated Secret: %v and %v, want one key and two hashes", before, rotated)
	}
	killLeader()
	if after := touched(); after != rotated {
		t.Errorf("the fingerprint is %v, and %v from a replica that had lost its state", rotated, after)
	}
	for _, r := range f.replicas {
		f.stop(r.Bridge)
	}
}
