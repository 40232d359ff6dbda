package main

import (
	"errors"
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// options are the flags of the program, which --help lists.
type options struct {
	dir           string // everything that is written lies below it
	port          int    // 0: a free one
	kubeconfig    string
	readyFile     string
	control       string
	nodes         int
	controllers   bool
	exitWithStdin bool

	eventTTL               time.Duration
	etcdCompactionInterval time.Duration
	apiServerArgs          repeated
}

func parseOptions(args []string) (options, error) {
	var o options
	fs := flag.NewFlagSet("controlplane", flag.ContinueOnError)
	fs.StringVar(&o.dir, "dir", "", "directory for certificates, etcd data, logs and the audit log (required)")
	fs.IntVar(&o.port, "port", 0, "port of the API server; 0 picks a free one, kept when the API server is restarted")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "where to write the admin's kubeconfig (default DIR/admin.kubeconfig)")
	fs.StringVar(&o.readyFile, "ready-file", "", "file to write, in one step, once the control plane is ready: JSON with its addresses")
	fs.StringVar(&o.control, "control", "127.0.0.1:0", "address of the control API")
	fs.IntVar(&o.nodes, "nodes", 2, "number of nodes that kwok plays")
	fs.BoolVar(&o.controllers, "controllers", true, "run kube-controller-manager, kube-scheduler and kwok; false leaves the API server alone")
	fs.BoolVar(&o.exitWithStdin, "exit-with-stdin", false, "stop when standard input is closed, that is when the starting process ends")
	fs.DurationVar(&o.eventTTL, "event-ttl", time.Hour, "how long the API server keeps Events")
	fs.DurationVar(&o.etcdCompactionInterval, "etcd-compaction-interval", 5*time.Minute, "how often the API server compacts etcd; 0 never")
	fs.Var(&o.apiServerArgs, "apiserver-arg", "a flag for kube-apiserver, such as --apiserver-arg=--v=2; may be repeated, and wins over ours")
	if err := fs.Parse(args); err != nil {
		return o, err
	}
	if fs.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return o, o.complete()
}

// complete checks the flags and makes paths absolute: the children must not depend on a working
// directory.
func (o *options) complete() error {
	if o.dir == "" {
		return errors.New("--dir is required")
	}
	if o.nodes < 0 {
		return fmt.Errorf("--nodes %d: must not be negative", o.nodes)
	}
	if o.kubeconfig == "" {
		o.kubeconfig = filepath.Join(o.dir, "admin.kubeconfig")
	}
	for _, p := range []*string{&o.dir, &o.kubeconfig, &o.readyFile} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = abs
	}
	return nil
}

// repeated is a flag that may be given several times.
type repeated []string

func (r *repeated) String() string     { return strings.Join(*r, " ") }
func (r *repeated) Set(v string) error { *r = append(*r, v); return nil }
