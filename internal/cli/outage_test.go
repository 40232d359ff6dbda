package cli

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/event/verify"
	"github.com/kubebridge/bridge/internal/testkit"
)

// outageChanges is how many changes arrive while a broker is unavailable; `make test-outage` asks
// for more.
var outageChanges = flag.Int("outage.changes", 10_000, "changes that arrive in the test of an outage")

// outageBridge saves the time to build one.
var outageBridge = flag.String("outage.bridge", "", "path of the bridge to test; built when it is not given")

const (
	outagePods = 500
	outageSize = 6 << 10
	// outageBound is what the configuration of the test lets the bridge hold in memory: 16 MiB of
	// deltas, 16 MiB of the log, and 16 MiB in each of two sinks.
	outageBound = 64 << 20
	// outageResident is what the process may have at its peak: the bound, what the garbage
	// collector leaves on top of it, and the state database's caches.
	outageResident = 8 * outageBound
)

// A broker is unavailable while everything changes, and the bridge is killed twice, once without
// and once with it. The streams remember ids for a tenth of a second, so that it is the bridge that
// sends nothing twice.
func TestOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	o := newOutage(t, *outageChanges)
	calm := int64(*outageChanges / 10)
	o.start()
	o.pace(calm)
	o.awaitEvents(o.away, calm)
	before := o.latency(1, calm)

	o.away.stop()
	o.pace(calm)
	during := o.latency(calm+1, 2*calm)
	o.release(int64(*outageChanges) * 6 / 10)
	o.awaitEvents(o.other, int64(*outageChanges)*4/10)
	o.killDrained()
	o.start()
	o.release(int64(*outageChanges))
	o.awaitEvents(o.other, int64(*outageChanges))
	onDisk := o.awaitSpool()

	o.away.start()
	began := time.Now()
	o.awaitEvents(o.away, int64(*outageChanges)*6/10)
	o.killDrained()
	o.start()
	o.awaitEvents(o.away, int64(*outageChanges))
	drained := time.Since(began)
	o.kill()

	t.Logf("%d changes of %d bytes while a sink was unavailable: at most %d MiB resident (bound by configuration: %d MiB), %d MiB on disk, drained in %v, "+
		"latency of the other sink p50 %v p99 %v before and p50 %v p99 %v during the outage",
		*outageChanges, outageSize, o.peak>>20, outageBound>>20, onDisk>>20, drained.Round(time.Millisecond), before[50], before[99], during[50], during[99])
	if o.peak > outageResident {
		t.Errorf("at most %d MiB were resident, want at most %d", o.peak>>20, outageResident>>20)
	}
	if during[50] > 2*before[50]+2*time.Second {
		t.Errorf("the outage delayed the other sink: p50 %v, before it %v", during[50], before[50])
	}
	if n := o.scroll.lists.Load(); n > 1 {
		t.Errorf("%d lists, want the first one only", n)
	}
	o.verify(o.other)
	o.verify(o.away)
}

// A standby keeps what its leader can't deliver: on disk, in memory within its bounds, and delivers
// it when the leader is gone.
func TestStandbyBesideOutage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	changes := int64(*outageChanges)
	leader := newOutage(t, *outageChanges)
	leader.standBy("leader")
	standby := leader.replica("standby")
	leader.start()
	leader.pace(changes / 10) // so it leads
	standby.start()

	leader.away.stop()
	leader.release(changes)
	leader.awaitEvents(leader.other, changes)
	onDisk := standby.awaitSpool()
	standby.peak = residentPeak(t, standby.process.Process.Pid)

	leader.kill()
	leader.away.start()
	began := time.Now()
	standby.awaitEvents(standby.away, changes)
	drained := time.Since(began)
	behind := standby.peak
	standby.kill()

	t.Logf("a standby while a sink of its leader was unavailable for %d changes of %d bytes: at most %d MiB resident, and %d MiB as it delivered them, "+
		"%d MiB on disk, delivered %v after the leader was killed (lease of 4 s)",
		changes-changes/10, outageSize, behind>>20, standby.peak>>20, onDisk>>20, drained.Round(time.Millisecond))
	if standby.peak > outageResident {
		t.Errorf("at most %d MiB were resident, want at most %d", standby.peak>>20, outageResident>>20)
	}
	leader.verify(leader.other)
	leader.verify(leader.away)
}

// outage is a bridge as a process of its own, between an API server and two brokers.
type outage struct {
	t       *testing.T
	program string
	config  string
	admin   string
	scroll  *scroll
	away    *natsBroker
	other   *natsBroker
	process *exec.Cmd
	starts  int
	log     testkit.Buffer
	peak    int64 // resident bytes, over all processes
}

