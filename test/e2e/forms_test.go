package e2e_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// forms sends one namespace to nine sinks, each a stream of its own, in every form. The sink of the
// newest states is too slow for what happens.
const forms = `
informers:
  - name: app
    resources: [pods, replicasets.apps, deployments.apps, configmaps, secrets]
    namespaces: ["${NS}"]
    owners: true
    attributes: {app: metadata.labels.app}
    redact: ['data.token']
    drop: ['metadata.annotations["example.com/dropped"]']
    redactEnv: true
    sinks:
      - {name: object}
      - {name: change, payload: change}
      - {name: patch, payload: patch}
      - {name: metadata, payload: metadata}
      - {name: reference, payload: reference}
      - {name: knative, types: knative}
      - {name: newest, payload: patch, delivery: latest}
      - {name: phases, payload: reference, operations: [updated, deleted], filter: 'meta.resource == "pods" && (op == "deleted" || object.status.phase != old.status.phase)'}
  - name: quiet
    resources: [configmaps, leases.coordination.k8s.io]
    namespaces: ["${NS}"]
    redact: ['data.token']
    drop: ['metadata.annotations["example.com/dropped"]']
    ignoreChanges: ['data.noise', 'metadata.generation']
    ignoreHeartbeats: true
    sinks: [{name: quiet, payload: reference}]
sinks:
  - {name: object, nats: {servers: ["nats://${NATS_ADDRESS}"], embedded: true, stream: {name: object}, subject: "object.{resource}.{name}.{op}"}}
  - {name: change, nats: {servers: ["nats://${NATS_ADDRESS}"], stream: {name: change}, subject: "change.{resource}.{name}.{op}"}}
  - {name: patch, nats: {servers: ["nats://${NATS_ADDRESS}"], stream: {name: patch}, subject: "patch.{attributes.app}.{name}.{op}"}}
  - {name: metadata, nats: {servers: ["nats://${NATS_ADDRESS}"], stream: {name: metadata}, subject: "metadata.{resource}.{name}.{op}"}}
  - {name: reference, nats: {servers: ["nats://${NATS_ADDRESS}"], stream: {name: reference}, subject: "reference.{resource}.{name}.{op}"}}
  - {name: knative, nats: {servers: ["nats://${NATS_ADDRESS}"], stream: {name: knative}, subject: "knative.{resource}.{name}.{op}"}}
  - {name: newest, rateLimit: {perSecond: 20, burst: 1}, nats: {servers: ["nats://${NATS_ADDRESS}"], stream: {name: newest}, subject: "newest.{resource}.{name}.{op}"}}
  - {name: phases, nats: {servers: ["nats://${NATS_ADDRESS}"], stream: {name: phases}, subject: "phases.{resource}.{name}.{op}"}}
  - {name: quiet, nats: {servers: ["nats://${NATS_ADDRESS}"], stream: {name: quiet}, subject: "quiet.{resource}.{name}.{op}"}}
`

// Every form of payload, filter, redaction and delivery is held against what an independent watch
// saw of the same churn.
func TestEveryForm(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	secret := secretValue()
	l.createSecret("before", []string{secret, secret, secret})
	ledger := l.witness(
		truth.Core("pods", l.namespace), truth.Named("replicasets", "apps", "v1", l.namespace), truth.Named("deployments", "apps", "v1", l.namespace),
		truth.Core("configmaps", l.namespace), truth.Core("secrets", l.namespace), truth.Named("leases", "coordination.k8s.io", "v1", l.namespace),
	)
	b := l.bridge("bridge", forms, withLogLevel("debug"))
	l.start(b)

	l.stir(secret)

	eventually(t, "every sink has what it should", time.Minute, func() []string {
		return l.judgeForms(newJudge(ledger.Changes(), secret), b)
	})
	must(t, ledger.Err())
	for _, sink := range []string{"object", "newest", "phases", "quiet"} {
		n, err := (&read.JetStream{URL: b.NATS, Stream: sink}).Count(l.ctx)
		must(t, err)
		t.Logf("%d events in stream %s, of %d changes", n, sink, ledger.Len())
	}
	enough(t, ledger, "pods", 4, 30)
	enough(t, ledger, "configmaps", 12, 150)
	enough(t, ledger, "secrets", 1, 5)
	l.findNothing(b, secret)
}

