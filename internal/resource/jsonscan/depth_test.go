package jsonscan_test

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/kubebridge/bridge/internal/resource/jsonscan"
)

// nested is arrays within arrays.
func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

func TestDepth(t *testing.T) {
	const limit = 1000
	for _, levels := range []int{1, 63, 64, 65, limit - 1, limit, limit + 1, limit + 2, 10_001, 1 << 20} {
		for _, around := range []int{0, 1, 2} { // arrays that are open before
			s := jsonscan.NewReader(&chunks{[]byte(strings.Repeat("[", around) + nested(levels) + strings.Repeat("]", around)), 512})
			for range around {
				s.Open('[')
				s.Next(']')
			}
			s.LimitDepth(limit)
			s.Skip()
			if tooDeep := levels > limit; s.Err() != nil || s.TooDeep() != tooDeep {
				t.Errorf("%d levels in %d: %v, too deep: %t", levels, around, s.Err(), s.TooDeep())
			}
			for range around {
				s.Next(']')
			}
			if !s.AtEnd() || s.Err() != nil {
				t.Errorf("%d levels in %d: %v at the end", levels, around, s.Err())
			}
		}
	}
	t.Run("what would need more than 2 MiB of bits is no JSON", func(t *testing.T) {
		s := jsonscan.Of([]byte(nested(1<<24 + 1)))
		if s.Skip(); !errors.Is(s.Err(), jsonscan.ErrSyntax) {
			t.Error(s.Err())
		}
	})
}

func TestDrop(t *testing.T) {
	dropped := []string{
		`{}`, `{"a":"}"}`, `{"a":"\"}","b":{"}":["]",{}]}}`, `{"a\\":"\\"}`, `{"a":` + nested(20_000) + `}`,
		`{"a":"` + strings.Repeat("x", 300_000) + `"}`,
	}
	for _, object := range dropped {
		for name, in := range map[string]func(io.Reader) io.Reader{"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader} {
			s := jsonscan.NewReader(in(strings.NewReader(`{"before":1,"object":` + object + `,"behind":[2]}`)))
			s.Open('{')
			for s.Next('}') {
				if string(s.Key()) != "object" {
					s.Skip()
					continue
				}
				s.Peek()
				start, level := s.Pos(), s.Level()
				s.Open('{') // and then the walk ends half-way
				s.Fail(errors.New("too large"))
				if !s.Drop(start, level) || s.Buffered() > 256<<10 {
					t.Errorf("%.50s %s: %v, %d bytes of buffer", object, name, s.Err(), s.Buffered())
				}
			}
			if !s.AtEnd() || s.Err() != nil {
				t.Errorf("%.50s %s: %v", object, name, s.Err())
			}
		}
	}
	t.Run("of an object that does not end", func(t *testing.T) {
		s := jsonscan.NewReader(bytes.NewReader([]byte(`{"a":"}`)))
		if s.Drop(0, 0) || !errors.Is(s.Err(), io.ErrUnexpectedEOF) {
			t.Error(s.Err())
		}
	})
}
