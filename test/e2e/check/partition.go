package check

import "github.com/twmb/franz-go/pkg/kgo"

// partitionOf is where franz-go puts a key, which is where Java's client does.
func partitionOf(key string, partitions int) int32 {
	p := kgo.StickyKeyPartitioner(nil).ForTopic("any")
	return int32(p.Partition(&kgo.Record{Key: []byte(key)}, partitions))
}
