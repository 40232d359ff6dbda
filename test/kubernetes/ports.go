package main

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
)

// The ports we pick lie below those that the kernel hands to outgoing connections (32768 and up on
// Linux). From that range, another connection could take the API server's port while the API server
// is stopped; a client that redials a port nobody listens on can even be given that very port as
// its own end and connect to itself.
const (
	lowestPort  = 12000
	highestPort = 30000 // and below the NodePorts, to keep logs readable
)

// freePorts finds ports on the loopback interface that nobody listens on, all different.
func freePorts(count int) ([]int, error) {
	var ports []int
	for range 100 * count {
		if len(ports) == count {
			return ports, nil
		}
		port := lowestPort + rand.IntN(highestPort-lowestPort)
		l, err := net.Listen("tcp", loopback(port))
		if err != nil {
			continue
		}
		defer l.Close() // kept until all are found, or the same one could be found twice
		ports = append(ports, port)
	}
	return nil, fmt.Errorf("no free ports found between %d and %d", lowestPort, highestPort)
}

func loopback(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}
