package publisher

import "github.com/kubebridge/bridge/internal/resource"

// Cover says by what another replica, which publishes, has settled an item too: its progress is a
// version of the same API server.
type Cover struct {
	// Version up to which that replica must have settled everything.
	Version resource.Version
	// Epoch of the server's history that the version is of: versions of different epochs can't be
	// compared.
	Epoch int
	// Selection up to which changes of the selected namespaces must have been worked in, and what
	// came of them settled; "" for none.
	Selection resource.Version
	// OfList is set in place of Version on what is about a whole list, whose version its end tells.
	OfList bool
	// Nothing new: it tells only what was told before.
	Repeats bool
}
