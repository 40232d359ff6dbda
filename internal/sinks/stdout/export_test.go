package stdout

import "github.com/kubebridge/bridge/internal/event"

// ColouredLine is the short format as a terminal gets it; a test has no terminal.
func ColouredLine(e *event.Event) string {
	return string(shortFormat{colour: true}.appendLine(nil, e))
}
