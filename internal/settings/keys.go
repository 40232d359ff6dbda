package settings

import (
	"net"
	"strconv"
	"strings"
)

// Choice is one of several keys of which only some may be given.
type Choice struct {
	name  string
	given bool
}

// Key is a choice.
func Key(name string, given bool) Choice { return Choice{name, given} }

// GivenKeys returns the names of the keys that are given.
func GivenKeys(several ...Choice) []string {
	var names []string
	for _, k := range several {
		if k.given {
			names = append(names, k.name)
		}
	}
	return names
}

// AtMostOne reports the second of several keys that exclude each other.
func (ps *Report) AtMostOne(path string, several ...Choice) {
	if keys := GivenKeys(several...); len(keys) > 1 {
		ps.Add(Join(path, keys[1]), "cannot be combined with %s: keep one of %s", keys[0],
			strings.Join(keys, ", "))
	}
}

// HostPort reports an address that is not host:port.
func (ps *Report) HostPort(path, address string) {
	_, port, err := net.SplitHostPort(address)
	if n, convErr := strconv.Atoi(port); err != nil || convErr != nil || n < 0 || n > 65535 {
		ps.Add(path, "want host:port, got %q", address)
	}
}
