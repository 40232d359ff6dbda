package resource

import (
	"iter"

	"github.com/kubebridge/bridge/internal/resource/jsonscan"
)

// Members yields the members of a JSON object in their order: names unescaped, values as they
// stand. Of anything else, and of bytes that are no valid JSON, it yields what comes before the
// mistake. A name may share memory with raw.
func Members(raw []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		s := jsonscan.Of(raw)
		for s.Open('{'); s.Next('}'); {
			name := s.Key()
			at := s.Skip()
			if s.Err() != nil || !yield(view(name), s.Bytes(at)) {
				return
			}
		}
	}
}

// Member is the value of a member of a JSON object, nil when there is none.
func Member(raw []byte, name string) []byte {
	for found, value := range Members(raw) {
		if found == name {
			return value
		}
	}
	return nil
}
