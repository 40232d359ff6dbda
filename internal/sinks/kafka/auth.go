package kafka

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-msk-iam-sasl-signer-go/signer"
	"github.com/aws/aws-sdk-go-v2/aws"
	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"

	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
)

// SASL is how the bridge authenticates to Kafka.
type SASL struct {
	// Mechanism is `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`, or `AWS_MSK_IAM` for
	// Amazon MSK with IAM, which needs `tls`. There is no Kerberos (GSSAPI). Required.
	Mechanism string `yaml:"mechanism" oneof:"PLAIN SCRAM-SHA-256 SCRAM-SHA-512 OAUTHBEARER AWS_MSK_IAM"`
	// Username for PLAIN and SCRAM.
	Username string `yaml:"username"`
	// Password for PLAIN and SCRAM. Better `passwordFile` or ${VARIABLE}.
	Password settings.Secret `yaml:"password"`
	// PasswordFile is the path of a file that holds the password.
	PasswordFile string `yaml:"passwordFile"`
	// TokenFile is the path of a file that holds the token of OAUTHBEARER. It is read again for
	// each connection, so it may be renewed by others.
	TokenFile string `yaml:"tokenFile"`
	// OAuth gets the token of OAUTHBEARER from an identity provider, in place of `tokenFile`.
	OAuth *OAuth `yaml:"oauth"`
	// Extensions are what the broker wants beside the token of OAUTHBEARER, as name=value:
	// `logicalCluster=lkc-abc`, `identityPoolId=pool-abc` for Confluent Cloud.
	Extensions []string `yaml:"extensions"`
	// AWS is whose credentials AWS_MSK_IAM signs with. Left out: those of the pod or machine.
	AWS *AWS `yaml:"aws"`
}

// AWS is how credentials for Amazon MSK are found: in variables (`AWS_ACCESS_KEY_ID`, …), by a web
// identity (IRSA), in a profile, from EKS Pod Identity, or from the instance, as AWS's other
// programs do. They are renewed before they end.
type AWS struct {
	// Region of the cluster, such as `eu-central-1`. Left out: `AWS_REGION`, or that of the
	// profile.
	Region string `yaml:"region"`
	// Profile in the files of AWS's configuration. Left out: `AWS_PROFILE`, or `default`.
	Profile string `yaml:"profile"`
	// RoleARN is a role that the bridge takes on with these credentials, for a cluster of another
	// account: `arn:aws:iam::123456789012:role/bridge`. Left out: none.
	RoleARN string `yaml:"roleARN"`
}

// OAuth gets tokens from an identity provider by the client credentials grant of OAuth 2.0 (OIDC).
type OAuth struct {
	// TokenURL is the token endpoint of the provider. Required.
	TokenURL settings.URL `yaml:"tokenURL"`
	// ClientID names the bridge to the provider. Required.
	ClientID string `yaml:"clientID"`
	// ClientSecret of the client. Better `clientSecretFile` or ${VARIABLE}.
	ClientSecret settings.Secret `yaml:"clientSecret"`
	// ClientSecretFile is the path of a file that holds the secret. It is read for each token.
	ClientSecretFile string `yaml:"clientSecretFile"`
	// Scopes to ask for.
	Scopes []string `yaml:"scopes"`
}

// mskIAM is the mechanism of Amazon MSK, by the name that Kafka's clients have for it.
const mskIAM = "AWS_MSK_IAM"

func (s *SASL) validate(ps *settings.Report, path string) {
	ps.AtMostOne(path, settings.Key("password", s.Password != ""),
		settings.Key("passwordFile", s.PasswordFile != ""))
	hasPassword := s.Password != "" || s.PasswordFile != ""
	switch s.Mechanism {
	case "": // reported as required already; what else is required depends on it
		return
	case "OAUTHBEARER":
		switch {
		case s.TokenFile == "" && s.OAuth == nil:
			ps.Add(path+".tokenFile", "required for OAUTHBEARER: tokenFile or oauth")
		case s.TokenFile != "" && s.OAuth != nil:
			ps.Add(path+".oauth", "cannot be combined with tokenFile: keep one of tokenFile, oauth")
		}
		s.OAuth.validate(ps, path+".oauth")
		for i, extension := range s.Extensions {
			if !saslExtension.MatchString(extension) || strings.HasPrefix(extension, "auth=") {
				ps.Add(fmt.Sprintf("%s.extensions[%d]", path, i),
					"want name=value, such as logicalCluster=lkc-abc")
			}
		}
		s.validateUnused(ps, path, append(s.userKeys(), settings.Key("aws", s.AWS != nil)))
		return
	case mskIAM:
		s.AWS.validate(ps, path+".aws")
		s.validateUnused(ps, path, append(s.userKeys(), s.bearerKeys()...))
		return
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
	default: // reported; what it requires is not known
		return
	}
	if s.Username == "" && !ps.Has(path+".username") {
		ps.Add(path+".username", "required for %s", s.Mechanism)
	}
	if !hasPassword && !ps.Has(path+".password") {
		ps.Add(path+".password", "required for %s: password or passwordFile", s.Mechanism)
	}
	s.validateUnused(ps, path, append(s.bearerKeys(), settings.Key("aws", s.AWS != nil)))
}

