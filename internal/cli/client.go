package cli

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kubebridge/bridge/internal/app"
	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/settings"
)

// Client gives commands to a running bridge.
type Client struct {
	Settings    *Settings
	addressFlag string
	caFlag      string // a file
	tokenFlag   string // its file
}

// endpoint is where the admin server of a bridge is found.
type endpoint struct {
	address string      // host:port
	tls     *tls.Config // nil: plain HTTP
}

func (e *endpoint) url(path string) string {
	if e.tls != nil {
		return "https://" + e.address + path
	}
	return "http://" + e.address + path
}

// wantsTLS returns an error where an answer is that of a server with TLS to plain HTTP.
func (e *endpoint) wantsTLS(code int, body []byte) error {
	if code != http.StatusBadRequest || e.tls != nil || !bytes.Contains(body, []byte("HTTPS")) {
		return nil
	}
	return fmt.Errorf("the server at %s speaks TLS: name the authority of its certificate with "+
		"--admin-ca, or the configuration of the bridge with --config", e.address)
}

// client uses no proxy: the bridge is on this machine, and takes no commands through one.
func (e *endpoint) client(timeout time.Duration) *http.Client {
	return &http.Client{Timeout: timeout, Transport: &http.Transport{TLSClientConfig: e.tls}}
}

// forClient are the sections that say where a running bridge is: an operator can reach it with a
// file that has a mistake elsewhere.
var forClient = []string{"admin", "state"}

// newClient adds the flags by which a command finds the bridge.
func newClient(cmd *cobra.Command) *Client {
	c := &Client{Settings: NewSettings(cmd, "state.dir")}
	cmd.Flags().StringVar(&c.addressFlag, "admin-address", "", "host:port of the bridge's admin "+
		"server; none: admin.address of the configuration")
	cmd.Flags().StringVar(&c.caFlag, "admin-ca", "", "PEM file with the authority of the certificate at "+
		"--admin-address, or with it; none: plain HTTP")
	_ = cmd.MarkFlagFilename("admin-ca") // fails only for a flag that is not there
	cmd.Flags().StringVar(&c.tokenFlag, "token-file", "", "file with the token of the bridge; none: "+
		"admin.tokenFile of the configuration, or the one in the state directory")
	_ = cmd.MarkFlagFilename("token-file") // fails only for a flag that is not there
	return c
}

// clientHelp is in the help of all commands for a running bridge.
const clientHelp = `

The bridge is found at admin.address of the configuration (--admin-address), and takes commands from
this machine, from who can read its token: admin.tokenFile, or admin-token in the state directory
(--token-file). Its log says who asked.

Exit codes: 0 when it is done, 1 when the bridge could not do it, 2 when there is no bridge, or it
refuses.`

// timeout bounds a command; the bridge gives itself less.
const timeout = 150 * time.Second

// Do sends a command and prints the answer.
func (c *Client) Do(cmd *cobra.Command, path string, body any) error {
	var answer struct{ Message string }
	if err := c.Send(cmd.Context(), path, body, &answer); err != nil {
		return err
	}
	fmt.Fprintln(cmd.OutOrStdout(), answer.Message)
	return nil
}

// Send sends a command and reads the answer.
func (c *Client) Send(ctx context.Context, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	at, err := c.endpoint()
	if err != nil {
		return Refused(err)
	}
	token, err := c.Token()
	if err != nil {
		return Refused(err)
	}
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, at.url("/control/"+path),
		bytes.NewReader(data))
	if err != nil {
		return Refused(fmt.Errorf("address %s: %w", at.address, err))
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(admin.UserHeader, whoAsks())
	answer, err := at.client(0).Do(req)
	if err != nil {
		if e, ok := errors.AsType[*url.Error](err); ok {
			err = e.Err // without the method and the URL
		}
		return Refused(fmt.Errorf("no bridge answers at %s: %w; is it running, with this "+
			"configuration? (--admin-address)", at.address, err))
	}
	defer answer.Body.Close()
	return at.understand(answer, into)
}

// understand reads the answer to a command.
func (e *endpoint) understand(answer *http.Response, into any) error {
	data, err := io.ReadAll(io.LimitReader(answer.Body, 1<<20))
	if err != nil {
		return Failed(fmt.Errorf("the answer of the bridge at %s broke off: %w", e.address, err))
	}
	if err := e.wantsTLS(answer.StatusCode, data); err != nil {
		return Refused(err)
	}
	var said struct{ Message, Error string }
	if err := json.Unmarshal(data, &said); err != nil || said.Message == "" && said.Error == "" {
		return Refused(fmt.Errorf("%s is not the admin endpoint of a bridge that takes commands: %s",
			e.address, answer.Status))
	}
	switch answer.StatusCode {
	case http.StatusOK:
		return json.Unmarshal(data, into)
	case http.StatusUnauthorized, http.StatusForbidden:
		return Refused(fmt.Errorf("the bridge at %s refuses: %s", e.address, said.Error))
	}
	return Failed(errors.New(said.Error))
}

