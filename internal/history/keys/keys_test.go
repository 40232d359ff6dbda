package keys

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"
)

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
			s := ParseSequence(a, versions[i], strings.HasSuffix(a, ".deleted"))
			key := s.Append(nil)
			if bytes.Compare(last, key) >= 0 {
				t.Errorf("%s is not behind the one before", a)
			}
			back, ok := DecodeSequence(key)
			if !ok || back != s || s.String() != a || s.ResourceVersion() != versions[i] {
				t.Errorf("%s: %v, %v, %s", a, ok, back, s)
			}
			last = key
		}
	})
	t.Run("a version that is no number stays as it is", func(t *testing.T) {
		for _, version := range []string{"abc", "007", "99999999999999999999999", "-"} {
			s := ParseSequence("00000000."+version, version, false)
			if back, ok := DecodeSequence(s.Append(nil)); !ok || back.ResourceVersion() != version {
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
			if s, ok := DecodeSequence(b); ok && !bytes.Equal(s.Append(nil), b) {
				t.Fatalf("%x is read as %v, which is %x", b, s, s.Append(nil))
			}
			_, _ = DecodeEntry(b)
		}
	})
	t.Run("an entry of the timeline is read as it was written", func(t *testing.T) {
		e := Entry{3, "shop", 1 << 30, 77, 5, "web", Sequence{Era: 1, Version: 77, Deleted: true}}
		key := e.Append(nil)
		if got, ok := DecodeEntry(key); !ok || got != e {
			t.Errorf("%v, %v", got, ok)
		}
		if bucket := binary.BigEndian.Uint32(key[5:]); bucket != (1<<30)/BucketSeconds {
			t.Errorf("bucket %d", bucket)
		}
	})
}
