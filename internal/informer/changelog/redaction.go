package changelog

import (
	"fmt"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/store"
)

// Redact takes out of the state of an informer what the options say, out of the last known objects
// and out of the log. It is for an Indexer that nothing else uses yet. When it fails it can be
// repeated.
func Redact(ix *store.Indexer, opts resource.ParseOptions) error {
	again := func(raw []byte) ([]byte, error) {
		obj, err := resource.Parse(raw, opts)
		if err != nil {
			return nil, err
		}
		return obj.Raw, nil
	}
	return ix.Rewrite(again, func(entry []byte) ([]byte, error) { return rewrite(entry, again) })
}

// rewrite makes an entry of the log again.
func rewrite(entry []byte, again func([]byte) ([]byte, error)) ([]byte, error) {
	r, raw, old, err := split(0, entry)
	if err != nil || !r.HasObject && r.Unreadable == nil {
		return entry, err
	}
	if u := r.Unreadable; u != nil { // where values stand in it nobody knows
		u.Raw, u.Message, u.Withheld = nil, "", true
		return r.join(nil)
	}
	if raw, err = again(raw); err != nil {
		return nil, err
	}
	if r.OldBytes > 0 {
		if old, err = again(old); err != nil {
			return nil, fmt.Errorf("the object before: %w", err)
		}
	}
	r.OldBytes = len(old)
	return r.join(append(raw, old...))
}
