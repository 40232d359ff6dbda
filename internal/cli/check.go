package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app"
	"github.com/kubebridge/bridge/internal/app/rights"
	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/event/asyncapi"
)

func newValidateCommand() *cobra.Command {
	var print, live bool
	cmd := &cobra.Command{
		Use:   "validate [FILE]",
		Short: "Check a configuration and report every problem",
		Long: `validate reads a configuration as 'bridge run' would, with its BRIDGE_ variables, and
reports every problem at once: file, line, key, what is wrong, and what was probably meant. It
contacts neither the API server nor a broker, and reads no file with credentials, so it can run in
CI. Whether a resource exists and the bridge may watch it, it does not know. Of a good configuration
it prints which way events go: of which resource, by which informer, to which subject or topic.

With --live it asks: the API server whether it has the resources and allows to list and watch them,
and the brokers whether they can be reached, take the credentials, and have the stream or the topics
as the configuration wants them. It changes nothing and sends no event, so it can't know whether the
broker's user may write.

Exit codes: 0 when the configuration is good, 2 when it is not.`,
		Example: `  bridge validate bridge.yaml
  bridge validate bridge.yaml --live      and the cluster and the brokers that it names
  bridge validate bridge.yaml --print     the whole configuration with defaults, secrets masked
  bridge validate --print                 what 'bridge run' does without a file`,
		Args: cobra.MaximumNArgs(1),
	}
	s := NewSendingSettings(cmd, "kubernetes.kubeconfig", "kubernetes.context")
	cmd.Flags().BoolVar(&live, "live", false, "ask the API server and the brokers too")
	cmd.Flags().BoolVar(&print, "print", false, "print the whole configuration as YAML, with "+
		"defaults filled in and secrets masked")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			if cmd.Flags().Changed("config") {
				return errors.New("give the file once, as an argument or with --config")
			}
			s.File = args[0]
		}
		c, err := s.Load()
		if err != nil {
			return err
		}
		if print {
			fmt.Fprint(cmd.OutOrStdout(), c)
			return nil
		}
		printWarnings(cmd, app.Warnings(c))
		var found string
		if live {
			log := NewLogger(config.Log{Level: "warn", Format: c.Log.Format}, cmd.ErrOrStderr())
			l, err := app.CheckLive(cmd.Context(), c, log)
			if err != nil {
				return Refused(err)
			}
			printWarnings(cmd, l.Warnings)
			found = fmt.Sprintf("; %s has the resources and allows to read them (%s), the "+
				"brokers can take the events",
				l.Host, terminal.Amount(l.Rights, "right"))
		}
		fmt.Fprintf(cmd.OutOrStdout(), "%s is good: %s, %s%s\n",
			cmp.Or(s.File, "the default configuration"),
			terminal.Amount(len(c.Informers), "informer"), terminal.Amount(len(c.Sinks), "sink"), found)
		return printRoutes(cmd.OutOrStdout(), c)
	}
	return cmd
}

func printWarnings(cmd *cobra.Command, list []error) {
	for _, warning := range list {
		fmt.Fprintln(cmd.ErrOrStderr(), "warning:", warning)
	}
}

func newRBACCommand() *cobra.Command {
	var o rights.RolesOptions
	output := "yaml"
	cmd := &cobra.Command{
		Use:   "rbac",
		Short: "Print the smallest roles that a configuration needs",
		Long: `rbac prints what the API server has to allow for a configuration, as YAML for kubectl
apply: list and watch on the resources that it selects, and nothing else but to read which cluster
it is (get on the namespace kube-system), for a namespaceSelector list and watch on namespaces, and
with standby its two Leases.
Informers with namespaces give a Role in each of them, others a ClusterRole; a fieldSelector of one
metadata.name allows that object only. The bindings are for a service account.

The API server is asked what the names of resources and "*" mean now. Roles made of that do not
cover CRDs that are installed later: print them again then, or keep "*" as it is written with
--wildcards. A role can't subtract, so that allows to read what the configuration excludes from
"*", too, but for Secrets: "*" without them names the resources of the core group, and the groups
that there are now. --offline makes no request, and keeps "*" too; names then need their group
(deployments.apps), and "*" without Secrets has no groups of CRDs.

The Helm chart makes the same roles out of its values by itself, as --offline does. Where it can't
(short names, variables), or where "*" should be what it means now, --output helm-values prints the
values with the rights.

Exit codes: 0 when the roles are printed, 2 when the configuration or a name in it is wrong.`,
		Example: `  bridge rbac --config bridge.yaml | kubectl apply -f -
  bridge rbac --config bridge.yaml --namespace streaming --service-account bridge
  bridge rbac --config bridge.yaml --offline       in CI, without a cluster
  bridge rbac --config bridge.yaml --output helm-values > rights.yaml`,
		Args: cobra.NoArgs,
	}
	s := NewSettings(cmd, "kubernetes.kubeconfig", "kubernetes.context")
	cmd.Flags().StringVar(&o.Role, "name", "bridge", "name of the roles and of their bindings")
	cmd.Flags().StringVarP(&o.Namespace, "namespace", "n", "default", "namespace of the bridge's "+
		"service account")
	cmd.Flags().StringVar(&o.ServiceAccount, "service-account", "bridge", "name of the bridge's "+
		"service account")
	cmd.Flags().BoolVar(&o.Offline, "offline", false, "ask no API server; implies --wildcards")
	cmd.Flags().BoolVar(&o.Wildcards, "wildcards", false,
		`allow what "*" and "*.group" may ever mean, not what they mean now`)
	OutputFlag(cmd, &output, "yaml", "helm-values")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := s.Load()
		if err != nil {
			return err
		}
		o.HelmValues = output == "helm-values"
		text, err := rights.Roles(cmd.Context(), c, s.File, o)
		if err != nil {
			return Refused(err)
		}
		fmt.Fprint(cmd.OutOrStdout(), text)
		return nil
	}
	return cmd
}

