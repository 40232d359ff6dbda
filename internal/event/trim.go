package event

import "github.com/kubebridge/bridge/internal/resource/jsontree"

// trim cuts managedFields and the last-applied annotation out of the metadata of a payload's
// object, or of both objects of a change or of Debezium's form. It copies the bytes only if it cuts
// any.
func trim(data []byte) []byte {
	t := trimmer{data: data}
	payload := jsontree.Parse(data)
	if metadata := member(payload, "metadata"); metadata.Exists() {
		t.metadata(metadata)
	} else {
		for w := payload.Walk(); w.Next(); {
			switch w.Name() {
			case "object", "old":
				t.metadata(member(w.Value(), "metadata"))
			case "before", "after":
				t.metadata(member(member(w.Value(), "object"), "metadata"))
			}
		}
	}
	if t.from == 0 {
		return data
	}
	return append(t.out, data[t.from:]...)
}

// metadataOf is the metadata of a payload's object, nil when there is none.
func metadataOf(data []byte) []byte {
	payload := jsontree.Parse(data)
	if metadata := member(payload, "metadata"); metadata.Exists() {
		return metadata.Raw()
	}
	return member(member(payload, "object"), "metadata").Raw()
}

// member is the value of a member; it does not exist where the object or the member does not.
func member(object jsontree.Value, name string) jsontree.Value {
	for w := object.Walk(); w.Next(); {
		if w.Name() == name {
			return w.Value()
		}
	}
	return jsontree.Value{}
}

// trimmer copies data without some members, which come in their order.
type trimmer struct {
	data, out []byte
	from      int // end of what was cut last
}

func (t *trimmer) metadata(metadata jsontree.Value) {
	for w := metadata.Walk(); w.Next(); {
		switch w.Name() {
		case "managedFields":
			t.cut(&w)
		case "annotations":
			t.annotations(w.Value())
		}
	}
}

func (t *trimmer) annotations(annotations jsontree.Value) {
	for w := annotations.Walk(); w.Next(); {
		if w.Name() == "kubectl.kubernetes.io/last-applied-configuration" {
			t.cut(&w)
		}
	}
}

// cut leaves out the current member: with the comma before it, or, the first one, with the comma
// behind it.
func (t *trimmer) cut(w *jsontree.Walker) {
	t.out = append(t.out, t.data[t.from:w.Gap()]...)
	t.from = w.Value().End()
	if t.data[w.Gap()-1] == '{' {
		t.from = w.Following()
	}
}
