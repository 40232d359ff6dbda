package resource

// Version is a resourceVersion: where in the history of its resource type an object, a list or a
// bookmark stands. Versions of one type are comparable (KEP-5504) when both are decimal numbers
// without leading zeros, however long; aggregated API servers may use others, which can only be
// equal or not.
type Version string

// Check reports whether v is short enough to be stored.
func (v Version) Check() error {
	if len(v) > MaxIdentity {
		return ErrVersion
	}
	return nil
}

// Ordered reports whether v is a number, so that it can be compared with another.
func (v Version) Ordered() bool {
	if v == "" || v[0] == '0' {
		return false
	}
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return false
		}
	}
	return true
}

// Compare orders two versions of one resource type: negative when v is older than other, zero when
// they are the same, positive when it is newer. Where the two have no order, ok is false.
func (v Version) Compare(other Version) (order int, ok bool) {
	switch {
	case v == other:
		return 0, true
	case !v.Ordered() || !other.Ordered():
		return 0, false
	case len(v) != len(other):
		return len(v) - len(other), true
	case v < other:
		return -1, true
	default:
		return 1, true
	}
}

// Before returns the version that is one lower, or v where it is no number, or 1.
func (v Version) Before() Version {
	if !v.Ordered() || v == "1" {
		return v
	}
	digits := []byte(v)
	i := len(digits) - 1
	for ; digits[i] == '0'; i-- {
		digits[i] = '9'
	}
	digits[i]--
	if digits[0] == '0' {
		digits = digits[1:]
	}
	return Version(digits)
}

// Newer reports whether v is known to be after other. It is false where the two have no order.
func (v Version) Newer(other Version) bool {
	order, ok := v.Compare(other)
	return ok && order > 0
}

// NotNewer reports whether v is known to be other or before it. It is false where the two have no
// order.
func (v Version) NotNewer(other Version) bool {
	order, ok := v.Compare(other)
	return ok && order <= 0
}
