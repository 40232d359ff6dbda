package resource

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"regexp"
	"slices"
	"strconv"

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
			object = opts.Redactor.forObject(opts.Type, string(p.Text(p.namespace)), string(p.Text(p.name)))
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

// textOf returns what is hashed of the value that comes next: the text of a string, else the JSON.
func textOf(s *jsonscan.Scanner) []byte {
	isString := s.Peek() == '"'
	at := s.Skip()
	if isString && s.Err() == nil {
		return s.Text(inner(at))
	}
	return s.Bytes(at)
}

// Redactor replaces what is secret in an object by a fingerprint. A fingerprint names the key that
// made it, and is a keyed hash of the value and its place: the group, resource, namespace and name
// of the object, and the path of the field. A reader who compares two fingerprints of one place,
// made with one key, learns whether the value changed, and no more. Equal values in two places look
// different, so nobody can test guesses through an object of their own. A Redactor is immutable and
// safe for concurrent use.
type Redactor struct {
	key   []byte
	keyID string
	keep  bool // a fingerprint stays as it is
}

// MinRedactionKey is the least length of a key in bytes.
const MinRedactionKey = 16

// What the key is used for, so that a hash of one use is never one of another.
const (
	useKeyID       = "kubebridge/key-id/1"
	useFingerprint = "kubebridge/fingerprint/1"
	useDigest      = "kubebridge/digest/1"
	useSignature   = "kubebridge/signature/1"
	usePseudonym   = "kubebridge/pseudonym/1"
)

// keyIDSize in bytes: enough to distinguish keys, and it says nothing of a random key.
const keyIDSize = 4

// NewRedactor makes a Redactor. The key is kept secret and comes from a random source.
func NewRedactor(key []byte) (*Redactor, error) {
	if len(key) < MinRedactionKey {
		return nil, fmt.Errorf("redaction key has %d bytes: it needs %d or more, from a random source",
			len(key), MinRedactionKey)
	}
	r := &Redactor{key: slices.Clone(key)}
	r.keyID = hex.EncodeToString(r.mac(useKeyID).Sum(nil)[:keyIDSize])
	return r, nil
}

// KeyID distinguishes keys. Fingerprints begin with it, and those of two keys say nothing about
// each other.
func (r *Redactor) KeyID() string { return r.keyID }

// Again is for objects that were redacted before, maybe by other rules or with another key: it
// leaves fingerprints as they are. What the API server sends must not go through it: a value may
// have the look of a fingerprint.
func (r *Redactor) Again() *Redactor {
	if r == nil {
		return nil
	}
	again := *r
	again.keep = true
	return &again
}

func (r *Redactor) mac(use string) hash.Hash {
	mac := hmac.New(sha256.New, r.key)
	mac.Write([]byte(use))
	return mac
}

// digest returns a hash of bytes that depends on the key.
func (r *Redactor) digest(b []byte) string {
	mac := r.mac(useDigest)
	mac.Write(b)
	return hex.EncodeToString(mac.Sum(nil))
}

// Sign returns a signature of bytes, which only who has the key can make.
func (r *Redactor) Sign(b []byte) string {
	mac := r.mac(useSignature)
	mac.Write(b)
	return hex.EncodeToString(mac.Sum(nil))
}

// Pseudonym returns a name that stands for another one, always the same. Only who has the key can
// test a guess.
func (r *Redactor) Pseudonym(name string) string {
	mac := r.mac(usePseudonym)
	mac.Write([]byte(name))
	return "user:" + r.keyID + ":" + hex.EncodeToString(mac.Sum(nil)[:16])
}

// isFingerprint matches what fingerprint makes, without the quotes.
var isFingerprint = regexp.MustCompile(`^redacted:[0-9a-f]{8}:[0-9a-f]{16}$`).Match

func (r *Redactor) forObject(t Type, namespace, name string) objectRedactor {
	o := objectRedactor{Redactor: r}
	for _, part := range []string{t.Group, t.Resource, namespace, name} {
		o.object = appendPart(o.object, part)
	}
	return o
}

// objectRedactor makes the fingerprints of one object. It is not safe for concurrent use.
type objectRedactor struct {
	*Redactor
	object []byte // which one it is

	// keyed is used for all values: a new one hashes the key again, which takes longer than a value
	// does, and an object may have a hundred thousand values.
	keyed hash.Hash
	// begin is what all hashes begin with: the use and the object. The field of a value follows.
	begin, sum []byte
}

// fingerprintSize is how long a fingerprint is, with its quotes.
const fingerprintSize = len(`"redacted::"`) + 2*keyIDSize + 2*fingerprintBytes

// fingerprintBytes is how much of a hash a fingerprint shows.
const fingerprintBytes = 8

// appendFingerprint appends the JSON string that stands for a value at a field, see appendMember
// and appendItem.
func (r *objectRedactor) appendFingerprint(to, field, value []byte) []byte {
	if r.keep && isFingerprint(value) {
		return append(append(append(to, '"'), value...), '"')
	}
	if r.keyed == nil {
		r.keyed = hmac.New(sha256.New, r.key)
		r.begin = append([]byte(useFingerprint), r.object...)
	}
	r.keyed.Reset()
	begin := binary.AppendUvarint(r.begin, uint64(len(field)))
	begin = append(begin, field...)
	r.keyed.Write(begin)
	r.keyed.Write(value)
	r.begin, r.sum = begin[:len(r.begin)], r.keyed.Sum(r.sum[:0])
	to = append(append(to, `"redacted:`...), r.keyID...)
	to = hex.AppendEncode(append(to, ':'), r.sum[:fingerprintBytes])
	return append(to, '"')
}

// appendPart appends a text that can't run into the next one.
func appendPart(to []byte, text string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(text))), text...)
}

// appendMember adds the member of a name to the path of a field.
func appendMember(field []byte, name string) []byte { return appendPart(append(field, '.'), name) }

// appendItem adds the item of a list to the path of a field, by its name, or by its index where it
// has none.
func appendItem(field []byte, index int, name string) []byte {
	if name != "" {
		return appendPart(append(field, '='), name)
	}
	return appendPart(append(field, '['), strconv.Itoa(index))
}

// ErrRedact says that an object holds secrets in a place where they can't be taken out one by one.
// Such an object is refused as a whole. The error names the place and never what stands there.
var ErrRedact = errors.New("can't redact")

// RedactionFormat changes when Parse takes out more of the same objects, or makes other
// fingerprints, than it did before. State on disk that another format made is then redacted again.
const RedactionFormat = 5
