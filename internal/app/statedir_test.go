package app

import (
	"bytes"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/config"
)

func TestStateDirReaders(t *testing.T) {
	logged := func(dir string) string {
		var out bytes.Buffer
		warnOfReaders(&config.State{Dir: dir, Mode: "disk"}, slog.New(slog.NewTextHandler(&out, nil)))
		return out.String()
	}
	dir := t.TempDir()
	for _, test := range []struct {
		name, pod string
		mode      os.FileMode
		warned    bool
	}{
		{"for its user", "", 0o700, false},
		{"for its group", "", 0o750, true},
		{"for everybody", "", 0o755, true},
		{"for its group, in a pod", "10.0.0.1", 0o770, false},
		{"for everybody, in a pod", "10.0.0.1", 0o777, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", test.pod)
			if err := os.Chmod(dir, test.mode); err != nil {
				t.Fatal(err)
			}
			if got := logged(dir); strings.Contains(got, "chmod 700") != test.warned {
				t.Errorf("with mode %v: %q", test.mode, got)
			}
		})
	}
}
