package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/history"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// Options say where a configuration is read from.
type Options struct {
	// File is the path of the YAML file; "" for none, which leaves the defaults.
	File string
	// Data, when not nil, is read instead of the file, which then only names it in errors.
	Data []byte
	// Flags are the command-line flags that set a key, by its path: "state.dir". Only those that
	// were given on the command line count.
	Flags map[string]*pflag.Flag
	// Sections, when not nil, are the top-level keys that the caller needs. Problems with other
	// keys are not reported, and those keys have their defaults. Problems with the file as a whole
	// are.
	Sections []string
}

// Load reads a configuration, fills in defaults, and checks it. Its error holds every problem that
// was found; Problems lists them. A file that can't be read is an error of another kind.
//
// Load reads the process's environment, and looks at no global state but that.
func Load(o Options) (*Config, error) {
	data, err := o.read()
	if err != nil {
		return nil, err
	}
	c := base()
	report := &settings.Report{Origins: c.origins}
	r := settings.Reader{
		File: o.File, Data: data, Flags: o.Flags, Prefix: envPrefix, OtherNames: otherNames,
	}
	items, err := r.Decode(c, report)
	if err != nil {
		return nil, err
	}
	if !c.origins.Given("sinks") && c.State.Mode == "memory" { // it lies in the state directory
		c.Sinks = slices.DeleteFunc(c.Sinks, func(s Sink) bool { return s.History != nil })
	}
	items.Apply()
	c.fillDefaults()
	c.validate(report)
	if o.Sections != nil {
		report.Keep(envPrefix, o.Sections)
	}
	if err := report.Err(); err != nil {
		return nil, err
	}
	return c, nil
}

func (o Options) read() ([]byte, error) {
	if o.Data != nil || o.File == "" {
		return o.Data, nil
	}
	data, err := os.ReadFile(o.File)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("configuration file %s does not exist", o.File)
	}
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	return data, nil
}

// envPrefix begins the name of every environment variable that sets a key.
const envPrefix settings.Prefix = "BRIDGE_"

// otherNames are words that other tools, or former texts, have for a key.
var otherNames = map[string]string{
	"bootstrapServers": "brokers",
	"ca":               "caFile",
	"cert":             "certFile",
	"discovery":        "discoveryInterval",
	"drain":            "shutdownTimeout",
	"duplicates":       "duplicateWindow",
	"handshakeFirst":   "tlsFirst",
	"key":              "keyFile",
	"kind":             "resources",
	"kinds":            "resources",
	"lag":              "maxLag",
	"on":               "changedParts",
	"queue":            "maxInFlightBytes",
	"recall":           "readBack",
	"reload":           "reloadInterval",
	"sample":           "sampleRatio",
	"sync":             "commitInterval",
	"undelivered":      "maxUndeliveredBytes",
	"url":              "servers",
	"user":             "username",
	"watchdog":         "watchIdleTimeout",
}

// Default is the configuration of `bridge run` without a file: every resource but Leases and
// Events, into an embedded NATS JetStream server on 127.0.0.1:4222, and into a history of a week in
// the state directory. Leases are heartbeats, and Events report changes that are in the stream
// anyway.
func Default() *Config {
	c := base()
	c.fillDefaults()
	return c
}

// base is the default before what is left out in its informers and sinks is filled in.
func base() *Config {
	c := &Config{
		Informers: []Informer{{
			Name:      "all",
			Resources: []string{"*"},
			Exclude:   []string{"leases.coordination.k8s.io", "events", "events.events.k8s.io"},
		}},
		Sinks: []Sink{
			{Name: "nats", NATS: &nats.Config{Embedded: true}},
			{Name: "history", History: &history.Config{Retention: 7 * 24 * time.Hour, MaxBytes: 1 << 30}},
		},
		origins: settings.Origins{},
	}
	settings.Fill(reflect.ValueOf(c).Elem(), "", settings.Origins{}, false)
	return c
}

