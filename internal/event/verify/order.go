package verify

import (
	"cmp"
	"strconv"
	"strings"
)

// order is the place of an event among all events of its object, read from its sequence.
type order struct {
	version uint64
	stage
	suffixes suffixes
}

// stage is a part of an object's events in which versions ascend.
type stage struct {
	era uint32 // counts how often versions began again
	// entered is the version of the Namespace with which it came into a selection again.
	entered uint64
}

func (s stage) compare(other stage) int {
	return cmp.Or(cmp.Compare(s.era, other.era), cmp.Compare(s.entered, other.entered))
}

// suffixes are what a sequence has behind the version.
type suffixes uint8

const (
	deletedSuffix suffixes = 1 << iota
	suffixBits             = 1
)

// parseOrder reads a sequence, as "00000000.00000000000000048213.deleted". It reports false for one
// whose version is no number: such sequences are not compared.
func parseOrder(sequence string) (o order, ok bool) {
	era, rest, found := strings.Cut(sequence, ".")
	n, err := strconv.ParseUint(era, 10, 32)
	if !found || err != nil {
		return order{}, false
	}
	o.era = uint32(n)
	if entered, again := strings.CutPrefix(rest, "entered."); again {
		entered, rest, _ = strings.Cut(entered, ".")
		if o.entered, err = strconv.ParseUint(entered, 10, 64); err != nil {
			return order{}, false
		}
	}
	version, suffix, _ := strings.Cut(rest, ".")
	if o.version, err = strconv.ParseUint(version, 10, 64); err != nil {
		return order{}, false
	}
	switch suffix {
	case "":
		return o, true
	case "deleted":
		o.suffixes |= deletedSuffix
		return o, true
	}
	return order{}, false
}

// compare is negative when o is before other.
func (o order) compare(other order) int {
	return cmp.Or(o.compareVersions(other), cmp.Compare(o.suffixes, other.suffixes))
}

// compareVersions leaves out what comes behind the plain version.
func (o order) compareVersions(other order) int {
	return cmp.Or(o.stage.compare(other.stage), cmp.Compare(o.version, other.version))
}

// at is another version in the same stage.
func (o order) at(version uint64) order {
	return order{version: version, stage: o.stage}
}
