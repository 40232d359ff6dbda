package resource

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

// short is field of a string that is stored with its length in one byte. One that is longer is
// forgotten.
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

// managedFields finds the newest writes of the object. Unless they are kept, it cuts the member
// together with one comma, so that what remains is JSON.
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
	for p.Next(']') {
		if p.enter('{', ErrFieldType, path) {
			p.readEntry(path)
		}
	}
}

func (p *parser) readEntry(path string) {
	var e entrySpans
	for p.Next('}') {
		switch string(p.Key()) {
		case "manager":
			p.str(&e.manager, path)
		case "operation":
			p.str(&e.operation, path)
		case "subresource":
			p.str(&e.subresource, path)
		case "apiVersion":
			p.str(&e.apiVersion, path)
		case "time":
			p.str(&e.time, path)
		default:
			p.Skip()
		}
	}
	p.wrote(&e)
}
