package event

import (
	"cmp"
	"strconv"
	"strings"

	"github.com/kubebridge/bridge/internal/resource"
)

// composed are the attributes of an object's event that have to be put together. They share one
// string: one allocation for each event.
type composed struct{ id, path, key, sequence string }

// prefixes are the parts of composed that are the same for all events of a Maker.
type prefixes struct {
	apiVersion string
	api        string // "api/v1", "apis/apps/v1"
	resource   string // "deployments"
	group      string // "deployments.apps"
}

func newPrefixes(t resource.Type) prefixes {
	p := prefixes{apiVersion: t.APIVersion(), resource: t.Resource, group: t.String()}
	p.api = strings.TrimSuffix(t.CollectionPath(""), "/"+t.Resource)
	return p
}

// partitionKey is the key of an object's events, as compose writes it.
func (p *prefixes) partitionKey(namespace, name string) string {
	return p.group + "/" + namespace + "/" + name
}

// compose makes the attributes of a change that have to be put together.
func (m *Maker) compose(c *Change, namespace, name string) composed {
	p := &m.prefixes
	var b strings.Builder
	b.Grow(len(c.UID) + 2*len(c.Version) + len(p.api) + 2*len(namespace) + 2*len(name) +
		len(p.resource) + len(p.group) + 2*len(c.Entered) + 128)
	m.writeID(&b, c)
	id := b.Len()
	b.WriteString(p.api)
	if namespace != "" {
		b.WriteString("/namespaces/")
		b.WriteString(namespace)
	}
	b.WriteByte('/')
	b.WriteString(p.resource)
	b.WriteByte('/')
	b.WriteString(name)
	path := b.Len()
	b.WriteString(p.group)
	b.WriteByte('/')
	b.WriteString(namespace)
	b.WriteByte('/')
	b.WriteString(name)
	key := b.Len()
	writeSequence(&b, c)
	s := b.String()
	return composed{id: s[:id], path: s[id:path], key: s[path:key], sequence: s[key:]}
}

// writeSequence writes what sorts all events of one object, by its name, as text: the era, the
// version, and a Deleted behind the state that it ends. An inferred Deleted has the version as of
// which the object is gone: the stream may have later states than the one that is known. An object
// of a namespace that is selected once more may come in a version from before its delete. So the
// version of the Namespace is in front of its versions, and sorts behind all that have none.
func writeSequence(b *strings.Builder, c *Change) {
	c.writeEra(b)
	if c.Entered != "" {
		b.WriteString("entered.")
		writePadded(b, c.Entered)
		b.WriteByte('.')
	}
	if c.Op != Deleted {
		writePadded(b, c.Version)
		return
	}
	writePadded(b, cmp.Or(c.GoneAsOf, c.Version))
	b.WriteString(".deleted")
}

// writeID writes the id of a change. An object dies once, whether the watch or a relist reports it;
// it may leave a selector more than once, with another version each time. Where the API server
// selects, it is unknown which of the two it was, and the version before distinguishes one leaving
// from the next. An object of a namespace that comes into the selection again may come in a
// version that was reported before: so its ids have the version of the Namespace; and all ids have
// their Era.
func (m *Maker) writeID(b *strings.Builder, c *Change) {
	b.WriteString(c.UID)
	b.WriteByte('/')
	switch {
	case c.Op == Synced:
		b.WriteString(string(c.Version))
		b.WriteString("/sync/")
		b.WriteString(strconv.FormatInt(c.Round, 10))
	case c.Op == Deleted && c.Left != "":
		b.WriteString(string(c.Left))
		b.WriteString("/left")
	case c.Op == Deleted && m.cfg.Selective && !(m.cfg.Exact && c.Cause == CauseDeleted):
		b.WriteString(string(c.Before))
		b.WriteString("/deleted")
	case c.Op == Deleted:
		b.WriteString("deleted")
	default:
		b.WriteString(string(c.Version))
	}
	if c.Entered != "" {
		b.WriteString("/entered/")
		b.WriteString(string(c.Entered))
	}
	c.write(b)
}
