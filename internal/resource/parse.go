package resource

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"

	"github.com/kubebridge/bridge/internal/resource/jsonscan"
)

// Why bytes are no object that can be followed. Whoever gets one of them quarantines the bytes.
var (
	ErrNotObject  = errors.New("not a JSON object")
	ErrNoMetadata = errors.New("object has no metadata")
	ErrNoName     = errors.New("object has no metadata.name")
	ErrNoVersion  = errors.New("object has no metadata.resourceVersion")
	ErrDuplicate  = errors.New("object has a member twice")
	ErrFieldType  = errors.New("object has a member of the wrong type")
	ErrWrongKind  = errors.New("object is of another kind")
	ErrVersion    = errors.New("resourceVersion is longer than " + strconv.Itoa(MaxIdentity) +
		" bytes")
	ErrDepth = errors.New("object has more than " + strconv.Itoa(MaxDepth) + " levels")
)

// MaxDepth is how many levels an object may have, as the API server sends it. The API server takes
// 10,000 from any tenant. What works on objects later can cost levels times bytes.
const MaxDepth = 1000

// MaxIdentity is how long a uid or a version may be: the state on disk has their length in one
// byte.
const MaxIdentity = 255

// RefusedError is JSON that is no object to follow, for one of the reasons above or ErrRedact. It
// was gone over to its end, in which no mistake was found: what is behind it can be read.
type RefusedError struct {
	Identity
	err error
}

// Identity is what an object says of itself, even where the rest can't be understood.
type Identity struct {
	// Key of the object, where its metadata says beyond doubt which it is; else "".
	Key     Key
	UID     string  // "" for none
	Version Version // "" for none
}

// Identified reports whether it is known which state of which object it is.
func (i *Identity) Identified() bool { return i.Key != "" && i.UID != "" && i.Version != "" }

func (e *RefusedError) Error() string { return e.err.Error() }
func (e *RefusedError) Unwrap() error { return e.err }

// Refuse refuses an object for a reason of the caller's.
func Refuse(of Identity, why error) *RefusedError { return &RefusedError{of, why} }

// CutError is an error of the reader amid an object. The Identity is set where all of its metadata
// came before.
type CutError struct {
	Identity
	err error
}

func (e *CutError) Error() string { return e.err.Error() }
func (e *CutError) Unwrap() error { return e.err }

// ErrSyntax says that the bytes are not the JSON that they were said to be.
var ErrSyntax = jsonscan.ErrSyntax

type span = jsonscan.Span

// inner returns a quoted string's text.
func inner(quoted span) span { return span{Start: quoted.Start + 1, End: quoted.End - 1} }

// ParseOptions say what Parse changes in the bytes.
type ParseOptions struct {
	// Type is what the object must be. Its kind and apiVersion are put in front where the object
	// comes without, as items of lists do. An object of another kind is refused; the zero Type
	// takes every kind and adds nothing.
	Type Type
	// KeepManagedFields leaves metadata.managedFields in; by default they are cut, after Meta was
	// read from them.
	KeepManagedFields bool
	// Redactor replaces values in Secrets and in other kinds that are known to hold credentials;
	// nil leaves them. Their managed fields are cut in any case.
	Redactor *Redactor
	// Rules take further values out, of objects of any kind; nil for none. With them managed fields
	// are cut: they repeat values of lists.
	Rules *Rules
}

// Redacts reports whether objects hold values that nobody may see.
func (o *ParseOptions) Redacts() bool { return o.rules() != nil || o.Redactor.Applies(o.Type) }

// secretKey returns the redactor that there is; there is one where Redacts is true.
func (o *ParseOptions) secretKey() *Redactor {
	if o.Redactor != nil || o.Rules == nil {
		return o.Redactor
	}
	return o.Rules.redactor
}

// KeyID returns the id of the key with which objects are redacted, "" where none are.
func (o *ParseOptions) KeyID() string {
	if !o.Redacts() {
		return ""
	}
	return o.secretKey().KeyID()
}

// Again returns the options for what was parsed before and comes back from disk: it is redacted
// once more, by rules that may be others now.
func (o ParseOptions) Again() ParseOptions {
	o.KeepManagedFields, o.Redactor, o.Rules = true, o.Redactor.Again(), o.Rules.Again()
	return o
}

