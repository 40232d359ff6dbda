package admin_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"runtime"
	"syscall"
	"testing"

	"github.com/kubebridge/bridge/internal/app/admin"
)

// TestOtherUser connects as another user of this machine.
func TestOtherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make a socket of another user")
	}
	url, _ := start(t, everything(admin.Access{OwnUser: true}))
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			const nobody = 65534
			if err := syscall.Setfsuid(nobody); err != nil {
				return nil, err
			}
			defer syscall.Setfsuid(0)
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}}
	response, err := client.Get(url + "/status")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != 403 {
		t.Errorf("another user reads without a token: %d", response.StatusCode)
	}
}
