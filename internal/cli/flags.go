package cli

import (
	"fmt"
	"os"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/kubebridge/bridge/config"
)

// settings are the flags that set a key of the configuration. Their own defaults only show in the
// help: what counts is the key's.
type settings struct {
	file  string
	flags map[string]*pflag.Flag // by the path of the key
	// allowSecrets is there for commands that send objects, or say whether others would.
	allowSecrets *pflag.Flag
}

// newSettings adds --config, and one flag for each of the given keys.
func newSettings(cmd *cobra.Command, keys ...string) *settings {
	s := &settings{flags: map[string]*pflag.Flag{}}
	configFlag(cmd, &s.file)
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

// keyFlag is the flag of a key.
type keyFlag struct {
	name, usage string
	values      []string // for completion
}

var keyFlags = map[string]keyFlag{
	"kubernetes.kubeconfig": {"kubeconfig", "path of a kubeconfig; none: $KUBECONFIG, " +
		"~/.kube/config, then the pod's service account", nil},
	"kubernetes.context": {"context", "context of the kubeconfig; none: its current one", nil},
	"cluster": {"cluster", "name of the cluster in events; none: the one in the " +
		"kubeconfig", nil},
	"state.dir": {"state-dir", "directory for what must survive a restart", nil},
	"admin.address": {
		"admin-address",
		`host:port of health, readiness, metrics and status; "" for none`, nil,
	},
	"log.level": {
		"log-level", "debug, info, warn or error",
		[]string{"debug", "info", "warn", "error"},
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

// newSendingSettings is newSettings for a command that sends objects.
func newSendingSettings(cmd *cobra.Command, keys ...string) *settings {
	s := newSettings(cmd, keys...)
	const name = "allow-secrets"
	cmd.Flags().Bool(name, false, "let the configuration send values of Secrets (secrets: send); $"+
		config.AllowSecretsVariable)
	s.allowSecrets = cmd.Flags().Lookup(name)
	return s
}

// load reads the configuration.
func (s *settings) load() (*config.Config, error) { return s.loadSections(nil) }

// loadSections reads the configuration, of which only some sections need to be right; nil for all.
func (s *settings) loadSections(sections []string) (*config.Config, error) {
	c, err := config.Load(config.Options{File: s.file, Flags: s.flags, Sections: sections})
	if err == nil && s.allowSecrets != nil {
		err = s.checkSecrets(c)
	}
	if err != nil {
		return nil, refused(err)
	}
	return c, nil
}

func (s *settings) checkSecrets(c *config.Config) error {
	allowed := s.allowSecrets.Value.String() == "true"
	if text := os.Getenv(config.AllowSecretsVariable); text != "" && !s.allowSecrets.Changed {
		var err error
		if allowed, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%s: want true or false, got %q", config.AllowSecretsVariable, text)
		}
	}
	return c.CheckSecrets(allowed)
}