func newOutage(t *testing.T, changes int) *outage {
	t.Helper()
	dir := t.TempDir()
	scroll, url := newScroll(t, changes, outagePods, outageSize)
	o := &outage{t: t, program: buildBridge(t), config: filepath.Join(dir, "bridge.yaml"), admin: testkit.Address(t), scroll: scroll}
	o.away, o.other = newNATSBroker(t), newNATSBroker(t)
	kubeconfigPath := filepath.Join(dir, "kubeconfig")
	writeFile(t, kubeconfigPath, kubeconfig(url))
	o.configure(kubeconfigPath)
	t.Cleanup(o.end)
	return o
}

// configure writes the configuration, with the directory of the state beside it.
func (o *outage) configure(kubeconfig string) {
	writeFile(o.t, o.config, fmt.Sprintf(`
cluster: dev
kubernetes: {kubeconfig: %s}
state: {dir: %s}
admin: {address: "%s"}
informers:
  - {name: all, resources: [pods], queue: {memory: 16MiB}}
sinks:
  - {name: away, nats: {servers: ["%s"], stream: {duplicateWindow: 100ms}}, maxInFlightBytes: 16MiB, retry: {max: 1s}}
  - {name: other, nats: {servers: ["%s"], stream: {duplicateWindow: 100ms}}, maxInFlightBytes: 16MiB, retry: {max: 1s}}
`, kubeconfig, filepath.Join(filepath.Dir(o.config), "state"), o.admin, o.away.url(), o.other.url()))
}

// standBy lets the bridge stand by for others.
func (o *outage) standBy(name string) {
	o.t.Helper()
	text, err := os.ReadFile(o.config)
	if err != nil {
		o.t.Fatal(err)
	}
	writeFile(o.t, o.config, string(text)+fmt.Sprintf(`
standby: {enabled: true, identity: %s, lease: {namespace: shop}, leaseDuration: 12s, renewDeadline: 9s, retryPeriod: 100ms}
`, name))
}

// replica is another bridge between the same API server and brokers, which stands by.
func (o *outage) replica(name string) *outage {
	o.t.Helper()
	r := &outage{
		t: o.t, program: o.program, config: filepath.Join(o.t.TempDir(), "bridge.yaml"), admin: testkit.Address(o.t),
		scroll: o.scroll, away: o.away, other: o.other,
	}
	r.configure(filepath.Join(filepath.Dir(o.config), "kubeconfig"))
	r.standBy(name)
	o.t.Cleanup(r.end)
	return r
}

// end ends the bridge, and shows the end of its log when the test has failed.
func (o *outage) end() {
	if o.process != nil {
		_ = o.process.Process.Kill()
		_ = o.process.Wait()
	}
	if o.t.Failed() {
		lines := strings.Split(o.log.String(), "\n")
		o.t.Log(strings.Join(lines[max(0, len(lines)-60):], "\n"))
	}
}

// built is the program without the race detector, whose memory and time are not the bridge's. It is
// built once for all tests.
var built struct {
	sync.Once
	program string
	err     error
}

