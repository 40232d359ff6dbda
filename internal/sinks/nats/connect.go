package nats

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/kubebridge/bridge/internal/sinks"
)

// connect makes one attempt with each server. The client's own retries are not used for the first
// connection: they hide the reason, and the caller of Open has a backoff.
func (s *Sink) connect(ctx context.Context) (*nats.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	life, cancel := context.WithCancel(context.Background())
	// until it is connected, the connection lives as long as ctx
	stop := context.AfterFunc(ctx, cancel)
	servers := s.cfg.servers()
	dial := &dialer{
		ctx: life, config: &s.cfg, servers: servers, reported: s.onReport,
		tlsFailed: s.outage.attemptFailed,
	}
	options, err := s.options(dial)
	if err != nil {
		cancel()
		return nil, err
	}
	closed := make(chan struct{})
	options = append(options, nats.ClosedHandler(func(conn *nats.Conn) {
		cancel()
		s.connectionClosed(conn)
		close(closed)
	}))
	conn, err := nats.Connect(servers.url, options...)
	if err != nil {
		cancel()
		if dial.failed != nil && errors.Is(err, nats.ErrNoServers) {
			// the client does not report the attempts
			err = fmt.Errorf("%w (%s)", err, dial.failed.Error())
		}
		return nil, errors.Join(err, ctx.Err())
	}
	if !stop() { // ctx ended at the last moment, and the dialer with it
		conn.Close()
		<-closed
		return nil, ctx.Err()
	}
	s.closed = closed
	s.outage.end()
	s.metrics.connected.Set(1)
	return conn, nil
}

func (s *Sink) options(dial *dialer) ([]nats.Option, error) {
	c := &s.cfg
	options := []nats.Option{
		nats.Name(c.Client),
		nats.Timeout(c.Timeout),
		nats.SetCustomDialer(dial),
		// The dialer gets the name of the server: the certificate must have it.
		nats.SkipHostLookup(),
		// Without a connection a publish must fail, not wait in a buffer of the client: the caller
		// sends the message again, and a buffered one would be stored behind its successors.
		nats.ReconnectBufSize(-1),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(250 * time.Millisecond),
		nats.ReconnectJitter(250*time.Millisecond, 500*time.Millisecond),
		// credentials are rotated: the next attempt reads the file again
		nats.IgnoreAuthErrorAbort(),
		nats.PingInterval(20 * time.Second),
		nats.MaxPingsOutstanding(2),
		nats.FlusherTimeout(s.cfg.AckTimeout),
		// otherwise a connection with a failed write stays, and drops messages
		nats.ReconnectOnFlusherError(),
		nats.DisconnectErrHandler(s.disconnected),
		nats.ReconnectHandler(s.reconnected),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) { s.outage.attemptFailed(err) }),
		nats.ErrorHandler(s.onServerError),
	}
	if c.InboxPrefix != "" {
		options = append(options, nats.CustomInboxPrefix(c.InboxPrefix))
	}
	options, err := c.authenticate(options)
	if err == nil {
		_, err = c.tlsConfig("") // errors in its files now, not with each attempt
	}
	switch {
	case err != nil:
		return nil, err
	case dial.servers.webSocket, !c.wantsTLS(): // TLS begins where the URL or the server ask for it
		return options, nil
	case c.TLSFirst:
		return append(options, nats.TLSHandshakeFirst()), nil
	default:
		return append(options, nats.Secure()), nil
	}
}

// wantsTLS reports whether TLS begins whatever the URL and the server ask for.
func (c *Options) wantsTLS() bool {
	return c.TLSFirst || c.TLS != nil && *c.TLS != sinks.TLS{}
}

// authenticate adds how to authenticate.
func (c *Options) authenticate(options []nats.Option) ([]nats.Option, error) {
	switch {
	case c.CredsFile != "":
		return append(options, nats.UserCredentials(c.CredsFile)), nil
	case c.NkeyFile != "":
		option, err := nats.NkeyOptionFromSeed(c.NkeyFile)
		if err != nil {
			return nil, fmt.Errorf("nkey file %s: %w", c.NkeyFile, err)
		}
		return append(options, option), nil
	case c.Token != "":
		return append(options, nats.Token(string(c.Token))), nil
	case c.TokenFile != "":
		return append(options, nats.TokenHandler(c.readToken)), nil
	case c.Username != "":
		return append(options, nats.UserInfo(c.Username, string(c.Password))), nil
	default:
		return options, nil
	}
}

