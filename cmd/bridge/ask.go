package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/kubebridge/bridge/internal/admin"
)

// asker asks a running bridge.
type asker struct {
	address string
	client  *http.Client
}

func newAsker(address string) *asker {
	return &asker{address, &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{Proxy: nil}}}
}

// answer is what a bridge says of itself. It is the JSON of `bridge status`.
type answer struct {
	Ready   bool            `json:"ready"`
	Reasons []admin.Reason  `json:"reasons"`
	Raw     json.RawMessage `json:"status"` // as the bridge has said it, with what this version may not know

	status processStatus
	at     time.Time
}

// ask asks for readiness and status.
func (k *asker) ask(ctx context.Context) (*answer, error) {
	a := &answer{at: time.Now()}
	if err := k.get(ctx, "/readyz?format=json", a); err != nil {
		return nil, err
	}
	if err := k.get(ctx, "/status", &a.Raw); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(a.Raw, &a.status); err != nil {
		return nil, fmt.Errorf("what answers at %s is no bridge, or another version of it: its status can't be read: %w", k.address, err)
	}
	return a, nil
}

// get reads JSON from a path. 503 is an answer: not ready.
func (k *asker) get(ctx context.Context, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+k.address+path, nil)
	if err != nil {
		return err
	}
	response, err := k.client.Do(request)
	if err != nil {
		return k.unanswered(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK && response.StatusCode != http.StatusServiceUnavailable {
		return fmt.Errorf("what answers at %s is no bridge: it says %s to %s", k.address, response.Status, path)
	}
	const longest = 64 << 20
	body, err := io.ReadAll(io.LimitReader(response.Body, longest))
	if err != nil {
		return k.unanswered(err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("what answers at %s is no bridge: %s is no JSON", k.address, path)
	}
	return nil
}

// unanswered says in plain words that nobody is there.
func (k *asker) unanswered(err error) error {
	switch timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no bridge answers at %s: nothing listens there. Does one run, and is this its admin.address (--config, --admin-address)?", k.address)
	case ok && timeout.Timeout():
		return fmt.Errorf("no bridge answers at %s within %v", k.address, k.client.Timeout)
	default:
		return fmt.Errorf("no bridge answers at %s: %w", k.address, err)
	}
}

// untilInterrupted is a context that SIGINT and SIGTERM end.
func untilInterrupted(ctx context.Context) (context.Context, context.CancelFunc) {
	return signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
}
