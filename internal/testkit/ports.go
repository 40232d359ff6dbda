package testkit

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
)

// Ports that are given out lie below those that the kernel gives to outgoing connections (32768 and
// up on Linux), so that no other program gets one while its listener is started again. They are
// in a block that belongs to this process for as long as it lives, so that tests that run at the
// same time never meet.
const (
	lowestPort = 30_000
	blocks     = 18
	blockSize  = 150
)

// ports are those of this process.
var ports struct {
	sync.Mutex
	owner net.Listener // at the block's first port: it makes the block ours
	first int
	last  int // that was given, counted from the first
}

// Address is one on this machine where nobody listens. No test that runs at the same time is given
// the same.
func Address(t testing.TB) string { return fmt.Sprint("127.0.0.1:", Port(t)) }

// Port is that of an Address.
func Port(t testing.TB) int {
	t.Helper()
	ports.Lock()
	defer ports.Unlock()
	if ports.owner == nil {
		takeBlock(t)
	}
	for range blockSize {
		// over again, when all were given: those of tests that have ended are free
		ports.last = ports.last%(blockSize-1) + 1
		if l := listen(ports.first + ports.last); l != nil {
			_ = l.Close()
			return ports.first + ports.last
		}
	}
	t.Fatal("all ports of this process are in use: make the blocks larger")
	return 0
}

func takeBlock(t testing.TB) {
	t.Helper()
	for _, block := range rand.Perm(blocks) {
		first := lowestPort + block*blockSize
		if l := listen(first); l != nil {
			ports.owner, ports.first = l, first
			return
		}
	}
	t.Fatalf("all %d blocks of ports from %d on are taken", blocks, lowestPort)
}

// listen is nil when somebody else does.
func listen(port int) net.Listener {
	l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port)) //nolint:noctx // it does not wait
	if err != nil {
		return nil
	}
	return l
}
