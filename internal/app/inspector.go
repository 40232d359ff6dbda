package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/publisher/tail"
)

// inspector is what the status page looks through: the live tail, and the objects of the pipeline
// that runs.
type inspector struct {
	hub   *tail.Hub
	start *starting
}

// Tail implements admin.Inspector.
func (l *inspector) Tail(o admin.TailOptions) (admin.Tail, error) {
	w, err := l.hub.Watch(tail.Options{Filter: o.Filter, Payload: o.Payload})
	switch {
	case errors.Is(err, tail.ErrTooMany):
		return nil, &admin.Error{Code: http.StatusServiceUnavailable, Err: err}
	case err != nil:
		return nil, &admin.Error{Code: http.StatusBadRequest, Err: err}
	}
	return tailOf{w}, nil
}

// tailOf is a watcher for the admin server, which knows no stage.
type tailOf struct{ *tail.Watcher }

func (t tailOf) Next(ctx context.Context) (any, error) { return t.Watcher.Next(ctx) }

// Object implements admin.Inspector.
func (l *inspector) Object(_ context.Context, resource, namespace, name string) (any, error) {
	p, why := l.start.get()
	if p == nil {
		return nil, &admin.Error{Code: http.StatusServiceUnavailable, Err: errors.New(why)}
	}
	states, err := p.bridge.Object(resource, namespace, name)
	switch {
	case errors.Is(err, bridge.ErrNotWatched):
		return nil, &admin.Error{Code: http.StatusNotFound, Err: err}
	case err != nil:
		return nil, err
	case len(states) == 0:
		path := name
		if namespace != "" {
			path = namespace + "/" + name
		}
		return nil, &admin.Error{
			Code: http.StatusNotFound,
			Err: fmt.Errorf("nothing is known of %s %s: it was never settled, or is gone for long",
				resource, path),
		}
	}
	return states, nil
}
