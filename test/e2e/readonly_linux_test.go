package e2e_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/soak"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// TestReadOnlyVolume has the kernel make volumes read-only while the bridge runs, as it does after
// an error of a device. Without the history's volume, other sinks continue. Without that of the
// state, changes wait. The bridge says why. When the volumes are repaired and it is started again,
// nothing is missing, and nothing comes twice.
func TestReadOnlyVolume(t *testing.T) {
	l := newLab(t, live(t))
	state, history := newVolume(t, filepath.Join(l.dir, "for-state")), newVolume(t, filepath.Join(l.dir, "for-history"))
	broker := &soakBroker{dir: filepath.Join(l.dir, "nats"), port: server.RANDOM_PORT}
	must(t, broker.start())
	t.Cleanup(broker.stop)
	b := l.bridge("bridge", `
informers:
  - {name: app, resources: [configmaps], namespaces: ["${NS}"]}
sinks:
  - {name: js, nats: {servers: ["${JETSTREAM}"]}}
  - {name: history, history: {dir: "${HISTORY}"}}
`, with(map[string]string{
		"JETSTREAM": broker.url(), "HISTORY": filepath.Join(history.dir, "history"), "BRIDGE_STATE_DIR": filepath.Join(state.dir, "state"),
	}))
	l.start(b)
	configMaps := truth.Core("configmaps", l.namespace)
	r := &readOnlyRun{
		lab: l, bridge: b, ledger: l.witness(configMaps),
		tally: soak.NewTally(), reader: &read.JetStream{URL: broker.url(), Stream: "K8S"},
	}
	l.each(readOnlyMaps, func(i int) { l.createConfigMap(mapName(i), "0") })
	r.update(1)
	r.await("everything is stored", func() bool { return r.tally.Witnessed >= 2*readOnlyMaps && r.tally.Missing() == 0 })

	history.fail()
	r.update(10)
	r.await("the other sink continues", func() bool { return r.tally.Witnessed >= 12*readOnlyMaps && r.tally.Missing() == 0 })
	r.says("/status", "read-only file system|can't continue") // by what the database did at that moment

	state.fail()
	if !r.endsByDevice() {
		l.saysNotReady(b, "state", "is read-only")
		r.says("/status", "is read-only")
		r.says("/metrics", `bridge_store_unavailable\{reason="read-only"\} 1`)
	}
	r.update(10)
	l.createConfigMap("new", "0")
	r.await("changes wait", func() bool { return r.tally.Witnessed >= 22*readOnlyMaps && r.tally.Missing() > 0 })
	if !b.Running() && !r.endsByDevice() {
		t.Fatalf("the bridge has ended:\n%s", b.Log.Tail(10))
	}

	b.Kill() // else the volumes can't be unmounted
	history.repair()
	state.repair()
	l.start(b)
	r.await("everything is stored", func() bool { return r.tally.Missing() == 0 })
	if r.tally.Foreign()+r.tally.Repeated+r.tally.Reordered+r.tally.Gaps > 0 {
		t.Errorf("%s\n%s", r.tally, strings.Join(r.tally.Problems, "\n"))
	}
	past := &soakClient{url: b.AdminURL(), namespace: l.namespace}
	exist := l.exists([]truth.Collection{configMaps})
	eventually(t, "the history", testPatience, func() []string { return past.lacks(l.ctx, exist) })
	l.stop(b)
	_, err := b.Output(l.ctx, "history", "check")
	must(t, err)
}

// endsByDevice reports whether the bridge ends because of a write of its state that was in flight
// when the device failed: it is not known whether it is there. Else the volume is read-only for it.
func (r *readOnlyRun) endsByDevice() (ended bool) {
	r.t.Helper()
	eventually(r.t, "the state's volume is noticed", testPatience, func() []string {
		if ended = !r.bridge.Running(); ended {
			if text := r.bridge.Log.Tail(10); !strings.Contains(text, "can't be written: input/output error") {
				r.t.Fatalf("the bridge has ended:\n%s", text)
			}
			return nil
		}
		answer, err := r.bridge.Get(r.ctx, "/status")
		if err != nil || !strings.Contains(string(answer), "is read-only") {
			return []string{fmt.Sprint(err)}
		}
		return nil
	})
	return ended
}

// readOnlyRun compares a stream with a witness.
type readOnlyRun struct {
	*lab
	bridge *harness.Bridge
	tally  *soak.Tally
	reader *read.JetStream
	ledger *truth.Ledger
}

const readOnlyMaps = 10

func mapName(i int) string { return fmt.Sprint("map-", i) }

// update changes each object so many times.
func (r *readOnlyRun) update(rounds int) {
	r.t.Helper()
	for round := range rounds {
		r.each(readOnlyMaps, func(i int) { r.updateConfigMap(mapName(i), fmt.Sprint(time.Now().UnixNano(), round)) })
	}
}

// await compares until it is so, and gives how many changes are stored then.
func (r *readOnlyRun) await(what string, isSo func() bool) int {
	r.t.Helper()
	eventually(r.t, what, testPatience, func() []string {
		must(r.t, addToTally(r.ctx, r.tally, r.ledger, r.reader))
		if !isSo() {
			return []string{r.tally.String()}
		}
		return nil
	})
	return r.tally.Stored
}

// says waits until an answer of the bridge matches.
func (r *readOnlyRun) says(path, pattern string) {
	r.t.Helper()
	expression := regexp.MustCompile(pattern)
	eventually(r.t, path+" says it", testPatience, func() []string {
		answer, err := r.bridge.Get(r.ctx, path)
		if err == nil && expression.Match(answer) {
			return nil
		}
		return []string{fmt.Sprintf("no %q in %s (%v)", pattern, answer, err)}
	})
}

// volume is an ext4 file system that can fail.
type volume struct {
	t        *testing.T
	img, dir string
}

func newVolume(t *testing.T, dir string) *volume {
	t.Helper()
	v := &volume{t: t, img: dir + ".img", dir: dir}
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.WriteFile(v.img, nil, 0o600))
	must(t, os.Truncate(v.img, 256<<20))
	if err := v.run("mkfs.ext4", "-q", "-F", v.img); err != nil {
		t.Skip(err)
	}
	if err := v.mount(); err != nil {
		t.Skipf("it takes root and a loop device: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return v
}

func (v *volume) run(name string, args ...string) error {
	if out, err := exec.CommandContext(v.t.Context(), name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}

func (v *volume) mount() error { return v.run("mount", "-o", "loop,errors=remount-ro", v.img, v.dir) }

// fail has the kernel find an error in it.
func (v *volume) fail() {
	v.t.Helper()
	mounts, err := os.ReadFile("/proc/mounts")
	must(v.t, err)
	before, _, found := strings.Cut(string(mounts), " "+v.dir+" ")
	if !found {
		v.t.Fatal("it is not mounted")
	}
	device := filepath.Base(before[strings.LastIndexByte(before, '\n')+1:])
	must(v.t, os.WriteFile("/sys/fs/ext4/"+device+"/trigger_fs_error", []byte("test"), 0o200))
}

// repair does what an administrator does. The volume must not be in use.
func (v *volume) repair() {
	v.t.Helper()
	must(v.t, v.run("umount", v.dir))
	_ = v.run("fsck.ext4", "-p", v.img) // 1: it has corrected something
	must(v.t, v.run("fsck.ext4", "-p", v.img))
	must(v.t, v.mount())
}
