package resource

import "iter"

// Members yields the members of a JSON object in their order: names unescaped, values as they stand. Of anything else, and of bytes
// that are no valid JSON, it yields what comes before the mistake. A name may share memory with raw.
func Members(raw []byte) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		s := scanner{b: raw}
		for s.open('{'); s.next('}'); {
			name := s.key()
			at := s.skip()
			if s.err != nil || !yield(view(name), raw[at.start:at.end]) {
				return
			}
		}
	}
}

// Items yields the items of a JSON array, as Members does those of an object.
func Items(raw []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		s := scanner{b: raw}
		for s.open('['); s.next(']'); {
			at := s.skip()
			if s.err != nil || !yield(raw[at.start:at.end]) {
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
