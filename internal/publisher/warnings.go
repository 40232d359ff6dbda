package publisher

import "github.com/kubebridge/bridge/internal/logthrottle"

// warnings are those that come once per message during a fault.
type warnings struct {
	retry, route, oversize, claim, panicked logthrottle.Throttle
	deadLettered, kept, lost, pending       logthrottle.Throttle // of refused messages
}
