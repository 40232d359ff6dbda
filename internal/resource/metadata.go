package resource

import (
	"strings"
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

// managedFields reads who has written the object. Unless they are kept, it cuts the member
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
		case "fieldsV1":
			e.fields = p.Skip()
		default:
			p.Skip()
		}
	}
	p.writes.add(e)
}

// copiesOfObject are the annotations in which tools keep a copy of the whole object, some of them
// compressed. A rule that takes a value out of an object takes it out of these copies too.
var copiesOfObject = []string{
	"banzaicloud.com/last-applied",
	"kapp.k14s.io/original",
	"ksonnet.io/managed",
	"kubectl.kubernetes.io/last-applied-configuration",
	"objectset.rio.cattle.io/applied",
}

// harmlessAnnotations are the annotations of core Secrets that stay readable. Every other one is
// replaced, because some hold a secret: OpenShift keeps a service account's token in
// openshift.io/token-secret.value, and external-secrets an unkeyed hash of the data in
// reconcile.external-secrets.io/data-hash.
//
// A name belongs here when the value only names things: objects, hosts, modes, times.
// docs/redaction.md has the same list, and a test compares them.
var harmlessAnnotations = map[string]bool{
	"argocd.argoproj.io/compare-options":                 true,
	"argocd.argoproj.io/hook":                            true,
	"argocd.argoproj.io/hook-delete-policy":              true,
	"argocd.argoproj.io/sync-options":                    true,
	"argocd.argoproj.io/sync-wave":                       true,
	"argocd.argoproj.io/tracking-id":                     true,
	"cert-manager.io/allow-direct-injection":             true,
	"cert-manager.io/alt-names":                          true,
	"cert-manager.io/certificate-name":                   true,
	"cert-manager.io/common-name":                        true,
	"cert-manager.io/ip-sans":                            true,
	"cert-manager.io/issuer-group":                       true,
	"cert-manager.io/issuer-kind":                        true,
	"cert-manager.io/issuer-name":                        true,
	"cert-manager.io/uri-sans":                           true,
	"helm.sh/hook":                                       true,
	"helm.sh/hook-delete-policy":                         true,
	"helm.sh/hook-weight":                                true,
	"helm.sh/resource-policy":                            true,
	"kubernetes.io/service-account.name":                 true,
	"kubernetes.io/service-account.uid":                  true,
	"kustomize.toolkit.fluxcd.io/prune":                  true,
	"kustomize.toolkit.fluxcd.io/reconcile":              true,
	"kustomize.toolkit.fluxcd.io/ssa":                    true,
	"meta.helm.sh/release-name":                          true,
	"meta.helm.sh/release-namespace":                     true,
	"openshift.io/token-secret.name":                     true,
	"sealedsecrets.bitnami.com/cluster-wide":             true,
	"sealedsecrets.bitnami.com/managed":                  true,
	"sealedsecrets.bitnami.com/namespace-wide":           true,
	"sealedsecrets.bitnami.com/patch":                    true,
	"service.beta.openshift.io/expiry":                   true,
	"service.beta.openshift.io/originating-service-name": true,
	"service.beta.openshift.io/originating-service-uid":  true,
}

// Restore makes an Object of the bytes of one that was made by Parse, and kept. The type may have
// moved to another version of the API since.
func Restore(raw []byte, t Type) (*Object, error) {
	obj, err := Parse(raw, ParseOptions{Type: t, KeepManagedFields: true})
	if err != nil {
		return nil, err
	}
	text := strings.Trim(view(Member(obj.Raw, "apiVersion")), `"`)
	if version, ok := t.otherVersion(text); ok {
		obj.APIVersion = version.APIVersion()
	}
	return obj, nil
}

// In returns the type in the version of the API that an object is in.
func (t Type) In(apiVersion string) Type {
	if other, ok := t.otherVersion(apiVersion); ok {
		return other
	}
	return t
}

// otherVersion returns the type in another version of its group; ok is false for its own, and for
// what is none of its group.
func (t Type) otherVersion(apiVersion string) (other Type, ok bool) {
	group, version, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		group, version = "", apiVersion
	}
	other = t
	other.Version = version
	return other, group == t.Group && version != "" && version != t.Version
}
