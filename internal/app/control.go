package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/kubebridge/bridge/config"
	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/bridge"
	"github.com/kubebridge/bridge/internal/informer"
	"github.com/kubebridge/bridge/internal/publisher/tail"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/store"
)

// adminCommands is what the admin server can change: it does what operators ask for.
type adminCommands struct {
	start    *statusSource
	level    *slog.LevelVar
	reloader *reloader      // nil for a bridge without a file
	config   *config.Config // of the start
	letters  *letterSigner
	// undelivered is the folder of undelivered events; "" for none. resending is held by who sends
	// refused events again: two at a time could not keep their order.
	undelivered string
	resending   sync.Mutex
}

var _ admin.Controller = (*adminCommands)(nil)

// running returns the bridge, or why there is none yet.
func (c *adminCommands) running() (*assembly, error) {
	p, why := c.start.get()
	if p == nil {
		return nil, &admin.Error{
			Code: http.StatusServiceUnavailable,
			Err:  fmt.Errorf("the bridge has not started yet: %s", why),
		}
	}
	return p, nil
}

// Pause implements admin.Controller.
func (c *adminCommands) Pause(ctx context.Context, by admin.Caller, kind, name string) (string, error) {
	p, err := c.running()
	if err != nil {
		return "", err
	}
	if kind == "sink" {
		return done(p.bridge.PauseSink(ctx, name, by.String()),
			"sink %s is paused: what is for it waits", name)
	}
	return done(p.bridge.PauseInformer(ctx, name, by.String()), "informer %s is paused: it reads "+
		"nothing; what it has read is sent", name)
}

// Resume implements admin.Controller.
func (c *adminCommands) Resume(ctx context.Context, _ admin.Caller, kind, name string) (string, error) {
	p, err := c.running()
	if err != nil {
		return "", err
	}
	if kind == "sink" {
		return done(p.bridge.ResumeSink(ctx, name), "sink %s resumes", name)
	}
	return done(p.bridge.ResumeInformer(ctx, name), "informer %s resumes", name)
}

// Snapshot implements admin.Controller.
func (c *adminCommands) Snapshot(
	ctx context.Context, _ admin.Caller, what admin.SnapshotRequest,
) (string, error) {
	p, err := c.running()
	if err != nil {
		return "", err
	}
	req := informer.SnapshotRequest{
		Informer: what.Informer, Resource: what.Resource,
		Namespace: what.Namespace, Sink: what.Sink,
	}
	if what.Selector != "" {
		if req.Selector, err = labels.Parse(what.Selector); err != nil {
			return "", &admin.Error{Code: http.StatusBadRequest, Err: fmt.Errorf("selector: %w",
				err)}
		}
	}
	switch {
	case what.Owner != "" && what.Node != "":
		return "", &admin.Error{
			Code: http.StatusBadRequest, Err: errors.New("want owner or node, not both"),
		}
	case what.Owner != "":
		req.Index = store.ByOwner().Name
		if req.Values, err = p.bridge.OwnerUIDs(what.Owner); err != nil {
			return done(err, "")
		}
	case what.Node != "":
		req.Index, req.Values = store.ByNode().Name, []string{what.Node}
	}
	units, err := p.bridge.SendSnapshot(ctx, req)
	return done(err, "sending again what is known of %s; the log says when all of it is queued",
		strings.Join(units, ", "))
}

// SetLogLevel implements admin.Controller.
func (c *adminCommands) SetLogLevel(_ context.Context, _ admin.Caller, level string) (string, error) {
	switch level {
	case "debug", "info", "warn", "error":
	default:
		return "", &admin.Error{
			Code: http.StatusBadRequest,
			Err:  fmt.Errorf("level %q: want debug, info, warn or error", level),
		}
	}
	before := c.level.Level()
	if err := c.level.UnmarshalText([]byte(level)); err != nil {
		return "", err
	}
	return fmt.Sprintf("the log has level %s now, and had %s; a restart takes that of the "+
		"configuration", level, strings.ToLower(before.String())), nil
}

