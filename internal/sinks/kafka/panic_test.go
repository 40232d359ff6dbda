package kafka_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/segmentio/kafka-go/compress"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/sinks/kafka"
)

func TestPanic(t *testing.T) {
	batch, err := kafka.EncodeBatch(compress.None, 4711, 3, 17, someRecords...)
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		err error
		at  string
	}{
		"in an answer": {kafka.DecodePanic(), "answer.go"},
		"in a record":  {kafka.RecordPanic(batch[4:]), "records.go"},
	} {
		t.Run(name, func(t *testing.T) {
			_, isPanic := errors.AsType[*event.PanicError](tt.err)
			if !isPanic || !errors.Is(tt.err, kafka.Malformed) ||
				kafka.Outcome(tt.err) != "resend" || !strings.Contains(event.StackOf(tt.err), tt.at) {
				t.Errorf("got %v, with the stack %s", tt.err, event.StackOf(tt.err))
			}
		})
	}
}
