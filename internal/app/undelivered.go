package app

import (
	"path/filepath"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/publisher/refused"
)

// UndeliveredDir is the folder of events that no broker accepted.
func UndeliveredDir(c *config.State) string { return filepath.Join(c.Dir, "undelivered") }

// newUndelivered is the folder for what no broker takes; nil without a disk, or with no room for
// it.
func newUndelivered(c *config.State, registry prometheus.Registerer) *refused.Folder {
	if c.Mode == "memory" || c.MaxUndeliveredBytes == 0 {
		return nil
	}
	return refused.New(refused.Config{
		Dir: UndeliveredDir(c), MaxBytes: int64(c.MaxUndeliveredBytes), Registerer: registry,
	})
}
