package harness

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// The ports we pick lie below those that the kernel gives to outgoing connections (32768 and up on
// Linux), so that nobody takes one while the program that it is for is being restarted.
const (
	lowestPort  = 12000
	highestPort = 30000
)

var (
	portsMu   sync.Mutex
	portsUsed = map[int]bool{} // guarded by portsMu: given out by this process
)

// FreeAddress is an address on the loopback interface that nobody listens on. No two calls of one
// process give the same.
func FreeAddress() (string, error) {
	for range 1000 {
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		if !claim(port) {
			continue
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		l, err := net.Listen("tcp", address) //nolint:noctx // it does not wait
		if err != nil {
			continue
		}
		return address, l.Close()
	}
	return "", fmt.Errorf("no free port found between %d and %d", lowestPort, highestPort)
}

func claim(port int) bool {
	portsMu.Lock()
	defer portsMu.Unlock()
	if portsUsed[port] {
		return false
	}
	portsUsed[port] = true
	return true
}