// fillDefaults gives every key of informers and sinks that was not given its default.
func (c *Config) fillDefaults() {
	settings.Fill(reflect.ValueOf(c).Elem(), "", c.origins, true)
	for i := range c.Sinks {
		for key, section := range c.Sinks[i].sections() {
			if filler, ok := section.(sinks.Filler); ok {
				filler.Fill(fmt.Sprintf("sinks[%d].%s", i, key), c.origins)
			}
		}
	}
	for i := range c.Informers {
		c.Informers[i].fillBindings(c.Sinks)
		c.fillViews(fmt.Sprintf("informers[%d].sinks", i), &c.Informers[i])
		c.Informers[i].fillInherited(fmt.Sprintf("informers[%d].sinks", i), c.origins)
	}
}

// fillBindings sends an informer that names no sinks to all of them.
func (inf *Informer) fillBindings(sinks []Sink) {
	if inf.Sinks != nil {
		return
	}
	for i, s := range sinks {
		if slices.ContainsFunc(sinks[:i], func(other Sink) bool { return other.Name == s.Name }) {
			continue // a mistake that is reported once, at the sink
		}
		inf.Sinks = append(inf.Sinks, Binding{Name: s.Name, Payload: "object", Types: "bridge"})
	}
}

// fillInherited gives bindings what they leave to their informer. What is wrong there is reported
// there.
func (inf *Informer) fillInherited(path string, given settings.Origins) {
	for i := range inf.Sinks {
		b, at := &inf.Sinks[i], fmt.Sprintf("%s[%d]", path, i)
		if _, ok := given[at+".delivery"]; !ok && b.Delivery == "" {
			b.Delivery = "history"
			if inf.Delivery == "latest" {
				b.Delivery = inf.Delivery
			}
		}
		if _, ok := given[at+".resync"]; !ok && b.Resync == 0 {
			b.Resync = max(inf.Resync, 0)
		}
	}
}

// accountDirs are where a pod has the token of its service account.
var accountDirs = []string{
	"/var/run/secrets/kubernetes.io/serviceaccount", "/run/secrets/kubernetes.io/serviceaccount",
}

// validateSecretFile refuses a file with a secret that is the bridge's own identity: it would be
// sent to whatever broker the configuration names. /proc has the environment of the process, and
// other ways to the same files.
func validateSecretFile(ps *settings.Report, path, file string) {
	if file == "" {
		return
	}
	for _, dir := range accountDirs {
		if within(dir, file) {
			ps.Add(path, "a token of the service account is not for brokers: mount a Secret of their own")
			return
		}
	}
	if within("/proc", file) {
		ps.Add(path, "a file of /proc is not for brokers: mount a Secret of their own")
	}
}

// within reports whether a file lies in a directory, by the names as they are written or as the
// links lead.
func within(dir, file string) bool {
	file, err := filepath.Abs(file)
	if err != nil {
		return false
	}
	realDir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		realDir = dir
	}
	realFile, err := filepath.EvalSymlinks(file)
	if err != nil {
		realFile = file
	}
	return below(dir, file) || below(realDir, realFile) || below(dir, realFile)
}

func below(dir, file string) bool {
	return file == dir || strings.HasPrefix(file, dir+string(filepath.Separator))
}

// AllowSecretsVariable allows `secrets: send` where it is true, as the flag --allow-secrets does.
const AllowSecretsVariable = "BRIDGE_ALLOW_SECRETS"

// CheckSecrets returns a Problem for each informer that sends values of Secrets, unless the process
// was allowed to. That is no key of the file: who may edit the file alone must not read Secrets by
// it.
func (c *Config) CheckSecrets(allowed bool) error {
	var problems []error
	for i := range c.Informers {
		if c.Informers[i].Secrets == "send" && !allowed {
			problems = append(problems, c.ProblemAt(fmt.Sprintf("informers[%d].secrets", i),
				"sending values of Secrets takes a second key beside the file: --allow-secrets or %s=true",
				AllowSecretsVariable))
		}
	}
	return errors.Join(problems...)
}
