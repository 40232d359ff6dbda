package app

import (
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/undelivered"
)

// newUndelivered is the folder for what no broker takes; nil without a disk, or with no room for it.
func newUndelivered(c *config.State, registry prometheus.Registerer) *undelivered.Folder {
	if c.Mode == "memory" || c.Undelivered == 0 {
		return nil
	}
	return undelivered.New(undelivered.Config{
		Dir: filepath.Join(c.Dir, "undelivered"), MaxBytes: int64(c.Undelivered), Registerer: registry,
	})
}
