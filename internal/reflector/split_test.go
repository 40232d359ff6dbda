package reflector_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/kubebridge/bridge/internal/reflector"
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/testkit"
)

const testLimit = 1 << 16

func TestVersion(t *testing.T) {
	long := strings.Repeat("1", resource.MaxIdentity+1)
	_, err := frames([]byte(`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"`+
		long+`"}}}`), 64)
	if !errors.Is(err, resource.ErrVersion) || !reflector.IsUnreadable(err) {
		t.Errorf("a bookmark: %v", err)
	}
	_, _, err = reflector.EachItem(strings.NewReader(`{"metadata":{"resourceVersion":"`+
		long+`"},"items":[]}`), testLimit, nil)
	if !errors.Is(err, resource.ErrVersion) || !reflector.IsUnreadable(err) {
		t.Errorf("a list: %v", err)
	}
	version, _, err := reflector.EachItem(strings.NewReader(`{"metadata":{"resourceVersion":"`+
		long[1:]+`"},"items":[]}`), testLimit, nil)
	if err != nil || string(version) != long[1:] {
		t.Errorf("one of 255 bytes: %v", err)
	}
}

func frames(raw []byte, chunk int) (got []string, err error) {
	err = reflector.EachFrame(reflector.Chunks(raw, chunk), testLimit, resource.ParseOptions{},
		func(f reflector.Frame) {
			line := string(f.Event) + " " + string(f.Version)
			if f.Object != nil {
				line += string(f.Object.Key()) + "@" + string(f.Object.Version) + " " +
					string(f.Object.Raw)
			}
			got = append(got, line)
		})
	return got, err
}

// FuzzFrames checks that a watch's answer is split in the same way however it arrives, and cut
// anywhere gives a beginning of the same frames.
func FuzzFrames(f *testing.F) {
	const object = `{"kind":"Pod","metadata":{"name":"a","resourceVersion":"98"}}`
	f.Add([]byte(`{"type":"ADDED","object":`+object+"}\n"+`{"object":`+object+`,"type":"DELETED"}`),
		uint16(40))
	f.Add([]byte(`{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"5","annotations":{"k8s.io/initial-events-end":"true"}}}}`), uint16(9))
	f.Add([]byte(`{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}} {"type":"X","object":1}`), uint16(70))
	f.Add([]byte("{\n \"type\" : \"MODIFIED\" ,\n \"object\" : "+object+"\n}\n"), uint16(3))
	f.Fuzz(func(t *testing.T, raw []byte, cut uint16) {
		if len(raw) > testLimit/2 {
			return
		}
		whole, err := frames(raw, len(raw)+1)
		if errors.Is(err, reflector.ErrFrameTooLarge) {
			t.Fatalf("%d bytes are too large", len(raw))
		}
		slow, slowErr := frames(raw, 1)
		if !slices.Equal(whole, slow) ||
			reflector.IsUnreadable(err) != reflector.IsUnreadable(slowErr) ||
			reflector.IsCut(err) != reflector.IsCut(slowErr) {
			t.Fatalf("at once: %q, %v\nby bytes: %q, %v", whole, err, slow, slowErr)
		}
		asJsontext(t, raw, whole, err)
		half, halfErr := frames(raw[:min(int(cut), len(raw))], 7)
		if len(half) > len(whole) || !slices.Equal(half, whole[:len(half)]) {
			t.Fatalf("cut: %q\nwhole: %q", half, whole)
		}
		if errors.Is(err, io.EOF) && reflector.IsUnreadable(halfErr) {
			t.Fatalf("half of what is readable is taken for unreadable: %v", halfErr)
		}
	})
}

// lowerHalf is the lower half of a surrogate pair near the end. Without the upper one it is a
// mistake. jsontext waits for as much as a pair takes before it looks.
var lowerHalf = regexp.MustCompile(`(?s)\\u[dD][c-fC-F][0-9a-fA-F]{2}.{0,5}$`)

