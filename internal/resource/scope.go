package resource

// NamespaceState says where a namespace stands that has to do with a selection of namespaces.
type NamespaceState uint8

// The states. A namespace that never was selected has none.
const (
	// NamespaceOut was selected, and every listener has the deletes of its objects. It is
	// remembered, because its objects may come again, in a version that was reported before.
	NamespaceOut NamespaceState = iota + 1
	// NamespaceEntering is selected, and not all its objects were reported yet.
	NamespaceEntering
	// NamespaceIn is selected and in sync.
	NamespaceIn
	// NamespaceLeaving is not selected, and a listener may not have the deletes of its objects.
	NamespaceLeaving
)

// Selected reports whether changes of the namespace's objects are wanted.
func (s NamespaceState) Selected() bool { return s == NamespaceEntering || s == NamespaceIn }
