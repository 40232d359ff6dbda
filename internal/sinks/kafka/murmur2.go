package kafka

// partitionOf is the partition that Java's default partitioner gives a record with this key.
func partitionOf(key string, partitions int) int {
	return int(murmur2(key)&0x7fffffff) % partitions
}

// murmur2 is org.apache.kafka.common.utils.Utils.murmur2.
func murmur2(data string) uint32 {
	const (
		seed  uint32 = 0x9747b28c
		mix   uint32 = 0x5bd1e995
		shift        = 24
	)
	h := seed ^ uint32(len(data))
	for ; len(data) >= 4; data = data[4:] {
		k := uint32(data[0]) | uint32(data[1])<<8 | uint32(data[2])<<16 | uint32(data[3])<<24
		k *= mix
		k ^= k >> shift
		k *= mix
		h = h*mix ^ k
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= mix
	}
	h ^= h >> 13
	h *= mix
	h ^= h >> 15
	return h
}
