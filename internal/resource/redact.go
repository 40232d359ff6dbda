package resource

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// ErrRedact says that an object holds secrets in a place where they can't be taken out one by one. Such an object is
// refused as a whole. The error tells the place and never what stands there.
var ErrRedact = errors.New("can't redact")

// RedactionFormat changes when Parse takes out more of the same objects, or makes other fingerprints,
// than it did before. State on disk that another format made is then redacted again.
const RedactionFormat = 2

// Redactor replaces what is secret in an object by a fingerprint: equal values have equal fingerprints under one key,
// so a reader sees that a value changed, and no more. It is immutable and safe for concurrent use.
type Redactor struct {
	key  []byte
	keep bool // a fingerprint stays as it is
}

// minRedactKey keeps a guessed value from being tried against its fingerprint.
const minRedactKey = 16

// NewRedactor makes a Redactor. The key is kept secret, at least 16 bytes long, and stays the same over restarts: with
// another key every fingerprint changes.
func NewRedactor(key []byte) (*Redactor, error) {
	if len(key) < minRedactKey {
		return nil, fmt.Errorf("redaction key has %d bytes: give it %d or more, from a random source", len(key), minRedactKey)
	}
	return &Redactor{key: slices.Clone(key)}, nil
}

// Again is for objects that were redacted before, maybe by other rules: it leaves fingerprints as they are. What the API server sends must
// not go through it: a value may have the look of a fingerprint.
func (r *Redactor) Again() *Redactor {
	if r == nil {
		return nil
	}
	return &Redactor{key: r.key, keep: true}
}

// isFingerprint matches what fingerprint makes, without the quotes.
var isFingerprint = regexp.MustCompile(`^redacted:[0-9a-f]{16}$`).Match

// Applies says whether objects of this type hold secrets: core Secrets, in any version.
func (r *Redactor) Applies(t Type) bool {
	return r != nil && t.Group == "" && t.Resource == "secrets"
}

// fingerprint is the JSON string that stands for a value.
func (r *Redactor) fingerprint(value []byte) []byte {
	if r.keep && isFingerprint(value) {
		return slices.Concat([]byte{'"'}, value, []byte{'"'})
	}
	mac := hmac.New(sha256.New, r.key)
	mac.Write(value)
	const hexDigits = 16
	out := append(make([]byte, 0, 32), `"redacted:`...)
	out = hex.AppendEncode(out, mac.Sum(nil)[:hexDigits/2])
	return append(out, '"')
}

// redactValues replaces every value of the map that comes next and keeps its keys. Values in base64 are fingerprinted
// as what they encode, so that a value has one fingerprint in data and in stringData.
func (p *parser) redactValues(r *Redactor, place string, isBase64 bool) {
	if !p.enter('{', ErrRedact, place) {
		return
	}
	for p.Next('}') {
		p.Key()
		p.redactValue(r, isBase64)
	}
}

// redactAnnotations replaces every annotation but those whose values are known to be harmless.
func (p *parser) redactAnnotations(r *Redactor) {
	if !p.enter('{', ErrRedact, "metadata.annotations") {
		return
	}
	for p.Next('}') {
		if harmlessAnnotations[string(p.Key())] {
			p.Skip()
		} else {
			p.redactValue(r, false)
		}
	}
}

// redactValue replaces the value that comes next, whatever kind it is of.
func (p *parser) redactValue(r *Redactor, isBase64 bool) {
	isString := p.Peek() == '"'
	at := p.Skip()
	if p.Err() != nil {
		return
	}
	value := p.Bytes(at)
	if isString {
		value = p.Text(inner(at))
	}
	if isBase64 {
		if decoded, err := base64.StdEncoding.AppendDecode(nil, value); err == nil {
			value = decoded
		}
	}
	p.edits.add(edit{at, r.fingerprint(value)})
}
