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
	at      []string
	live    bool
	speed   string
	address string
	tokens  string
	isWho   bool
}

func newServeCommand() *cobra.Command {
	o := &serveOptions{}
	cmd := &cobra.Command{
		Use:   "serve (--at TIME… | --live)",
		Short: "Serve a history as a read-only Kubernetes API, for kubectl and others",
		Long: `serve answers kubectl, k9s and client-go with the objects of a history as they were at a
time. It prints a kubeconfig with its address and a token that is new each time, and runs until it
gets SIGINT or SIGTERM.

Lists are always of that time. A watch begins there and gives what followed, at the recorded pace or at
--speed. With --live lists are the newest state that the history has, and watches follow it. Give
--at several times, or beside --live, for more contexts in the kubeconfig: the first is the current
one, of --live it is "now". A path names the time of each, so any other is there too:
https://ADDRESS/at/2026-11-22T14:03:00Z.

Nothing can be changed: every write is refused with 405. Objects are as redaction left them, without
managedFields. There are no logs. Who has the token reads all that the history has. With --tokens
there are several, each with the namespaces and resources that it may read: a YAML file with a list
of token or tokenFile, namespaces, and resources as "deployments.apps". "*" stands for all; Secrets
must be named. It is read once. It listens on this machine only.

With --who each table has a column USER, and each object the annotation
attribution.kubebridge.dev/actor, where the history knows who made that version. Remove it from what
you apply to a cluster. A watch has it only where the user is known by then.

` + timeHelp + `

Exit codes: 0 after a clean stop; 1 when it failed, or that time is not known; 2 when there is no
history.`,
		Example: `  bridge serve --at 14:03 > past.yaml &
  kubectl --kubeconfig past.yaml get pods -A
  kubectl --kubeconfig past.yaml get pods -n shop --watch
  bridge serve --live --at "1h ago" --at 14:03 > times.yaml &
  kubectl --kubeconfig times.yaml --context 1h-ago get pods -A
  bridge serve --at "2h ago" --speed 10x --dir /var/lib/history
  bridge serve --live --tokens tokens.yaml --address 127.0.0.1:8443 > now.yaml`,
		Args: cobra.NoArgs,
	}
	o.historyOptions = historyFlags(cmd)
	cmd.Flags().StringArrayVar(&o.at, "at", nil, "time or resourceVersion; several for several contexts")
	cmd.Flags().BoolVar(&o.live, "live", false, "serve the newest state, and follow it")
	cmd.Flags().StringVar(&o.speed, "speed", "1x",
		"pace of watches beside the recorded one; max: without waiting")
	cmd.Flags().StringVar(&o.address, "address", "127.0.0.1:0",
		"where to listen, on this machine; port 0: any free one")
	cmd.Flags().StringVar(&o.tokens, "tokens", "",
		"YAML file of tokens and what each may read; none: a new token for everything")
	cmd.Flags().BoolVar(&o.isWho, "who", false, "name the authenticated user who made each object what it is")
	_ = cmd.MarkFlagFilename("tokens", "yaml", "yml")
	cmd.MarkFlagsOneRequired("at", "live")
	cmd.MarkFlagsMutuallyExclusive("speed", "live")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		times, err := o.times()
		speed, speedErr := parseSpeed(o.speed)
		if err := errors.Join(err, speedErr, checkLoopback(o.address)); err != nil {
			return err
		}
		return o.run(cmd, times, speed)
	}
	return cmd
}

// servedTime is a time of which the kubeconfig has a context.
type servedTime struct {
	context string
	path    string // at the server; "" for the current one
	point   query.Point
}

// times returns the served times. The first is that of paths without a time.
func (o *serveOptions) times() (times []servedTime, err error) {
	if o.live {
		times = append(times, servedTime{context: "now"})
	}
	for _, text := range o.at {
		p, err := ask.ParsePoint("--at", text)
		if err != nil {
			return nil, err
		}
		t := servedTime{context: strings.Join(strings.Fields(text), "-"), point: p}
		if len(times) > 0 {
			t.path = "/at/" + p.At.UTC().Format(time.RFC3339)
			if p.Version > 0 {
				t.path = fmt.Sprint("/at/", p.Version)
			}
		}
		if slices.ContainsFunc(times, func(other servedTime) bool { return other.context == t.context }) {
			return nil, fmt.Errorf("--at %q: it is given twice", text)
		}
		times = append(times, t)
	}
	return times, nil
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

func (o *serveOptions) run(cmd *cobra.Command, times []servedTime, speed float64) error {
	p := times[0].point
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
	cluster := ""
	for _, t := range times {
		if err == nil {
			cluster, err = o.check(cmd, h, t.point)
		}
	}
	if err == nil && o.isWho {
		var isRecorded bool
		if isRecorded, err = ask.NewActors(h).IsRecorded(cluster); err == nil && !isRecorded {
			err = Refused(ask.ErrNoAudit)
		}
	}
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
		Speed: speed, Who: o.isWho, Access: access, Log: log,
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
	kubeconfig, err := o.kubeconfig(listener.Addr().String(), times, token, authority)
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
	q := o.question(cmd, h)
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

// kubeconfig returns a kubeconfig for a server on this machine, with a context for each time.
func (o *serveOptions) kubeconfig(
	address string, times []servedTime, token string, authority []byte,
) ([]byte, error) {
	c := api.NewConfig()
	c.AuthInfos["history"] = &api.AuthInfo{Token: token}
	for _, t := range times {
		c.Clusters[t.context] = &api.Cluster{
			Server:                   "https://" + address + t.path,
			CertificateAuthorityData: authority,
		}
		c.Contexts[t.context] = &api.Context{
			Cluster: t.context, AuthInfo: "history", Namespace: o.namespace,
		}
	}
	c.CurrentContext = times[0].context
	return clientcmd.Write(*c)
}
