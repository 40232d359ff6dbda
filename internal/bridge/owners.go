package bridge

import (
	"github.com/kubebridge/bridge/internal/resource"
)

// maxOwners bounds a chain: nothing keeps objects from owning each other.
const maxOwners = 8

// owners is the chain from an object to its top controller, as far as pipelines or the ownerCache
// have the owners. It may be called concurrently.
func (b *Bridge) owners(obj *resource.Object) []resource.Owner {
	var chain []resource.Owner
	for owner, ok := controllerOf(&obj.Meta); ok &&
		len(chain) < maxOwners; owner, ok = b.above(owner, obj.Namespace) {
		chain = append(chain, owner)
	}
	return chain
}

// above is the controller of an owner: as it is known, or, once the owner is gone, as it was.
func (b *Bridge) above(owner resource.Owner, namespace string) (resource.Owner, bool) {
	meta := b.known(owner, namespace)
	if meta == nil {
		return b.ownerCache.get(namespace, owner.UID)
	}
	controller, ok := controllerOf(meta)
	if ok {
		b.ownerCache.put(meta.Namespace, owner.UID, controller)
	} else {
		b.ownerCache.remove(meta.Namespace, owner.UID)
	}
	return controller, ok
}

// known is the metadata of an owner, nil when no pipeline has it.
func (b *Bridge) known(o resource.Owner, namespace string) *resource.Meta {
	for _, u := range b.pipelines.all() {
		if meta := u.Objects.Owner(o, namespace); meta != nil {
			return meta
		}
	}
	return nil
}
