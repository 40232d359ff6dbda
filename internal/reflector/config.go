package reflector

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kubebridge/bridge/internal/ratelimit"
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
	// selection, through its Unselected.
	Matches func(obj *resource.Object) bool

	// From is the version to resume after; "" for none.
	From resource.Version
	// Snapshot lists everything when From is "". Without it the reflector begins with changes from
	// now on; a Bookmark reports that version to the Store.
	Snapshot bool
	// Reached is a version that the Store has reached before, though From is "": an API server with
	// a lower version has gone back in its history. "" for none.
	Reached resource.Version

	// Diverged is set when an object is in an older state than before: the server's history is
	// another, though its version is not lower. What is being read is broken off, and everything is
	// listed and compared by equality. nil: it is never set.
	Diverged *ratelimit.Signal

	// Parse is what is removed and redacted. Its Type is set from Type.
	Parse resource.ParseOptions
	Limits

	// Identify reports whether the API server is still that of the same cluster. It is asked
	// whenever a probe succeeds after a failure. An error that is ErrOtherCluster ends Run before
	// anything is read; others are retried. nil: it is not asked.
	Identify func(ctx context.Context) error

	Log        *slog.Logger          // default: none
	Registerer prometheus.Registerer // nil: metrics are not registered
}

// Limits is how large what is read may be, and how patient the Reflector is.
type Limits struct {
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
}

func (l Limits) withDefaults() Limits {
	l.PageSize = cmp.Or(l.PageSize, 500)
	l.MaxFrame = cmp.Or(l.MaxFrame, 16<<20)
	l.WatchListTimeout = cmp.Or(l.WatchListTimeout, 2*time.Minute)
	l.WatchTimeout = cmp.Or(l.WatchTimeout, 5*time.Minute)
	l.ListTimeout = cmp.Or(l.ListTimeout, 2*time.Minute)
	l.Backoff = l.Backoff.withDefaults()
	return l
}

func (c Config) withDefaults() Config {
	c.Parse.Type = c.Type
	c.Limits = c.Limits.withDefaults()
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