// Parse makes an Object of its JSON. It goes over the bytes once, with members in any order, and
// copies them once; the Object keeps nothing of raw. Bytes that are no object of the type give a
// RefusedError, or ErrSyntax.
func Parse(raw []byte, opts ParseOptions) (*Object, error) {
	s := jsonscan.Of(raw)
	obj, err := ParseNext(&s, &opts)
	if syntax := finish(&s); syntax != nil {
		return nil, syntax
	}
	return obj, err
}

// finish reports whether nothing went wrong, and nothing follows.
func finish(s *jsonscan.Scanner) error {
	if !s.AtEnd() {
		s.Fail(fmt.Errorf("%w: something follows the value", ErrSyntax))
	}
	return s.Err()
}

// ParseNext makes an Object of the JSON that comes next, as Parse does. An error that is no
// RefusedError is the scanner's: a SyntaxError, or a CutError. A panic refuses the object too.
func ParseNext(s *jsonscan.Scanner, opts *ParseOptions) (obj *Object, err error) {
	p := parser{Scanner: *s} // not a pointer: it would drag s to the heap
	defer func() {
		if v := recover(); v != nil {
			obj, err = nil, p.panicked(s, v, opts.Type)
		}
	}()
	at, err := p.scan(opts)
	*s = p.Scanner
	if err != nil {
		return nil, p.refusal(err, opts.Type)
	}
	obj = p.object(at, opts)
	rules := opts.rules()
	if rules == nil {
		return obj, nil
	}
	ruled, err := rules.apply(obj, opts.Type)
	if err != nil {
		return nil, &RefusedError{IdentityOf(obj), err}
	}
	return ruled, nil
}

// panicked goes over the object that the parser has panicked at, and refuses it.
func (p *parser) panicked(s *jsonscan.Scanner, v any, t Type) error {
	start, level := s.Pos(), s.Level()
	*s = p.Scanner
	s.Again(start, level)
	if s.Skip(); s.Err() != nil {
		return s.Err()
	}
	return &RefusedError{p.identityOrNone(t), Panicked(v)}
}

// identityOrNone is identity, where all of the metadata was read and it is known.
func (p *parser) identityOrNone(t Type) (of Identity) {
	defer func() { _ = recover() }() // the parser may be in any state
	if p.seen&fieldMetadataEnd != 0 {
		of = p.identity(t)
	}
	return of
}

// refusal says of which object an error is.
func (p *parser) refusal(err error, t Type) error {
	switch {
	case p.Err() == nil:
		return &RefusedError{p.identity(t), err}
	case errors.Is(err, ErrSyntax):
		return err
	case p.seen&fieldMetadataEnd == 0:
		return &CutError{err: err}
	default:
		return &CutError{p.identity(t), err}
	}
}

func (p *parser) identity(t Type) Identity {
	return Identity{p.key(t), string(p.Text(p.uid)), Version(p.Text(p.version))}
}

// key of an object that is refused, "" where it may be another's: names that come twice, a kind
// that is not the type's.
func (p *parser) key(t Type) Key {
	name, namespace := p.Text(p.name), p.Text(p.namespace)
	if p.doubtful || len(name) == 0 || t.Namespaced != (len(namespace) > 0) {
		return ""
	}
	return MakeKey(string(namespace), string(name))
}

// parser is what one pass over an object finds.
type parser struct {
	jsonscan.Scanner
	refused error // the first reason why it is no object to follow
	// doubtful: what it says of itself may be wrong.
	doubtful bool
	seen     fieldSet
	edits    smallSlice[edit] // in the order of the input

	namespace, name, uid, version, deletion, created span
	node                                             span // of a pod
	generation                                       int64
	owners                                           smallSlice[ownerSpans]

	writes smallSlice[entrySpans] // the managedFields entries
}

type ownerSpans struct {
	apiVersion, kind, name, uid span
	controller                  bool
}

// edit is a part of the input that is replaced.
type edit struct {
	span
	with []byte
	// longer is by how much this edit and those before it make the object longer; see sumEdits.
	longer int
	// secret says that it is a value of a Secret, whose member's name begins at key.
	secret secretMap
	key    int
}

// fieldSet remembers which members were there: one that comes twice has two meanings.
type fieldSet uint32

const (
	fieldKind fieldSet = 1 << iota
	fieldAPIVersion
	fieldMetadata
	fieldData
	fieldStringData
	fieldName
	fieldNamespace
	fieldUID
	fieldVersion
	fieldGeneration
	fieldCreated
	fieldDeletion
	fieldOwners
	fieldManaged
	fieldAnnotations
	fieldMetadataEnd
)

// refuse says that this is no object to follow. The walk continues: that it is JSON at all is
// reported first.
func (p *parser) refuse(err error) {
	if p.refused == nil {
		p.refused = err
	}
}

