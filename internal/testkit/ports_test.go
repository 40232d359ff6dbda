package testkit_test

import (
	"net"
	"testing"

	"github.com/kubebridge/bridge/internal/testkit"
)

// Addresses are free and different.
func TestAddresses(t *testing.T) {
	given := map[string]bool{}
	for range 20 {
		address := testkit.Address(t)
		if given[address] {
			t.Errorf("%s is given twice", address)
		}
		given[address] = true
		l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}
