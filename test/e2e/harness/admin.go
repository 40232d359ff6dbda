package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Reason is why a bridge is not ready.
type Reason struct {
	What    string `json:"what"`
	Message string `json:"message"`
}

// Readiness is the answer of /readyz.
type Readiness struct {
	Ready   bool     `json:"ready"`
	Reasons []Reason `json:"reasons"`
}

// Readiness asks whether the bridge is ready.
func (b *Bridge) Readiness(ctx context.Context) (r Readiness, err error) {
	body, err := b.Get(ctx, "/readyz?format=json")
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(body, &r)
}

// WaitReady waits until the bridge says that everything is in sync. A bridge that ended is an error
// with what it wrote.
func (b *Bridge) WaitReady(ctx context.Context) error {
	last := "no answer yet"
	for {
		r, err := b.Readiness(ctx)
		switch {
		case err == nil && r.Ready:
			return nil
		case err == nil:
			last = fmt.Sprint(r.Reasons)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-b.Ended():
			return fmt.Errorf("bridge ended with exit code %d; it wrote:\n%s", b.cmd.ProcessState.ExitCode(), b.Log.Tail(20))
		case <-ctx.Done():
			return fmt.Errorf("bridge is not ready: %s: %w; it wrote:\n%s", last, context.Cause(ctx), b.Log.Tail(20))
		}
	}
}

// Status is what /status reports, as far as tests ask for it.
type Status struct {
	Informers []struct {
		Informer string `json:"informer"`
		Resource string `json:"resource"`
		// APIVersion is the version of the API that it is watched in.
		APIVersion string `json:"apiVersion"`
		Phase      string `json:"phase"`
		Watermark  string `json:"watermark"`
		Unsettled  int    `json:"unsettled"`
		Relists    int    `json:"relists"`
		// Bytes of changes that wait, in memory and on disk.
		LogBytes   int64 `json:"logBytes"`
		SpoolBytes int64 `json:"spoolBytes"`
	} `json:"informers"`
	Standby struct {
		Role   string `json:"role"`
		Leader string `json:"leader"`
		InSync bool   `json:"inSync"`
		Held   int    `json:"held"`
	} `json:"standby"`
	Sinks []struct {
		Name        string `json:"name"`
		Connected   bool   `json:"connected"`
		QueuedItems int    `json:"queuedItems"`
		LastError   string `json:"lastError"`
	} `json:"sinks"`
}

// Status asks for it.
func (b *Bridge) Status(ctx context.Context) (s Status, err error) {
	body, err := b.Get(ctx, "/status")
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(body, &s)
}

// AdminURL is where its admin server answers.
func (b *Bridge) AdminURL() string { return "http://" + b.admin }

// Get gives the answer to a path of the admin server, whatever its status is.
func (b *Bridge) Get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.AdminURL()+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}