func (s *SASL) userKeys() []settings.Choice {
	return []settings.Choice{
		settings.Key("username", s.Username != ""),
		settings.Key("password", s.Password != ""),
		settings.Key("passwordFile", s.PasswordFile != ""),
	}
}

func (s *SASL) bearerKeys() []settings.Choice {
	return []settings.Choice{
		settings.Key("tokenFile", s.TokenFile != ""),
		settings.Key("oauth", s.OAuth != nil),
		settings.Key("extensions", len(s.Extensions) > 0),
	}
}

func (s *SASL) validateUnused(ps *settings.Report, path string, others []settings.Choice) {
	for _, key := range settings.GivenKeys(others...) {
		ps.Add(settings.Join(path, key), "has no effect with %s", s.Mechanism)
	}
}

var (
	awsRegion = regexp.MustCompile(`^[a-z]{2,}(-[a-z]+)+-\d+$`)
	awsRole   = regexp.MustCompile(`^arn:aws[a-z-]*:iam::\d{12}:role/\S+$`)
)

func (a *AWS) validate(ps *settings.Report, path string) {
	if a == nil {
		return
	}
	// A region becomes part of the address of AWS's service.
	if a.Region != "" && !awsRegion.MatchString(a.Region) {
		ps.Add(path+".region", "want a region such as eu-central-1, got %q", a.Region)
	}
	if a.RoleARN != "" && !awsRole.MatchString(a.RoleARN) {
		ps.Add(path+".roleARN", "want the ARN of a role such as "+
			"arn:aws:iam::123456789012:role/bridge, got %q", a.RoleARN)
	}
}

// saslExtension is a name and a printable value, as in RFC 7628.
var saslExtension = regexp.MustCompile(`^[A-Za-z]+=[ -~]+$`)

func (o *OAuth) validate(ps *settings.Report, path string) {
	if o == nil {
		return
	}
	u, err := url.Parse(string(o.TokenURL))
	switch {
	case o.TokenURL == "":
		ps.Add(path+".tokenURL", "required")
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil:
		// Without the value: it may hold a password.
		ps.Add(path+".tokenURL", "want a URL such as https://idp.example.com/oauth/token, without a user")
	}
	if o.ClientID == "" {
		ps.Add(path+".clientID", "required")
	}
	ps.AtMostOne(path, settings.Key("clientSecret", o.ClientSecret != ""),
		settings.Key("clientSecretFile", o.ClientSecretFile != ""))
	if o.ClientSecret == "" && o.ClientSecretFile == "" && !ps.Has(path+".clientSecret") {
		ps.Add(path+".clientSecret", "required: clientSecret or clientSecretFile")
	}
}

// load returns the section with its password read, and what gets the token of OAUTHBEARER where
// the section names no file; nil for nothing.
func (s *SASL) load(ctx context.Context) (
	loaded *SASL, token func(context.Context) (string, error), err error,
) {
	made := *s
	switch {
	case s.Mechanism == mskIAM:
		made.Mechanism = "OAUTHBEARER" // which MSK takes for IAM too
		token, err = mskToken(ctx, s.AWS)
		return &made, token, err
	case s.OAuth != nil:
		token = newTokenSource(s.OAuth).token
	}
	made.Password, err = settings.ReadSecret(s.Password, s.PasswordFile)
	return &made, token, sinks.AboutKey("sasl.passwordFile", err)
}

// tokenSource gets tokens from an identity provider, and hands each out until shortly before its
// end.
type tokenSource struct {
	config *OAuth
	http   *http.Client

	mu   sync.Mutex // guards last
	last *oauth2.Token
}

