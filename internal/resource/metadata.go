package resource

import (
	"bytes"
	"time"
)

// readMetadata reads the object's metadata; members that nobody asked for are skipped.
func (p *parser) readMetadata(opts *ParseOptions) {
	if p.peek() != '{' {
		p.fail(ErrNoMetadata)
		return
	}
	for p.open('{'); p.next('}'); {
		p.metadataMember(p.key(), opts)
	}
}

func (p *parser) metadataMember(key []byte, opts *ParseOptions) {
	switch string(key) {
	case "name":
		p.field(fieldName, &p.name, "metadata.name")
	case "namespace":
		p.field(fieldNamespace, &p.namespace, "metadata.namespace")
	case "uid":
		p.field(fieldUID, &p.uid, "metadata.uid")
	case "resourceVersion":
		p.field(fieldVersion, &p.version, "metadata.resourceVersion")
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
		p.skip()
	}
}

func (p *parser) field(field fieldSet, into *span, path string) {
	p.once(field, path)
	p.str(into, path)
}

func (p *parser) annotations(opts *ParseOptions) {
	if !opts.Redactor.Applies(opts.Type) {
		p.skip()
		return
	}
	p.once(fieldAnnotations, "metadata.annotations")
	p.redactAnnotations(opts.Redactor)
}

func (p *parser) readOwners() {
	const path = "metadata.ownerReferences"
	if !p.enter('[', ErrFieldType, path) {
		return
	}
	for p.next(']') {
		var owner ownerSpans
		if p.enter('{', ErrFieldType, path) {
			p.readOwner(&owner, path)
		}
		p.owners.add(owner)
	}
}

func (p *parser) readOwner(owner *ownerSpans, path string) {
	for p.next('}') {
		switch string(p.key()) {
		case "apiVersion":
			p.str(&owner.apiVersion, path)
		case "kind":
			p.str(&owner.kind, path)
		case "name":
			p.str(&owner.name, path)
		case "uid":
			p.str(&owner.uid, path)
		case "controller":
			owner.controller = p.peek() == 't'
			p.skip()
		default:
			p.skip()
		}
	}
}

// managedFields finds who changed the object last and, unless they are kept, cuts the member together with one comma,
// so that what remains is JSON.
func (p *parser) managedFields(cut bool) {
	comma, key := p.comma, p.keyAt
	p.readManagers()
	if p.err != nil || !cut {
		return
	}
	at := span{key, p.i}
	if comma >= 0 {
		at.start = comma
	} else if p.peek() == ',' {
		at.end = p.i + 1
	}
	p.edits.add(edit{span: at})
}

func (p *parser) readManagers() {
	const path = "metadata.managedFields"
	if !p.enter('[', ErrFieldType, path) {
		return
	}
	for p.next(']') {
		if !p.enter('{', ErrFieldType, path) {
			continue
		}
		var manager, at span
		for p.next('}') {
			switch string(p.key()) {
			case "manager":
				p.str(&manager, path)
			case "time":
				p.str(&at, path)
			default:
				p.skip()
			}
		}
		p.newest(manager, p.time(at))
	}
}

// newest keeps the entry with the latest time, of several with the same time the last.
func (p *parser) newest(manager span, at time.Time) {
	if p.hasEntry && at.Before(p.changedAt) {
		return
	}
	p.manager, p.changedAt, p.hasEntry = manager, at, true
}

// time reads a timestamp; what is none is the zero time.
func (p *parser) time(at span) time.Time {
	text := p.b[at.start:at.end]
	if len(text) == 0 || bytes.IndexByte(text, '\\') >= 0 {
		return time.Time{}
	}
	t, err := time.Parse(time.RFC3339, view(text))
	if err != nil {
		return time.Time{}
	}
	return t.UTC()
}
