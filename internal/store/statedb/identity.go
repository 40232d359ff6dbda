package statedb

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
)

// Identity is whose state a directory has: the cluster, and the secret of what was redacted.
type Identity struct{ db *DB }

// BindCluster remembers whose objects these are (the uid of the namespace kube-system), and refuses
// those of another cluster with ErrOtherCluster. An empty id is not checked.
func (i Identity) BindCluster(id string) error {
	if id == "" {
		return nil
	}
	known, err := i.db.Get(MetaKey("cluster"))
	switch {
	case err != nil:
		return err
	case known == nil:
		return i.db.set(MetaKey("cluster"), []byte(id))
	case string(known) != id:
		return fmt.Errorf("state directory %s %w: it was made with cluster %s, this one is %s; "+
			"give each cluster its own state.dir", i.db.dir, ErrOtherCluster, known, id)
	default:
		return nil
	}
}

// Secret is a random key of this state directory, created at the first call: redacted values are
// hashed with it, so that a change of value stays visible across restarts and the value does not.
func (i Identity) Secret() ([]byte, error) {
	key, err := i.db.Get(MetaKey("secret"))
	if err != nil || key != nil {
		return key, err
	}
	key = make([]byte, 32)
	rand.Read(key)
	return key, i.db.set(MetaKey("secret"), key)
}

// ForgetSecret removes the key that Secret has made, also from the files that held it.
func (i Identity) ForgetSecret() error {
	name := MetaKey("secret")
	key, err := i.db.Get(name)
	if err != nil || key == nil {
		return err
	}
	if err := i.db.pebble.Delete(name, i.db.sync); err != nil {
		return Wrap(err)
	}
	return Wrap(errors.Join(i.db.pebble.Flush(), i.db.pebble.Compact(context.Background(), name,
		append(slices.Clone(name), 0), false)))
}
