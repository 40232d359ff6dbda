package server

import (
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/kubebridge/bridge/internal/app/admin"
)

// guard admits clients: those who send the token, and, where OwnUser says so, those of this
// process's user. Everybody else on this machine could read, forge and purge events.
type guard struct {
	token   [sha256.Size]byte
	ownUser bool
	server  *server.Server // set before the server starts
}

func newGuard(cfg *Config) (*guard, error) {
	token, err := cfg.Token()
	if err == nil && token == "" {
		err = errors.New("its token is empty")
	}
	return &guard{token: sha256.Sum256([]byte(token)), ownUser: cfg.OwnUser}, err
}

// Check implements server.Authentication.
func (g *guard) Check(c server.ClientAuthentication) bool {
	got := sha256.Sum256([]byte(c.GetOpts().Token))
	if subtle.ConstantTimeCompare(got[:], g.token[:]) == 1 {
		return true
	}
	local, ok := g.server.Addr().(*net.TCPAddr)
	return g.ownUser && ok && local.IP.IsLoopback() && admin.IsOwnUser(c.RemoteAddress(), local)
}
