package resource_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/resource/jsonscan"
)

// trap is a reader that panics once, where it has come to the word.
type trap struct {
	rest, word string
}

func (r *trap) Read(p []byte) (int, error) {
	if r.word != "" && strings.HasPrefix(r.rest, r.word) {
		r.word = ""
		panic("of " + r.rest)
	}
	n := copy(p[:1], r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

func TestPanic(t *testing.T) {
	const objects = `[{"metadata":{"name":"a","uid":"u","resourceVersion":"1"},"spec":["hunter2"]},{"metadata":{"name":"b","uid":"v","resourceVersion":"2"}}]`
	for word, want := range map[string]resource.Identity{`"name":"a"`: {}, "hunter2": {Key: "a", UID: "u", Version: "1"}} {
		t.Run("at "+word, func(t *testing.T) {
			s := jsonscan.NewReader(&trap{objects, word})
			s.Open('[')
			s.Next(']')
			_, err := resource.ParseNext(s, &resource.ParseOptions{})
			refused, ok := errors.AsType[*resource.RefusedError](err)
			if !ok || refused.Identity != want {
				t.Fatalf("%v", err)
			}
			failed, ok := errors.AsType[*resource.PanicError](err)
			if !ok || strings.Contains(err.Error()+string(failed.Stack), "hunter2") || !strings.Contains(string(failed.Stack), "ParseNext") {
				t.Errorf("%v\n%s", err, failed.Stack)
			}
			s.Next(']')
			if obj, err := resource.ParseNext(s, &resource.ParseOptions{}); err != nil || obj.Name != "b" || s.Next(']') || s.Err() != nil {
				t.Errorf("behind it: %v, %v", err, s.Err())
			}
		})
	}
}
