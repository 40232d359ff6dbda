package cli

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/cli/terminal"
	"github.com/kubebridge/bridge/internal/history/ask"
	"github.com/kubebridge/bridge/internal/history/query"
	"github.com/kubebridge/bridge/internal/history/serve"
	"github.com/kubebridge/bridge/internal/settings/suggest"
)

// serveOptions are the flags of bridge serve.
type serveOptions struct {
	*historyOptions
	at      string
	live    bool
	speed   string
	address string
	tokens  string
}

func newServeCommand() *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:   "serve (--at TIME | --live)",
		Short: "Serve a history as a read-only Kubernetes API, for kubectl and others",
		Long: `serve answers kubectl, k9s and client-go with the objects of a history as they were at a
time. It prints a kubeconfig with its address and a token that is new each time, and runs until it
gets SIGINT or SIGTERM.

Lists are always of that time. A watch begins there and gives what followed, at the recorded pace or at
--speed. With --live lists are the newest state that the history has, and watches follow it.

Nothing can be changed: every write is refused with 405. Objects are as redaction left them, without
managedFields. There are no logs. Who has the token reads all that the history has. With --tokens
there are several, each with the namespaces and resources that it may read: a YAML file with a list
of token or tokenFile, namespaces, and resources as "deployments.apps". "*" stands for all; Secrets
must be named. It is read once. It listens on this machine only.

` + timeHelp + `

Exit codes: 0 after a clean stop; 1 when it failed, or that time is not known; 2 when there is no
history.`,
		Example: `  bridge serve --at 14:03 > past.yaml &
  kubectl --kubeconfig past.yaml get pods -A
  kubectl --kubeconfig past.yaml get pods -n shop --watch
  bridge serve --at "2h ago" --speed 10x --dir /var/lib/history
  bridge serve --live --tokens tokens.yaml --address 127.0.0.1:8443 > now.yaml`,
		Args: cobra.NoArgs,
	}
	o.historyOptions = historyFlags(cmd)
	cmd.Flags().StringVar(&o.at, "at", "", "time or resourceVersion")
	cmd.Flags().BoolVar(&o.live, "live", false, "serve the newest state, and follow it")
	cmd.Flags().StringVar(&o.speed, "speed", "1x",
		"pace of watches beside the recorded one; max: without waiting")
	cmd.Flags().StringVar(&o.address, "address", "127.0.0.1:0",
		"where to listen, on this machine; port 0: any free one")
	cmd.Flags().StringVar(&o.tokens, "tokens", "",
		"YAML file of tokens and what each may read; none: a new token for everything")
	_ = cmd.MarkFlagFilename("tokens", "yaml", "yml")
	cmd.MarkFlagsOneRequired("at", "live")
	cmd.MarkFlagsMutuallyExclusive("at", "live")
	cmd.MarkFlagsMutuallyExclusive("speed", "live")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := ask.ParsePoint("--at", o.at)
		speed, speedErr := parseSpeed(o.speed)
		if err := errors.Join(err, speedErr, checkLoopback(o.address)); err != nil {
			return err
		}
		return o.run(cmd, p, speed)
	}
	return cmd
}

// parseSpeed reads "10x", "0.5x", "max", which is 0.
func parseSpeed(text string) (float64, error) {
	if text == "max" {
		return 0, nil
	}
	n, err := strconv.ParseFloat(strings.TrimSuffix(text, "x"), 64)
	if err != nil || !(n > 0 && n <= 1e6) {
		return 0, fmt.Errorf("--speed %q: want 10x, 0.5x, or max", text)
	}
	return n, nil
}

// checkLoopback refuses an address that others reach: its certificate is for this machine.
func checkLoopback(address string) error {
	host, _, err := net.SplitHostPort(address)
	if err != nil || host != "127.0.0.1" && host != "::1" {
		return fmt.Errorf("--address %q: want an address of this machine, as 127.0.0.1:8443", address)
	}
	return nil
}