// readToken returns the token in the file. Without one the server may admit this process by its
// user.
func (c *Options) readToken() string {
	text, err := os.ReadFile(c.TokenFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// disconnected is called by the client when the connection broke, and once more when it is closed.
func (s *Sink) disconnected(conn *nats.Conn, err error) {
	s.metrics.connected.Set(0)
	if err == nil {
		err = nats.ErrDisconnected
	}
	if !conn.IsClosed() {
		s.outage.begin(err)
	}
	s.acks.failAll(classified(fmt.Errorf("%w before the ack came: %w", nats.ErrDisconnected, err)))
	if conn.IsClosed() {
		return
	}
	s.metrics.disconnects.Inc()
	s.log.Warn("disconnected; reconnecting", "err", err)
}

func (s *Sink) reconnected(conn *nats.Conn) {
	s.outage.end()
	s.metrics.connected.Set(1)
	s.log.Info("reconnected", "url", s.cfg.connectedTo(conn), "server", conn.ConnectedServerName())
}

func (s *Sink) connectionClosed(conn *nats.Conn) {
	s.metrics.connected.Set(0)
	if err := conn.LastError(); err != nil {
		s.log.Debug("connection closed", "err", err)
	}
}

// onServerError is called for errors that belong to no call: permissions violations, failed writes,
// a server that shuts down.
func (s *Sink) onServerError(_ *nats.Conn, _ *nats.Subscription, err error) {
	s.reported.newest.set(err)
	s.reported.violations.add(err, s.cfg.apiPrefix())
	if subject, ok := forbiddenSubject(err); ok {
		s.acks.forbidden(subject, err)
	}
	s.reported.log.Warn(s.log, "the server or the connection reports an error", "err", err)
}

// forbiddenSubject returns the subject that the server does not let the user publish to.
func forbiddenSubject(err error) (subject string, ok bool) {
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return "", false
	}
	return deniedSubject(err.Error())
}

// deniedSubject is forbiddenSubject by the server's words.
func deniedSubject(text string) (subject string, ok bool) {
	_, rest, ok := strings.Cut(text, `for Publish to "`)
	subject, _, _ = strings.Cut(rest, `"`)
	return subject, ok
}

// denials has which subjects the server denied during each call of publishCore. The server reports
// that before it answers the call's flush.
type denials struct {
	mu    sync.Mutex
	calls map[*denied]bool // guarded by mu: those that run
}

// denied are the subjects, each with what the server reported. While its call runs, denials.mu
// guards it.
type denied struct{ bySubject map[string]string }

func (d *denials) begin() *denied {
	call := &denied{bySubject: map[string]string{}}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.calls == nil {
		d.calls = map[*denied]bool{}
	}
	d.calls[call] = true
	return call
}

func (d *denials) end(call *denied) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.calls, call)
}

// add takes what the server reported.
func (d *denials) add(text string) {
	subject, ok := deniedSubject(text)
	if !ok {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for call := range d.calls {
		call.bySubject[subject] = text
	}
}

// What the server reports and the client library handles: the first do not end the connection, the
// others do, and the client connects again.
var (
	transientReports = []string{"permissions violation", "maximum subscriptions exceeded"}
	handledReports   = []string{
		"stale connection", "maximum connections exceeded", "maximum account active connections",
		"unknown protocol operation", "authorization violation", "user authentication expired",
		"user authentication revoked", "account authentication expired",
	}
)

// onReport takes what the server reports before the client library does. At a report that the
// library does not know, such as a limit that was lowered, it closes the connection and never
// connects again. So the connection is broken here, and the next one has the new limits.
func (s *Sink) onReport(text string) error {
	s.reported.denials.add(text)
	begins := func(prefix string) bool { return strings.HasPrefix(strings.ToLower(text), prefix) }
	if slices.ContainsFunc(transientReports, begins) {
		return nil
	}
	err := fmt.Errorf("the server reported: %s", text)
	s.outage.reportedBy(err)
	if slices.ContainsFunc(handledReports, begins) {
		return nil
	}
	return err
}

// redactedURL is the URL without passwords and tokens, for errors and logs.
func (c *Options) redactedURL() string {
	urls := make([]string, len(c.Servers))
	for i, server := range c.Servers {
		urls[i] = string(server)
		u, err := url.Parse(strings.TrimSpace(urls[i]))
		switch {
		case err != nil:
			urls[i] = "(unreadable URL)"
		case u.User != nil:
			u.User = url.User("xxxxx")
			urls[i] = u.String()
		}
	}
	return strings.Join(urls, ",")
}

// dialer is the nats.CustomDialer of all connections: each one is bounded, and ends with a context.
//
// nats.go would put its own TLS above the connection that Dial returns, and boundedConn would see
// what is encrypted. But before that it calls SkipTLSHandshake, at the moment at which TLS has to
// begin: before INFO or behind it. The dialer then begins TLS itself, below the check, in the way
// of makeTLSConn in nats.go. With WebSockets TLS begins in Dial: see Options.servers.
//
// nats.go calls it from one goroutine at a time.
type dialer struct {
	ctx     context.Context //nolint:containedctx // the connection's life; nats.go hands in none
	config  *Options
	servers servers
	// reported is protocol.reported of each connection.
	reported func(text string) error
	// tlsFailed is boundedConn.tlsFailed of each connection.
	tlsFailed func(err error)
	conn      *boundedConn // the last one
	server    string       // the name that its certificate must have
	name      string       // of the last server that was dialled by a name
	failed    error        // of the last attempt to dial
}

// Dial implements nats.CustomDialer.
func (d *dialer) Dial(network, address string) (net.Conn, error) {
	if d.conn != nil {
		_ = d.conn.Close() // nats.go forgets to, where it could not reconnect (doReconnect)
	}
	conn, err := (&net.Dialer{Timeout: d.config.Timeout}).DialContext(d.ctx, network, address)
	if err != nil {
		d.failed = err
		return nil, err
	}
	follow := protocol{reported: d.reported}
	check := follow.check
	if d.servers.webSocket {
		check = (&webSocket{protocol: follow}).check
	}
	d.conn, d.server = newBoundedConn(conn, check), d.serverAt(address)
	d.conn.tlsFailed = d.tlsFailed
	if d.servers.secure {
		if err := d.startTLS(); err != nil {
			_ = conn.Close()
			return nil, err
		}
	}
	return d.conn, nil
}

// SkipTLSHandshake is called by nats.go where TLS has to begin, on the connection that was dialled
// last. It has no way to return an error: nats.go gets that from its next Read or Write.
func (d *dialer) SkipTLSHandshake() bool {
	if err := d.startTLS(); err != nil {
		d.conn.broken = err
		d.conn.reportTLS(err)
		_ = d.conn.Close()
	}
	return true
}

func (d *dialer) startTLS() error {
	config, err := d.config.tlsConfig(d.server)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(d.ctx, d.config.Timeout)
	defer cancel()
	return d.conn.startTLS(ctx, config)
}

// serverAt returns the name that the certificate of a server must have, unless TLS.ServerName says
// it. Servers of a cluster announce each other by IP addresses, and often have no certificates for
// these. As with nats.go, they must have one for the name by which the bridge found the cluster.
func (d *dialer) serverAt(address string) string {
	host, _, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return address
	case net.ParseIP(host) == nil:
		d.name = host
		return host
	case d.config.names(host):
		return host
	default:
		return cmp.Or(d.name, host)
	}
}

