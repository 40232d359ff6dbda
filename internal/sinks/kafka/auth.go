package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
)

// SASL is how the sink authenticates with the brokers. A file or Token may be rotated: they are
// read for every new connection.
type SASL struct {
	// Mechanism is "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512" or "OAUTHBEARER". PLAIN and
	// OAUTHBEARER send the secret itself: use them with TLS only.
	Mechanism string
	// Username and Password are for PLAIN and SCRAM.
	Username, Password string
	// TokenFile holds the token for OAUTHBEARER, as a projected service account token does. White
	// space around it is ignored.
	TokenFile string
	// Token returns the token for OAUTHBEARER in place of TokenFile. It may be called concurrently.
	Token func(ctx context.Context) (string, error)
	// Extensions are sent beside the token of OAUTHBEARER, each as name=value.
	Extensions []string
}

// mechanismFunc makes the mechanism of one connection.
type mechanismFunc func() (sasl.Mechanism, error)

// mechanism checks the configuration and returns the mechanism's constructor.
func (s *SASL) mechanism() (mechanismFunc, error) {
	if s == nil {
		return nil, nil
	}
	switch s.Mechanism {
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
		if s.Username == "" {
			return nil, fmt.Errorf("sasl: %s needs a username", s.Mechanism)
		}
	case "OAUTHBEARER":
		if (s.TokenFile == "") == (s.Token == nil) {
			return nil, errors.New("sasl: OAUTHBEARER needs a token file or a token function, " +
				"and not both")
		}
	default:
		return nil, fmt.Errorf("sasl: no mechanism %q; there are PLAIN, SCRAM-SHA-256, "+
			"SCRAM-SHA-512, OAUTHBEARER", s.Mechanism)
	}
	return s.make, nil
}

func (s *SASL) make() (sasl.Mechanism, error) {
	switch s.Mechanism {
	case "SCRAM-SHA-256":
		return scram.Mechanism(scram.SHA256, s.Username, s.Password)
	case "SCRAM-SHA-512":
		return scram.Mechanism(scram.SHA512, s.Username, s.Password)
	case "OAUTHBEARER":
		return bearer{s}, nil
	default:
		return plain.Mechanism{Username: s.Username, Password: s.Password}, nil
	}
}

// token reads the token for a new connection.
func (s *SASL) token(ctx context.Context) (string, error) {
	if s.Token != nil {
		return s.Token(ctx)
	}
	text, err := os.ReadFile(s.TokenFile)
	if err != nil {
		return "", err
	}
	return string(bytes.TrimSpace(text)), nil
}

// bearer is SASL OAUTHBEARER (RFC 7628), which kafka-go does not have.
type bearer struct{ config *SASL }

func (bearer) Name() string { return "OAUTHBEARER" }

func (b bearer) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	token, err := b.config.token(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the token: %w", err)
	}
	if token == "" {
		return nil, nil, errors.New("read the token: it is empty")
	}
	fields := append([]string{"n,,", "auth=Bearer " + token}, b.config.Extensions...)
	return b, []byte(strings.Join(fields, "\x01") + "\x01\x01"), nil
}

// Next gets an empty challenge when the broker accepted the token, and otherwise the reason in
// JSON.
func (bearer) Next(_ context.Context, challenge []byte) (bool, []byte, error) {
	if len(challenge) == 0 {
		return true, nil, nil
	}
	return false, nil, fmt.Errorf("%w: %s", kafkago.SASLAuthenticationFailed, challenge)
}

// authenticate authenticates the connection, and sets when the broker will want that again.
func (c *conn) authenticate(ctx context.Context, address string, make mechanismFunc) error {
	mechanism, err := make()
	if err != nil {
		return fmt.Errorf("sasl: %w", err)
	}
	if err := c.handshake(mechanism.Name()); err != nil {
		return fmt.Errorf("sasl: %w", err)
	}
	if host, port, err := net.SplitHostPort(address); err == nil {
		number, _ := strconv.Atoi(port) // for mechanisms that use it; 0 for a named port
		ctx = sasl.WithMetadata(ctx, &sasl.Metadata{Host: host, Port: number})
	}
	if err := c.converse(ctx, mechanism); err != nil {
		return fmt.Errorf("sasl %s: %w", mechanism.Name(), err)
	}
	return nil
}

// mostOffered is how many mechanisms an error names. Kafka has six; an answer may hold any number,
// and each attempt would log them.
const mostOffered = 10

func (c *conn) handshake(name string) error {
	// in version 0, tokens went without requests around them
	if c.versions[protocol.SaslHandshake] < 1 {
		return fmt.Errorf("%w: Kafka 1.0 or later is needed for SASL", errUnusable)
	}
	res, err := c.exchange(&saslhandshake.Request{Mechanism: name})
	if err != nil {
		return err
	}
	if answer := res.(*saslhandshake.Response); answer.ErrorCode != 0 {
		offered := answer.Mechanisms[:min(len(answer.Mechanisms), mostOffered)]
		return fmt.Errorf("%w: the listener offers %s, not %s", kafkago.Error(answer.ErrorCode),
			clip(fmt.Sprintf("%q", offered)), name)
	}
	return nil
}

func (c *conn) converse(ctx context.Context, mechanism sasl.Mechanism) error {
	session, say, err := mechanism.Start(ctx)
	for done := false; err == nil && !done; {
		var answer *saslauthenticate.Response
		if answer, err = c.say(say); err != nil {
			return err
		}
		if err = checkChallenge(answer.AuthBytes); err != nil {
			return err
		}
		done, say, err = session.Next(ctx, answer.AuthBytes)
		if lifetime := time.Duration(answer.SessionLifetimeMs) * time.Millisecond; lifetime > 0 {
			c.expires = time.Now().Add(lifetime * 9 / 10)
		}
	}
	return err
}

// checkChallenge refuses a SCRAM challenge that asks for hours of hashing. Brokers ask for 4,096 to
// 16,384 iterations (scram's limit in Kafka); 1,000,000 take about a second.
func checkChallenge(challenge []byte) error {
	const most = 1_000_000
	for part := range bytes.SplitSeq(challenge, []byte{','}) {
		digits, ok := bytes.CutPrefix(part, []byte("i="))
		if n, err := strconv.ParseUint(string(digits), 10, 64); ok && (err != nil || n > most) {
			return fmt.Errorf("%w: the broker asks for %q iterations of SCRAM", errMalformed,
				digits[:min(len(digits), 20)])
		}
	}
	return nil
}

func (c *conn) say(bytes []byte) (*saslauthenticate.Response, error) {
	res, err := c.exchange(&saslauthenticate.Request{AuthBytes: bytes})
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) { // how older brokers refuse
		return nil, fmt.Errorf("%w: the broker closed the connection",
			kafkago.SASLAuthenticationFailed)
	}
	if err != nil {
		return nil, err
	}
	answer := res.(*saslauthenticate.Response)
	if answer.ErrorCode != 0 {
		return nil, fmt.Errorf("%w (%s)", kafkago.Error(answer.ErrorCode),
			clip(answer.ErrorMessage))
	}
	return answer, nil
}
