package verify

import (
	"cmp"
	"strconv"
	"strings"
)

// order is the place of an event among all events of its object, read from its sequence.
type order struct {
	version uint64
	era     uint32 // counts how often versions began again
	marks   marks
}

// marks are what a sequence has behind the version.
type marks uint8

const (
	deletedMark marks = 1 << iota
	// enteredMark is of an object that came into a selection of namespaces again, in a version that
	// may have been there before.
	enteredMark
	markBits = 2
)

// parseOrder reads a sequence, as "00000000.00000000000000048213.deleted". It reports false for one
// whose version is no number: such sequences are not compared.
func parseOrder(sequence string) (order, bool) {
	era, rest, found := strings.Cut(sequence, ".")
	number, err := strconv.ParseUint(era, 10, 32)
	if !found || err != nil {
		return order{}, false
	}
	version, rest, _ := strings.Cut(rest, ".")
	o := order{era: uint32(number)}
	if o.version, err = strconv.ParseUint(version, 10, 64); err != nil {
		return order{}, false
	}
	if entered, ok := strings.CutPrefix(rest, "entered."); ok {
		_, rest, _ = strings.Cut(entered, ".")
		o.marks |= enteredMark
	}
	switch rest {
	case "":
		return o, true
	case "deleted":
		o.marks |= deletedMark
		return o, true
	}
	return order{}, false
}

// compare is negative when o is before other.
func (o order) compare(other order) int {
	return cmp.Or(o.compareVersions(other), cmp.Compare(o.marks, other.marks))
}

// compareVersions leaves out what comes behind the plain version.
func (o order) compareVersions(other order) int {
	return cmp.Or(cmp.Compare(o.era, other.era), cmp.Compare(o.version, other.version))
}

// at is another version in the same era.
func (o order) at(version uint64) order {
	return order{version: version, era: o.era}
}
