package check

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// changedParts is what the attribute changed of an update is to be, by the documentation alone: the
// parts of the object that differ between two versions, where a missing value is null.
func changedParts(before, after []byte) (string, error) {
	old, err := decodeObject(before)
	if err != nil {
		return "", err
	}
	object, err := decodeObject(after)
	if err != nil {
		return "", err
	}
	oldMetadata, metadata := membersOf(old["metadata"]), membersOf(object["metadata"])
	differs := map[string]bool{}
	for name := range union(oldMetadata, metadata) {
		if reflect.DeepEqual(oldMetadata[name], metadata[name]) {
			continue
		}
		switch name {
		case "resourceVersion", "managedFields", "generation":
		case "labels", "annotations", "finalizers":
			differs[name] = true
		case "ownerReferences":
			differs["owners"] = true
		case "deletionTimestamp", "deletionGracePeriodSeconds":
			differs["deletion"] = true
		default:
			differs["metadata"] = true
		}
	}
	var parts, others []string
	for name := range union(old, object) {
		switch {
		case name == "metadata" || name == "kind" || name == "apiVersion" || reflect.DeepEqual(old[name], object[name]):
		case name == "spec" || name == "status":
			differs[name] = true
		default:
			others = append(others, name)
		}
	}
	for _, part := range []string{
		"spec", "status", "labels", "annotations", "finalizers", "owners", "deletion", "metadata",
	} {
		if differs[part] {
			parts = append(parts, part)
		}
	}
	slices.Sort(others)
	return orElse(strings.Join(append(parts, others...), ","), "none"), nil
}

func decodeObject(raw []byte) (object map[string]any, err error) {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	return object, dec.Decode(&object)
}

func membersOf(value any) map[string]any {
	members, _ := value.(map[string]any)
	return members
}

func union(a, b map[string]any) map[string]bool {
	names := map[string]bool{}
	for name := range a {
		names[name] = true
	}
	for name := range b {
		names[name] = true
	}
	return names
}
