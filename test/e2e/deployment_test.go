package e2e_test

import (
	"fmt"
	"net"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

const workloads = `
informers:
  - name: app
    resources: [pods, replicasets.apps, deployments.apps, services, configmaps, events]
    namespaces: ["${NS}"]
    changed: true
`

func (l *lab) workloads() []truth.Collection {
	return []truth.Collection{
		truth.Core("pods", l.namespace), truth.Named("replicasets", "apps", "v1", l.namespace), truth.Named("deployments", "apps", "v1", l.namespace),
		truth.Core("services", l.namespace), truth.Core("configmaps", l.namespace), truth.Core("events", l.namespace),
	}
}

const jetStreamAndKafka = `
sinks:
  - {name: js, nats: {servers: ["nats://${NATS_ADDRESS}"], embedded: true}}
  - {name: kafka, kafka: {brokers: ["${KAFKA}"], createTopics: {partitions: 4, replicationFactor: 1}}}
`

// startKafka runs a broker.
func startKafka(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	broker, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	must(t, err)
	t.Cleanup(broker.Close)
	return broker
}

// kfakeAt has the broker listen at an address.
func kfakeAt(t *testing.T, address string) kfake.Opt {
	t.Helper()
	_, text, err := net.SplitHostPort(address)
	must(t, err)
	port, err := strconv.Atoi(text)
	must(t, err)
	return kfake.Ports(port)
}

func kafkaReader(brokers ...string) *read.Kafka {
	return &read.Kafka{Brokers: brokers, Prefix: "k8s." + clusterName + "."}
}

// A deployment reaches every sink completely.
func TestDeployment(t *testing.T) {
	t.Parallel()
	l := newLab(t, live(t))
	broker := startKafka(t).ListenAddrs()[0]
	l.createConfigMap("before", "exists before the bridge")
	ledger := l.witness(l.workloads()...)
	b := l.bridge("bridge", workloads+jetStreamAndKafka, with(map[string]string{"KAFKA": broker}))
	l.start(b)

	l.liveADeployment("web", 20)

	o := check.Options{Informers: informerOf("app", l.workloads()...), Changed: true}
	events := l.complete("JetStream", jetStream(b), ledger, o)
	l.complete("Kafka", kafkaReader(broker), ledger, o)
	l.stop(b)
	enough(t, ledger, "pods", 40, 200)
	enough(t, ledger, "replicasets.apps", 2, 10)
	enough(t, ledger, "deployments.apps", 1, 10)
	t.Logf("%d events reached both sinks", len(events))
}

// enough checks that a test was about something: so many objects of a resource were deleted, and it
// changed so often.
func enough(t *testing.T, ledger *truth.Ledger, resource string, deletes, changes int) {
	t.Helper()
	for _, problem := range tooFew(ledger, resource, deletes, changes) {
		t.Errorf("%s: it shows nothing", problem)
	}
}

func tooFew(ledger *truth.Ledger, resource string, deletes, changes int) []string {
	for _, ch := range ledger.Changes() {
		if ch.Collection.String() != resource {
			continue
		}
		changes--
		if ch.Type == "DELETED" {
			deletes--
		}
	}
	if deletes <= 0 && changes <= 0 {
		return nil
	}
	return []string{fmt.Sprintf("the test has %d deletes and %d changes of %s less than it should",
		max(deletes, 0), max(changes, 0), resource)}
}

// liveADeployment takes a deployment, a service and a config map through their lives.
func (l *lab) liveADeployment(name string, replicas int) {
	l.t.Helper()
	_, err := l.client.CoreV1().Services(l.namespace).Create(l.ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	must(l.t, err)
	l.createConfigMap(name, "1")
	l.createDeployment(name, int32(replicas))
	l.waitRolledOut(name)
	l.scale(name, replicas/2)
	l.waitRolledOut(name)
	l.scale(name, replicas)
	l.updateConfigMap(name, "2")
	l.roll(name, "app:2")
	l.waitRolledOut(name)
	l.patchDeployment(name, fmt.Sprintf(`{"metadata":{"annotations":{"note":%q}}}`, "ünïcödé \"quoted\" <&> \u2028"))
	must(l.t, l.client.CoreV1().Services(l.namespace).Delete(l.ctx, name, metav1.DeleteOptions{}))
	l.deleteConfigMap(name)
	l.deleteDeployment(name)
	l.waitNoPods()
}
