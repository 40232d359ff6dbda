package cli

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubebridge/bridge/config"
)

// Settings are the flags that set a key of the configuration. Their own defaults only show in the
// help: what counts is the key's.
type Settings struct {
	File  string
	flags map[string]*pflag.Flag // by the path of the key
	// allowSecrets is there for commands that send objects, or say whether others would.
	allowSecrets *pflag.Flag
}

// NewSettings adds --config, whose default is $BRIDGE_CONFIG, and one flag for each of the given
// keys.
func NewSettings(cmd *cobra.Command, keys ...string) *Settings {
	s := &Settings{flags: map[string]*pflag.Flag{}}
	cmd.Flags().StringVarP(&s.File, "config", "c", os.Getenv("BRIDGE_CONFIG"),
		"path of the configuration, YAML; none: watch everything, run a NATS server "+
			"($BRIDGE_CONFIG)")
	_ = cmd.MarkFlagFilename("config", "yaml", "yml") // fails only for a flag that is not there
	for _, key := range keys {
		f := keyFlags[key]
		cmd.Flags().String(f.name, "", f.usage+" (key "+key+")")
		s.flags[key] = cmd.Flags().Lookup(f.name)
		if len(f.values) > 0 {
			_ = cmd.RegisterFlagCompletionFunc(f.name, cobra.FixedCompletions(f.values,
				cobra.ShellCompDirectiveNoFileComp))
		}
	}
	return s
}

// LogLevels are the levels of a log, by their names in the configuration.
var LogLevels = []string{"debug", "info", "warn", "error"}

type keyFlag struct {
	name, usage string
	values      []string // for completion
}

var keyFlags = map[string]keyFlag{
	"kubernetes.kubeconfig": {"kubeconfig", "path of a kubeconfig; none: $KUBECONFIG, " +
		"~/.kube/config, then the pod's service account", nil},
	"kubernetes.context": {"context", "context of the kubeconfig; none: its current one", nil},
	"cluster":            {"cluster", "name of the cluster in events; none: the one in the kubeconfig", nil},
	"state.dir":          {"state-dir", "directory for what must survive a restart", nil},
	"admin.address": {
		"admin-address",
		`host:port of health, readiness, metrics and status; "" for none`, nil,
	},
	"log.level": {
		"log-level", "debug, info, warn or error", LogLevels,
	},
	"log.format": {
		"log-format", "json, text, or auto: text on a terminal",
		[]string{"auto", "json", "text"},
	},
	"shard": {"shard", "share of the objects of this process of several: 0/3, or " +
		"auto/3 with the number at the end of the host's name", nil},
	"shutdownTimeout": {
		"shutdown-timeout", "how long a stopping bridge continues to send what it has read", nil,
	},
}

// NewSendingSettings is NewSettings for a command that sends objects.
func NewSendingSettings(cmd *cobra.Command, keys ...string) *Settings {
	s := NewSettings(cmd, keys...)
	const name = "allow-secrets"
	cmd.Flags().Bool(name, false, "let the configuration send values of Secrets (secrets: send); $"+
		config.AllowSecretsVariable)
	s.allowSecrets = cmd.Flags().Lookup(name)
	return s
}

