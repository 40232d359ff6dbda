package nats

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
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
	servers := s.cfg.Connection.servers()
	dial := &dialer{ctx: life, config: &s.cfg.Connection, servers: servers}
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
	c := &s.cfg.Connection
	options := []nats.Option{
		nats.Name(c.Name),
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
	options, err := c.Auth.with(options)
	if err == nil {
		_, err = c.TLS.config("") // errors in its files now, not with each attempt
	}
	switch {
	case err != nil:
		return nil, err
	case dial.servers.webSocket, c.TLS == TLS{}: // TLS begins where the URL or the server ask for it
		return options, nil
	case c.TLS.HandshakeFirst:
		return append(options, nats.TLSHandshakeFirst()), nil
	default:
		return append(options, nats.Secure()), nil
	}
}

// with adds how to authenticate.
func (a *Auth) with(options []nats.Option) ([]nats.Option, error) {
	switch {
	case a.CredsFile != "":
		return append(options, nats.UserCredentials(a.CredsFile)), nil
	case a.NKeyFile != "":
		option, err := nats.NkeyOptionFromSeed(a.NKeyFile)
		if err != nil {
			return nil, fmt.Errorf("nkey file %s: %w", a.NKeyFile, err)
		}
		return append(options, option), nil
	case a.Token != "":
		return append(options, nats.Token(a.Token)), nil
	case a.TokenFile != "":
		return append(options, nats.TokenHandler(a.readToken)), nil
	case a.User != "":
		return append(options, nats.UserInfo(a.User, a.Password)), nil
	default:
		return options, nil
	}
}

// readToken returns the token in the file. Without one the server may admit this process by its
// user.
func (a *Auth) readToken() string {
	text, err := os.ReadFile(a.TokenFile)
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
	s.log.Info("reconnected", "url", s.cfg.Connection.connectedTo(conn),
		"server", conn.ConnectedServerName())
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
	s.reported.violations.add(err, s.cfg.Connection.apiPrefix())
	s.log.Warn("the server or the connection reports an error", "err", err)
}

// redactedURL is the URL without passwords and tokens, for errors and logs.
func (c *Connection) redactedURL() string {
	urls := strings.Split(c.URL, ",")
	for i, text := range urls {
		u, err := url.Parse(strings.TrimSpace(text))
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
