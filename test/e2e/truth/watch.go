package truth

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// watcher watches one collection for a ledger. Its fields are owned by run.
type watcher struct {
	*Ledger
	collection Collection
	synced     chan<- struct{} // gets a value when everything that exists was seen
	fromNow    bool            // what exists does not count
	initial    []Change        // what exists, as far as it was seen; it counts when it is complete
	version    string          // of the last frame; "" until everything that exists was seen
}

// frame is one value of a watch's body.
type frame struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// errHole is in the error of a watch that can't continue without missing something.
var errHole = errors.New("it can't continue where it was")

// run watches until ctx ends, over and over.
func (w *watcher) run(ctx context.Context) error {
	if w.fromNow {
		if _, err := w.beginNow(ctx); err != nil {
			return err
		}
	}
	for ctx.Err() == nil {
		err := w.watch(ctx)
		if errors.Is(err, errHole) {
			return err
		}
		if w.version == "" {
			// An API server with much to do cuts off who is slow to read what exists. Nobody relies
			// on that yet, so it can begin again.
			w.initial = nil
			w.note(fmt.Errorf("watch %s: %w", w.collection, err))
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

// watch does one request and reads its answer to the end. Errors of the connection are temporary,
// once the watch has begun.
func (w *watcher) watch(ctx context.Context) error {
	q := url.Values{"watch": {"true"}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {"3600"}}
	if w.version == "" {
		q.Set("sendInitialEvents", "true")
		q.Set("resourceVersionMatch", "NotOlderThan")
	} else {
		q.Set("resourceVersion", w.version)
	}
	address := w.base + "/" + w.collection.Path(w.collection.Namespace) + "?" + q.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := w.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode == http.StatusOK {
		return w.read(json.NewDecoder(resp.Body))
	}
	body, _ := io.ReadAll(resp.Body) // half a message is better than none
	err = fmt.Errorf("%s: %s", resp.Status, body)
	switch {
	case resp.StatusCode == http.StatusGone:
		return fmt.Errorf("%w: %w", errHole, err)
	case resp.StatusCode == http.StatusUnprocessableEntity && w.version == "":
		return w.beginEmpty(ctx)
	}
	return err
}

// beginEmpty begins where a server has no WatchList. That gives only the items of a list, which are
// less than frames, so there may not be any.
func (w *watcher) beginEmpty(ctx context.Context) error {
	items, err := w.beginNow(ctx)
	if err == nil && items > 0 {
		return fmt.Errorf("%w: there are %d objects, and the server has no WatchList", errHole, items)
	}
	return err
}

// beginNow begins at the version that a list has, and says how many objects there are.
func (w *watcher) beginNow(ctx context.Context) (items int, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.base+"/"+w.collection.Path(w.collection.Namespace), nil)
	if err != nil {
		return 0, err
	}
	resp, err := w.client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var list struct {
		Metadata struct {
			ResourceVersion string `json:"resourceVersion"`
		} `json:"metadata"`
		Items []json.RawMessage `json:"items"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return 0, err
	}
	if list.Metadata.ResourceVersion == "" {
		return 0, fmt.Errorf("list: %s", resp.Status)
	}
	w.version = list.Metadata.ResourceVersion
	w.synced <- struct{}{}
	return len(list.Items), nil
}

func (w *watcher) read(dec *json.Decoder) error {
	for {
		var f frame
		if err := dec.Decode(&f); err != nil {
			return err
		}
		if err := w.take(f); err != nil {
			return err
		}
	}
}

func (w *watcher) take(f frame) error {
	switch f.Type {
	case "ADDED", "MODIFIED", "DELETED":
	case "BOOKMARK":
		return w.bookmark(f.Object)
	default:
		return fmt.Errorf("%w: %s %s", errHole, f.Type, f.Object)
	}
	ch, err := newChange(w.collection, f.Type, f.Object)
	if err != nil {
		return fmt.Errorf("%w: %w", errHole, err)
	}
	if w.version == "" {
		ch.Initial = true
		w.initial = append(w.initial, ch)
		return nil
	}
	w.version = ch.Metadata.ResourceVersion
	w.add(ch)
	return nil
}

// bookmark notes how far the watch is. The first one ends what existed when it began.
func (w *watcher) bookmark(raw json.RawMessage) error {
	var o Object
	if err := json.Unmarshal(raw, &o); err != nil {
		return fmt.Errorf("%w: %w", errHole, err)
	}
	if w.version == "" {
		w.add(w.initial...)
		w.initial = nil
		w.synced <- struct{}{}
	}
	w.version = o.Metadata.ResourceVersion
	return nil
}
