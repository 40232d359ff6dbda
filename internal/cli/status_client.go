package cli

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

	"github.com/kubebridge/bridge/internal/app"
)

// statusClient asks a running bridge for its status.
type statusClient struct {
	address string
	// Token returns the bridge's token. It is sent only to a bridge that asks for it.
	secret func() (string, error)
	client *http.Client
}

func newStatusClient(address string, secret func() (string, error)) *statusClient {
	return &statusClient{address, secret, &http.Client{
		Timeout:   10 * time.Second,
		Transport: &http.Transport{Proxy: nil},
	}}
}

// answer is what a bridge says of itself.
type answer struct {
	app.ProcessStatus
	raw []byte // as it was said, with what this version may not know
	at  time.Time
}

// ask asks for the status.
func (k *statusClient) ask(ctx context.Context) (*answer, error) {
	a := &answer{at: time.Now()}
	var err error
	if a.raw, err = k.get(ctx, "/status"); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(a.raw, &a.ProcessStatus); err != nil || a.Started.IsZero() {
		return nil, fmt.Errorf("%s is not the admin endpoint of a bridge of this version: its "+
			"status can't be read", k.address)
	}
	return a, nil
}

func (k *statusClient) get(ctx context.Context, path string) ([]byte, error) {
	code, body, err := k.send(ctx, path, "")
	if err == nil && code == http.StatusUnauthorized {
		token, noToken := k.secret()
		if noToken != nil {
			return nil, fmt.Errorf("the bridge at %s asks for its token: %w", k.address, noToken)
		}
		code, body, err = k.send(ctx, path, token)
	}
	switch {
	case err != nil:
		return nil, err
	case code == http.StatusOK:
		return body, nil
	}
	return nil, k.refusal(code, body, path)
}

// ready asks whether the bridge is ready. The reasons why not are a line each.
func (k *statusClient) ready(ctx context.Context) (ready bool, reasons string, err error) {
	const path = "/readyz"
	code, body, err := k.send(ctx, path, "")
	switch {
	case err != nil:
		return false, "", err
	case code == http.StatusOK && string(body) == "ok\n":
		return true, "", nil
	case code == http.StatusServiceUnavailable:
		return false, string(body), nil
	}
	return false, "", k.refusal(code, body, path)
}

// refusal says what an answer means that is not the one wanted.
func (k *statusClient) refusal(code int, body []byte, path string) error {
	var said struct{ Error string }
	if err := json.Unmarshal(body, &said); err == nil && said.Error != "" {
		return fmt.Errorf("the bridge at %s refuses: %s", k.address, said.Error)
	}
	return fmt.Errorf("%s is not the admin endpoint of a bridge: it answers %d %s to %s", k.address,
		code, http.StatusText(code), path)
}

func (k *statusClient) send(
	ctx context.Context, path, token string,
) (code int, body []byte, err error) {
	response, err := k.open(ctx, path, token)
	if err != nil {
		return 0, nil, err
	}
	defer response.Body.Close()
	const longest = 64 << 20
	if body, err = io.ReadAll(io.LimitReader(response.Body, longest)); err != nil {
		return 0, nil, k.unanswered(err)
	}
	return response.StatusCode, body, nil
}

// open sends a request, with a token if there is one. The caller closes the answer's body.
func (k *statusClient) open(ctx context.Context, path, token string) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+k.address+path, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := k.client.Do(request)
	if err != nil {
		return nil, k.unanswered(err)
	}
	return response, nil
}

// unanswered says in plain words that nobody is there.
func (k *statusClient) unanswered(err error) error {
	switch timeout, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); {
	case errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no bridge answers at %s: nothing listens there. Does one run, and is "+
			"this its admin.address (--config, --admin-address)?", k.address)
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
