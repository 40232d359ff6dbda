package checkpoint_test

import (
	"fmt"
	"testing"

	"github.com/kubebridge/bridge/internal/informer/changelog"
)

// BenchmarkLog is a change's way through the log, with as many unsettled before it as a window has.
func BenchmarkLog(b *testing.B) {
	const window = 4096
	bench := newBench(b)
	names, versions := make([]string, window), make([]string, window)
	for i := range window {
		names[i], versions[i] = fmt.Sprint("shop/p", i%100), fmt.Sprint(1_000_000+i)
	}
	var read []changelog.Position
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		read = append(read, bench.event(names[n%window], versions[n%window]))
		if len(read) > window {
			bench.settle(read[0])
			read = read[1:]
		}
	}
}
