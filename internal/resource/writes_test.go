package resource_test

import (
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
)

// writes are those of some entries of one second, each of its manager, operation, subresource and
// apiVersion.
func writes(at string, entries ...[4]string) resource.Writes {
	second, err := time.Parse(time.RFC3339, at)
	if err != nil {
		return resource.Writes{}
	}
	w := resource.Writes{At: uint32(second.Unix())}
	for _, e := range entries {
		w.Entries += strings.Join(e[:], "\x00") + "\x00"
	}
	return w
}

const second = "2020-01-01T00:00:"

// entry of the managedFields in JSON: "name at" or "name/subresource at".
func entryJSON(text string) string {
	name, at, _ := strings.Cut(text, " ")
	name, subresource, _ := strings.Cut(name, "/")
	return `{"manager":"` + name + `","operation":"Update","apiVersion":"v1","time":"` + second + at + `Z",` +
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
		{"a first version with one entry", "a 01", "a"},
		{"a first version with two", "a 01, b 01", ""},
		{"no entry at all", "; ", ""},
		{"a newer second", "a 01; a 01, b 02", "b"},
		{"a newer second, in front", "a 01; b 02, a 01", "b"},
		{"the same manager, later", "a 01, b 02; a 03, b 02", "a"},
		{"of a subresource", "a 01; a 01, a/status 02", "a/status"},
		{"two entries of a newer second", "a 01; b 02, c 02", ""},
		{"nothing new: fields were only removed", "a 01, b 02; a 01, b 02", ""},
		{"nothing new, in another order", "a 02, b 02; b 02, a 02", ""},
		{"one more in the same second", "a 01; a 01, b 01", "b"},
		{"one more in the same second that had an older entry", "a 02, b 01; b 02, a 02", "b"},
		{"a third in the same second", "a 01, b 01; a 01, b 01, c 01", "c"},
		{"the same manager again in the same second", "a 01, b 01; a 01, b 01", ""},
		{"another subresource in the same second", "a 01; a 01, a/status 01", "a/status"},
		{"one more and one less in the same second", "a 01; b 01", ""},
		{"an entry that is gone", "a 01, b 01; a 01", ""},
		{"an older second: entries were taken out", "a 01, b 02; a 01", ""},
		{"older entries that come back", "a 01, b 02; a 01; a 01, b 02", ""},
		{"all entries come back", "a 01, b 02; ; a 01, b 02", ""},
		{"a clock that is behind", "a 05; a 05, b 04; a 05, b 06", "b"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var before resource.Written
			var by resource.FieldManager
			for version := range strings.SplitSeq(tt.versions, "; ") {
				w := written(t, version)
				by, _ = w.Since(before)
				before = w.After(before)
			}
			name, subresource, _ := strings.Cut(tt.by, "/")
			if by.Manager != name || by.Subresource != subresource {
				t.Errorf("written by %+v, want %q", by, tt.by)
			}
			if name != "" && by.Operation != "Update" {
				t.Errorf("operation %q", by.Operation)
			}
		})
	}
}

// Entries that are no writes.
func TestOtherEntries(t *testing.T) {
	honest := entryJSON("kubectl 01")
	for name, entry := range map[string]string{
		"without a time":            `{"manager":"a"}`,
		"in another zone":           `{"manager":"a","time":"2020-01-01T09:00:00+01:00"}`,
		"with a fraction":           `{"manager":"a","time":"2020-01-01T09:00:00.5Z"}`,
		"beyond what is remembered": `{"manager":"a","time":"9999-01-01T00:00:00Z"}`,
		"before any cluster":        `{"manager":"a","time":"1969-01-01T00:00:00Z"}`,
	} {
		t.Run(name, func(t *testing.T) {
			for _, entries := range []string{honest + "," + entry, entry + "," + honest} {
				if by, ok := managed(t, entries).Sole(); !ok || by.Manager != "kubectl" {
					t.Errorf("written by %+v, %t, want kubectl", by, ok)
				}
			}
		})
	}
	t.Run("a name with a zero byte is nobody's", func(t *testing.T) {
		w := managed(t, `{"manager":"a\u0000b","time":"2020-01-01T00:00:02Z"}`)
		if by, ok := w.Sole(); ok {
			t.Errorf("written by %+v", by)
		}
	})
	t.Run("what only looks like a time is none", func(t *testing.T) {
		if w := managed(t, `{"manager":"a","time":"2020-01-01T99:00:00Z"}`); w != (resource.Writes{}) {
			t.Errorf("%+v", w)
		}
	})
}

func TestTimeOfWrites(t *testing.T) {
	if got := written(t, "a 01, b 02").Time(); !got.Equal(time.Date(2020, 1, 1, 0, 0, 2, 0, time.UTC)) {
		t.Errorf("written at %s", got)
	}
	if got := written(t, "").Time(); !got.IsZero() {
		t.Errorf("no entry, and written at %s", got)
	}
}
