package server_test

import (
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"

	natsclient "github.com/nats-io/nats.go"

	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/sinks/nats/server"
)

// asNobody connects as another user of this machine.
type asNobody struct{}

// Dial implements nats.CustomDialer.
func (asNobody) Dial(network, address string) (net.Conn, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	const nobody = 65534
	if err := syscall.Setfsuid(nobody); err != nil {
		return nil, err
	}
	defer syscall.Setfsuid(0)
	return net.Dial(network, address)
}

// connects reports whether the server admits a client.
func connects(t *testing.T, url string, options ...natsclient.Option) bool {
	t.Helper()
	nc, err := natsclient.Connect(url, append(options, patient)...)
	if err == nil {
		nc.Close()
		return true
	}
	if !strings.Contains(strings.ToLower(err.Error()), "authorization") {
		t.Errorf("connect: %v", err)
	}
	return false
}

func TestClients(t *testing.T) {
	token := func() (string, error) { return "0123456789abcdef", nil }
	for _, ownUser := range []bool{true, false} {
		cfg := server.Config{Port: -1, StoreDir: t.TempDir(), Token: token}
		if ownUser {
			cfg.IsOwnUser = admin.IsOwnUser
		}
		e, _ := run(t, cfg)
		url := e.ClientURL()
		if !connects(t, url, natsclient.Token("0123456789abcdef")) {
			t.Error("who has the token is refused")
		}
		if connects(t, url, natsclient.Token("x")) != ownUser || connects(t, url) != ownUser {
			t.Errorf("own user %v: who has no token is admitted: %v", ownUser, !ownUser)
		}
		if os.Geteuid() != 0 {
			t.Log("only root can make a socket of another user")
			continue
		}
		other := natsclient.SetCustomDialer(asNobody{})
		if connects(t, url, other) {
			t.Errorf("own user %v: another user is admitted without the token", ownUser)
		}
		if !connects(t, url, other, natsclient.Token("0123456789abcdef")) {
			t.Error("another user who has the token is refused")
		}
	}
}
