package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Operate does an operation of the control API ("compact", "restart-apiserver?signal=KILL") and
// gives etcd's revision after it.
func (c *ControlPlane) Operate(ctx context.Context, operation string) (revision int64, err error) {
	var answer struct {
		Revision int64 `json:"revision"`
	}
	err = c.call(ctx, http.MethodPost, "/"+operation, &answer)
	return answer.Revision, err
}

// Request is one request that a client made.
type Request struct {
	Verb     string `json:"verb"`
	URI      string `json:"uri"`
	Code     int    `json:"code"`
	Resource string `json:"resource"`
	Group    string `json:"group"`
}

// Query gives a parameter of the request's URL.
func (r Request) Query(name string) string {
	u, err := url.Parse(r.URI)
	if err != nil {
		return ""
	}
	return u.Query().Get(name)
}

// String is "list /api/v1/pods?limit=500 200".
func (r Request) String() string { return fmt.Sprintf("%s %s %d", r.Verb, r.URI, r.Code) }

// Requests are those that a user made, from a place on, and the place where they end.
func (c *ControlPlane) Requests(ctx context.Context, user string, from int64) (requests []Request, end int64, err error) {
	var answer struct {
		Requests []Request `json:"requests"`
		End      int64     `json:"end"`
	}
	q := url.Values{"user": {user}, "from": {fmt.Sprint(from)}}
	err = c.call(ctx, http.MethodGet, "/requests?"+q.Encode(), &answer)
	return answer.Requests, answer.End, err
}

func (c *ControlPlane) call(ctx context.Context, method, path string, answer any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.control+path, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("control plane: %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return fmt.Errorf("control plane: %s %s: %w", method, path, err)
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("control plane: %s %s: %s: %s", method, path, resp.Status, strings.TrimSpace(string(body)))
	}
	return json.Unmarshal(body, answer)
}