// endpoint returns where the bridge is. The configuration is read only without --admin-address.
func (c *Client) endpoint() (*endpoint, error) {
	e := &endpoint{address: c.addressFlag}
	var err error
	if e.address == "" {
		conf, err := c.Settings.LoadSections(forClient)
		if err != nil {
			return nil, err
		}
		if e.address = conf.Admin.Address; e.address == "" {
			return nil, errors.New("admin.address is empty: a bridge with this configuration has " +
				"no admin server to ask (--admin-address names another)")
		}
		if t := conf.Admin.TLS; t.CertFile != "" && c.caFlag == "" {
			if e.tls, err = admin.OwnTLS(t.CertFile); err != nil {
				return nil, fmt.Errorf("admin.tls.certFile: %w", err)
			}
		}
	}
	if c.caFlag != "" {
		if e.tls, err = admin.ClientTLS(c.caFlag); err != nil {
			return nil, fmt.Errorf("--admin-ca: %w", err)
		}
	}
	e.address, err = reachable(e.address)
	return e, err
}

// Token returns the token of the bridge. The configuration is read only without a flag for it.
func (c *Client) Token() (string, error) {
	file := c.tokenFlag
	if file == "" {
		conf, err := c.Settings.LoadSections(forClient)
		if err != nil {
			return "", err
		}
		if file, _, err = app.TokenFile(conf); err != nil {
			return "", err
		}
	}
	token, err := settings.ReadToken(file)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("no admin token at %s: pass --token-file, or the --state-dir or --config "+
			"that the bridge runs with", file)
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("%w: run this as the user that the bridge runs as", err)
	}
	return token, err
}

// reachable returns where a server that listens at an address is found: one that listens on all
// addresses, on this machine.
func reachable(address string) (string, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return "", fmt.Errorf("admin address %q: want host:port", address)
	}
	switch addr, err := netip.ParseAddr(host); {
	case host == "", err == nil && addr == netip.IPv4Unspecified():
		host = "127.0.0.1"
	case err == nil && addr == netip.IPv6Unspecified():
		host = "::1"
	}
	return net.JoinHostPort(host, port), nil
}

// whoAsks returns the name that the bridge's log gives to who sits here.
func whoAsks() string {
	name := cmp.Or(os.Getenv("SUDO_USER"), os.Getenv("USER"))
	if u, err := user.Current(); name == "" && err == nil {
		name = u.Username
	}
	if host, err := os.Hostname(); err == nil && host != "" {
		name = strings.TrimPrefix(name+"@"+host, "@")
	}
	return name
}

// Names completes the names of informers or sinks.
func (c *Client) Names(kind string) []string {
	conf, err := c.Settings.LoadSections(forClient) // names may be completed in a file with a mistake
	if err != nil {
		return nil
	}
	var names []string
	switch kind {
	case "informer":
		for i := range conf.Informers {
			names = append(names, conf.Informers[i].Name)
		}
	case "sink":
		for i := range conf.Sinks {
			names = append(names, conf.Sinks[i].Name)
		}
	}
	return names
}

// kindsOfTargets are what can be paused.
var kindsOfTargets = []string{"informer", "sink"}

func newPauseCommand() *cobra.Command {
	return newSwitchCommand("pause", "Pause an informer or a sink of a running bridge",
		`pause informer NAME stops reading: the watches of the informer are closed, and what was read is
sent. It continues from there; what the API server has forgotten by then (it keeps minutes) is a
gap, reported and healed as always.

pause sink NAME sends nothing to the sink. What is for it waits, in memory and then on disk, as
while its broker is unavailable. Other sinks continue.

While something is paused, /readyz says so. A pause ends with `+"`bridge resume`"+`, and when the
bridge is restarted.`,
		`  bridge pause informer workloads
  bridge pause sink lake`)
}

func newResumeCommand() *cobra.Command {
	return newSwitchCommand("resume", "Resume an informer or a sink of a running bridge",
		`resume ends a pause: an informer reads on from where it stood, a sink is sent what has waited,
in order.`,
		`  bridge resume informer workloads
  bridge resume sink lake`)
}

