package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// BridgeConfig says how a bridge is to run.
type BridgeConfig struct {
	Binary     string
	Dir        string // for its configuration and its state
	Kubeconfig string
	Cluster    string
	// YAML are the keys that make this bridge: informers, sinks. Its ${NAME}s are variables that
	// the bridge expands by itself: those of Env, and NATS_ADDRESS, a free address.
	YAML     string
	Env      map[string]string
	LogLevel string // default info
	// Everywhere has its admin server listen at all addresses, as in a pod.
	Everywhere bool
	LogTee     *os.File
}

// Bridge is a bridge that can be started, ended in any way, and started again with the same state.
// One goroutine uses it.
type Bridge struct {
	*Process // of the last start
	Log      *Log
	NATS     string // URL of its embedded server, when the configuration has one at ${NATS_ADDRESS}
	StateDir string

	cfg   BridgeConfig
	admin string // host:port
	env   []string
}

// NewBridge writes the configuration and starts nothing.
func NewBridge(cfg BridgeConfig) (*Bridge, error) {
	nats, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	admin, err := FreeAddress()
	if err != nil {
		return nil, err
	}
	b := &Bridge{Log: &Log{}, NATS: "nats://" + nats, StateDir: filepath.Join(cfg.Dir, "state"), cfg: cfg, admin: admin}
	if cfg.LogTee != nil {
		b.Log.tee = cfg.LogTee
	}
	variables := map[string]string{"NATS_ADDRESS": nats}
	maps.Copy(variables, cfg.Env)
	b.env = environment(variables)
	return b, b.Configure(cfg.YAML)
}

// environment is ours, without what would configure the bridge, and with the given variables.
func environment(variables map[string]string) []string {
	env := slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "BRIDGE_") || strings.HasPrefix(v, "KUBECONFIG=")
	})
	for name, value := range variables {
		env = append(env, name+"="+value)
	}
	return env
}

// Configure replaces the keys that make this bridge; it counts at the next start.
func (b *Bridge) Configure(yaml string) error {
	level := b.cfg.LogLevel
	if level == "" {
		level = "info"
	}
	admin := b.admin
	if _, port, err := net.SplitHostPort(admin); err == nil && b.cfg.Everywhere {
		admin = ":" + port
	}
	text := fmt.Sprintf("cluster: %s\nkubernetes: {kubeconfig: %s}\nstate: {dir: %s}\nadmin: {address: %q}\nlog: {format: json, level: %s}\n%s\n",
		quote(b.cfg.Cluster), quote(b.cfg.Kubeconfig), quote(b.StateDir), admin, level, yaml)
	if err := os.MkdirAll(b.cfg.Dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(b.configFile(), []byte(text), 0o600)
}

// quote makes a YAML string of any text: JSON's are YAML's.
func quote(text string) string {
	b, err := json.Marshal(text)
	if err != nil { // of a string never
		panic(err)
	}
	return string(b)
}

func (b *Bridge) configFile() string { return filepath.Join(b.cfg.Dir, "bridge.yaml") }

// Start starts the bridge and does not wait for anything.
func (b *Bridge) Start() error {
	cmd := exec.Command(b.cfg.Binary, "run", "--config", b.configFile()) //nolint:noctx // it is stopped by a signal, in order
	cmd.Env = b.env
	cmd.Dir = b.cfg.Dir
	cmd.Stderr = b.Log
	cmd.WaitDelay = 5 * time.Second
	p, err := startProcess("bridge", cmd)
	if err != nil {
		return err
	}
	b.Process = p
	return nil
}

// StartAndWait starts the bridge and waits until it is ready.
func (b *Bridge) StartAndWait(ctx context.Context) error {
	if err := b.Start(); err != nil {
		return err
	}
	return b.WaitReady(ctx)
}

// RunToEnd starts the bridge and waits until it ends by itself. It gives the exit code and what was
// written to standard error.
func (b *Bridge) RunToEnd(ctx context.Context) (exitCode int, stderr string, err error) {
	place := b.Log.Len()
	if err := b.Start(); err != nil {
		return 0, "", err
	}
	code, err := b.Wait(ctx)
	if err != nil {
		b.Kill()
	}
	return code, b.Log.Since(place), err
}

// Output runs another command of the bridge, with its configuration, and gives what it prints. An
// error has what it wrote to standard error.
func (b *Bridge) Output(ctx context.Context, command string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, b.cfg.Binary, append([]string{command, "--config", b.configFile()}, args...)...)
	cmd.Env, cmd.Dir = b.env, b.cfg.Dir
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("bridge %s: %w\n%s", command, err, stderr.String())
	}
	return string(out), nil
}
