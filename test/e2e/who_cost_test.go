package e2e_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
)

var whoCost = flag.Int("who.cost", 0, "writes of each round of TestWhoCost; 0: it does not run")

// TestWhoCost measures what the audit log costs, in pairs: the CPU of an API server for each write,
// of three that differ in their audit log; and when two bridges store the same change, one of them
// with the audit log, beside a third one without it, which shows the noise.
func TestWhoCost(t *testing.T) {
	if *whoCost == 0 {
		t.Skip("-who.cost has the writes of a round")
	}
	c := ownCluster(t, "whocost", noControllers)
	l := newLab(t, c)
	server := func(level string) (config *rest.Config, pid int, log string) {
		if level == "" {
			config, pid = startAPIServer(t, c, "none", "--audit-")
			return config, pid, ""
		}
		policy := filepath.Join(t.TempDir(), "policy.yaml")
		must(t, os.WriteFile(policy, printedPolicy(t, "--log", level), 0o600))
		log = filepath.Join(c.dir, "audit-"+level+".log")
		config, pid = startAPIServer(t, c, level, "--audit-", "--audit-policy-file="+policy, "--audit-log-path="+log)
		return config, pid, log
	}
	noted := l.noteIn(map[string]string{"who": "noted"})
	type form struct {
		name, namespace string
		config          *rest.Config
		pid             int
		cpu             time.Duration
	}
	none, nonePID, _ := server("")
	metadata, metadataPID, metadataLog := server("Metadata")
	whole, wholePID, _ := server("RequestResponse")
	forms := []*form{
		{name: "no audit log", namespace: l.namespace, config: none, pid: nonePID},
		{name: "Metadata without the policy", namespace: l.namespace, config: metadata, pid: metadataPID},
		{name: "Metadata", namespace: noted, config: metadata, pid: metadataPID},
		{name: "RequestResponse", namespace: noted, config: whole, pid: wholePID},
	}
	const rounds = 6
	for round := range rounds + 1 {
		rand.Shuffle(len(forms), func(i, j int) { forms[i], forms[j] = forms[j], forms[i] })
		for _, f := range forms {
			before := usageOf(t, f.pid).cpu
			l.patchMany(f.config, f.namespace, *whoCost, 0)
			if round > 0 { // the first one warms
				f.cpu += usageOf(t, f.pid).cpu - before
			}
		}
	}
	var plain time.Duration
	for _, f := range forms {
		if f.config == none {
			plain = f.cpu
		}
	}
	for _, f := range forms {
		t.Logf("%s: %.2f ms of CPU of the API server for a write, %.2f times that without", f.name,
			f.cpu.Seconds()*1000/float64(rounds**whoCost), f.cpu.Seconds()/plain.Seconds())
	}
	l.compareDelays(metadata, noted, metadataLog)
}

// noteIn makes a namespace with labels, and admits the policy there alone.
func (l *lab) noteIn(labels map[string]string) (namespace string) {
	l.t.Helper()
	ns, err := l.client.CoreV1().Namespaces().Create(l.ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "noted-", Labels: labels},
	}, metav1.CreateOptions{})
	must(l.t, err)
	l.applyAuditPolicy(labels)
	return ns.Name
}

// patchMany patches ConfigMaps of 500 bytes, as fast as that goes where pause is 0.
func (l *lab) patchMany(config *rest.Config, namespace string, n int, pause time.Duration) {
	l.t.Helper()
	const writers = 4
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := kubernetes.NewForConfig(config)
	must(l.t, err)
	maps := client.CoreV1().ConfigMaps(namespace)
	var g errgroup.Group
	for i := range writers {
		name := fmt.Sprint("cost-", i)
		_, err := maps.Create(l.ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"text": strings.Repeat("x", 400)},
		}, metav1.CreateOptions{})
		if err != nil {
			_, err = maps.Get(l.ctx, name, metav1.GetOptions{})
		}
		must(l.t, err)
		g.Go(func() error {
			for range n / writers {
				patch := fmt.Appendf(nil, `{"data":{"n":"%d"}}`, rand.Uint64())
				if _, err := maps.Patch(l.ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
					return err
				}
				time.Sleep(pause)
			}
			return nil
		})
	}
	must(l.t, g.Wait())
}

// compareDelays runs three bridges beside each other, of which one records the audit log and sends
// users to its stream. It compares when they have stored each change.
func (l *lab) compareDelays(config *rest.Config, namespace, log string) {
	l.t.Helper()
	const stream = `- {name: stream, nats: {servers: ["nats://${NATS_ADDRESS}"], embedded: true}}`
	bridges := map[string]*harness.Bridge{}
	for name, audit := range map[string]string{
		"plain": "{}", "plain too": "{}", "with audit": `{audit: {files: ["` + log + `"], sinks: [stream]}}`,
	} {
		b := l.bridge(strings.ReplaceAll(name, " ", "-"), `
informers:
  - {name: app, resources: [configmaps], namespaces: [`+namespace+`]}
sinks:
  `+stream+`
  - {name: kept, history: `+audit+`}
`)
		l.start(b)
		bridges[name] = b
	}
	l.patchMany(config, namespace, 1000, 100*time.Millisecond)
	times := map[string]map[string]time.Time{}
	for name, b := range bridges {
		eventually(l.t, name, testPatience, func() []string {
			events, err := (&read.JetStream{URL: b.NATS, Stream: "K8S"}).Refresh(l.ctx)
			must(l.t, err)
			times[name] = map[string]time.Time{}
			users := 0
			for i := range events {
				switch e := &events[i]; {
				case e.Op() == "updated":
					times[name][e.ID()] = e.At
				case e.Op() == "attributed":
					users++
				}
			}
			if len(times[name]) < 1000 || name == "with audit" && users < 1000 {
				return []string{fmt.Sprint(len(times[name]), " changes, ", users, " users")}
			}
			return nil
		})
	}
	for _, name := range []string{"plain too", "with audit"} {
		var later []time.Duration
		for id, at := range times["plain"] {
			later = append(later, times[name][id].Sub(at))
		}
		slices.Sort(later)
		at := func(share float64) time.Duration {
			return later[int(share*float64(len(later)-1))].Round(10 * time.Microsecond)
		}
		l.t.Logf("%s: %d changes, later than in plain: p1 %s, median %s, p99 %s", name, len(later), at(0.01), at(0.5), at(0.99))
	}
}