// asJsontext checks that jsontext finds the same frames, and where theirs end, a mistake in the
// same one.
func asJsontext(t *testing.T, raw []byte, got []string, err error) {
	t.Helper()
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true))
	for _, line := range got {
		value, err := d.ReadValue()
		if err != nil {
			t.Fatalf("%q\nof %q: jsontext says %v", line, raw, err)
		}
		var frame struct {
			Type   string
			Object json.RawMessage
		}
		if json.Unmarshal(value, &frame) != nil || line[:len(frame.Type)] != frame.Type {
			t.Fatalf("%q\nof %q", line, value)
		}
		if obj, err := resource.Parse(frame.Object, resource.ParseOptions{}); err == nil &&
			frame.Type != "BOOKMARK" && frame.Type != "ERROR" {
			if want := frame.Type + " " + string(obj.Key()) + "@" + string(obj.Version) + " " +
				string(obj.Raw); line != want {
				t.Fatalf("%q\nwant %q", line, want)
			}
		}
	}
	_, wantErr := d.ReadValue()
	_, syntax := errors.AsType[*jsontext.SyntacticError](wantErr)
	cut := errors.Is(wantErr, io.ErrUnexpectedEOF)
	if cut && errors.Is(err, resource.ErrSyntax) && lowerHalf.Match(raw) {
		return
	}
	if errors.Is(err, resource.ErrSyntax) != (syntax && !cut) && !reflector.IsUnexpected(err) ||
		reflector.IsCut(err) != cut && !reflector.IsUnreadable(err) {
		t.Fatalf("%q: %v, but jsontext says %v", raw, err, wantErr)
	}
}

// FuzzList checks that a list is split as encoding/json reads it.
func FuzzList(f *testing.F) {
	f.Add([]byte(`{"kind":"PodList","metadata":{"resourceVersion":"5","continue":"t"},"items":[{"a":1},{"b":[2]}]}`))
	f.Add([]byte(`{"apiVersion":"v1","items":[1,"x",null],"kind":"WidgetList","metadata":{"resourceVersion":"5"}}` + "\n"))
	f.Add([]byte(`{"items":null,"metadata":{"resourceVersion":"5"}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		if len(raw) > testLimit/2 {
			return
		}
		var got []string
		version, token, err := reflector.EachItem(reflector.Chunks(raw, 5), testLimit,
			func(item []byte) error {
				got = append(got, string(item))
				return nil
			})
		if err != nil {
			return
		}
		if !jsontext.Value(raw).IsValid(jsontext.AllowDuplicateNames(true)) {
			t.Fatalf("%s was taken for a list", raw)
		}
		if !jsontext.Value(raw).IsValid() {
			return // encoding/json merges what comes twice
		}
		var members map[string]json.RawMessage // by exact name
		var want []json.RawMessage
		if err := errors.Join(json.Unmarshal(raw, &members), json.Unmarshal(members["items"],
			&want)); err != nil {
			t.Fatalf("encoding/json: %v", err)
		}
		same := slices.EqualFunc(got, want,
			func(a string, b json.RawMessage) bool { return a == string(b) })
		var meta struct{ ResourceVersion, Continue string }
		_ = json.Unmarshal(members["metadata"], &meta)
		if !same || string(version) != meta.ResourceVersion || token != meta.Continue {
			t.Fatalf("%q %s %s\nof %s", got, version, token, raw)
		}
	})
}

// A frame may be as large as the limit, and no larger.
func TestFrameLimit(t *testing.T) {
	for _, extra := range []int{0, 1} {
		object := `{"metadata":{"name":"a","resourceVersion":"98"},"x":""}`
		object = strings.Replace(object, `""`, `"`+strings.Repeat("x", testLimit-len(object)+extra)+
			`"`, 1)
		frame := `{"type":"ADDED","object":` + object + `}`
		for _, chunk := range []int{1, 4096, 1 << 20} {
			got, err := frames([]byte(frame+frame), chunk)
			if extra == 0 && (len(got) != 2 || !errors.Is(err, io.EOF)) {
				t.Errorf("%d bytes in chunks of %d: %d frames, %v", len(object), chunk, len(got),
					err)
			}
			if extra == 1 && (len(got) != 0 || !errors.Is(err, reflector.ErrFrameTooLarge) ||
				!reflector.IsUnreadable(err)) {
				t.Errorf("%d bytes in chunks of %d: %d frames, %v", len(object), chunk, len(got),
					err)
			}
		}
	}
}

