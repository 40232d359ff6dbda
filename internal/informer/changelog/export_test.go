package changelog

// DropOldest makes room on disk, as far as it is full.
func (l *Log) DropOldest() error { return l.dropOldest() }