func newTokenSource(c *OAuth) *tokenSource {
	return &tokenSource{config: c, http: &http.Client{
		Timeout: 10 * time.Second,
		// The secret goes to the address that the configuration names, and nowhere else.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (s *tokenSource) token(ctx context.Context) (string, error) {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last.Valid() {
		return last.AccessToken, nil
	}
	secret, err := settings.ReadSecret(s.config.ClientSecret, s.config.ClientSecretFile)
	if err != nil {
		return "", err
	}
	grant := clientcredentials.Config{
		ClientID: s.config.ClientID, ClientSecret: string(secret), TokenURL: string(s.config.TokenURL),
		Scopes: s.config.Scopes,
	}
	token, err := grant.Token(context.WithValue(ctx, oauth2.HTTPClient, s.http))
	if err != nil {
		return "", fmt.Errorf("get a token from %s: %w", s.config.TokenURL, err)
	}
	s.mu.Lock()
	s.last = token
	s.mu.Unlock()
	return token.AccessToken, nil
}

// mskToken returns a function that signs a token of Amazon MSK for each connection. The
// credentials are those of AWS's default chain; the SDK keeps them until shortly before their end.
// It reads variables and files, and asks no server.
func mskToken(ctx context.Context, c *AWS) (func(context.Context) (string, error), error) {
	if c == nil {
		c = new(AWS)
	}
	loaded, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithRegion(c.Region),
		awsconfig.WithSharedConfigProfile(c.Profile))
	if err != nil {
		key := "sasl.aws" // one of the files of AWS's configuration
		if c.Profile != "" {
			key = "sasl.aws.profile"
		}
		return nil, sinks.AboutKey(key, err)
	}
	if loaded.Region == "" {
		return nil, sinks.AboutKey("sasl.aws.region", errors.New("no AWS region: set this key, or the "+
			"variable AWS_REGION"))
	}
	credentials := loaded.Credentials
	if c.RoleARN != "" {
		credentials = aws.NewCredentialsCache(stscreds.NewAssumeRoleProvider(
			sts.NewFromConfig(loaded), c.RoleARN, func(o *stscreds.AssumeRoleOptions) {
				o.RoleSessionName = "bridge"
			}))
	}
	whence := cmp.Or(c.RoleARN, "environment, web identity, profile, container or instance")
	return func(ctx context.Context) (string, error) {
		token, _, err := signer.GenerateAuthTokenFromCredentialsProvider(ctx, loaded.Region,
			credentials)
		if err != nil {
			return "", fmt.Errorf("get credentials of AWS (%s): %w", whence, err)
		}
		return token, nil
	}, nil
}

// mechanismFunc makes the mechanism of one connection.
type mechanismFunc func() (sasl.Mechanism, error)

// mechanism checks the configuration and returns the mechanism's constructor.
func (c *Connection) mechanism() (mechanismFunc, error) {
	s := c.SASL
	if s == nil {
		return nil, nil
	}
	switch s.Mechanism {
	case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
		if s.Username == "" {
			return nil, fmt.Errorf("sasl: %s needs a username", s.Mechanism)
		}
	case "OAUTHBEARER":
		if (s.TokenFile == "") == (c.Token == nil) {
			return nil, errors.New("sasl: OAUTHBEARER needs a token file or a token function, " +
				"and not both")
		}
	default:
		return nil, fmt.Errorf("sasl: no mechanism %q; there are PLAIN, SCRAM-SHA-256, "+
			"SCRAM-SHA-512, OAUTHBEARER", s.Mechanism)
	}
	return c.makeMechanism, nil
}

func (c *Connection) makeMechanism() (sasl.Mechanism, error) {
	s := c.SASL
	switch s.Mechanism {
	case "SCRAM-SHA-256":
		return scram.Mechanism(scram.SHA256, s.Username, string(s.Password))
	case "SCRAM-SHA-512":
		return scram.Mechanism(scram.SHA512, s.Username, string(s.Password))
	case "OAUTHBEARER":
		return bearer{c}, nil
	default:
		return plain.Mechanism{Username: s.Username, Password: string(s.Password)}, nil
	}
}

// token reads the token for a new connection.
func (c *Connection) token(ctx context.Context) (string, error) {
	if c.Token != nil {
		return c.Token(ctx)
	}
	text, err := os.ReadFile(c.SASL.TokenFile)
	if err != nil {
		return "", err
	}
	return string(bytes.TrimSpace(text)), nil
}

// bearer is SASL OAUTHBEARER (RFC 7628), which kafka-go does not have.
type bearer struct{ connection *Connection }

func (bearer) Name() string { return "OAUTHBEARER" }

func (b bearer) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	token, err := b.connection.token(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("read the token: %w", err)
	}
	if token == "" {
		return nil, nil, errors.New("read the token: it is empty")
	}
	fields := append([]string{"n,,", "auth=Bearer " + token}, b.connection.SASL.Extensions...)
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