func newSchemaCommand() *cobra.Command {
	forms, output := false, "yaml"
	cmd := &cobra.Command{
		Use:   "schema",
		Short: "Print what a configuration publishes, as an AsyncAPI document",
		Long: `schema prints an AsyncAPI 3 document of exactly what a configuration publishes: the
subjects, topics and URLs of its sinks, the messages with their headers, and a JSON Schema (draft 7)
for the headers and the payload of each. Programs make code, checks and pages of it. It makes no
request: what only the API server knows, such as the meaning of "*", is a parameter of the address.

With --forms it prints one JSON Schema with a definition for every form of payload and every event
about an informer, whatever the configuration.

Exit codes: 0 when it is printed, 2 when the configuration is wrong.`,
		Example: `  bridge schema --config bridge.yaml > asyncapi.yaml
  bridge schema --config bridge.yaml --output json
  bridge schema --forms --output json`,
		Args: cobra.NoArgs,
	}
	s := NewSettings(cmd, "cluster")
	cmd.Flags().BoolVar(&forms, "forms", false, "print the schemas of all payloads alone")
	OutputFlag(cmd, &output, "yaml", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		doc := asyncapi.Forms()
		if !forms {
			c, err := s.Load()
			if err != nil {
				return err
			}
			doc = app.Schema(c)
		}
		if output == "json" {
			encoder := json.NewEncoder(cmd.OutOrStdout())
			encoder.SetEscapeHTML(false)
			encoder.SetIndent("", "  ")
			return encoder.Encode(doc)
		}
		encoder := yaml.NewEncoder(cmd.OutOrStdout())
		encoder.SetIndent(2)
		return encoder.Encode(doc)
	}
	return cmd
}

type sampleOptions struct {
	events  int
	timeout time.Duration
	output  string

	selected selection
}

func newSampleCommand() *cobra.Command {
	o := sampleOptions{}
	cmd := &cobra.Command{
		Use:   "sample [RESOURCE]...",
		Short: "Print the first events of a configuration, and send none",
		Long: `sample watches the resources of a configuration and prints the first events as they would
be sent: for each sink the subject or the topic and key, the headers, and the message. It sends
nothing, connects to no broker, and neither reads nor writes the state directory: what it prints is
what a first start would send first. It ends when it has printed all that exists; with nothing to
print it waits for changes until the timeout.

Resources take the place of the configuration's informers, and selectors narrow them, as in 'bridge
watch'. Secrets are redacted as the configuration says.

Exit codes: 0 also when there were fewer events, 2 when it could not start.`,
		Example: `  bridge sample                                          of the default configuration
  bridge sample --config bridge.yaml --events 3
  bridge sample deployments.apps -n shop --config bridge.yaml
  bridge sample --config bridge.yaml --output json | jq .subject`,
	}
	s := NewSendingSettings(cmd, "kubernetes.kubeconfig", "kubernetes.context", "cluster",
		"log.level", "log.format")
	cmd.Flags().IntVar(&o.events, "events", 10, "how many events to print of each sink")
	cmd.Flags().DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait for them")
	o.selected.addFlags(cmd)
	OutputFlag(cmd, &o.output, "text", "json")
	cmd.RunE = func(cmd *cobra.Command, resources []string) error {
		if err := o.validate(); err != nil {
			return err
		}
		c, err := s.Load()
		if err != nil {
			return err
		}
		if err := o.selected.apply(c, namesOf(resources)); err != nil {
			return Refused(err)
		}
		return sample(cmd, c, o)
	}
	return cmd
}

