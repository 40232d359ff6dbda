package resource_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
)

// writes are those of some entries of one second, each of its manager, operation, subresource and
// apiVersion.
func writes(at string, entries ...[4]string) (w resource.Writes) {
	for _, e := range entries {
		w += resource.Writes(strings.Join(e[:], "\x00") + "\x00" + at + "\x00\x00")
	}
	return w
}

// withoutFields leaves the fieldsV1 of the entries out.
func withoutFields(w resource.Writes) resource.Writes {
	texts := strings.Split(string(w), "\x00")
	for i := 5; i < len(texts); i += 6 {
		texts[i] = ""
	}
	return resource.Writes(strings.Join(texts, "\x00"))
}

const second = "2020-01-01T00:00:"

// entry of the managedFields in JSON: "name at" or "name/subresource at".
func entryJSON(text string) string {
	name, at, _ := strings.Cut(text, " ")
	name, subresource, _ := strings.Cut(name, "/")
	if at != "" {
		at = `"time":"` + second + at + `Z",`
	}
	return `{"manager":"` + name + `","operation":"Update","apiVersion":"v1",` + at +
		`"fieldsType":"FieldsV1","fieldsV1":{"f:spec":{}},"subresource":"` + subresource + `"}`
}

func written(t *testing.T, fields string) resource.Writes {
	t.Helper()
	var entries []string
	for text := range strings.SplitSeq(fields, ", ") {
		if text != "" {
			entries = append(entries, entryJSON(text))
		}
	}
	return managed(t, strings.Join(entries, ","))
}

func managed(t *testing.T, entries string) resource.Writes {
	t.Helper()
	return mustParse(t, `{"metadata":{"name":"a","resourceVersion":"5","managedFields":[`+entries+`]}}`, resource.ParseOptions{}).Writes
}

func TestWrites(t *testing.T) {
	for _, tt := range []struct{ name, versions, by string }{
		{"a newer second", "a 01; a 01, b 02", "b"},
		{"a newer second, in front", "a 01; b 02, a 01", "b"},
		{"the same manager, later", "a 01, b 02; a 03, b 02", "a"},
		{"of a subresource", "a 01; a 01, a/status 02", "a/status"},
		{"two entries of a newer second", "a 01; a 01, b 02, c 02", ""},
		{"nothing new: fields were only removed", "a 01, b 02; a 01, b 02", ""},
		{"nothing new, in another order", "a 02, b 02; b 02, a 02", ""},
		{"one more in the same second", "a 01; a 01, b 01", "b"},
		{"one more in the same second that had an older entry", "a 02, b 01; b 02, a 02", "b"},
		{"a third in the same second", "a 01, b 01; a 01, b 01, c 01", "c"},
		{"the same manager again in the same second", "a 01, b 01; a 01, b 01", ""},
		{"another subresource in the same second", "a 01; a 01, a/status 01", "a/status"},
		{"one more and one less in the same second", "a 01; b 01", "b"},
		{"an entry that is gone", "a 01, b 01; a 01", ""},
		{"a clock that is behind", "a 05; a 05, b 04", "b"},
		{"one without a time", "a 01; a 01, b/scale", "b/scale"},
		{"one without a time that was there", "a 01, b/scale; a 01, b/scale", ""},
		{"beside an entry of the future", "a 59, b 01; a 59, b 02", "b"},
		{"nothing is known before", "; a 01", ""},
		{"one of many", "a 01, b 02, c 03, d 04, e 05, f 06, g 07, h 08; a 01, b 02, c 03, d 04, e 05, f 06, g 07, h 09", "h"},
		{"the oldest of many", "a 01, b 02, c 03, d 04, e 05, f 06, g 07, h 08; a 09, b 02, c 03, d 04, e 05, f 06, g 07, h 08", "a"},
		{"none of many", "a 01, b 02, c 03, d 04, e 05, f 06, g 07, h 08, i; i, a 01, b 02, c 03, d 04, e 05, f 06, g 07, h 08", ""},
		{"beside what the API server has gathered", "a 01; ancient-changes 01, b 02, a 01", "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			old, next, _ := strings.Cut(tt.versions, "; ")
			by, n := written(t, next).Since(written(t, old).After(nil))
			name, subresource, _ := strings.Cut(tt.by, "/")
			if isOne := n == 1; isOne != (name != "") || isOne && (by.Manager != name || by.Subresource != subresource) {
				t.Errorf("%d new, %+v, want %q", n, by, tt.by)
			}
			if name != "" && by.Operation != "Update" {
				t.Errorf("operation %q", by.Operation)
			}
		})
	}
}

// The last setter stays known until another value is set.
func TestLastSetter(t *testing.T) {
	first, next := written(t, "a 01, b 02"), written(t, "b 02, a 01, c 01")
	by, _ := first.Since(written(t, "a 01").After(nil))
	last, ok := next.LastSetter(first.After(&by))
	if !ok || last.Manager != "b" {
		t.Errorf("%+v, %t", last, ok)
	}
	if last, ok := next.LastSetter(first.After(nil)); ok {
		t.Errorf("%+v, and none is known", last)
	}
	if last, ok := written(t, "a 01").LastSetter(first.After(&by)); ok {
		t.Errorf("%+v, and its entry is gone", last)
	}
}

// Entries whose time is none have no time, and are entries.
func TestTimesOfEntries(t *testing.T) {
	for name, entry := range map[string]string{
		"without a time":                `{"manager":"a"}`,
		"in another zone":               `{"manager":"a","time":"2020-01-01T09:00:00+01:00"}`,
		"with a fraction":               `{"manager":"a","time":"2020-01-01T09:00:00.5Z"}`,
		"what only looks like a time":   `{"manager":"a","time":"2020-01-01T99:00:00Z"}`,
		"of another type than a string": `{"manager":"a","time":null}`,
	} {
		t.Run(name, func(t *testing.T) {
			if by, ok := managed(t, entry).Sole(); !ok || by.Manager != "a" || !by.Time.IsZero() {
				t.Errorf("%+v, %t", by, ok)
			}
		})
	}
	t.Run("a name with a zero byte is nobody's", func(t *testing.T) {
		w := managed(t, `{"manager":"a\u0000b","time":"2020-01-01T00:00:02Z"}`)
		if by, ok := w.Sole(); ok {
			t.Errorf("written by %+v", by)
		}
	})
}

func TestNewestWrite(t *testing.T) {
	if got := written(t, "a 01, b 02, c").Newest(); !got.Equal(time.Date(2020, 1, 1, 0, 0, 2, 0, time.UTC)) {
		t.Errorf("written at %s", got)
	}
	if got := written(t, "").Newest(); !got.IsZero() {
		t.Errorf("no entry, and written at %s", got)
	}
}