// names reports whether a host is one of the URL's.
func (c *Options) names(host string) bool {
	for _, server := range c.Servers {
		u, err := url.Parse(strings.TrimSpace(string(server)))
		if err == nil && u.Hostname() == host {
			return true
		}
	}
	return false
}

// tlsConfig is that of a connection with a server. The files are read for each connection, since
// certificates are rotated.
func (c *Options) tlsConfig(server string) (*tls.Config, error) {
	config, err := c.TLS.Load()
	if err != nil {
		return nil, err
	}
	if config == nil {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	config.ServerName = cmp.Or(config.ServerName, server)
	return config, nil
}

// outage is the time between the loss of a connection and the next one. The client's errors in that
// time are about its own buffer.
type outage struct {
	mu    sync.Mutex // guards all below
	since time.Time  // zero while there is a connection
	why   error      // why the connection was lost, or the last attempt failed
	// report is what the server reported last, at a time: it says more than that the connection
	// broke.
	report     error
	reportedAt time.Time
}

// reportLasts is how long before the end of its connection a report explains that.
const reportLasts = 2 * time.Second

func (o *outage) begin(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.since.IsZero() {
		o.since = time.Now()
	}
	if o.why = why; o.report != nil && time.Since(o.reportedAt) < reportLasts {
		o.why = o.report
	}
}

// reportedBy records what the server reported.
func (o *outage) reportedBy(report error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.report, o.reportedAt = report, time.Now()
	if !o.since.IsZero() {
		o.why = report
	}
}

// attemptFailed records why another attempt has failed.
func (o *outage) attemptFailed(why error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.since.IsZero() {
		o.why = why
	}
}

func (o *outage) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.since, o.why = time.Time{}, nil
}

// explain wraps an error in an outage in what an operator can use; errors.Is still finds the error.
func (o *outage) explain(err error, url string) error {
	o.mu.Lock()
	since, why := o.since, o.why
	o.mu.Unlock()
	if since.IsZero() {
		return err
	}
	return &unreachableError{url: url, since: since, why: why, err: err}
}

// unreachableError is an error of a server that can't be reached.
type unreachableError struct {
	url      string // without secrets
	since    time.Time
	why, err error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("the NATS server at %s can't be reached since %s (%v); the events are "+
		"pending, and are sent when it is back",
		e.url, e.since.Format(time.RFC3339), e.why)
}

func (e *unreachableError) Unwrap() error { return e.err }

// Blocked implements sinks.Blocker: a lost connection is reported also while there is nothing to
// send.
func (s *Sink) Blocked() error {
	if away := s.outage.explain(nil, s.cfg.redactedURL()); away != nil {
		return &sinks.Error{Class: sinks.Reconnect, Err: away}
	}
	return s.streams.firstMissing()
}

// explain does so for all messages that failed because the server can't be reached.
func (s *Sink) explain(batch []*sinks.Message) {
	for _, m := range batch {
		if m.Err != nil && sinks.Classify(m.Err) == sinks.Reconnect {
			m.Err = s.outage.explain(m.Err, s.cfg.redactedURL())
		}
	}
}
