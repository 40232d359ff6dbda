package keys

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"
)

// Sequence orders a version among all of its object: the attribute of that name, taken
// apart. Its bytes sort as the attribute does.
type Sequence struct {
	// Era counts how often versions began again.
	Era uint32
	// Version is a number; text is the version where it is no number.
	Version uint64
	text    string
	// Entered is the version of the Namespace with which the object came into the selection again.
	// Its versions then are behind all of before, whatever their numbers are.
	Entered uint64
	Deleted bool
}

// Classes of versions in a key, and what follows a version.
const (
	ClassNumber  = 0
	classText    = 1
	ClassEntered = 2 // the version of the Namespace, and then a version of one of the others

	suffixNone    = 0
	suffixDeleted = 1
)

// IsNumber reports whether the version is a number, so that differences to it can be stored.
func (s Sequence) IsNumber() bool { return s.text == "" }

// Append appends the bytes that keys have.
func (s Sequence) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint32(dst, s.Era)
	if s.Entered > 0 {
		dst = binary.BigEndian.AppendUint64(append(dst, ClassEntered), s.Entered)
	}
	if s.IsNumber() {
		dst = binary.BigEndian.AppendUint64(append(dst, ClassNumber), s.Version)
	} else {
		dst = append(append(append(dst, classText), s.text...), Separator)
	}
	if s.Deleted {
		return append(dst, suffixDeleted)
	}
	return append(dst, suffixNone)
}

// DecodeSequence reads what Append wrote.
func DecodeSequence(b []byte) (s Sequence, ok bool) {
	if len(b) < 5 {
		return s, false
	}
	s.Era, b = binary.BigEndian.Uint32(b), b[4:]
	if b[0] == ClassEntered && len(b) > 9 {
		if s.Entered, b = binary.BigEndian.Uint64(b[1:]), b[9:]; s.Entered == 0 {
			return s, false
		}
	}
	class, b := b[0], b[1:]
	switch {
	case class == ClassNumber && len(b) > 8:
		s.Version, b = binary.BigEndian.Uint64(b), b[8:]
	case class == classText:
		i := bytes.IndexByte(b, Separator)
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
	s.Deleted = b[0] == suffixDeleted
	return s, true
}

// ParseSequence reads an attribute. Where there is none that can be read, version and deleted say
// where the event belongs. An inferred delete belongs where the object was missing, which only the
// attribute says: its version is the last known one, and the object may have lived on after it.
func ParseSequence(attribute, version string, deleted bool) Sequence {
	era, rest, found := strings.Cut(attribute, ".")
	n, err := strconv.ParseUint(era, 10, 32)
	if !found || err != nil {
		return NewSequence(0, version, deleted)
	}
	s := NewSequence(uint32(n), version, deleted)
	if entered, found := strings.CutPrefix(rest, "entered."); found {
		var digits string
		digits, rest, _ = strings.Cut(entered, ".")
		s.Entered, _ = strconv.ParseUint(digits, 10, 64) // none that the bridge makes is no number
	}
	if digits, isEnd := strings.CutSuffix(rest, ".deleted"); isEnd && deleted {
		if n, err := strconv.ParseUint(digits, 10, 64); err == nil && n > 0 {
			s.Version, s.text = n, ""
		}
	}
	return s
}

// NewSequence returns the sequence of a version as text in an era.
func NewSequence(era uint32, version string, deleted bool) Sequence {
	s := Sequence{Era: era, Deleted: deleted}
	n, err := strconv.ParseUint(version, 10, 64)
	if err == nil && n > 0 && version[0] != '0' {
		s.Version = n
	} else {
		s.text = strings.ReplaceAll(version, "\x00", "?")
		if s.text == "" {
			s.text = "-"
		}
	}
	return s
}

// ResourceVersion returns the version as text.
func (s Sequence) ResourceVersion() string {
	if s.IsNumber() {
		return strconv.FormatUint(s.Version, 10)
	}
	return s.text
}

// AppendResourceVersion appends the version as text.
func (s Sequence) AppendResourceVersion(dst []byte) []byte {
	if s.IsNumber() {
		return strconv.AppendUint(dst, s.Version, 10)
	}
	return append(dst, s.text...)
}

// String returns the attribute, as the bridge writes it.
func (s Sequence) String() string { return string(s.AppendText(nil)) }

// AppendText appends the attribute.
func (s Sequence) AppendText(dst []byte) []byte {
	const eraDigits, versionDigits = 8, 20
	dst = append(appendPadded(dst, uint64(s.Era), eraDigits), '.')
	if s.Entered > 0 {
		dst = append(appendPadded(append(dst, "entered."...), s.Entered, versionDigits), '.')
	}
	if s.IsNumber() {
		dst = appendPadded(dst, s.Version, versionDigits)
	} else {
		dst = append(dst, s.text...)
	}
	if s.Deleted {
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

// Compare sorts versions of one object.
func (s Sequence) Compare(other Sequence) int {
	var a, b [64]byte
	return bytes.Compare(s.Append(a[:0]), other.Append(b[:0]))
}
