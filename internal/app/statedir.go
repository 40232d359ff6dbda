package app

import (
	"io/fs"
	"log/slog"
	"os"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/kube"
)

// warnOfReaders warns of a state directory that other users of the machine may read.
func warnOfReaders(c *config.State, log *slog.Logger) {
	if c.Mode == "memory" {
		return
	}
	others := fs.FileMode(0o077)
	if kube.InPod() {
		others = 0o007 // the kubelet gives volumes to the pod's group
	}
	if info, err := os.Stat(c.Dir); err == nil && info.Mode().Perm()&others != 0 {
		log.Warn("other users may read the state directory, which holds objects: chmod 700",
			"dir", c.Dir, "mode", info.Mode().Perm().String())
	}
}
