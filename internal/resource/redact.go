package resource

import (
	"encoding/base64"

	"github.com/kubebridge/bridge/internal/resource/jsonscan"
)

// Applies reports whether objects of this type hold secrets: core Secrets, in any version.
func (r *Redactor) Applies(t Type) bool {
	return r != nil && t.Group == "" && t.Resource == "secrets"
}

// secretMap is a map of a Secret whose values are replaced.
type secretMap uint8

const (
	notSecret secretMap = iota
	secretData
	secretStringData
	secretAnnotations
)

// appendPath appends the path of the map. data and stringData have one: a value has the same
// fingerprint in both.
func (m secretMap) appendPath(to []byte) []byte {
	if m == secretAnnotations {
		return appendMember(appendMember(to, "metadata"), "annotations")
	}
	return appendMember(to, "data")
}

// redactMap replaces the values of the map that comes next and keeps its keys.
func (p *parser) redactMap(m secretMap, place string) {
	if !p.enter('{', ErrRedact, place) {
		return
	}
	for p.Next('}') {
		harmless := harmlessAnnotations[string(p.Key())] && m == secretAnnotations
		key := p.KeyAt()
		at := p.Skip()
		if !harmless && p.Err() == nil {
			p.edits.add(edit{span: at, key: key, secret: m})
		}
	}
}

// fingerprints replaces the values that redactMap found. It comes after the walk, when the object's
// name is known.
func (p *parser) fingerprints(opts *ParseOptions) {
	var object objectRedactor
	var field, out, decoded []byte // used for all values
	for i := range p.edits.n {
		e := p.edits.at(i)
		if e.secret == notSecret {
			continue
		}
		if object.Redactor == nil {
			object = opts.Redactor.of(opts.Type, string(p.Text(p.namespace)), string(p.Text(p.name)))
			out = make([]byte, 0, p.edits.n*fingerprintSize)
		}
		member := jsonscan.Of(p.Bytes(span{Start: e.key, End: e.End}))
		field = appendMember(e.secret.appendPath(field[:0]), view(member.Key()))
		var value []byte
		value, decoded = secretValue(&member, e.secret, decoded)
		begin := len(out)
		out = object.appendFingerprint(out, field, value)
		e.with = out[begin:len(out):len(out)]
	}
}

// secretValue reads the value that comes next, whatever type it has. Values of data are decoded, so
// that a value is the same in data and in stringData; buf may be written over, and is what to hand
// in with the next value.
func secretValue(s *jsonscan.Scanner, m secretMap, buf []byte) (value, _ []byte) {
	value = textOf(s)
	if m == secretData {
		if decoded, err := base64.StdEncoding.AppendDecode(buf[:0], value); err == nil {
			return decoded, decoded
		}
	}
	return value, buf
}

// textOf is what is hashed of the value that comes next: the text of a string, else the JSON.
func textOf(s *jsonscan.Scanner) []byte {
	isString := s.Peek() == '"'
	at := s.Skip()
	if isString && s.Err() == nil {
		return s.Text(inner(at))
	}
	return s.Bytes(at)
}
