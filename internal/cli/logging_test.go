package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/config"
)

func TestDurationsAreReadableInAnyFormatOfTheLog(t *testing.T) {
	for _, format := range []string{"json", "text"} {
		var out bytes.Buffer
		newLogger(config.Log{Level: "info", Format: format}, &out).Info("trying again", "delay", 1500*time.Millisecond)
		if !strings.Contains(out.String(), "1.5s") {
			t.Errorf("%s: %s", format, out.String())
		}
	}
}
