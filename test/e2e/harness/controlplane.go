package harness

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ControlPlaneConfig says which control plane to start.
type ControlPlaneConfig struct {
	Binary string
	Dir    string   // for everything it writes
	Flags  []string // further flags, as controlplane --help lists them
}

// ControlPlane is a running Kubernetes control plane. Its methods may be called concurrently.
type ControlPlane struct {
	*Process
	Kubeconfig string // path of an admin's kubeconfig
	Server     string // URL of the API server
	Etcd       string // URL of its etcd
	Log        *Log

	dir     string
	control string // URL of the control API
	stdin   io.Closer
	admin   *rest.Config
}

// readyLine is what the control plane prints when it is ready.
type readyLine struct {
	Kubeconfig string `json:"kubeconfig"`
	Control    string `json:"control"`
	Server     string `json:"server"`
	Etcd       string `json:"etcd"`
}

// StartControlPlane starts one and waits until it is ready: a pod that is created then runs at
// once.
func StartControlPlane(ctx context.Context, cfg ControlPlaneConfig) (*ControlPlane, error) {
	args := append([]string{"--dir", cfg.Dir, "--exit-with-stdin"}, cfg.Flags...)
	cmd := exec.Command(cfg.Binary, args...) //nolint:noctx // it is stopped by a signal, in order
	c := &ControlPlane{Log: &Log{}, dir: cfg.Dir}
	cmd.Stderr = c.Log
	cmd.WaitDelay = 5 * time.Second
	stdout, write := io.Pipe()
	cmd.Stdout = write
	var err error
	if c.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if c.Process, err = startProcess("control plane", cmd); err != nil {
		return nil, err
	}
	go func() {
		<-c.Ended()
		write.CloseWithError(errors.New("it ended"))
	}()
	if err := c.awaitReady(ctx, stdout); err != nil {
		c.Kill()
		return nil, fmt.Errorf("control plane is not ready: %w; it wrote:\n%s", err, c.Log.Tail(30))
	}
	return c, nil
}

func (c *ControlPlane) awaitReady(ctx context.Context, stdout *io.PipeReader) error {
	stop := context.AfterFunc(ctx, func() { stdout.CloseWithError(context.Cause(ctx)) })
	defer stop()
	out := bufio.NewReader(stdout)
	text, err := out.ReadBytes('\n')
	if err != nil {
		return err
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // a full pipe would stop it
	var line readyLine
	if err := json.Unmarshal(text, &line); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	c.Kubeconfig, c.control, c.Server, c.Etcd = line.Kubeconfig, line.Control, line.Server, line.Etcd
	c.admin, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig)
	return err
}

// Admin is how an admin reaches the API server, without limits on the rate.
func (c *ControlPlane) Admin() *rest.Config {
	config := rest.CopyConfig(c.admin)
	config.QPS = -1
	config.UserAgent = "e2e"
	return config
}
