package nats_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/nats"
)

func denyPublish(subject string) *server.Permissions {
	return &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{subject}}}
}

func withUser(user, password string, permissions *server.Permissions) func(*server.Options) {
	return func(o *server.Options) {
		o.Users = []*server.User{{Username: user, Password: password, Permissions: permissions}}
	}
}

// newNKey writes a seed file and returns its path and public key.
func newNKey(t *testing.T) (path, public string) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := pair.Seed()
	public, _ = pair.PublicKey()
	path = filepath.Join(t.TempDir(), "bridge.nk")
	if err := os.WriteFile(path, seed, 0o600); err != nil {
		t.Fatal(err)
	}
	return path, public
}

func TestAuth(t *testing.T) {
	seedFile, public := newNKey(t)
	for name, c := range map[string]struct {
		server func(*server.Options)
		auth   nats.Config
	}{
		"by user": {
			withUser("bridge", "s3cret", nil),
			nats.Config{Username: "bridge", Password: "s3cret"},
		},
		"by token": {
			func(o *server.Options) { o.Authorization = "t0ken" },
			nats.Config{Token: "t0ken"},
		},
		"by nkey": {
			func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} },
			nats.Config{NkeyFile: seedFile},
		},
	} {
		t.Run(name, func(t *testing.T) {
			ts := newTestServer(t, c.server)
			sink := ts.openSink(func(cfg *nats.Options) {
				cfg.Username, cfg.Password = c.auth.Username, c.auth.Password
				cfg.Token, cfg.NkeyFile = c.auth.Token, c.auth.NkeyFile
			})
			mustStore(t, sink, ev("a", 1))

			err := ts.newSink().Open(t.Context())
			wantClass(t, err, sinks.Refused)
		})
	}
}

func TestMissingCredentialsFile(t *testing.T) {
	ts := newTestServer(t)
	missing := filepath.Join(t.TempDir(), "missing")
	for name, change := range map[string]func(*nats.Options){
		"creds": func(c *nats.Options) { c.CredsFile = missing },
		"nkey":  func(c *nats.Options) { c.NkeyFile = missing },
		"CA":    func(c *nats.Options) { c.TLS = &sinks.TLS{CAFile: missing} },
		"certificate": func(c *nats.Options) {
			c.TLS = &sinks.TLS{CertFile: missing, KeyFile: missing}
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := ts.newSink(change).Open(t.Context())
			wantClass(t, err, sinks.Refused)
			if !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), missing) {
				t.Errorf("%v does not name the file", err)
			}
		})
	}
}

func TestPasswordsInErrors(t *testing.T) {
	sink, err := nats.New(optionsFor("nats://bridge:s3cret@127.0.0.1:1,nats://t0ken@127.0.0.1:1"))
	if err != nil {
		t.Fatal(err)
	}
	err = sink.Open(t.Context())
	wantClass(t, err, sinks.Reconnect)
	if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), "t0ken") ||
		!strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("error: %v", err)
	}
}
