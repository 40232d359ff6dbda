package truth

import (
	"maps"
	"slices"
)

// Snapshot is what a bridge that starts after the changes is to find: every object that exists, in
// its newest version.
func Snapshot(changes []Change) []Change {
	alive := Alive(changes)
	var found []Change
	for _, key := range slices.Sorted(maps.Keys(alive)) {
		ch := alive[key]
		ch.Type, ch.Initial = "ADDED", true
		found = append(found, ch)
	}
	return found
}

// Inferred is what a bridge is to find by a list, when it knows what the changes before left and
// can't see those that came after: the objects that differ, each once. Of an object that was
// deleted its last known state counts; one that was replaced under its name is deleted and added.
func Inferred(before, after []Change) []Change {
	known, exist := Alive(before), Alive(slices.Concat(before, after))
	var found []Change
	add := func(ch Change, kind string) {
		ch.Type, ch.Initial, ch.Inferred = kind, false, true
		found = append(found, ch)
	}
	for _, key := range slices.Sorted(maps.Keys(known)) {
		now, exists := exist[key]
		if was := known[key]; !exists || now.Metadata.UID != was.Metadata.UID {
			add(was, "DELETED")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(exist)) {
		was, wasKnown := known[key]
		now := exist[key]
		switch {
		case !wasKnown || was.Metadata.UID != now.Metadata.UID:
			add(now, "ADDED")
		case was.Metadata.ResourceVersion != now.Metadata.ResourceVersion:
			add(now, "MODIFIED")
		}
	}
	return found
}