// Reload implements admin.Controller.
func (c *adminCommands) Reload(ctx context.Context, by admin.Caller) (string, error) {
	if c.reloader == nil {
		return "", &admin.Error{
			Code: http.StatusConflict,
			Err:  errors.New("this bridge runs without a file, so there is nothing to read again"),
		}
	}
	if _, err := c.running(); err != nil {
		return "", err
	}
	message, err := c.reloader.reload(ctx, "asked for by "+by.String())
	if problems := settings.Problems(err); len(problems) > 0 {
		lines := []string{"the configuration has " + plural(len(problems), "problem") +
			", so the one of before stays:"}
		for _, p := range problems {
			lines = append(lines, p.Error())
		}
		return "", &admin.Error{
			Code: http.StatusUnprocessableEntity,
			Err:  errors.New(strings.Join(lines, "\n")),
		}
	}
	return done(err, "%s", message)
}

// done returns the answer to a command.
func done(err error, format string, args ...any) (string, error) {
	code := http.StatusInternalServerError
	switch {
	case err == nil:
		return fmt.Sprintf(format, args...), nil
	case errors.Is(err, bridge.ErrUnknown):
		code = http.StatusNotFound
	case errors.Is(err, informer.ErrBusy), errors.Is(err, informer.ErrNotSynced),
		errors.Is(err, bridge.ErrStopping), errors.Is(err, bridge.ErrStandby),
		errors.Is(err, bridge.ErrKeepsNewest), errors.Is(err, store.ErrIndexIncomplete):
		code = http.StatusConflict
	case errors.Is(err, errNotNow), errors.Is(err, bridge.ErrSinkNotReady),
		errors.Is(err, context.Canceled):
		code = http.StatusServiceUnavailable
	}
	return "", &admin.Error{Code: code, Err: err}
}

// inspector is what the status page looks through: the live tail, and the objects of the bridge
// that runs.
type inspector struct {
	hub   *tail.Hub
	start *statusSource
}

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

// errNoToken is about a configuration that has no place for a token.
var errNoToken = errors.New("there is no token: state.mode is memory, so set admin.tokenFile " +
	"(--token-file)")

// TokenFile is where the token of the admin server lies; own says that the bridge makes it.
func TokenFile(c *config.Config) (file string, own bool, err error) {
	switch {
	case c.Admin.TokenFile != "":
		return c.Admin.TokenFile, false, nil
	case c.State.Mode == "memory":
		return "", false, errNoToken
	default:
		return filepath.Join(c.State.Dir, "admin-token"), true, nil
	}
}

// shortestToken is how many bytes a token has at least, so that it can't be guessed.
const shortestToken = 16

// tokenReader returns what reads the bridge's token, nil where there is none. The token is there
// once provideToken was called.
func tokenReader(c *config.Config) func() (string, error) {
	file, _, err := TokenFile(c)
	if err != nil {
		return nil
	}
	return func() (string, error) {
		token, err := settings.ReadToken(file)
		if err == nil && len(token) < shortestToken {
			return "", fmt.Errorf("the token in %s has %d bytes: want at least %d", file,
				len(token), shortestToken)
		}
		return token, err
	}
}

// provideToken makes the token, where the bridge has to.
func provideToken(c *config.Config, log *slog.Logger) {
	file, own, err := TokenFile(c)
	switch {
	case c.Admin.Address == "" || err != nil:
		return
	case own:
		err = settings.MakeToken(file)
	default:
		_, err = tokenReader(c)()
	}
	if err != nil {
		log.Warn("there is no token, so commands, and readers who need one, are refused",
			"file", file, "err", err)
	}
}

// Objects implements admin.Inspector.
func (l *inspector) Objects(_ context.Context, index, value string) (any, error) {
	p, why := l.start.get()
	if p == nil {
		return nil, &admin.Error{Code: http.StatusServiceUnavailable, Err: errors.New(why)}
	}
	found, err := p.bridge.Indexed(index, value)
	if errors.Is(err, store.ErrNoIndex) {
		return nil, &admin.Error{Code: http.StatusNotFound, Err: err}
	}
	return found, err
}
