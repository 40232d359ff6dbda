// Demo runs everything on this machine: a Kubernetes control plane, a bridge with its embedded NATS
// server, and a user who changes things; and shows the events as any NATS client receives them,
// until Ctrl-C. It builds what it needs, writes into a temporary directory only, and leaves nothing
// running.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubebridge/bridge/test/e2e/harness"
)

func main() {
	yours := flag.Bool("cluster", false, "in a namespace of the cluster that kubectl talks to, not in one of its own; takes seconds")
	noColor := flag.Bool("no-color", false, "no colours; also when NO_COLOR is set or the output is no terminal")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "demo runs a Kubernetes control plane and a bridge, makes changes, and shows the events.\n\n")
		flag.PrintDefaults()
	}
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second Ctrl-C ends at once
	screen := newScreen(os.Stdout, *noColor)
	d := &demo{screen: screen, user: user{
		screen: screen, namespace: "shop", images: func(round int) (string, string) {
			return fmt.Sprintf("web:%d.0", round), fmt.Sprintf("web:%d.1", round)
		},
	}}
	if *yours {
		d.yours, d.user.namespace = true, "bridge-demo"
		d.user.images = func(int) (string, string) { return pauseImage + "3.9", pauseImage + "3.10" }
	}
	if err := d.run(ctx); err != nil {
		screen.failed(err)
		os.Exit(1)
	}
}

// pauseImage is one that nodes of a real cluster can run, without its tag.
const pauseImage = "registry.k8s.io/pause:"

// demo is what runs. Its fields are set by run, one after the other.
type demo struct {
	screen   *screen
	yours    bool // the cluster is that of kubectl
	user     user
	dir      string
	binaries binaries
	cluster  *harness.ControlPlane // nil when it is that of kubectl
	// kubeconfig is that of the cluster, for the bridge.
	kubeconfig string
	bridge     *harness.Bridge
}

// run does everything and leaves nothing behind. It returns nil when it was asked to stop.
func (d *demo) run(ctx context.Context) (err error) {
	d.screen.title("bridge streams every change of a Kubernetes cluster as CloudEvents. Here is one, with a cluster to look at. Ctrl-C ends it.")
	if d.dir, err = os.MkdirTemp("", "bridge-demo-"); err != nil {
		return err
	}
	defer os.RemoveAll(d.dir)
	// In the order in which the data flows, so that the bridge can send what it has read.
	defer d.stop()
	cluster := d.startCluster
	if d.yours {
		cluster = d.useCluster
	}
	d.user.beforeDeletes = d.ask
	for _, step := range []func(context.Context) error{d.build, cluster, d.startBridge} {
		if err := step(ctx); err != nil {
			return unlessStopped(ctx, err)
		}
	}
	d.invite()
	return d.play(ctx)
}

// play changes things and shows what comes of it.
func (d *demo) play(ctx context.Context) error {
	began := time.Now()
	show := &show{screen: d.screen, url: d.bridge.NATS}
	g, work := errgroup.WithContext(ctx)
	g.Go(func() error { return show.run(work) })
	g.Go(func() error { return d.user.run(work) })
	g.Go(func() error { return d.watchProcesses(work) })
	err := unlessStopped(ctx, g.Wait())
	d.screen.line("")
	d.screen.line("%d events in %v.", show.count, time.Since(began).Round(time.Second))
	return err
}

// unlessStopped is the error, unless it came about because we were asked to stop.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// watchProcesses returns when one of the programs ends by itself.
func (d *demo) watchProcesses(ctx context.Context) error {
	var clusterEnds <-chan struct{}
	if d.cluster != nil {
		clusterEnds = d.cluster.Ended()
	}
	select {
	case <-ctx.Done():
		return nil
	case <-d.bridge.Ended():
		return fmt.Errorf("the bridge has ended; the end of its log:\n%s", d.bridge.Log.Tail(10))
	case <-clusterEnds:
		return fmt.Errorf("the control plane has ended; the end of its log:\n%s", d.cluster.Log.Tail(10))
	}
}