// A stream may be cut anywhere.
func TestCutStream(t *testing.T) {
	frame := `{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"98"}}}` + "\n"
	for n := range len(frame) - 1 {
		got, err := frames([]byte(frame[:n]), 10)
		if n == 0 && !errors.Is(err, io.EOF) || n > 0 && !reflector.IsCut(err) || len(got) != 0 {
			t.Errorf("cut after %d bytes: %q, %v", n, got, err)
		}
	}
}

func readPod(tb testing.TB) []byte {
	tb.Helper()
	raw, err := os.ReadFile("../resource/testdata/pod.json")
	if err != nil {
		tb.Fatal(err)
	}
	return bytes.TrimSpace(raw)
}

// repeat reads one text over and over.
type repeat struct {
	text []byte
	at   int
	left int
}

func (r *repeat) Read(p []byte) (int, error) {
	if r.left == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.text[r.at:])
	if r.at += n; r.at == len(r.text) {
		r.at = 0
		r.left--
	}
	return n, nil
}

func podFrame(tb testing.TB) []byte {
	return append(append([]byte(`{"type":"MODIFIED","object":`), readPod(tb)...), "}\n"...)
}

// A frame costs three allocations.
func TestFrameAllocations(t *testing.T) {
	const n = 1000
	frame := podFrame(t)
	perRun := testing.AllocsPerRun(5, func() {
		err := reflector.EachFrame(&repeat{text: frame, left: n}, 1<<20,
			resource.ParseOptions{Type: pods}, func(reflector.Frame) {})
		if !errors.Is(err, io.EOF) {
			t.Fatal(err)
		}
	})
	if got := perRun / n; got > 3.1 {
		t.Errorf("%.2f allocations for each frame", got)
	}
}

func BenchmarkFrame(b *testing.B) {
	frame := podFrame(b)
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	b.ResetTimer()
	err := reflector.EachFrame(&repeat{text: frame, left: b.N}, 1<<20,
		resource.ParseOptions{Type: pods}, func(reflector.Frame) {})
	if !errors.Is(err, io.EOF) {
		b.Fatal(err)
	}
}

// BenchmarkWideFrame has a large frame among many small ones, as the API server sends them.
func BenchmarkWideFrame(b *testing.B) {
	frame := []byte(`{"type":"MODIFIED","object":`)
	frame = append(append(frame, testkit.Wide(30_000, 1, true)...), "}\n"...)
	for range 50 {
		frame = append(frame, `{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":`+
			`{"name":"a","namespace":"b","uid":"c","resourceVersion":"5"}}}`+"\n"...)
	}
	b.SetBytes(int64(len(frame)))
	b.ReportAllocs()
	b.ResetTimer()
	configMaps := resource.Type{Version: "v1", Resource: "configmaps", Kind: "ConfigMap", Namespaced: true}
	err := reflector.EachFrame(&inParts{&repeat{text: frame, left: b.N}}, 4<<20,
		resource.ParseOptions{Type: configMaps}, func(reflector.Frame) {})
	if !errors.Is(err, io.EOF) {
		b.Fatal(err)
	}
}

// inParts reads no more at once than a frame of HTTP/2 has.
type inParts struct{ io.Reader }

func (r *inParts) Read(p []byte) (int, error) { return r.Reader.Read(p[:min(len(p), 16<<10)]) }

func BenchmarkPageOf500(b *testing.B) {
	var list bytes.Buffer
	list.WriteString(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[`)
	pod := readPod(b)
	for i := range 500 {
		if i > 0 {
			list.WriteByte(',')
		}
		list.Write(pod)
	}
	list.WriteString("]}")
	opts := resource.ParseOptions{Type: pods}
	b.SetBytes(int64(list.Len()))
	b.ReportAllocs()
	for b.Loop() {
		items := 0
		err := reflector.EachObject(bytes.NewReader(list.Bytes()), 1<<20, opts,
			func(*resource.Object) { items++ })
		if err != nil || items != 500 {
			b.Fatal(items, err)
		}
	}
}
