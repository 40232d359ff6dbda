package e2e_test

import (
	"time"

	"github.com/kubebridge/bridge/test/e2e/check"
	"github.com/kubebridge/bridge/test/e2e/harness"
	"github.com/kubebridge/bridge/test/e2e/read"
	"github.com/kubebridge/bridge/test/e2e/truth"
)

// alsoBucket is a second sink behind the embedded server, which keeps the present state.
const alsoBucket = `  - {name: now, nats: {servers: ["nats://${NATS_ADDRESS}"], mode: kv, bucket: NOW}}
`

// awaitBucket waits until the bucket has the objects that exist, as they are, and no other.
func (l *lab) awaitBucket(b *harness.Bridge, exist []truth.Change) {
	l.t.Helper()
	url := jetStream(b).URL
	eventually(l.t, "the bucket", 2*time.Minute, func() []string { return l.bucketProblems(url, exist) })
}

// bucketProblems are the differences between a bucket and the objects that exist.
func (l *lab) bucketProblems(url string, exist []truth.Change) []string {
	entries := &read.JetStream{URL: url, Stream: "KV_NOW", Filter: "$KV.NOW.>"} // again: it keeps nothing
	events, err := entries.Refresh(l.ctx)
	if err != nil {
		return []string{err.Error()}
	}
	return check.FinalState(exist, events, check.Options{})
}
