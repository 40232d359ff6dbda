package reflector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/resource"
)

// Config is what a Reflector follows, from where, and how patiently. Zero values mean the
// documented default.
type Config struct {
	Client *Client // required
	Store  Store   // required

	Type          resource.Type // required
	Namespace     string        // "" for all
	LabelSelector string        // applied by the API server; "" for all
	FieldSelector string

	// Namespaces are the only ones whose objects are handed on; nil for all. The requests are still
	// those of Namespace; objects of other namespaces are dropped before they are handed on. A
	// namespace that enters the selection is listed by itself (a Relist with its name, and the
	// items). For one that leaves, that list is empty.
	Namespaces Namespaces
	// Selected is the state of the namespaces in the Store, and AsOf the versions as of which some
	// of the selected ones were listed, or began to be. They are used with Namespaces.
	Selected map[string]resource.NamespaceState
	AsOf     map[string]resource.Version
	// Selects reports whether an object is handed on, by its namespace and name; nil for all. Its
	// answer must never change.
	Selects func(obj *resource.Object) bool
	// Matches reports whether the current state of an object is selected; nil for all. It is a
	// label selector that the API server does not get: only the Store knows which objects leave the
	// selection, through Unselected, which is required then.
	Matches func(obj *resource.Object) bool
	// Unselected gets what does not match, in its place between the calls of the Store, from lists
	// too; gone: it is deleted. It gets the identity of an object whose last state can't be
	// understood, when the object is deleted, and when the server's history went back. An error
	// ends Run, as the Store's do. nil: an object that is too deep or too large is like any other
	// that can't be understood.
	Unselected func(ctx context.Context, obj *resource.Object, gone bool) error
	// Progress gets the version that was reached while only unwanted objects came, about each
	// second: everything up to it was handed on. An error ends Run, as the Store's do. nil: it is
	// not reported.
	Progress func(ctx context.Context, v resource.Version) error

	// From is the version to resume after; "" for none.
	From resource.Version
	// Snapshot lists everything when From is "". Without it the reflector begins with changes from
	// now on; a Bookmark reports that version to the Store.
	Snapshot bool
	// Reached is a version that the Store has reached before, though From is "": an API server with
	// a lower version has gone back in its history. "" for none.
	Reached resource.Version

	// Parse is what is removed and redacted. Its Type is set from Type.
	Parse resource.ParseOptions
	// PageSize is how many items a page of a list has; default 500.
	PageSize int
	// MaxFrame is the largest watch frame and the largest item of a list, in bytes; default 16 MiB,
	// which is client-go's.
	MaxFrame int64
	// DisableWatchList lists by pages only. By default WatchList is tried first, and given up
	// permanently where the server does not have it or a proxy swallows its end. Where it fails
	// otherwise three times, pages are tried too.
	DisableWatchList bool
	// WatchListTimeout is how long a WatchList may send no object before it is given up; default 2
	// minutes.
	WatchListTimeout time.Duration

	// WatchTimeout is the least time after which the API server is asked to end a watch; the most
	// is twice as long. Default 5 minutes. A watch that is not ended half a minute later is cut.
	WatchTimeout time.Duration
	// Watchdog cuts a watch that sent neither event nor bookmark for so long. The API server sends
	// a bookmark every minute, but none for Events, nor do many aggregated servers: where none came
	// yet, that is no failure. Default 0: only WatchTimeout bounds the silence.
	Watchdog time.Duration
	// ListTimeout is how long the API server may send nothing while it answers a list; default 2
	// minutes.
	ListTimeout time.Duration
	Backoff     Backoff

	// Quarantine gets what could not be understood, in its place between the calls of the Store,
	// before it is reconciled by a list, or skipped by one; the same bytes once, however often they
	// come. An error ends Run, as the Store's do. nil: it is only logged and counted.
	Quarantine func(ctx context.Context, u *resource.Unreadable) error

	// Skip gets each item of a list that can't be understood and that the list continues behind, in
	// its place between the calls of the Store: the item's identity. An object of that key is not
	// gone then. Without a key it may be any object, and nothing is taken for gone at this list's
	// end. An error ends Run, as the Store's do. nil: no list continues behind such an item; it is
	// read again until there is none. So is, in any case, a list after the server's history went
	// back.
	Skip func(ctx context.Context, of resource.Identity) error

	// Identify reports whether the API server is still that of the same cluster. It is asked
	// whenever a probe succeeds after a failure. An error that is ErrOtherCluster ends Run before
	// anything is read; others are retried. nil: it is not asked.
	Identify func(ctx context.Context) error

	Log        *slog.Logger          // default: none
	Registerer prometheus.Registerer // nil: metrics are not registered
}

func (c Config) withDefaults() Config {
	c.Parse.Type = c.Type
	c.PageSize = cmp.Or(c.PageSize, 500)
	c.MaxFrame = cmp.Or(c.MaxFrame, 16<<20)
	c.WatchListTimeout = cmp.Or(c.WatchListTimeout, 2*time.Minute)
	c.WatchTimeout = cmp.Or(c.WatchTimeout, 5*time.Minute)
	c.ListTimeout = cmp.Or(c.ListTimeout, 2*time.Minute)
	c.Backoff = c.Backoff.withDefaults()
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c *Config) validate() error {
	var errs []error
	check := func(ok bool, text string) {
		if !ok {
			errs = append(errs, errors.New(text))
		}
	}
	check(c.Client != nil && c.Client.HTTP != nil && c.Client.Base != nil, "no Client")
	check(c.Client == nil || c.Client.HTTP == nil || c.Client.HTTP.Timeout == 0,
		"Client.HTTP has a Timeout, which would cut every watch")
	check(c.Store != nil, "no Store")
	check(c.Type.Version != "" && c.Type.Resource != "" && c.Type.Kind != "", "Type is incomplete")
	check(c.Matches == nil || c.Unselected != nil, "Matches without Unselected")
	check(c.From != "0", `From is "0", which is no version to resume from`)
	check(c.PageSize > 0 && c.MaxFrame > 0, "PageSize or MaxFrame is negative")
	check(c.WatchTimeout >= time.Second, "WatchTimeout is less than a second")
	check(c.Watchdog >= 0 && c.ListTimeout > 0 && c.WatchListTimeout > 0,
		"Watchdog, ListTimeout or WatchListTimeout is negative")
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("reflector for %s: %w", c.Type, err)
	}
	return nil
}
