package admin_test

import (
	"context"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"testing"

	"github.com/kubebridge/bridge/internal/app/admin"
)

// historian is a Historian for tests.
type historian struct{}

func (historian) Ask(_ context.Context, question string, q url.Values) (any, error) {
	switch question {
	case "versions":
		return []string{q.Get("object")}, nil
	case "state":
		return iter.Seq2[any, error](func(yield func(any, error) bool) {
			if yield(map[string]int{"n": 1}, nil) && yield(map[string]int{"n": 2}, nil) {
				yield(nil, errors.New("a damaged block"))
			}
		}), nil
	}
	return nil, &admin.Error{Code: http.StatusNotFound, Err: errors.New("no such question")}
}

func TestHistory(t *testing.T) {
	address, _ := start(t, admin.Config{History: historian{}, Access: ownUser})
	for _, test := range []struct {
		name, path, kind, body string
		code                   int
	}{
		{"a value is one document", "/history/versions?object=pods/web", "application/json", "[\n  \"pods/web\"\n]\n", 200},
		{
			"lines end with what failed", "/history/state", "application/x-ndjson",
			"{\"n\":1}\n{\"n\":2}\n{\"error\":\"a damaged block\"}\n", 200,
		},
		{"an error has its code", "/history/other", "application/json", "{\"error\":\"no such question\"}\n", 404},
	} {
		t.Run(test.name, func(t *testing.T) {
			response := with(t, address+test.path, nil)
			body, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode != test.code || response.Header.Get("Content-Type") != test.kind || string(body) != test.body {
				t.Errorf("%d %s %q, %v", response.StatusCode, response.Header.Get("Content-Type"), body, err)
			}
		})
	}
	t.Run("without a historian there is no such path", func(t *testing.T) {
		none, _ := start(t, admin.Config{Access: ownUser})
		if response := with(t, none+"/history/versions", nil); response.StatusCode != http.StatusNotFound {
			t.Errorf("%d", response.StatusCode)
		}
	})
}
