package store

import "github.com/cockroachdb/pebble/v2"

// spans ends a sorted table where the bodies begin, and where they end. The bodies of a list come
// in order of their keys, so the tables of one flush follow those of the flush before, and need no
// merging. A table with announcements or records too would overlap all earlier ones, and drag their
// bodies, nine tenths of all bytes, through each compaction of small keys that are soon deleted.
func spans(start []byte) (policy pebble.SpanPolicy, end []byte, err error) {
	switch {
	case len(start) == 0 || start[0] < spaceBody:
		return policy, []byte{spaceBody}, nil
	case start[0] == spaceBody:
		return policy, []byte{spaceBody + 1}, nil
	default:
		return policy, nil, nil
	}
}
