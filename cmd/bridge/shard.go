package main

import (
	"fmt"
	"os"
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
	return shardOfHost(host, count)
}

// shardOfHost is the shard of the pod of a StatefulSet, whose name ends with its number.
func shardOfHost(host, count string) (resource.Shard, error) {
	number := host[strings.LastIndexByte(host, '-')+1:]
	s, err := resource.ParseShard(number + "/" + count)
	if err != nil {
		return s, fmt.Errorf("shard auto/%s: the name of this host, %q, does not end with a number below %s, as those of a StatefulSet's pods do", count, host, count)
	}
	return s, nil
}