// newSwitchCommand is pause or resume.
func newSwitchCommand(action, short, long, example string) *cobra.Command {
	cmd := &cobra.Command{
		Use: action + " informer|sink NAME", Short: short,
		Long: long + clientHelp, Example: example, Args: cobra.ExactArgs(2),
	}
	c := newClient(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if args[0] != "informer" && args[0] != "sink" {
			return fmt.Errorf("want informer or sink, got %q", args[0])
		}
		return c.Do(cmd, args[0]+"s/"+url.PathEscape(args[1])+"/"+action, struct{}{})
	}
	cmd.ValidArgsFunction = func(
		_ *cobra.Command, args []string, _ string,
	) ([]string, cobra.ShellCompDirective) {
		switch len(args) {
		case 0:
			return kindsOfTargets, cobra.ShellCompDirectiveNoFileComp
		case 1:
			return c.Names(args[0]), cobra.ShellCompDirectiveNoFileComp
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

func newSnapshotCommand() *cobra.Command {
	var what struct {
		Resource  string `json:"resource,omitempty"`
		Namespace string `json:"namespace,omitempty"`
		Selector  string `json:"selector,omitempty"`
		Sink      string `json:"sink,omitempty"`
		Owner     string `json:"owner,omitempty"`
		Node      string `json:"node,omitempty"`
	}
	owner := ""
	cmd := &cobra.Command{
		Use:   "snapshot [INFORMER]",
		Short: "Make a running bridge send objects again",
		Long: `snapshot sends every object that an informer knows again: as type synced, with initial, and
with an id that no event had before (<uid>/<resourceVersion>/sync/<round>), so that neither
JetStream nor a consumer takes it for a repeat. Each comes in order with the changes of its object;
watches continue, and no list is read. Memory stays bounded: what does not fit waits.

With --owner, --node or --selector only some are sent, of all informers where none is named. The
bridge finds them by its indexes and reads no others; those of a selector only where a label of it
has an index (indexes of the informer).

Operations and filters of the informer and its sinks hold for it (operation: synced). A consumer
that has lost its state learns in this way which objects exist; what does not come was deleted.

The command returns when it has begun; the log says when all of it is queued. A restart breaks it
off.` + clientHelp,
		Example: `  bridge snapshot workloads
  bridge snapshot workloads --resource deployments.apps --namespace shop
  bridge snapshot --owner deploy/web -n shop
  bridge snapshot --node n1 --sink lake`,
		Args: cobra.MaximumNArgs(1),
	}
	c := newClient(cmd)
	cmd.Flags().StringVar(&what.Resource, "resource", "", "only this resource of the informer, "+
		"as /status shows it: pods, deployments.apps")
	cmd.Flags().StringVarP(&what.Namespace, "namespace", "n", "", "only objects in this namespace")
	cmd.Flags().StringVarP(&what.Selector, "selector", "l", "", "only objects with these labels, "+
		"as kubectl takes it")
	cmd.Flags().StringVar(&owner, "owner", "", "only what this object owns, and what that owns, as "+
		"bridge tree shows it: deploy/web")
	cmd.Flags().StringVar(&what.Node, "node", "", "only the pods on this node")
	cmd.Flags().StringVar(&what.Sink, "sink", "", "only to this sink; none: to all of the informer")
	cmd.MarkFlagsMutuallyExclusive("owner", "node")
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		path := "snapshot"
		if len(args) > 0 {
			path = "informers/" + url.PathEscape(args[0]) + "/snapshot"
		} else if owner == "" && what.Node == "" && what.Selector == "" {
			return errors.New("want INFORMER, or some of the objects by --owner, --node or --selector")
		}
		if owner != "" {
			if what.Owner, err = c.uidOf(cmd.Context(), owner, what.Namespace); err != nil {
				return err
			}
		}
		return c.Do(cmd, path, what)
	}
	cmd.ValidArgsFunction = func(
		_ *cobra.Command, args []string, _ string,
	) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return c.Names("informer"), cobra.ShellCompDirectiveNoFileComp
	}
	return cmd
}

// uidOf returns the uid of an object as the bridge knows it. Its error has the exit code.
func (c *Client) uidOf(ctx context.Context, object, namespace string) (string, error) {
	kind, name, err := objectArgs([]string{object})
	if err != nil {
		return "", err
	}
	server, err := c.endpoint()
	if err != nil {
		return "", Refused(err)
	}
	t := &treeReader{client: newStatusClient(server, c.Token)}
	state, err := t.find(ctx, kind, namespace, name)
	if err != nil {
		return "", err
	}
	return state.UID, nil
}

func newLogLevelCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "log-level LEVEL",
		Short: "Set the level of a running bridge's log",
		Long: `log-level sets the least severe level that the log of a running bridge has: debug, info,
warn or error. It ends with a restart, or when log.level of the configuration is changed.` + clientHelp,
		Example:   `  bridge log-level debug`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: LogLevels,
	}
	c := newClient(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return c.Do(cmd, "log-level", map[string]string{"level": args[0]})
	}
	return cmd
}

func newReloadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reload",
		Short: "Make a running bridge read its configuration now",
		Long: `reload has a running bridge read its configuration again, at once, and says what has
changed. It does so by itself when the file changes (key reloadInterval), and at SIGHUP.

Informers and sinks that have not changed run on. A file with a mistake is refused as a whole, with
every problem and its line, and the configuration of before stays; so is one that changes what only
a restart can: the cluster, the state directory, the admin server.` + clientHelp,
		Example: `  bridge validate --config bridge.yaml && bridge reload --config bridge.yaml`,
		Args:    cobra.NoArgs,
	}
	c := newClient(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return c.Do(cmd, "reload", struct{}{}) }
	return cmd
}
