package apiserver

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"strconv"
	"time"
)

// pod.json is a running pod of a Deployment, with the managedFields that the controller manager and
// the kubelet leave.
//
//go:embed pod.json
var podJSON []byte

// Widths of the fields that differ. Names have leading zeros; versions have none, so they begin at
// firstVersion.
const (
	nameWidth    = 8
	versionWidth = 10
	stampWidth   = 19
	firstVersion = 1_000_000_000
)

// Marks of these fields in the template.
const (
	nameMark    = "NAMENAME"
	versionMark = "VERSIONNNN"
	stampMark   = "STAMPSTAMPSTAMPSTAM"
	timeMark    = "TIMETIMETIMETIMETIME" // of the kubelet's entry: a write sets it
)

// template is a pod as bytes with holes.
type template struct {
	raw                           []byte
	names, versions, stamp, times []int
}

// newTemplate makes the pod's template, with another beginning than its opening brace.
func newTemplate(begin string) *template {
	var compact bytes.Buffer
	if err := json.Compact(&compact, podJSON); err != nil {
		panic(fmt.Sprint("pod.json: ", err))
	}
	t := &template{raw: append([]byte(begin), compact.Bytes()[1:]...)}
	t.names, t.versions, t.stamp = t.find(nameMark), t.find(versionMark), t.find(stampMark)
	t.times = t.find(timeMark)
	return t
}

func (t *template) find(mark string) (at []int) {
	for from := 0; ; {
		i := bytes.Index(t.raw[from:], []byte(mark))
		if i < 0 {
			return at
		}
		at = append(at, from+i)
		from += i + len(mark)
	}
}

// append writes the pod's state at a version.
func (t *template) append(dst []byte, pod int, version int64) []byte {
	start := len(dst)
	dst = append(dst, t.raw...)
	out := dst[start:]
	for _, at := range t.names {
		digits(out[at:at+nameWidth], int64(pod))
	}
	for _, at := range t.versions {
		digits(out[at:at+versionWidth], version)
	}
	for _, at := range t.stamp {
		digits(out[at:at+stampWidth], time.Now().UnixNano())
	}
	for _, at := range t.times {
		time.Now().UTC().AppendFormat(out[at:at], time.RFC3339)
	}
	return dst
}

// digits writes n with leading zeros.
func digits(dst []byte, n int64) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
}

// Size of a pod in bytes.
func Size() int { return len(newTemplate("{").raw) }

// Stamp finds in a pod's JSON, whole or less its managedFields, when it was sent.
func Stamp(pod []byte) (time.Time, error) {
	const key = `"bench.kubebridge.dev/sent":"`
	i := bytes.Index(pod, []byte(key))
	if i < 0 || len(pod) < i+len(key)+stampWidth {
		return time.Time{}, fmt.Errorf("no stamp in %d bytes", len(pod))
	}
	n, err := strconv.ParseInt(string(pod[i+len(key):i+len(key)+stampWidth]), 10, 64)
	return time.Unix(0, n), err
}
