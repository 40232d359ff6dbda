package nats

import "github.com/kubebridge/bridge/internal/event"

// Hooks for tests of pure functions that have no way in from outside.
var (
	Answer        = answer
	PercentEncode = percentEncode
	Covers        = covers
)

// NewEncodeLoop is the encoder as Publish uses it for one message after the other.
func NewEncodeLoop(encoding string) func(*event.Event) {
	template, err := event.ParseTemplate(DefaultSubject)
	if err != nil {
		panic(err)
	}
	enc := encoders.Get().(*encoder)
	limits := sizeLimits{payload: 1 << 20, header: maxHeader}
	return func(e *event.Event) {
		enc.encode(e, route{subject: template}, encoding, func(dst []byte) []byte { return append(dst, "_INBOX.abcdefghijklmnopqrstuv.1-1"...) })
		if err := limits.check(enc); err != nil {
			panic(err)
		}
	}
}
