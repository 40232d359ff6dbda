package nats_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

// operatorMode configures a server that trusts an operator, and returns the credentials of a user
// of its one account.
func operatorMode(t *testing.T) (change func(*server.Options), creds []byte) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	operator, err := nkeys.CreateOperator()
	must(err)
	operatorKey, _ := operator.PublicKey()
	operatorText, err := jwt.NewOperatorClaims(operatorKey).Encode(operator)
	must(err)
	operatorClaims, err := jwt.DecodeOperatorClaims(operatorText)
	must(err)

	account, err := nkeys.CreateAccount()
	must(err)
	accountKey, _ := account.PublicKey()
	accountClaims := jwt.NewAccountClaims(accountKey)
	accountClaims.Limits.JetStreamLimits = jwt.JetStreamLimits{
		DiskStorage: -1, MemoryStorage: -1,
		Streams: -1, Consumer: -1,
	}
	accountText, err := accountClaims.Encode(operator)
	must(err)

	user, err := nkeys.CreateUser()
	must(err)
	userKey, _ := user.PublicKey()
	userText, err := jwt.NewUserClaims(userKey).Encode(account)
	must(err)
	seed, _ := user.Seed()
	creds, err = jwt.FormatUserConfig(userText, seed)
	must(err)

	// JetStream's own; it has no limits, so users of the other account can't see it
	system, err := nkeys.CreateAccount()
	must(err)
	systemKey, _ := system.PublicKey()
	systemText, err := jwt.NewAccountClaims(systemKey).Encode(operator)
	must(err)

	return func(o *server.Options) {
		resolver := &server.MemAccResolver{}
		must(resolver.Store(accountKey, accountText))
		must(resolver.Store(systemKey, systemText))
		o.TrustedOperators, o.AccountResolver,
			o.SystemAccount = []*jwt.OperatorClaims{operatorClaims}, resolver, systemKey
	}, creds
}

func TestCredentialsRotation(t *testing.T) {
	change, creds := operatorMode(t)
	ts := newTestServer(t, change)
	path := filepath.Join(t.TempDir(), "bridge.creds")
	withCreds := func(c *nats.Options) { c.CredsFile = path }

	_, otherCreds := operatorMode(t) // of an operator that the server does not know
	if err := os.WriteFile(path, otherCreds, 0o600); err != nil {
		t.Fatal(err)
	}
	wantClass(t, ts.newSink(withCreds).Open(t.Context()), sinks.Refused)

	if err := os.WriteFile(path, creds, 0o600); err != nil {
		t.Fatal(err)
	}
	sink := ts.openSink(withCreds)
	mustStore(t, sink, ev("a", 1))
	ts.restart()
	// the file is read again
	for err := error(sinks.ErrNoDeadLetter); err != nil; err = call(t, sink, ev("a", 2))[0].Err {
	}
}
