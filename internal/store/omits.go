package store

// Omits returns the configuration's keys by which the stream of a sink left versions out when a run
// before said so; found is false when none did.
func (ix *Indexer) Omits(sink string) (keys string, found bool, err error) {
	value, err := ix.db.get(append(prefix(spaceOmits, ix.id), sink...))
	return string(value), value != nil, err
}

// SetOmits writes them.
func (b *Batch) SetOmits(ix *Indexer, sink, keys string) {
	b.put(append(prefix(spaceOmits, ix.id), sink...), []byte(keys))
}
