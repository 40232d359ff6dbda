package resource

import (
	"bytes"
	"time"
)

// readMetadata reads the object's metadata; members that nobody asked for are skipped.
func (p *parser) readMetadata(opts *ParseOptions) {
	if p.Peek() != '{' {
		p.refuse(ErrNoMetadata)
		p.Skip()
		return
	}
	for p.Open('{'); p.Next('}'); {
		p.metadataMember(p.Key(), opts)
	}
	if p.Err() == nil {
		p.seen |= fieldMetadataEnd
	}
}

func (p *parser) metadataMember(key []byte, opts *ParseOptions) {
	switch string(key) {
	case "name":
		p.field(fieldName, &p.name, "metadata.name")
	case "namespace":
		p.field(fieldNamespace, &p.namespace, "metadata.namespace")
	case "uid":
		p.short(fieldUID, &p.uid, "metadata.uid")
	case "resourceVersion":
		p.short(fieldVersion, &p.version, "metadata.resourceVersion")
	case "creationTimestamp":
		p.field(fieldCreated, &p.created, "metadata.creationTimestamp")
	case "deletionTimestamp":
		p.field(fieldDeletion, &p.deletion, "metadata.deletionTimestamp")
	case "generation":
		p.once(fieldGeneration, "metadata.generation")
		p.generation = p.integer("metadata.generation")
	case "ownerReferences":
		p.once(fieldOwners, "metadata.ownerReferences")
		p.readOwners()
	case "managedFields":
		p.once(fieldManaged, "metadata.managedFields")
		p.managedFields(!opts.KeepManagedFields || opts.Redacts())
	case "annotations":
		p.annotations(opts)
	default:
		p.Skip()
	}
}

func (p *parser) field(field fieldSet, into *span, path string) {
	p.once(field, path)
	p.str(into, path)
}

// short is field of a string that is stored with its length in one byte. One that is longer is forgotten.
func (p *parser) short(field fieldSet, into *span, path string) {
	if p.field(field, into, path); into.End-into.Start > MaxIdentity {
		*into = span{}
		p.refuseType(path, "at most 255 bytes long")
	}
}

func (p *parser) annotations(opts *ParseOptions) {
	if !opts.Redactor.Applies(opts.Type) {
		p.Skip()
		return
	}
	p.once(fieldAnnotations, "metadata.annotations")
	p.redactMap(secretAnnotations, "metadata.annotations")
}

func (p *parser) readOwners() {
	const path = "metadata.ownerReferences"
	if !p.enter('[', ErrFieldType, path) {
		return
	}
	for p.Next(']') {
		var owner ownerSpans
		if p.enter('{', ErrFieldType, path) {
			p.readOwner(&owner, path)
		}
		p.owners.add(owner)
	}
}

func (p *parser) readOwner(owner *ownerSpans, path string) {
	for p.Next('}') {
		switch string(p.Key()) {
		case "apiVersion":
			p.str(&owner.apiVersion, path)
		case "kind":
			p.str(&owner.kind, path)
		case "name":
			p.str(&owner.name, path)
		case "uid":
			p.str(&owner.uid, path)
		case "controller":
			owner.controller = p.Peek() == 't'
			p.Skip()
		default:
			p.Skip()
		}
	}
}

// managedFields finds who changed the object last and, unless they are kept, cuts the member together with one comma,
// so that what remains is JSON.
func (p *parser) managedFields(cut bool) {
	comma, key := p.Comma(), p.KeyAt()
	p.readManagers()
	if p.Err() != nil || !cut {
		return
	}
	at := span{Start: key, End: p.Pos()}
	if comma >= 0 {
		at.Start = comma
	} else if p.Peek() == ',' {
		at.End = p.Pos() + 1
	}
	p.edits.add(edit{span: at})
}

func (p *parser) readManagers() {
	const path = "metadata.managedFields"
	if !p.enter('[', ErrFieldType, path) {
		return
	}
	latest := time.Now().Add(maxClockSkew)
	for p.Next(']') {
		if !p.enter('{', ErrFieldType, path) {
			continue
		}
		var manager, at span
		for p.Next('}') {
			switch string(p.Key()) {
			case "manager":
				p.str(&manager, path)
			case "time":
				p.str(&at, path)
			default:
				p.Skip()
			}
		}
		if t := p.time(at); !t.After(latest) {
			p.newest(manager, t)
		}
	}
}

// maxClockSkew is how far the API server's clock may be ahead. A client may send managedFields, so an
// entry with a later time is no word of the API server: it would name its manager in all events to
// come.
const maxClockSkew = 5 * time.Minute

// newest keeps the entry with the latest time, of several with the same time the last.
func (p *parser) newest(manager span, at time.Time) {
	if p.hasEntry && at.Before(p.changedAt) {
		return
	}
	p.manager, p.changedAt, p.hasEntry = manager, at, true
}

// time reads a timestamp; what is none is the zero time.
func (p *parser) time(at span) time.Time {
	text := p.Bytes(at)
	if len(text) == 0 || bytes.IndexByte(text, '\\') >= 0 {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, view(text))
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
