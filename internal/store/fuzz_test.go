package store

import (
	"bytes"
	"testing"

	"github.com/klauspost/compress/s2"

	"github.com/kubebridge/bridge/internal/resource"
)

// FuzzStored reads what the state directory holds, as a value and as the end of a key. What can be
// read is written again as it was.
func FuzzStored(f *testing.F) {
	record := Record{
		UID: "7d4a", Version: "123", Deleted: true,
		Written: resource.Written{Floor: 5, Marks: [6]uint32{2, 3}}, EventTime: 9,
	}
	f.Add(record.append(nil))
	f.Add(Record{UID: "7d4a", Version: "9"}.append(nil))
	f.Add(Namespace{State: resource.NamespaceIn, Entered: "7", AsOf: "9"}.append(nil))
	f.Add(codec{}.encode(nil, []byte(`{"metadata":{"name":"web"}}`)))
	key := announcementKey(1, "shop/a\x00b", &announcement{uid: "7d4a", again: "3"})
	f.Add(key[len(prefix(spaceAnnounced, 1)):])
	f.Add([]byte{0, 255, 'x'})
	f.Fuzz(func(t *testing.T, data []byte) {
		requireSame(t, data)
		for _, uid := range []string{"", "7d4a"} {
			if a, body, err := parseAnnouncement(uid, data); err == nil && a.uid != uid ||
				len(body) > len(data) {
				t.Errorf("an announcement of %q with a body of %d bytes", a.uid, len(body))
			}
		}
		if len(data) > 0 {
			if n, err := s2.DecodedLen(data[1:]); err == nil && n > 1<<20 && n <= maxBody {
				return // allocating takes longer than most executions
			}
		}
		if raw, err := (codec{}).decode(data); err == nil && len(raw) > maxBody {
			t.Errorf("a body has %d bytes", len(raw))
		}
	})
}

// requireSame writes again what can be read.
func requireSame(t *testing.T, data []byte) {
	t.Helper()
	if r, err := parseRecord(data); err == nil {
		// flagWritten without anything that was written is read, and not written
		if again, err := parseRecord(r.append(nil)); err != nil || again != r {
			t.Errorf("the record %+v is read again as %+v (%v)", r, again, err)
		}
	}
	if n, ok := parseNamespace(data); ok {
		if again := n.append(nil); !bytes.Equal(again, data) {
			t.Errorf("the namespace %+v is %x, was %x", n, again, data)
		}
	}
	key, uid, again, err := splitAnnouncementKey(data)
	if err != nil {
		return
	}
	full := announcementKey(1, key, &announcement{uid: uid, again: again})
	if tail := full[len(prefix(spaceAnnounced, 1)):]; !bytes.Equal(tail, data) {
		t.Errorf("the key of %q, %q, %q is %x, was %x", key, uid, again, tail, data)
	}
}
