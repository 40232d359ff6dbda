package jsonscan_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/resource/jsonscan"
)

// texts are JSON and what is nearly JSON: each way in which a value can be right or wrong.
var texts = []string{
	`{}`, `[]`, `""`, `0`, `-0`, `10`, `-12.5e+3`, `1E-2`, `true`, `false`, `null`, " \t\r\n{ \"a\" : [ 1 , 2 ] }\n",
	`{"a":{"b":[{"c":[[],{},"",0,true]}]}}`, `["abcdefgh\"ijklmnop\\","01234567","\u00e9\ud83d\ude00é€😀\/\b\f\n\r\t"]`,
	`"` + strings.Repeat("x", 100) + `"`, `"` + strings.Repeat("é", 100) + `"`, `{"a":1,"a":2}`, `{"\u0061":1}`,
	strings.Repeat("[", 200) + strings.Repeat("]", 200), strings.Repeat(`{"a":`, 130) + "1" + strings.Repeat("}", 130),
	strings.Repeat(`[{"a":`, 90) + "[]" + strings.Repeat("}]", 90),
	nested(10_000), nested(10_001),
	``, ` `, `{`, `[`, `"`, `-`, `01`, `1.`, `1.e`, `1e`, `1e+`, `.5`, `+1`, `tru`, `trux`, `nul`, `nulls`, `falsy`, `[1,]`, `[,1]`, `[1 2]`, `{"a"}`,
	`{"a":}`, `{"a":1,}`, `{,}`, `{"a" 1}`, `{a:1}`, `{1:2}`, `[}`, `{]`, `[1}`, `{"a":1]`, `[[]`, `]`, `}`, `,`, `:`, "\"\n\"", "\"\x00\"", "\x00", "[\x00]",
	`"\x"`, `"\u12"`, `"\u12x4"`, `"\ud83d"`, `"\ud83dx"`, `"\ud83d\n"`, `"\ud83d\u0041"`, `"\ude00"`, `"\ude00\udc00"`, `"\ud83d\ud83d"`, `"\ud83d\u`, `"\`, "\"\xff\"", "\"\xc3\"",
	"\"\xe2\x82\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"", "\"\xc0\x80\"", "{\"\xff\":1}", "\"abc\xe2\x82", "\ufeff{}", `[1]x`, `{}{}`, `"a""b"`, "[\"\x7f\"]", "1 ", "[1\v]",
}

// skip walks over one value that must be all there is.
func skip(s *jsonscan.Scanner) (jsonscan.Span, error) {
	at := s.Skip()
	if s.Err() == nil && !s.AtEnd() {
		return at, errors.New("something follows")
	}
	return at, s.Err()
}

// check compares the verdict with that of jsontext, and that the input may come in any pieces.
func check(t *testing.T, raw []byte) {
	t.Helper()
	whole := jsonscan.Of(raw)
	whole.LimitDepth(10_000) // which is all that jsontext accepts
	want, err := skip(&whole)
	if valid := jsontext.Value(raw).IsValid(jsontext.AllowDuplicateNames(true)); valid != (err == nil) && !whole.TooDeep() {
		t.Fatalf("%.200q: %v, but jsontext says %v", raw, err, valid)
	}
	for name, in := range map[string]io.Reader{
		"at once": bytes.NewReader(raw), "byte by byte": iotest.OneByteReader(bytes.NewReader(raw)),
		"in halves": iotest.HalfReader(bytes.NewReader(raw)), "with its end": iotest.DataErrReader(bytes.NewReader(raw)),
	} {
		s := jsonscan.NewReader(in)
		got, readErr := skip(s)
		if (readErr == nil) != (err == nil) || err == nil && got != want {
			t.Fatalf("%.200q, %s: %v, %v; at once %v, %v", raw, name, got, readErr, want, err)
		}
		if err == nil && !bytes.Equal(s.Bytes(got), raw[want.Start:want.End]) {
			t.Fatalf("%.200q, %s: %.200q", raw, name, s.Bytes(got))
		}
		sameError(t, raw, name, readErr, err)
	}
}

// sameError says that an error is at the same place, but that a reader's end is not the fault of
// what it gave.
func sameError(t *testing.T, raw []byte, name string, got, want error) {
	t.Helper()
	place, ok := errors.AsType[*jsonscan.SyntaxError](want)
	if !ok {
		return
	}
	if place.Offset == int64(len(raw)) {
		if !errors.Is(got, io.ErrUnexpectedEOF) {
			t.Fatalf("%.200q, %s: %v where the input ends", raw, name, got)
		}
		return
	}
	if other, ok := errors.AsType[*jsonscan.SyntaxError](got); !ok || other.Offset != place.Offset || !errors.Is(got, jsonscan.ErrSyntax) {
		t.Fatalf("%.200q, %s: %v; at once %v", raw, name, got, want)
	}
}

// The scanner accepts what jsontext accepts.
func TestLikeJsontext(t *testing.T) {
	for _, text := range texts {
		check(t, []byte(text))
	}
	for i := range 20 { // every byte at every place of a word
		for c := range 256 {
			text := []byte(`"abcdefghijklmnopqrst"`)
			text[i+1] = byte(c)
			check(t, text)
		}
	}
	pod := readPod(t)
	const step = 7 // has no common divisor with 8, so that every place in a word has its turn
	for i := 0; i < len(pod); i += step {
		if i%9 == 0 {
			check(t, pod[:i])
		}
		for _, c := range []byte{'"', '\\', '}', ',', 0, 0xff} {
			changed := bytes.Clone(pod)
			changed[i] = c
			s := jsonscan.Of(changed)
			_, err := skip(&s)
			if valid := jsontext.Value(changed).IsValid(jsontext.AllowDuplicateNames(true)); valid != (err == nil) {
				t.Fatalf("byte %d as %q: %v, but jsontext says %v", i, c, err, valid)
			}
		}
	}
}

func FuzzSkip(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text))
	}
	f.Add(readPod(f))
	f.Fuzz(check)
}

// FuzzWalk checks that walking over an object finds the members that jsontext finds, however it
// arrives.
func FuzzWalk(f *testing.F) {
	for _, text := range texts {
		f.Add([]byte(text), 1)
	}
	f.Add([]byte(`{"a":"b","\u0063":[1],"d":{"e":[]} , "f":null}`), 3)
	f.Fuzz(func(t *testing.T, raw []byte, chunk int) {
		got, err := walk(jsonscan.NewReader(&chunks{raw, min(max(chunk, 1), 1<<20)}))
		value := jsontext.Value(raw)
		if valid := value.IsValid(jsontext.AllowDuplicateNames(true)) && value.Kind() == '{'; valid != (err == nil) {
			t.Fatalf("%q: %v, but jsontext says %v", raw, err, valid)
		}
		if err != nil {
			return
		}
		d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true))
		if _, err := d.ReadToken(); err != nil {
			t.Fatal(err)
		}
		var want []string
		for d.PeekKind() != '}' {
			name, _ := d.ReadToken()
			text := name.String()
			value, _ := d.ReadValue()
			want = append(want, text, string(value))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%q: %q, want %q", raw, got, want)
		}
	})
}

func walk(s *jsonscan.Scanner) (got []string, err error) {
	for s.Open('{'); s.Next('}'); {
		got = append(got, string(s.Key()))
		got = append(got, string(s.Bytes(s.Skip())))
		s.Release()
	}
	if s.Err() == nil && !s.AtEnd() {
		return got, errors.New("something follows")
	}
	return got, s.Err()
}

// chunks gives n bytes at a time.
type chunks struct {
	b []byte
	n int
}

func (c *chunks) Read(p []byte) (int, error) {
	if len(c.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.n)], c.b)
	c.b = c.b[n:]
	return n, nil
}

// A reader's error is reported.
func TestReaderError(t *testing.T) {
	broken := errors.New("broken")
	for _, text := range []string{``, `{`, `{"a`, `{"a\`, `{"a":1`, `{"a":tr`, `["é`[:4]} {
		s := jsonscan.NewReader(io.MultiReader(strings.NewReader(text), iotest.ErrReader(broken)))
		if s.Skip(); !errors.Is(s.Err(), broken) {
			t.Errorf("%q: %v", text, s.Err())
		}
	}
}

// The buffer is small again after one large value.
func TestBufferAfterLargeValue(t *testing.T) {
	const large = 4 << 20
	text := `"` + strings.Repeat("x", large) + `" ` + strings.Repeat(`"y" `, 200_000)
	s := jsonscan.NewReader(&chunks{[]byte(text), 16 << 10})
	peak := 0
	for !s.AtEnd() {
		s.Release()
		s.Skip()
		peak = max(peak, s.Buffered())
	}
	if s.Err() != nil || peak > 4*large || s.Buffered() > 128<<10 {
		t.Errorf("%v; a buffer of %d bytes, and %d afterwards", s.Err(), peak, s.Buffered())
	}
}

// TestLargeValueInPieces takes a moment; it would take many minutes if each piece
// began the value again.
func TestLargeValueInPieces(t *testing.T) {
	const pieces = 1 << 18
	for name, text := range map[string]string{
		"strings": `{"a":["` + strings.Repeat(`x","`, 4*pieces) + `"]}`, "one string": `"` + strings.Repeat("x", 16*pieces) + `"`,
		"one number": strings.Repeat("1", 16*pieces) + " ", "whitespace": strings.Repeat(" ", 16*pieces) + "1 ",
	} {
		s := jsonscan.NewReader(&chunks{[]byte(text), 16})
		if s.Skip(); s.Err() != nil {
			t.Errorf("%s: %v", name, s.Err())
		}
	}
}

func readPod(tb testing.TB) []byte {
	tb.Helper()
	raw, err := os.ReadFile("../testdata/pod.json")
	if err != nil {
		tb.Fatal(err)
	}
	return bytes.TrimSpace(raw)
}

func BenchmarkSkip(b *testing.B) {
	pod := readPod(b)
	b.SetBytes(int64(len(pod)))
	b.ReportAllocs()
	for b.Loop() {
		s := jsonscan.Of(pod)
		if s.Skip(); s.Err() != nil {
			b.Fatal(s.Err())
		}
	}
}