func (p *parser) once(field fieldSet, path string) {
	if p.seen&field != 0 {
		p.refuse(fmt.Errorf("%w: %s", ErrDuplicate, path))
		p.doubtful = p.doubtful || field&(fieldKind|fieldMetadata|fieldName|fieldNamespace|fieldUID) != 0
	}
	p.seen |= field
}

// scan walks over the whole object and says where it stood.
func (p *parser) scan(opts *ParseOptions) (span, error) {
	if p.Peek() != '{' {
		p.Skip()
		return span{}, cmp.Or(p.Err(), ErrNotObject)
	}
	start := p.Pos()
	p.LimitDepth(MaxDepth)
	for p.Open('{'); p.Next('}'); {
		p.member(p.Key(), opts)
	}
	at := span{Start: start, End: p.Pos()}
	if p.Err() == nil {
		p.fingerprints(opts)
	}
	return at, cmp.Or(p.Err(), p.refused, p.complete())
}

// complete reports whether everything was there that an object must have.
func (p *parser) complete() error {
	switch {
	case p.seen&fieldMetadata == 0:
		return ErrNoMetadata
	case p.name.Start == p.name.End:
		return ErrNoName
	case p.version.Start == p.version.End:
		return ErrNoVersion
	case p.TooDeep():
		return ErrDepth
	}
	return nil
}

// member reads one member of the object itself.
func (p *parser) member(key []byte, opts *ParseOptions) {
	switch string(key) {
	case "kind":
		p.once(fieldKind, "kind")
		p.checkKind(opts.Type.Kind)
	case "apiVersion":
		p.once(fieldAPIVersion, "apiVersion")
		p.Skip()
	case "metadata":
		p.once(fieldMetadata, "metadata")
		p.readMetadata(opts)
	case "spec":
		p.readSpec(opts.Type)
	case "data", "stringData":
		p.payload(string(key) == "data", opts)
	default:
		p.Skip()
	}
}

// readSpec reads the node out of the spec of a pod: an index needs it, and a second pass over the
// object would cost 5 µs.
func (p *parser) readSpec(t Type) {
	if !t.IsPods() || p.Peek() != '{' {
		p.Skip()
		return
	}
	for p.Open('{'); p.Next('}'); {
		if string(p.Key()) == "nodeName" && p.Peek() == '"' {
			p.node = p.Quoted()
		} else {
			p.Skip()
		}
	}
}

// payload reads data or stringData, which are redacted in objects that hold secrets and nobody's
// business in others.
func (p *parser) payload(isData bool, opts *ParseOptions) {
	switch {
	case !opts.Redactor.Applies(opts.Type):
		p.Skip()
	case isData:
		p.once(fieldData, "data")
		p.redactMap(secretData, "data")
	default:
		p.once(fieldStringData, "stringData")
		p.redactMap(secretStringData, "stringData")
	}
}

// checkKind refuses objects of another kind: a Table, a Status, or what a server sends that was
// asked for something else.
func (p *parser) checkKind(want string) {
	var kind span
	p.str(&kind, "kind")
	if p.Err() != nil || want == "" {
		return
	}
	if got := p.Text(kind); string(got) != want {
		p.refuse(fmt.Errorf("%w: %q, not %q", ErrWrongKind, got[:min(len(got), 64)], want))
		p.doubtful = true
	}
}

// str reads a string; null is no string.
func (p *parser) str(into *span, path string) {
	switch p.Peek() {
	case '"':
		*into = p.Quoted()
	case 'n':
		p.Skip()
	default:
		p.refuseType(path, "a string")
		p.Skip()
	}
}

// enter opens an object or array. null is an empty one, which is skipped; anything else fails with
// the error given.
func (p *parser) enter(open byte, otherwise error, path string) bool {
	switch p.Peek() {
	case open:
		p.Open(open)
		return true
	case 'n':
		p.Skip()
	default:
		p.refuse(fmt.Errorf("%w: %s", otherwise, path))
		p.Skip()
	}
	return false
}

func (p *parser) refuseType(path, want string) {
	p.refuse(fmt.Errorf("%w: %s is not %s", ErrFieldType, path, want))
}

// integer reads a whole number; null is 0.
func (p *parser) integer(path string) int64 {
	at := p.Skip()
	text := string(p.Bytes(at)) // does not escape: stays on the stack
	if text == "null" || p.Err() != nil {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		p.refuseType(path, "a whole number")
	}
	return n
}