func (o *sampleOptions) validate() error {
	if o.events < 1 || o.timeout <= 0 {
		return errors.New("--events and --timeout must be above 0")
	}
	return nil
}

func sample(cmd *cobra.Command, c *config.Config, o sampleOptions) error {
	// What is printed is the answer, so the log only speaks up for what keeps it from coming.
	if c.Log.Level == "info" {
		c.Log.Level = "warn"
	}
	log := NewLogger(c.Log, cmd.ErrOrStderr())
	ctx, stop := UntilSignal(cmd.Context(), log, os.Exit)
	defer stop()
	printed, all, err := app.Sample(ctx, app.SampleOptions{
		Config: c, Log: log, Out: cmd.OutOrStdout(), Events: o.events, Timeout: o.timeout,
		JSON: o.output == "json",
	})
	switch {
	case err != nil || ctx.Err() != nil:
	case all:
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: %s: this is all that there is now\n",
			terminal.Amount(printed, "event"))
	case printed < o.events:
		fmt.Fprintf(cmd.ErrOrStderr(), "bridge: %s within %v\n", terminal.Amount(printed, "event"),
			o.timeout)
	}
	return ended(err)
}

func newTokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Print the token of a bridge's admin server",
		Long: `token prints what the admin server of a bridge asks for: the status page in its form, and
others as a bearer token. Who has it may read /status, /tail, /object, /objects and profiles, and give
commands (bridge pause, reload and so on).

It is admin.tokenFile of the configuration, or admin-token in the state directory, which the bridge
has made.

Exit codes: 0, or 2 when there is no token.`,
		Example: `  kubectl exec bridge-0 -- bridge token
  curl --header "Authorization: Bearer $(bridge token)" 127.0.0.1:8080/status`,
		Args: cobra.NoArgs,
	}
	c := &Client{Settings: NewSettings(cmd, "state.dir")}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		token, err := c.Token()
		if err != nil {
			return Refused(err)
		}
		fmt.Fprintln(cmd.OutOrStdout(), token)
		return nil
	}
	return cmd
}

// mostRoutes bounds what validate prints.
const mostRoutes = 40

// printRoutes prints which way the events of each resource go: the fields of the cluster that a
// configuration names are filled in, others stay as they are written.
func printRoutes(w io.Writer, c *config.Config) error {
	table := terminal.NewTable(w)
	fmt.Fprintln(table, "RESOURCE\tINFORMER\tSINK\tTO")
	routes := 0
	for i := range c.Informers {
		informer := &c.Informers[i]
		for _, resource := range informer.Resources {
			for j := range c.Sinks {
				sink := &c.Sinks[j]
				if !feeds(informer, sink.Name) {
					continue
				}
				if routes++; routes <= mostRoutes {
					fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", resource, informer.Name, sink.Name,
						destination(c, informer, sink, resource))
				}
			}
		}
	}
	if routes > mostRoutes {
		fmt.Fprintf(table, "and %d more\n", routes-mostRoutes)
	}
	return table.Flush()
}

// feeds reports whether an informer sends to a sink: to all where it names none.
func feeds(informer *config.Informer, sink string) bool {
	return len(informer.Sinks) == 0 ||
		slices.ContainsFunc(informer.Sinks, func(f config.Binding) bool { return f.Name == sink })
}

// destination returns where a sink puts the events of a resource.
func destination(c *config.Config, informer *config.Informer, sink *config.Sink, name string) string {
	known := []string{"{informer}", informer.Name}
	if c.Cluster != "" {
		known = append(known, "{cluster}", c.Cluster)
	}
	if plural, _, _ := strings.Cut(name, "."); plural != "*" && !strings.ContainsAny(plural, "-!") {
		known = append(known, "{resource}", plural)
	}
	fill := strings.NewReplacer(known...)
	switch {
	case sink.NATS != nil:
		return "subject " + fill.Replace(sink.NATS.Subject)
	case sink.Kafka != nil:
		return "topic " + fill.Replace(sink.Kafka.Topic)
	case sink.HTTP != nil:
		return "endpoint"
	case sink.History != nil:
		return "history " + cmp.Or(sink.History.Dir, "in the state directory")
	case sink.File != nil:
		return "file " + sink.File.Path
	}
	return "standard output"
}
