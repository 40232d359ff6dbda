package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Source is where events are read. Bucket, Stream, View and Topics make one.
type Source struct {
	backend backend
	// isState is set where the source holds what exists, and the bridge removes what does not. Else
	// it holds events, from some time on.
	isState bool
}

// String names the source in errors.
func (s Source) String() string { return s.backend.String() }

// backend reads one kind of source.
type backend interface {
	fmt.Stringer
	// extents returns what each partition holds now.
	extents(ctx context.Context) (map[partition]extent, error)
	// open reads each partition from its offset on. now is what the partitions held just before.
	open(ctx context.Context, from readOffsets, now map[partition]extent) (reader, error)
}

// reader reads the messages of a source, in the order of each partition.
type reader interface {
	// next waits for a message. It returns nil when none came for the time quiet.
	next(ctx context.Context) (*message, error)
	// atEnd reports whether everything was returned that was there when the reader was opened.
	atEnd() bool
	close()
}

// quiet is how long a reader waits before the source is checked.
const quiet = 5 * time.Second

// partition is a part of a source that has an order: a partition of a topic, or a whole stream.
type partition struct {
	topic  string // "" for a stream
	number int32
}

// extent is what a partition holds.
type extent struct {
	id          string // another one where the stream or topic was recreated
	first, next int64  // the offsets of the first message, and behind the last one
}

// message is what a partition has at an offset.
type message struct {
	partition partition
	offset    int64
	subject   string // or key
	event     *Event // nil where the message is no event
	err       error  // why the event can't be read
	// removed is the object whose key has lost its value; by its subject where resource is empty.
	removed *removal
}

// removal is a message without a value that is no event: somebody deleted the key.
type removal struct {
	resource schema.GroupResource
	key      string
}

// readOffset is how far a partition was read. A next of 0 is the beginning, wherever that is.
type readOffset struct {
	id   string
	next int64
}

// readOffsets are how far a source was read.
type readOffsets map[partition]readOffset

var (
	errLost  = errors.New("messages that were not read are gone, or the source was recreated")
	errGrown = errors.New("the source has new partitions")
)

// check returns errLost where the partitions do not continue what was read, and errGrown where
// there are more. Where messages may have been received and not yet read, a partition may have
// dropped them: then isDropped is not asked.
func (m readOffsets) check(now map[partition]extent, isDropped bool) error {
	for p, at := range m {
		holds, ok := now[p]
		if !ok || holds.id != at.id || at.next > holds.next ||
			isDropped && at.next > 0 && holds.first > at.next {
			return errLost
		}
	}
	if len(now) > len(m) {
		return errGrown
	}
	return nil
}

// add has new partitions read from their beginning.
func (m readOffsets) add(now map[partition]extent) {
	for p, holds := range now {
		if _, ok := m[p]; !ok {
			m[p] = readOffset{id: holds.id}
		}
	}
}

func (s Source) extents(ctx context.Context) (map[partition]extent, error) {
	now, err := s.backend.extents(ctx)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s, err)
	}
	return now, nil
}

// read calls take with each message behind the offsets, until an error, and moves the offsets. It
// also calls take at the start, and when nothing came for a while and the source was reachable:
// then without a message. The error is errLost or errGrown where the offsets must be compared with
// the source again.
func (s Source) read(
	ctx context.Context, at readOffsets, now map[partition]extent,
	take func(m *message, isAtEnd bool) error,
) error {
	in, err := s.backend.open(ctx, at, now)
	if err != nil {
		return fmt.Errorf("%s: %w", s, err)
	}
	defer in.close()
	if err := take(nil, in.atEnd()); err != nil {
		return err
	}
	for checked := time.Now(); ; {
		m, err := in.next(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
		hasHole := m != nil && !s.isState && at[m.partition].next > 0 &&
			m.offset > at[m.partition].next
		if m == nil || hasHole || time.Since(checked) > quiet {
			now, err := s.extents(ctx)
			if err != nil {
				return err
			}
			if err := at.check(now, !s.isState && (m == nil || hasHole)); err != nil {
				return fmt.Errorf("%s: %w", s, err)
			}
			checked = time.Now()
		}
		if m != nil {
			at[m.partition] = readOffset{id: at[m.partition].id, next: m.offset + 1}
		}
		if err := take(m, in.atEnd()); err != nil {
			return err
		}
	}
}
