package resource

import "strings"

// Restore makes an Object of the bytes of one that was made by Parse, and kept. The type may have
// moved to another version of the API since.
func Restore(raw []byte, t Type) (*Object, error) {
	obj, err := Parse(raw, ParseOptions{Type: t, KeepManagedFields: true})
	if err != nil {
		return nil, err
	}
	text := strings.Trim(view(Member(obj.Raw, "apiVersion")), `"`)
	if version, ok := t.otherVersion(text); ok {
		obj.APIVersion = version.APIVersion()
	}
	return obj, nil
}

// In is the type in the version of the API that an object is in.
func (t Type) In(apiVersion string) Type {
	if other, ok := t.otherVersion(apiVersion); ok {
		return other
	}
	return t
}

// otherVersion is the type in another version of its group; ok is false for its own, and for what
// is none of its group.
func (t Type) otherVersion(apiVersion string) (other Type, ok bool) {
	group, version, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		group, version = "", apiVersion
	}
	other = t
	other.Version = version
	return other, group == t.Group && version != "" && version != t.Version
}
