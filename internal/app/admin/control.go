package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
	"unicode"
)

// Error is an error of a Controller with the HTTP status that it is answered with.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// HTTPStatus returns what the server answers with. An error of a Historian has such a method too.
func (e *Error) HTTPStatus() int { return e.Code }

// Caller is who asks for a change.
type Caller struct {
	// Remote is the address that the request came from.
	Remote string
	// User is a name that the caller gives itself. Nobody has checked it.
	User string
}

func (c Caller) String() string {
	if c.User == "" {
		return c.Remote
	}
	return c.User + " (" + c.Remote + ")"
}

// SnapshotRequest says what of an informer is to be sent again. Zero values mean all.
type SnapshotRequest struct {
	Informer string `json:"-"`
	// Resource as the informer's resources are shown: "pods", "deployments.apps".
	Resource string `json:"resource"`
	// Namespace whose objects are sent.
	Namespace string `json:"namespace"`
	// Selector is a label selector, as kubectl takes it.
	Selector string `json:"selector"`
	// Sink that gets them.
	Sink string `json:"sink"`
}

// Controller changes a running bridge. Its methods may be called concurrently; what they return
// says, for a person, what has been done. An Error says how the request is answered.
type Controller interface {
	// Pause and Resume are about an "informer" or a "sink", by its name.
	Pause(ctx context.Context, by Caller, kind, name string) (string, error)
	Resume(ctx context.Context, by Caller, kind, name string) (string, error)
	Snapshot(ctx context.Context, by Caller, what SnapshotRequest) (string, error)
	SetLogLevel(ctx context.Context, by Caller, level string) (string, error)
	Reload(ctx context.Context, by Caller) (string, error)
	// SendUndelivered publishes undelivered events of a sink again, in the order of their IDs. It
	// may return before all were tried.
	SendUndelivered(ctx context.Context, by Caller, sink string, ids []string) (Resent, error)
	// SendDeadLetters publishes dead letters of a sink again, by their positions. They stay.
	SendDeadLetters(ctx context.Context, by Caller, sink string, ids []string) (Resent, error)
}

// Resent says what became of refused events that were sent again.
type Resent struct {
	Message string `json:"message"`
	// Done are the IDs of events that the sink acknowledged, or its dead letters where the event
	// was not one of those. Undelivered events are removed.
	Done []string `json:"done"`
	// Kept are those that were refused once more, or can't be sent, and why.
	Kept []KeptEvent `json:"kept"`
	// Waiting says why events in between have no answer; "" when all that were tried have one.
	Waiting string `json:"waiting,omitempty"`
}

// Keep says that an event stays, and why.
func (r *Resent) Keep(id string, why error) {
	r.Kept = append(r.Kept, KeptEvent{id, fmt.Sprint(why)})
}

// KeptEvent is an event that stays undelivered, or a dead letter.
type KeptEvent struct {
	ID     string `json:"id"`
	Reason string `json:"reason"`
}

// UserHeader is where a client says who sits before it.
const UserHeader = "X-Bridge-User"

// patience is how long a command may take: a reload waits for what its units have read to be sent.
const patience = 2 * time.Minute

// maxCommand bounds the body of a command.
const maxCommand = 64 << 10

func (s *Server) controlRoutes(mux *http.ServeMux) {
	c := s.config.Control
	if c == nil {
		return
	}
	for _, kind := range []string{"informer", "sink"} {
		s.command(mux, "/control/"+kind+"s/{name}/pause", "pause",
			func(r *http.Request, by Caller) (string, error) {
				return c.Pause(r.Context(), by, kind, r.PathValue("name"))
			})
		s.command(mux, "/control/"+kind+"s/{name}/resume", "resume",
			func(r *http.Request, by Caller) (string, error) {
				return c.Resume(r.Context(), by, kind, r.PathValue("name"))
			})
	}
	s.command(mux, "/control/informers/{name}/snapshot",
		"snapshot", func(r *http.Request, by Caller) (string, error) {
			what := SnapshotRequest{Informer: r.PathValue("name")}
			if err := readCommand(r, &what); err != nil {
				return "", err
			}
			return c.Snapshot(r.Context(), by, what)
		})
	for what, send := range map[string]func(
		context.Context, Caller, string, []string,
	) (Resent, error){"undelivered": c.SendUndelivered, "deadletters": c.SendDeadLetters} {
		s.serveCommand(mux, "/control/sinks/{name}/"+what, "send "+what,
			func(r *http.Request, by Caller) (string, any, error) {
				var which struct {
					IDs []string `json:"ids"`
				}
				if err := readCommand(r, &which); err != nil {
					return "", nil, err
				}
				resent, err := send(r.Context(), by, r.PathValue("name"), which.IDs)
				return resent.Message, resent, err
			})
	}
	s.command(mux, "/control/log-level", "log-level",
		func(r *http.Request, by Caller) (string, error) {
			var what struct {
				Level string `json:"level"`
			}
			if err := readCommand(r, &what); err != nil {
				return "", err
			}
			return c.SetLogLevel(r.Context(), by, what.Level)
		})
	s.command(mux, "/control/reload", "reload", func(r *http.Request, by Caller) (string, error) {
		return c.Reload(r.Context(), by)
	})
}

// command serves one command that answers with a message.
func (s *Server) command(
	mux *http.ServeMux, path, action string, do func(*http.Request, Caller) (string, error),
) {
	s.serveCommand(mux, path, action, func(r *http.Request, by Caller) (string, any, error) {
		done, err := do(r, by)
		return done, map[string]string{"message": done}, err
	})
}

// serveCommand serves one command: it is guarded, and the log says who asked for it and what the
// result was.
func (s *Server) serveCommand(
	mux *http.ServeMux, path, action string,
	do func(*http.Request, Caller) (done string, answer any, err error),
) {
	mux.Handle("POST "+path, s.commander(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxCommand)
		// fails for writers of tests only
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(patience))
		by := callerOf(r)
		log := s.log.With("command", action, "target", r.PathValue("name"), "remote", by.Remote,
			"user", by.User)
		done, answer, err := do(r, by)
		if err != nil {
			log.Warn("command failed", "err", err)
			s.refuse(w, err)
			return
		}
		log.Info("command done", "result", done)
		s.json(w, http.StatusOK, answer)
	}))
}

// callerOf says who sent a request. The name is the caller's own word, so it is cut short, and
// holds nothing that could pass for another line.
func callerOf(r *http.Request) Caller {
	const longest = 100
	user := strings.Map(func(c rune) rune {
		if unicode.IsPrint(c) {
			return c
		}
		return -1
	}, r.Header.Get(UserHeader))
	if len(user) > longest {
		user = strings.ToValidUTF8(user[:longest], "")
	}
	return Caller{Remote: r.RemoteAddr, User: user}
}

// readCommand reads the body of a command; none is an empty one.
func readCommand(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil && !errors.Is(err, io.EOF) {
		return &Error{http.StatusBadRequest, fmt.Errorf("the command can't be read: %w", err)}
	}
	return nil
}
