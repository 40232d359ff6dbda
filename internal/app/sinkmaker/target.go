package sinkmaker

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"

	"github.com/kubebridge/bridge/config"
)

// Target says where at its broker a sink sends to: a short digest, which the replicas of a bridge
// compare. Addresses are not in it, since each replica may reach the same broker by one of its own.
// "" for standard output.
func Target(c *config.Sink) string {
	where := kindOf(c).target()
	if where == nil {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%q", where))
	return hex.EncodeToString(sum[:4])
}