func buildBridge(t *testing.T) string {
	t.Helper()
	if *outageBridge != "" {
		return *outageBridge
	}
	built.Do(func() {
		var dir string
		//nolint:usetesting // it outlives the test that makes it
		if dir, built.err = os.MkdirTemp("", "bridge-test-"); built.err != nil {
			return
		}
		built.program = filepath.Join(dir, "bridge")
		out, err := exec.Command("go", "build", "-ldflags", "-s -w", "-o", built.program, "../../cmd/bridge").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("build: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.program
}

// running removes what was built when all tests have run.
type running struct{ *testing.M }

// Run implements testscript.TestingM.
func (r running) Run() int {
	code := r.M.Run()
	if built.program != "" {
		_ = os.RemoveAll(filepath.Dir(built.program))
	}
	return code
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func (o *outage) start() {
	o.t.Helper()
	o.process = exec.Command(o.program, "run", "--config", o.config)
	o.process.Stderr = &o.log
	watches := o.scroll.watches.Load()
	o.starts++
	if err := o.process.Start(); err != nil {
		o.t.Fatal(err)
	}
	testkit.Eventually(o.t, "the pods are watched", func() bool { return o.scroll.watches.Load() != watches })
}

// kill is kill -9, after a look at how much memory the process has had.
func (o *outage) kill() {
	o.t.Helper()
	o.peak = max(o.peak, residentPeak(o.t, o.process.Process.Pid))
	_ = o.process.Process.Kill()
	_ = o.process.Wait()
	o.process = nil
}

// killDrained is kill, and what was sent is stored when it returns.
func (o *outage) killDrained() {
	o.t.Helper()
	o.kill()
	o.away.drain()
	o.other.drain()
}

// residentPeak is VmHWM of a process, in bytes.
func residentPeak(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// release lets everything up to a version happen at once.
func (o *outage) release(version int64) { o.scroll.released.Store(version) }

// pace lets so many changes happen one by one, as in a cluster that is calm, and waits until the
// other sink has them.
func (o *outage) pace(changes int64) {
	o.t.Helper()
	o.awaitEvents(o.other, o.scroll.released.Load())
	for range changes {
		o.scroll.released.Add(1)
		time.Sleep(2 * time.Millisecond)
	}
	o.awaitEvents(o.other, o.scroll.released.Load())
}

// awaitEvents waits until a broker has the changes up to a version, each at least once.
func (o *outage) awaitEvents(b *natsBroker, version int64) {
	o.t.Helper()
	last, since := b.distinct(), time.Now()
	for last < version {
		time.Sleep(20 * time.Millisecond)
		if now := b.distinct(); now > last {
			last, since = now, time.Now()
		}
		if time.Since(since) > 30*time.Second {
			o.t.Fatalf("%d of %d changes arrived, and no further one for 30 s", last, version)
		}
	}
}

// awaitSpool waits until the backlog is on disk, and returns how large it is.
func (o *outage) awaitSpool() int64 {
	o.t.Helper()
	for began := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		if s := o.status(); len(s.Informers) > 0 && s.Informers[0].SpoolBytes > 0 && s.Informers[0].Watermark == fmt.Sprint(firstVersion+o.scroll.released.Load()) {
			if s.Informers[0].LogBytes > 16<<20 {
				o.t.Errorf("the log has %d bytes in memory", s.Informers[0].LogBytes)
			}
			return s.Informers[0].SpoolBytes
		}
		if time.Since(began) > 2*time.Minute {
			o.t.Fatalf("after 2 minutes the changes are not on disk: %+v", o.status())
		}
	}
}

func (o *outage) status() (s bridge.Status) {
	response, err := http.Get("http://" + o.admin + "/status")
	if err != nil {
		return s
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&s); err != nil {
		o.t.Error(err)
	}
	return s
}

// latency is the percentiles of how long changes took from the API server to the other broker's
// readers.
func (o *outage) latency(from, to int64) map[int]time.Duration {
	o.other.mu.Lock()
	defer o.other.mu.Unlock()
	var took []time.Duration
	for version := from; version <= to; version++ {
		took = append(took, time.Duration(o.other.arrived[version]-o.scroll.emitted[version].Load()))
	}
	slices.Sort(took)
	return map[int]time.Duration{50: took[len(took)/2].Round(10 * time.Microsecond), 99: took[len(took)*99/100].Round(10 * time.Microsecond)}
}

// verify has the program check a broker's stream, and accounts for every change, once.
func (o *outage) verify(b *natsBroker) {
	o.t.Helper()
	if r := o.verified(b); r.Repeats > 0 {
		o.t.Errorf("%s: %d repeats", b.name(o), r.Repeats)
	}
}

// verified has the program check a broker's stream, and accounts for every change.
func (o *outage) verified(b *natsBroker) verify.Report {
	o.t.Helper()
	b.follow.Stop()
	cmd := exec.CommandContext(o.t.Context(), o.program, "verify", "--from", b.url()+"/K8S", "-o", "json")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var r verify.Report
	if jsonErr := json.Unmarshal(out, &r); jsonErr != nil {
		o.t.Fatalf("bridge verify: %v: %s", err, stderr.String())
	}
	lost := *outageChanges + 1 - (r.Events - r.Repeats) // and the event that says that the list was worked through
	o.t.Logf("%s: lost %d, repeated %d, faults %v", b.name(o), lost, r.Repeats, r.Faults)
	// A start after more than a second reports the time without a watch.
	if lost > 0 || lost < 1-o.starts || !r.OK {
		o.t.Errorf("%s: lost %d of %d; %v, among the faults %+v", b.name(o), lost, *outageChanges, err, r.Found[:min(len(r.Found), 5)])
	}
	// An update without previous is no fault: then the chain is not checked.
	if len(r.Resources) != 1 || r.Resources[0].Chain != verify.ChainChecked {
		o.t.Errorf("%s: the chains of %+v, want one that is checked", b.name(o), r.Resources)
	}
	return r
}