func (o *serveOptions) run(cmd *cobra.Command, p query.Point, speed float64) error {
	token, access, err := o.access()
	if err != nil {
		return Refused(err)
	}
	dir, err := o.directory()
	if err != nil {
		return err
	}
	source, err := serve.NewSharedHistory(dir, o.live)
	if err != nil {
		return Refused(err)
	}
	defer source.Close()
	h, release, err := source.Open()
	if err != nil {
		return Refused(err)
	}
	cluster, err := o.check(cmd, h, p)
	if err == nil {
		warnUnknownResources(cmd, h.Resources, access)
	}
	release()
	if err != nil {
		return err
	}
	log := NewLogger(config.Log{Level: "info", Format: "auto"}, cmd.ErrOrStderr())
	handler, err := serve.New(serve.Config{
		Open: source.Open, Cluster: cluster, At: p, Live: o.live,
		Speed: speed, Access: access, Log: log,
	})
	if err != nil {
		return Refused(err)
	}
	ctx, stop := UntilSignal(cmd.Context(), log, os.Exit)
	defer stop()
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", o.address)
	if err != nil {
		return Refused(fmt.Errorf("--address %s: %w", o.address, err))
	}
	cert, authority, err := serve.NewCertificate()
	if err != nil {
		return errors.Join(Failed(err), listener.Close())
	}
	kubeconfig, err := kubeconfigOf(listener.Addr().String(), cluster, o.namespace, token, authority)
	if err == nil {
		_, err = cmd.OutOrStdout().Write(kubeconfig)
	}
	if err != nil {
		return errors.Join(Failed(err), listener.Close())
	}
	what := "as it was at " + p.String()
	if o.live {
		what = "as the history has it"
	}
	fmt.Fprintf(cmd.ErrOrStderr(),
		"bridge: serves cluster %s %s at https://%s, read-only; the kubeconfig is on standard output\n",
		terminal.Plain(cluster), what, listener.Addr())
	if token == "" {
		fmt.Fprintln(cmd.ErrOrStderr(),
			"bridge: the kubeconfig has no token: each reader gives its own, as kubectl --token")
	}
	return Failed(serveUntil(ctx, tls.NewListener(listener, &tls.Config{
		Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS13,
		NextProtos: []string{"h2", "http/1.1"},
	}), handler))
}

// access returns what the tokens of the file may read. Without a file it makes a token for
// everything, which the kubeconfig gets.
func (o *serveOptions) access() (token string, access []serve.Access, err error) {
	if o.tokens == "" {
		token = rand.Text()
		return token, []serve.Access{serve.Everything(token)}, nil
	}
	text, err := os.ReadFile(o.tokens)
	if err == nil {
		access, err = serve.ParseAccess(text)
	}
	if err != nil {
		return "", nil, fmt.Errorf("--tokens %s: %w", o.tokens, err)
	}
	return "", access, nil
}

// warnUnknownResources reports names that no token can read anything by: a mistake, or a resource
// that comes later.
func warnUnknownResources(cmd *cobra.Command, resources query.Resources, access []serve.Access) {
	known := []string{"*"}
	for _, u := range resources.Units() {
		known = append(known, u.GroupResource())
	}
	for i, a := range access {
		for _, name := range a.Resources {
			if slices.Contains(known, name) || name == "secrets" {
				continue
			}
			hint := suggest.DidYouMean(name, known, 0)
			if of := slices.IndexFunc(known, func(k string) bool { return strings.HasPrefix(k, name+".") }); of >= 0 {
				hint = fmt.Sprintf(": did you mean %q?", known[of])
			}
			fmt.Fprintf(cmd.ErrOrStderr(),
				"bridge: --tokens: entry %d: the history has no resource %q%s\n",
				i+1, name, hint)
		}
	}
}

// check says what may be missing at a point, and finds the cluster.
func (o *serveOptions) check(
	cmd *cobra.Command, h *query.Questions, p query.Point,
) (cluster string, err error) {
	q := o.question(h)
	q.Namespace = "*"
	if cluster, err = q.OneCluster(); err != nil {
		return "", failedQuestion(err)
	}
	state, err := q.State(nil, p)
	if err != nil {
		return "", failedQuestion(err)
	}
	return cluster, warnState(cmd, q, &state)
}

// serveUntil serves until ctx ends. Watches end at once.
func serveUntil(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{
		Handler: handler, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10,
		BaseContext:    func(net.Listener) context.Context { return ctx },
	}
	stopped := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(stopped)
		patience, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if server.Shutdown(patience) != nil {
			_ = server.Close() // what is open is broken off
		}
	})
	err := server.Serve(listener)
	if !unhook() { // the requests that were open
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// kubeconfigOf returns a kubeconfig for a server on this machine.
func kubeconfigOf(address, cluster, namespace, token string, authority []byte) ([]byte, error) {
	c := api.NewConfig()
	c.Clusters[cluster] = &api.Cluster{
		Server:                   "https://" + address,
		CertificateAuthorityData: authority,
	}
	c.AuthInfos["history"] = &api.AuthInfo{Token: token}
	c.Contexts["history"] = &api.Context{Cluster: cluster, AuthInfo: "history", Namespace: namespace}
	c.CurrentContext = "history"
	return clientcmd.Write(*c)
}
