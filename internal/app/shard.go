package app

import (
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/resource"
)

// shardOf is the share of the objects that this process has.
func shardOf(c *config.Config) (resource.Shard, error) {
	if c.Shard == "" {
		return resource.Shard{}, nil
	}
	count, auto := strings.CutPrefix(c.Shard, "auto/")
	if !auto {
		return resource.ParseShard(c.Shard)
	}
	host, err := os.Hostname()
	if err != nil {
		return resource.Shard{}, fmt.Errorf("shard %s: %w", c.Shard, err)
	}
	return shardOfHost(host, count, c.Standby.Enabled)
}

// shardOfHost is the shard of the pod of a StatefulSet, whose name ends with its number. With
// replicas the numbers begin again behind the last shard. Without, two pods of one shard would both
// publish, so that is an error.
func shardOfHost(host, count string, replicas bool) (resource.Shard, error) {
	number := host[strings.LastIndexByte(host, '-')+1:]
	if replicas {
		number = roundRobin(number, count)
	}
	s, err := resource.ParseShard(number + "/" + count)
	if err == nil {
		return s, nil
	}
	want := "a number below " + count
	if replicas {
		want = "a number"
	}
	return s, fmt.Errorf("shard auto/%s: the name of this host, %q, does not end with %s, as "+
		"those of a StatefulSet's pods do", count, host, want)
}

// roundRobin is a number modulo a count; what is none is left as it is.
func roundRobin(number, count string) string {
	n, err := strconv.ParseUint(number, 10, 31)
	of, countErr := strconv.ParseUint(count, 10, 31)
	if err != nil || countErr != nil || of == 0 {
		return number
	}
	return strconv.FormatUint(n%of, 10)
}
