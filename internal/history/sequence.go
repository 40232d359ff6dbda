package history

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"
)

// sequence is the place of a version among all of its object: the attribute of that name, taken
// apart. Its bytes sort as the attribute does.
type sequence struct {
	// era counts how often versions began again.
	era uint32
	// version is a number; text is the version where it is no number.
	version uint64
	text    string
	// entered is the version of the Namespace with which the object came into the selection again.
	// Its versions then are behind all of before, whatever their numbers are.
	entered uint64
	deleted bool
}

// Classes of versions in a key, and what follows a version.
const (
	classNumber  = 0
	classText    = 1
	classEntered = 2 // the version of the Namespace, and then a version of one of the others

	suffixNone    = 0
	suffixDeleted = 1
)

// isNumber reports whether the version is a number, so that differences to it can be stored.
func (s sequence) isNumber() bool { return s.text == "" }

func (s sequence) append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, s.era)
	if s.entered > 0 {
		dst = binary.BigEndian.AppendUint64(append(dst, classEntered), s.entered)
	}
	if s.isNumber() {
		dst = binary.BigEndian.AppendUint64(append(dst, classNumber), s.version)
	} else {
		dst = append(append(append(dst, classText), s.text...), separator)
	}
	if s.deleted {
		return append(dst, suffixDeleted)
	}
	return append(dst, suffixNone)
}

func decodeSequence(b []byte) (s sequence, ok bool) {
	if len(b) < 5 {
		return s, false
	}
	s.era, b = binary.BigEndian.Uint32(b), b[4:]
	if b[0] == classEntered && len(b) > 9 {
		if s.entered, b = binary.BigEndian.Uint64(b[1:]), b[9:]; s.entered == 0 {
			return s, false
		}
	}
	class, b := b[0], b[1:]
	switch {
	case class == classNumber && len(b) > 8:
		s.version, b = binary.BigEndian.Uint64(b), b[8:]
	case class == classText:
		i := bytes.IndexByte(b, separator)
		if i <= 0 {
			return s, false
		}
		s.text, b = string(b[:i]), b[i+1:]
	default:
		return s, false
	}
	if len(b) != 1 || b[0] != suffixNone && b[0] != suffixDeleted {
		return s, false
	}
	s.deleted = b[0] == suffixDeleted
	return s, true
}

// parseSequence reads an attribute. Where there is none that can be read, version and deleted say
// where the event belongs. An inferred delete belongs where the object was missing, which only the
// attribute says: its version is the last known one, and the object may have lived on after it.
func parseSequence(attribute, version string, deleted bool) sequence {
	era, rest, found := strings.Cut(attribute, ".")
	n, err := strconv.ParseUint(era, 10, 32)
	if !found || err != nil {
		return newSequence(0, version, deleted)
	}
	s := newSequence(uint32(n), version, deleted)
	if entered, found := strings.CutPrefix(rest, "entered."); found {
		var digits string
		digits, rest, _ = strings.Cut(entered, ".")
		s.entered, _ = strconv.ParseUint(digits, 10, 64) // none that the bridge makes is no number
	}
	if digits, isEnd := strings.CutSuffix(rest, ".deleted"); isEnd && deleted {
		if n, err := strconv.ParseUint(digits, 10, 64); err == nil && n > 0 {
			s.version, s.text = n, ""
		}
	}
	return s
}

func newSequence(era uint32, version string, deleted bool) sequence {
	s := sequence{era: era, deleted: deleted}
	n, err := strconv.ParseUint(version, 10, 64)
	if err == nil && n > 0 && version[0] != '0' {
		s.version = n
	} else {
		s.text = strings.ReplaceAll(version, "\x00", "?")
		if s.text == "" {
			s.text = "-"
		}
	}
	return s
}

// resourceVersion is the version as text.
func (s sequence) resourceVersion() string {
	if s.isNumber() {
		return strconv.FormatUint(s.version, 10)
	}
	return s.text
}

func (s sequence) appendResourceVersion(dst []byte) []byte {
	if s.isNumber() {
		return strconv.AppendUint(dst, s.version, 10)
	}
	return append(dst, s.text...)
}

// String is the attribute, as the bridge writes it.
func (s sequence) String() string { return string(s.appendText(nil)) }

func (s sequence) appendText(dst []byte) []byte {
	const eraDigits, versionDigits = 8, 20
	dst = append(appendPadded(dst, uint64(s.era), eraDigits), '.')
	if s.entered > 0 {
		dst = append(appendPadded(append(dst, "entered."...), s.entered, versionDigits), '.')
	}
	if s.isNumber() {
		dst = appendPadded(dst, s.version, versionDigits)
	} else {
		dst = append(dst, s.text...)
	}
	if s.deleted {
		dst = append(dst, ".deleted"...)
	}
	return dst
}

// appendPadded appends a number with zeros before it.
func appendPadded(dst []byte, n uint64, digits int) []byte {
	begin := len(dst)
	dst = append(dst, "00000000000000000000"[:digits]...)
	for i := len(dst) - 1; i >= begin && n > 0; i-- {
		dst[i] = '0' + byte(n%10)
		n /= 10
	}
	return dst
}

// compare sorts versions of one object.
func (s sequence) compare(other sequence) int {
	var a, b [64]byte
	return bytes.Compare(s.append(a[:0]), other.append(b[:0]))
}
