package event

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// trim cuts managedFields and the last-applied annotation out of the metadata of an object, or of the objects in a payload that
// holds several. It copies the bytes if it cuts any; bytes that it can't read it leaves.
func trim(data []byte) []byte {
	var out []byte
	from := 0
	walk(data, func(pointer jsontext.Pointer, member, end int) {
		if !expendable(pointer) {
			return
		}
		if data[member-1] == '{' {
			end = behindComma(data, end)
		}
		out = append(out, data[from:member]...)
		from = end
	})
	if from == 0 {
		return data
	}
	return append(out, data[from:]...)
}

// expendable says whether an object is still the object without a member.
func expendable(at jsontext.Pointer) bool {
	return strings.HasSuffix(string(at), "metadata/managedFields") ||
		strings.HasSuffix(string(at), "metadata/annotations/kubectl.kubernetes.io~1last-applied-configuration")
}

// behindComma is the offset behind the comma that follows, if one does. A member that is not the first is cut with the comma before
// it, the first with the one behind it.
func behindComma(data []byte, end int) int {
	rest := bytes.TrimLeft(data[end:], " \t\r\n")
	if len(rest) > 0 && rest[0] == ',' {
		return len(data) - len(rest) + 1
	}
	return end
}

// metadataOf is the metadata of the object in a payload: of the payload itself, or of its member "object".
func metadataOf(data []byte) (metadata []byte) {
	walk(data, func(pointer jsontext.Pointer, member, end int) {
		if metadata == nil && (pointer == "/metadata" || pointer == "/object/metadata") {
			_, value, _ := bytes.Cut(data[member:end], []byte(`"metadata"`))
			metadata = bytes.TrimLeft(value, ": \t\r\n")
		}
	})
	return metadata
}

// walk visits every member of the objects down to the metadata: visit gets where its name's predecessor ends and where its value ends.
// A member is visited after those in it are, unless it holds none that matter.
func walk(data []byte, visit func(at jsontext.Pointer, member, end int)) {
	d := jsontext.NewDecoder(bytes.NewReader(data))
	walkValue(d, visit)
}

func walkValue(d *jsontext.Decoder, visit func(at jsontext.Pointer, member, end int)) bool {
	if d.PeekKind() != '{' {
		return d.SkipValue() == nil
	}
	if _, err := d.ReadToken(); err != nil {
		return false
	}
	for d.PeekKind() == '"' {
		member := int(d.InputOffset())
		if _, err := d.ReadToken(); err != nil {
			return false
		}
		at := d.StackPointer()
		descend := opens(at)
		if descend && !walkValue(d, visit) || !descend && d.SkipValue() != nil {
			return false
		}
		visit(at, member, int(d.InputOffset()))
	}
	_, err := d.ReadToken()
	return err == nil
}

// opens says whether something that is looked for can be in a member.
func opens(at jsontext.Pointer) bool {
	name := at.LastToken()
	return name == "metadata" || name == "annotations" || at == "/object" || at == "/old"
}