// CompleteSinks lets shells complete --sink with the sinks of the configuration.
func (s *Settings) CompleteSinks(cmd *cobra.Command) {
	_ = cmd.RegisterFlagCompletionFunc("sink", func(
		*cobra.Command, []string, string,
	) (names []string, _ cobra.ShellCompDirective) {
		if c, err := s.Load(); err == nil {
			for i := range c.Sinks {
				names = append(names, c.Sinks[i].Name)
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
}

// Load reads the configuration.
func (s *Settings) Load() (*config.Config, error) { return s.LoadSections(nil) }

// LoadSections reads the configuration, of which only some sections need to be right; nil for all.
func (s *Settings) LoadSections(sections []string) (*config.Config, error) {
	c, err := config.Load(config.Options{File: s.File, Flags: s.flags, Sections: sections})
	if err == nil && s.allowSecrets != nil {
		err = s.checkSecrets(c)
	}
	if err != nil {
		return nil, Refused(err)
	}
	return c, nil
}

func (s *Settings) checkSecrets(c *config.Config) error {
	allowed := s.allowSecrets.Value.String() == "true"
	if text := os.Getenv(config.AllowSecretsVariable); text != "" && !s.allowSecrets.Changed {
		var err error
		if allowed, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%s: want true or false, got %q", config.AllowSecretsVariable, text)
		}
	}
	return c.CheckSecrets(allowed)
}

// LoadState reads a configuration of which only the section of the state directory needs to be
// right. One that keeps its state in memory is refused.
func (s *Settings) LoadState() (*config.Config, error) {
	c, err := s.LoadSections([]string{"state"})
	if err != nil {
		return nil, err
	}
	if c.State.Mode == "memory" {
		return nil, Refused(errors.New("state.mode is memory: nothing is on disk"))
	}
	return c, nil
}

// StateDirHint is for an error about a state directory that has nothing. It helps somebody who gave
// the database's own directory, as error messages name it, or none.
func StateDirHint(dir string) string {
	if found, err := filepath.Glob(filepath.Join(dir, "MANIFEST-*")); err == nil && len(found) > 0 {
		return fmt.Sprintf("%s is a database itself: give the directory that holds it, "+
			"--state-dir %s", dir, filepath.Join(dir, ".."))
	}
	return "give the directory with --state-dir, or the configuration that names it with --config"
}

// selection is what a quick look selects, as kubectl's arguments and flags do.
type selection struct {
	namespaces    []string
	everywhere    bool
	labelSelector string
	fieldSelector string
	filter        string
}

func (s *selection) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&s.namespaces, "namespace", "n", nil,
		"only objects in this namespace; may be repeated")
	cmd.Flags().BoolVarP(&s.everywhere, "all-namespaces", "A", false,
		"objects of all namespaces, and those of none; the default")
	cmd.Flags().StringVarP(&s.labelSelector, "selector", "l", "",
		"only objects with these labels: app=web,tier in (a,b)")
	cmd.Flags().StringVar(&s.fieldSelector, "field-selector", "",
		"only objects with these fields: spec.nodeName=n1")
	cmd.Flags().StringVar(&s.filter, "filter", "",
		`only changes for which this CEL expression holds: op == "deleted"`)
	cmd.MarkFlagsMutuallyExclusive("namespace", "all-namespaces")
}

// apply changes a configuration so that it selects this. Resources replace its informers.
func (s *selection) apply(c *config.Config, resources []string) error {
	if len(resources) > 0 {
		c.Informers = []config.Informer{informerOf(c, resources)}
	}
	for i := range c.Informers {
		inf := &c.Informers[i]
		if len(s.namespaces) > 0 {
			inf.Namespaces, inf.NamespaceSelector = s.namespaces, ""
		}
		if s.everywhere {
			inf.Namespaces, inf.NamespaceSelector = nil, ""
		}
		inf.LabelSelector = cmp.Or(s.labelSelector, inf.LabelSelector)
		inf.FieldSelector = cmp.Or(s.fieldSelector, inf.FieldSelector)
		inf.Filter = cmp.Or(s.filter, inf.Filter)
	}
	// Checked apart from the file: its lines are not where these values come from.
	selected := config.Default()
	selected.Informers, selected.Sinks = c.Informers, c.Sinks
	return selected.Validate()
}

// namesOf splits arguments at commas: kubectl takes pods,services too.
func namesOf(args []string) (names []string) {
	for _, arg := range args {
		names = append(names, strings.Split(arg, ",")...)
	}
	return names
}

// informerOf returns an informer of resources that feeds every sink, with the defaults of a
// configuration that says nothing else.
func informerOf(c *config.Config, resources []string) config.Informer {
	inf := config.Default().Informers[0]
	binding := inf.Sinks[0]
	inf.Name, inf.Resources, inf.Exclude, inf.Sinks = "watch", resources, nil, nil
	for i := range c.Sinks {
		binding.Name = c.Sinks[i].Name
		inf.Sinks = append(inf.Sinks, binding)
	}
	return inf
}
