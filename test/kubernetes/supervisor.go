package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// startTimeout leaves room for a machine on which a compiler runs beside the tests.
const startTimeout = 2 * time.Minute

// supervisor starts and stops the parts of the control plane in the right order.
type supervisor struct {
	layout
	opts   options
	server string // URL of the API server
	failed chan error
	fallen chan *process // controllers that ended by themselves, as the scheduler may when its API server dies

	etcd        *etcd
	apiServer   *process
	controllers []*process // kwok, controller manager, scheduler; empty with --controllers=false
	client      kubernetes.Interface

	// mu is held for the length of an operation of the control API, so that they run one after the
	// other; it guards the state of etcd and of the processes.
	mu sync.Mutex
}

// newSupervisor prepares the directory. It starts nothing.
func newSupervisor(o options) (*supervisor, error) {
	s := &supervisor{layout: layout(o.dir), opts: o, failed: make(chan error, 1), fallen: make(chan *process, 8)}
	if err := s.create(); err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	port := cmp.Or(o.port, ports[0])
	s.server = "https://" + loopback(port)
	s.etcd = &etcd{layout: s.layout, port: ports[1]}
	s.apiServer = s.newProcess(kubeAPIServer, apiServerFlags(s.layout, o, port, s.etcd.url()))
	if o.controllers {
		s.controllers = []*process{
			s.newProcess(kwokController, kwokFlags(s.layout)),
			s.newProcess(kubeControllerManager, controllerManagerFlags(s.layout)),
			s.newProcess(kubeScheduler, schedulerFlags(s.layout)),
		}
	}
	for _, c := range s.controllers {
		c.fallen = s.fallen
	}
	return s, s.writeFiles()
}

func (s *supervisor) newProcess(name string, args []string) *process {
	return &process{name: name, args: args, logFile: s.log(name), failed: s.failed}
}

// writeFiles writes what the components read, and the admin's kubeconfig, which we use ourselves
// too.
func (s *supervisor) writeFiles() error {
	pki, err := newPKI(s.layout)
	if err != nil {
		return err
	}
	for _, c := range s.controllers {
		if err := pki.writeKubeconfig(s.kubeconfig(c.name), s.server, c.name, controllerUsers[c.name]); err != nil {
			return err
		}
	}
	if err := pki.writeKubeconfig(s.opts.kubeconfig, s.server, "admin", "admin"); err != nil {
		return err
	}
	if err := writeKwokConfig(s.layout); err != nil {
		return err
	}
	if err := writeFile(s.auditPolicy(), []byte(auditPolicy)); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.opts.kubeconfig)
	if err != nil {
		return err
	}
	config.UserAgent = "controlplane" // so that a test can leave our own requests out of its count
	config.QPS = -1
	s.client, err = kubernetes.NewForConfig(config)
	return err
}

// run starts everything, serves the control API and stops everything when ctx is done, which is no
// error.
func (s *supervisor) run(ctx context.Context) error {
	begin := time.Now()
	defer s.stopAll()
	if err := s.startAll(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // asked to stop while starting
		}
		return err
	}
	control, err := s.serveControl(ctx)
	if err != nil {
		return err
	}
	defer control.Close()
	progress("ready in %.1fs", time.Since(begin).Seconds())
	if err := s.announce(control.url); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			progress("stopping: %v", context.Cause(ctx))
			return nil
		case err := <-s.failed:
			return err
		case p := <-s.fallen:
			if err := s.restart(ctx, p); err != nil {
				return err
			}
		}
	}
}

// restart starts a controller again that has ended by itself, a moment later: a kubelet would do
// the same.
func (s *supervisor) restart(ctx context.Context, p *process) error {
	progress("%s ended by itself, see %s; it is started again", p.name, p.logFile)
	select {
	case <-ctx.Done():
		return nil
	case <-time.After(time.Second):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return p.start()
}

func (s *supervisor) startAll(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	progress("starting etcd")
	if err := s.etcd.start(ctx); err != nil {
		return err
	}
	progress("starting kube-apiserver")
	if err := s.startAPIServer(ctx); err != nil {
		return err
	}
	if len(s.controllers) == 0 {
		return nil
	}
	progress("starting kube-controller-manager, kube-scheduler, kwok with %d nodes", s.opts.nodes)
	if err := createNodes(ctx, s.client, s.opts.nodes); err != nil {
		return err
	}
	return s.startControllers(ctx)
}

// startAPIServer returns when the API server is ready, which includes that RBAC's roles are there.
func (s *supervisor) startAPIServer(ctx context.Context) error {
	if err := s.apiServer.start(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return s.apiServer.poll(ctx, s.checkAPIServer)
}

func (s *supervisor) checkAPIServer(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return s.client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
}

func (s *supervisor) stopAPIServer(signal syscall.Signal) {
	s.apiServer.stop(signal, apiServerStopGrace)
}

// startControllers returns when a new pod would be scheduled and run at once.
func (s *supervisor) startControllers(ctx context.Context) error {
	if s.controllersRunning() {
		return nil
	}
	if err := deleteNodeLeases(ctx, s.client); err != nil {
		return err
	}
	before, err := countRequests(s.auditLog(), requestFilter{})
	if err != nil {
		return err
	}
	for _, c := range s.controllers {
		if err := c.start(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for _, c := range s.controllers {
		err := c.poll(ctx, func(context.Context) error { return checkWatching(s.auditLog(), before.End, c.name) })
		if err != nil {
			return err
		}
		err = c.poll(ctx, func(ctx context.Context) error { return checkNodes(ctx, s.client, s.opts.nodes) })
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *supervisor) controllersRunning() bool {
	return len(s.controllers) == 0 || s.controllers[0].running() // they are started and stopped together
}

func (s *supervisor) stopControllers() {
	for _, c := range s.controllers {
		c.signal(syscall.SIGTERM)
	}
	for _, c := range s.controllers {
		c.stop(syscall.SIGTERM, controllerStopGrace)
	}
}

// stopAll ends the children without waiting for their manners: nothing is kept that a kill would
// lose, and a test suite that is interrupted should be gone at once.
func (s *supervisor) stopAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range append(s.controllers, s.apiServer) {
		p.stop(syscall.SIGKILL, controllerStopGrace)
	}
	s.etcd.stop()
}

// announcement is what the starting process needs to know.
type announcement struct {
	Kubeconfig string `json:"kubeconfig"`
	Control    string `json:"control"`
	Server     string `json:"server"`
	Etcd       string `json:"etcd"`
	AuditLog   string `json:"auditLog"`
	PID        int    `json:"pid"`
}

func (s *supervisor) announce(control string) error {
	line, err := json.Marshal(announcement{
		Kubeconfig: s.opts.kubeconfig, Control: control, Server: s.server, Etcd: s.etcd.url(),
		AuditLog: s.auditLog(), PID: os.Getpid(),
	})
	if err != nil {
		return err
	}
	line = append(line, '\n')
	_, err = os.Stdout.Write(line)
	if s.opts.readyFile != "" {
		err = errors.Join(err, writeFile(s.opts.readyFile, line))
	}
	return err
}

// progress shows the person who waits what is being waited for.
func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "controlplane: "+format+"\n", args...)
}
