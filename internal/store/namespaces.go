package store

import (
	"errors"
	"fmt"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store/statedb"
)

// Namespace is where a namespace stands with an informer that selects namespaces.
type Namespace struct {
	State resource.NamespaceState
	// Entered is the version of the Namespace with which it came in, where it had been selected
	// before. Its objects may then come again in a version that was reported before, and the ids
	// distinguish one time from the other. "" the first time.
	Entered resource.Version
	// AsOf is the version as of which its objects are listed when it enters, or were; "" where
	// everything was listed. It is the same after a crash, and nothing of the namespace is reported
	// up to it but the list: or what was reported before the crash would be reported again in an
	// earlier state.
	AsOf resource.Version
}

// append encodes it: the state, the length of Entered, Entered, AsOf.
func (n Namespace) append(dst []byte) []byte {
	dst = append(dst, byte(n.State), byte(len(n.Entered)))
	return append(append(dst, n.Entered...), n.AsOf...)
}

func parseNamespace(b []byte) (n Namespace, ok bool) {
	if len(b) < 2 || len(b) < 2+int(b[1]) || b[0] == 0 ||
		resource.NamespaceState(b[0]) > resource.NamespaceLeaving {
		return n, false
	}
	entered := 2 + int(b[1])
	return Namespace{
		State: resource.NamespaceState(b[0]), Entered: resource.Version(b[2:entered]),
		AsOf: resource.Version(b[entered:]),
	}, true
}

// Namespaces reads what is known of the namespaces that are selected, or were.
func (m *Meta) Namespaces() (map[string]Namespace, error) {
	it, err := m.db.iterator(m.id, spaceNamespace, "")
	if err != nil {
		return nil, err
	}
	list := map[string]Namespace{}
	for it.First(); it.Valid(); it.Next() {
		name := string(it.Key()[len(prefix(spaceNamespace, 0)):])
		n, ok := parseNamespace(it.Value())
		if !ok {
			err = fmt.Errorf("state of informer %s: the entry of namespace %s does not parse; "+
				"the directory is damaged, or of another version of the bridge", m.name, name)
			break
		}
		list[name] = n
	}
	return list, errors.Join(err, statedb.Wrap(it.Error()), statedb.Wrap(it.Close()))
}

// SetNamespace writes where a namespace stands.
func (b *Batch) SetNamespace(ix *Indexer, name string, n Namespace) {
	b.put(objectKey(spaceNamespace, ix.id, resource.Key(name)), n.append(nil))
}

// ForgetNamespace forgets a namespace.
func (b *Batch) ForgetNamespace(ix *Indexer, name string) {
	b.Fail(b.batch.Delete(objectKey(spaceNamespace, ix.id, resource.Key(name)), nil))
}
