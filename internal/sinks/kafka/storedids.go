package kafka

import "github.com/kubebridge/bridge/internal/sinks"

// maxStoredIDs bounds the ids that a lane remembers: records that others write to the topic may
// look like its own.
const maxStoredIDs = 100_000

// storedIDs are the ids of messages that are stored, and that callers will send again because they
// got no answer. Whoever holds the lane owns them.
type storedIDs struct {
	inOrder  []string // of pending batches: they come first and in order, see skipInOrder
	anyOrder map[string]bool
}

// addInOrder adds the messages of a batch that an earlier call left pending.
func (s *storedIDs) addInOrder(ids []string) { s.inOrder = append(s.inOrder, ids...) }

// add adds messages that may come at any time. Those beyond the bound are stored twice, with the
// same ids.
func (s *storedIDs) add(ids ...string) {
	if s.anyOrder == nil {
		s.anyOrder = make(map[string]bool, len(ids))
	}
	for _, id := range ids {
		if len(s.anyOrder) < maxStoredIDs {
			s.anyOrder[id] = true
		}
	}
}

// skip answers the messages that are known to be stored, and returns the others.
func (s *storedIDs) skip(messages []*sinks.Message) []*sinks.Message {
	return s.skipAnyOrder(s.skipInOrder(messages))
}

// skipInOrder answers the messages of pending batches. They come first and in order where callers
// send unanswered messages again before any other of the lane. Dead letters have several senders,
// so theirs may come later.
func (s *storedIDs) skipInOrder(messages []*sinks.Message) []*sinks.Message {
	for len(s.inOrder) > 0 && len(messages) > 0 {
		if s.inOrder[0] != messages[0].Event.MessageID() {
			s.add(s.inOrder...)
			s.inOrder = nil
			break
		}
		messages[0].Err = nil
		s.inOrder, messages = s.inOrder[1:], messages[1:]
	}
	return messages
}

// skipAnyOrder answers the other messages that are stored. A message with a Run must be stored
// again.
func (s *storedIDs) skipAnyOrder(messages []*sinks.Message) []*sinks.Message {
	if len(s.anyOrder) == 0 {
		return messages
	}
	left := make([]*sinks.Message, 0, len(messages))
	for _, m := range messages {
		if id := m.Event.MessageID(); s.anyOrder[id] && m.Event.Run == "" {
			delete(s.anyOrder, id)
			m.Err = nil
		} else {
			left = append(left, m)
		}
	}
	return left
}
