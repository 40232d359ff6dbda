package config

import (
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/spf13/pflag"

	"github.com/kubebridge/bridge/internal/settings"
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