// stir makes every kind of change, with a value in it that nobody may see.
func (l *lab) stir(secret string) {
	l.t.Helper()
	d := deployment("web", 4)
	d.Spec.Template.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "DB_PASSWORD", Value: secret}, {Name: "MODE", Value: "plain"}}
	_, err := l.client.AppsV1().Deployments(l.namespace).Create(l.ctx, d, metav1.CreateOptions{})
	must(l.t, err)
	l.each(12, func(i int) { l.stirConfigMap(fmt.Sprint("settings-", i), secret) })
	l.waitRolledOut("web")
	l.stirSecret(secret)
	l.stirLease()
	l.roll("web", "app:2")
	l.waitRolledOut("web")
	l.createConfigMap("stays", "1")
	l.updateConfigMap("stays", "2")
	l.deleteDeployment("web")
	l.waitNoPods()
}

// stirConfigMap takes a config map through two lives.
func (l *lab) stirConfigMap(name, secret string) {
	api := l.client.CoreV1().ConfigMaps(l.namespace)
	patches := []string{
		`{"data":{"noise":"1"}}`,
		`{"data":{"value":"2","noise":"2"}}`,
		fmt.Sprintf(`{"data":{"token":%q}}`, secret+"-2"),
		`{"data":{"noise":"3"}}`,
		`{"metadata":{"annotations":{"example.com/dropped":"1"}}}`,
		`{"data":{"value":null}}`,
		`{"metadata":{"labels":{"app":"settings"}},"data":{"more":"<&>\u2028 \"ünïcödé\""}}`,
	}
	for range 2 {
		cm := configMap(name, map[string]string{"value": "1", "token": secret})
		if _, err := api.Create(l.ctx, cm, metav1.CreateOptions{}); err != nil {
			l.t.Error(err)
		}
		for _, p := range patches {
			if _, err := api.Patch(l.ctx, name, types.MergePatchType, []byte(p), metav1.PatchOptions{}); err != nil {
				l.t.Error(err)
			}
		}
		if err := api.Delete(l.ctx, name, metav1.DeleteOptions{}); err != nil {
			l.t.Error(err)
		}
	}
}

func (l *lab) stirSecret(secret string) {
	l.t.Helper()
	l.createSecret("after", []string{secret, secret, secret})
	api := l.client.CoreV1().Secrets(l.namespace)
	for _, p := range []string{`{"metadata":{"labels":{"app":"web"}}}`, fmt.Sprintf(`{"stringData":{"password":%q}}`, secret+"-2")} {
		_, err := api.Patch(l.ctx, "after", types.MergePatchType, []byte(p), metav1.PatchOptions{})
		must(l.t, err)
	}
	must(l.t, api.Delete(l.ctx, "before", metav1.DeleteOptions{}))
}

func (l *lab) stirLease() {
	l.t.Helper()
	api := l.client.CoordinationV1().Leases(l.namespace)
	lease, err := api.Create(l.ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "leader"}}, metav1.CreateOptions{})
	must(l.t, err)
	for i := range 6 {
		lease.Spec.RenewTime = new(metav1.NewMicroTime(time.Now()))
		if i == 3 {
			lease.Spec.HolderIdentity = new("another")
		}
		lease, err = api.Update(l.ctx, lease, metav1.UpdateOptions{})
		must(l.t, err)
	}
}

// judgeForms reads every stream and says what is wrong with it.
func (l *lab) judgeForms(j *judge, b *harness.Bridge) (problems []string) {
	for _, sink := range slices.Sorted(maps.Keys(j.forms())) {
		events, err := (&read.JetStream{URL: b.NATS, Stream: sink}).Refresh(l.ctx)
		if err != nil {
			return []string{err.Error()}
		}
		for _, p := range j.forms()[sink](events) {
			problems = append(problems, sink+": "+p)
		}
		j.hide(sink, events)
	}
	return append(problems, j.problems...)
}

// findNothing looks for a value in what a bridge says and keeps, and stops it.
func (l *lab) findNothing(b *harness.Bridge, secret string) {
	l.t.Helper()
	s := &search{found: map[string]int{}, needles: needlesOf(secret)}
	for _, place := range []string{"status", "metrics"} {
		body, err := b.Get(l.ctx, "/"+place)
		must(l.t, err)
		s.in(place, body)
	}
	l.stop(b)
	s.in("log", []byte(b.Log.String()))
	l.searchFiles(s, b.StateDir) // the streams among them
	l.searchDatabase(s, filepath.Join(b.StateDir, "db"))
	for place, n := range s.found {
		if n > 0 {
			l.t.Errorf("the value was found %d times in: %s", n, place)
		}
	}
}

// object is JSON, to be compared by its meaning.
func object(raw []byte) map[string]any {
	var o map[string]any
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.UseNumber()
	if err := dec.Decode(&o); err != nil {
		return map[string]any{"not JSON": string(raw)}
	}
	return o
}
