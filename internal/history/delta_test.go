package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestDelta(t *testing.T) {
	pod := []byte(`{"metadata":{"name":"web","resourceVersion":"1041"},"status":{"phase":"Pending","conditions":[` +
		strings.Repeat(`{"type":"Ready","status":"False"},`, 40) + `{}]}}`)
	for name, text := range map[string][]byte{
		"the same":                    pod,
		"nothing":                     {},
		"a value of the same length":  bytes.Replace(pod, []byte("1041"), []byte("1042"), 1),
		"a longer value":              bytes.Replace(pod, []byte("Pending"), []byte("Running for long"), 1),
		"something behind":            append(bytes.Clone(pod), `more`...),
		"something before":            append([]byte(`much more than before`), pod...),
		"less":                        pod[20:200],
		"something else":              []byte(strings.Repeat("x", 1000)),
		"parts in another order":      append(bytes.Clone(pod[300:]), pod[:300]...),
		"shorter than what is hashed": []byte("abc"),
	} {
		t.Run("makes "+name, func(t *testing.T) {
			var d deltaEncoder
			delta := d.append(nil, pod, text)
			got, err := applyDelta(nil, pod, delta, len(text))
			if err != nil || !bytes.Equal(got, text) {
				t.Fatalf("%v, %q", err, got)
			}
		})
	}
	t.Run("a changed value costs little more than its bytes", func(t *testing.T) {
		var d deltaEncoder
		text := bytes.Replace(pod, []byte("Pending"), []byte("Running for long"), 1)
		text = bytes.Replace(text, []byte("1041"), []byte("1042"), 1)
		if delta := d.append(nil, pod, text); len(delta) > 40 {
			t.Errorf("%d bytes", len(delta))
		}
	})
}

// FuzzDelta: what was made of two texts gives the second one, and what somebody else wrote gives an
// error or a text of the length that was asked for.
func FuzzDelta(f *testing.F) {
	f.Add([]byte("the first version of it"), []byte("the second version of it, longer"), []byte{3, 'a', 'b', 'c', 4, 0})
	f.Add([]byte(strings.Repeat("0123456789", 20)), []byte(strings.Repeat("012345678", 20)), []byte{0, 200, 1, 0})
	var d deltaEncoder
	f.Fuzz(func(t *testing.T, base, text, garbage []byte) {
		got, err := applyDelta(nil, base, d.append(nil, base, text), len(text))
		if err != nil || !bytes.Equal(got, text) {
			t.Fatalf("%v, %q instead of %q", err, got, text)
		}
		const length = 300
		if got, err := applyDelta(nil, base, garbage, length); err == nil && len(got) != length || err != nil && !errors.Is(err, errDelta) {
			t.Fatalf("%d bytes, %v", len(got), err)
		}
	})
}

func FuzzRecord(f *testing.F) {
	u := &Unit{Number: 1, Source: "/clusters/prod", Informer: "i", Resource: "pods"}
	f.Add([]byte{storedWhole, 1, 2, 0, 0, 7, 1, 'u', 0, '{', '}'})
	f.Add([]byte{storedDelta, 1, 2, 0, 1, 0, 0, 0, 0, 5, 0, 5, 0})
	f.Fuzz(func(t *testing.T, value []byte) {
		h, err := readHeader(value)
		if err != nil {
			return
		}
		text := h.payload
		if h.kind == storedDelta {
			h.length = min(h.length, 1<<16)
			if text, err = h.apply(nil, []byte("a base of some length")); err != nil {
				return
			}
		}
		_, _ = versionOf(u, "shop", "web", sequence{version: 4}, h, text, "3") // it must not panic
		dataOf(text)
	})
}

func TestSequence(t *testing.T) {
	t.Run("its bytes sort as the attribute does", func(t *testing.T) {
		attributes := []string{
			"00000000.00000000000000000007", "00000000.00000000000000000007.deleted",
			"00000000.00000000000000000012",
			"00000000.entered.00000000000000000009.00000000000000000007",
			"00000000.entered.00000000000000000009.00000000000000000007.deleted",
			"00000001.00000000000000000003",
		}
		versions := []string{"7", "7", "12", "7", "7", "3"}
		var last []byte
		for i, a := range attributes {
			s := parseSequence(a, versions[i], strings.HasSuffix(a, ".deleted"))
			key := s.append(nil)
			if bytes.Compare(last, key) >= 0 {
				t.Errorf("%s is not behind the one before", a)
			}
			back, ok := decodeSequence(key)
			if !ok || back != s || s.String() != a || s.resourceVersion() != versions[i] {
				t.Errorf("%s: %v, %v, %s", a, ok, back, s)
			}
			last = key
		}
	})
	t.Run("a version that is no number stays as it is", func(t *testing.T) {
		for _, version := range []string{"abc", "007", "99999999999999999999999", "-"} {
			s := parseSequence("00000000."+version, version, false)
			if back, ok := decodeSequence(s.append(nil)); !ok || back.resourceVersion() != version {
				t.Errorf("%s: %v, %v", version, back, ok)
			}
		}
	})
	t.Run("any key is a sequence or none", func(t *testing.T) {
		random := rand.New(rand.NewPCG(1, 2))
		for range 10_000 {
			b := make([]byte, random.IntN(30))
			for i := range b {
				b[i] = byte(random.IntN(4))
			}
			if s, ok := decodeSequence(b); ok && !bytes.Equal(s.append(nil), b) {
				t.Fatalf("%x is read as %v, which is %x", b, s, s.append(nil))
			}
			_, _ = decodeTimeline(b)
		}
	})
	t.Run("an entry of the timeline is read as it was written", func(t *testing.T) {
		e := timelineEntry{3, "shop", 1 << 30, 77, 5, "web", sequence{era: 1, version: 77, deleted: true}}
		key := e.append(nil)
		if got, ok := decodeTimeline(key); !ok || got != e {
			t.Errorf("%v, %v", got, ok)
		}
		if bucket := binary.BigEndian.Uint32(key[5:]); bucket != (1<<30)/bucketSeconds {
			t.Errorf("bucket %d", bucket)
		}
	})
}