func (d *demo) startCluster(ctx context.Context) (err error) {
	return d.screen.step("starting a control plane: etcd, kube-apiserver, controllers, scheduler, two nodes played by kwok", func(func(string)) error {
		ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
		defer cancel()
		d.cluster, err = harness.StartControlPlane(ctx, harness.ControlPlaneConfig{
			Binary: d.binaries.controlPlane, Dir: filepath.Join(d.dir, "cluster"),
		})
		if err == nil {
			d.kubeconfig, d.user.config = d.cluster.Kubeconfig, d.cluster.Admin()
		}
		return err
	})
}

// useCluster takes the cluster that kubectl talks to. The bridge gets a kubeconfig with its context
// alone.
func (d *demo) useCluster(context.Context) error {
	loaded := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil)
	config, err := loaded.ClientConfig()
	if err != nil {
		return fmt.Errorf("the cluster that kubectl talks to: %w", err)
	}
	raw, err := loaded.RawConfig()
	if err != nil {
		return err
	}
	if err := errors.Join(clientcmdapi.MinifyConfig(&raw), clientcmdapi.FlattenConfig(&raw)); err != nil {
		return err
	}
	d.kubeconfig, d.user.config = filepath.Join(d.dir, "kubeconfig"), config
	d.screen.line("The cluster is %s, of the context %s. The demo makes a namespace %s there, and deletes it at the end.",
		config.Host, raw.CurrentContext, d.user.namespace)
	return clientcmd.WriteToFile(raw, d.kubeconfig)
}

// configuration of the bridge. All else is left at its default.
const configuration = `
informers:
  - name: demo
    resources: [pods, deployments.apps, replicasets.apps, services, configmaps]
    namespaces: ["${NAMESPACE}"]
sinks:
  - name: nats
    nats: {servers: ["nats://${NATS_ADDRESS}"], embedded: true}
  - name: history
    history: {}
`

func (d *demo) startBridge(ctx context.Context) error {
	return d.screen.step("starting the bridge, with a NATS JetStream server in it", func(func(string)) (err error) {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		d.bridge, err = harness.NewBridge(harness.BridgeConfig{
			Binary: d.binaries.bridge, Dir: filepath.Join(d.dir, "bridge"), Kubeconfig: d.kubeconfig, Cluster: "demo", YAML: configuration,
			Env: map[string]string{"NAMESPACE": d.user.namespace},
		})
		if err != nil {
			return err
		}
		return d.bridge.StartAndWait(ctx)
	})
}

// invite says how to look at it from elsewhere.
func (d *demo) invite() {
	d.screen.line("")
	d.screen.line("  Look at it from another terminal:")
	d.screen.line("    nats --server %s subscribe 'k8s.>'", d.bridge.NATS)
	d.screen.line("    kubectl --kubeconfig %s --namespace %s get pods --watch", d.kubeconfig, d.user.namespace)
	d.screen.line("    bin/bridge status --admin-address %s", strings.TrimPrefix(d.bridge.AdminURL(), "http://"))
	d.screen.line("")
}

// ask names the page, and three questions to paste. It is called when there is something to ask
// about.
func (d *demo) ask() {
	address := strings.TrimPrefix(d.bridge.AdminURL(), "http://")
	namespace := d.user.namespace
	d.screen.headline("The page, in a browser:")
	d.screen.line("    %s/#/timeline?ns=%s", d.bridge.AdminURL(), namespace)
	d.screen.headline("Three questions to paste into another terminal:")
	d.screen.line("    bin/bridge timeline -n %s --state-dir %s", namespace, d.bridge.StateDir)
	d.screen.line("    bin/bridge history deploy/%s -n %s --state-dir %s", app, namespace, d.bridge.StateDir)
	d.screen.line("    bin/bridge status --admin-address %s", address)
	d.screen.line("")
}

// stop ends what was started.
func (d *demo) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var errs []error
	if d.yours {
		errs = append(errs, d.user.cleanUp(ctx))
	}
	if d.bridge != nil && d.bridge.Process != nil {
		_, err := d.bridge.Stop(ctx)
		errs = append(errs, err)
	}
	if d.cluster != nil {
		_, err := d.cluster.Stop(ctx)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		d.screen.failed(err)
	}
	d.screen.line("Everything is stopped, and %s is removed.", d.dir)
}
