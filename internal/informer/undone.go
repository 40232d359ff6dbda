package informer

import (
	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// An etcd that was restored from a backup, and whose version has overtaken ours before we asked (or was raised, as etcd advises), looks like one that
// has only forgotten versions. But its objects tell: what was changed after the backup is in an older state again, and versions of one
// object never go back in one history.

// compare notes an item of a list that is older than what is known of the same object.
func (c *controller) compare(obj *resource.Object, known store.Record, found bool) {
	if !found || known.UID != obj.UID || c.cfg.Undone == nil || c.relist.Rewound || c.relist.Partial() || !known.Version.Newer(obj.Version) {
		return
	}
	if c.older == "" || c.older.Newer(known.Version) {
		c.older = known.Version
	}
}

// undone says whether a list as of version proves that the history is another. One that is as of an earlier version than what is known
// proves nothing: another API server, which is behind, has answered.
func (c *controller) undone(version resource.Version) bool {
	return c.older != "" && c.older.NotNewer(version)
}
