package admin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/url"
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

// SnapshotRequest says what is to be sent again. Zero values mean all.
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
	// Owner is the uid of an object: only what it owns is sent, and what that owns.
	Owner string `json:"owner"`
	// Node whose pods are sent alone.
	Node string `json:"node"`
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
	for _, path := range []string{"/control/informers/{name}/snapshot", "/control/snapshot"} {
		s.command(mux, path, "snapshot", func(r *http.Request, by Caller) (string, error) {
			what := SnapshotRequest{Informer: r.PathValue("name")}
			if err := readCommand(r, &what); err != nil {
				return "", err
			}
			return c.Snapshot(r.Context(), by, what)
		})
	}
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

// Inspector shows what goes through the bridge, and what it knows. Its methods may be called
// concurrently. An Error says how the request is answered.
type Inspector interface {
	// Tail begins to show events. It is closed by the server.
	Tail(o TailOptions) (Tail, error)
	// Object returns the last settled state of an object: a value that encodes as JSON. It is that
	// of the last commit: Tail shows an event when a sink has answered, up to state.commitInterval
	// earlier.
	Object(ctx context.Context, resource, namespace, name string) (any, error)
	// Objects returns the newest states of the objects that have a value of an index, or for "" the
	// values that there are: a value that encodes as JSON.
	Objects(ctx context.Context, index, value string) (any, error)
}

// TailOptions say which events to show, and how much of them.
type TailOptions struct {
	Filter  string
	Payload bool
}

// Tail shows events to one who looks.
type Tail interface {
	// Next waits for events, until ctx ends: a value that encodes as JSON.
	Next(ctx context.Context) (any, error)
	Close()
}

// inspectRoutes are those that show objects.
func (s *Server) inspectRoutes(mux *http.ServeMux) {
	if s.config.Look == nil {
		return
	}
	mux.Handle("GET /tail", s.reader(s.tail))
	mux.Handle("GET /object", s.reader(s.object))
	mux.Handle("GET /objects", s.reader(s.objects))
}

func (s *Server) object(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("resource") == "" || q.Get("name") == "" {
		s.refuse(w, &Error{
			http.StatusBadRequest,
			errors.New("want /object?resource=deployments.apps&namespace=shop&name=web"),
		})
		return
	}
	found, err := s.config.Look.Object(r.Context(), q.Get("resource"), q.Get("namespace"),
		q.Get("name"))
	if err != nil {
		s.refuse(w, err)
		return
	}
	s.json(w, http.StatusOK, found)
}

func (s *Server) objects(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if q.Get("index") == "" {
		s.refuse(w, &Error{http.StatusBadRequest, errors.New("want /objects?index=owner&value=UID")})
		return
	}
	found, err := s.config.Look.Objects(r.Context(), q.Get("index"), q.Get("value"))
	if err != nil {
		s.refuse(w, err)
		return
	}
	s.json(w, http.StatusOK, found)
}

// Paces of the tail.
const (
	// between two messages, so that a flood of events is a few large ones
	tailPause = 100 * time.Millisecond
	tailBeat  = 10 * time.Second // a sign of life
	tailWrite = 10 * time.Second // how long a reader may take for one message
)

// tail sends events as they are settled, as server-sent events, until the reader goes or the server
// stops.
func (s *Server) tail(w http.ResponseWriter, r *http.Request) {
	t, err := s.config.Look.Tail(TailOptions{
		Filter:  r.URL.Query().Get("filter"),
		Payload: r.URL.Query().Get("payload") == "true",
	})
	if err != nil {
		s.refuse(w, err)
		return
	}
	defer t.Close()
	stream := http.NewResponseController(w)
	// The server's own deadlines are for requests that end.
	if err := stream.SetReadDeadline(time.Time{}); err != nil {
		s.refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	ctx, cancel := s.untilStop(r.Context())
	defer cancel()
	send := func(message string) bool {
		_ = stream.SetWriteDeadline(time.Now().Add(tailWrite)) // it worked for reading
		_, err := w.Write([]byte(message))
		return err == nil && stream.Flush() == nil
	}
	for ok := send(": looking\n\n"); ok && ctx.Err() == nil; {
		ok = send(s.message(ctx, t))
		pause(ctx, tailPause)
	}
}

// message returns the next events, or a sign of life when there are none for long.
func (s *Server) message(ctx context.Context, t Tail) string {
	wait, cancel := context.WithTimeout(ctx, tailBeat)
	defer cancel()
	batch, err := t.Next(wait)
	if err != nil {
		return ": nothing\n\n"
	}
	data, err := json.Marshal(batch)
	if err != nil {
		s.log.Error("events can't be encoded", "err", err)
		return ": nothing\n\n"
	}
	return "data: " + string(data) + "\n\n"
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Historian answers questions about the past. Its method may be called concurrently.
type Historian interface {
	// Ask answers a question ("versions") with a value that encodes as JSON, or with an
	// iter.Seq2[any, error]: an answer of any length, one JSON document a line, which an error
	// ends. An error that has a method HTTPStatus says how the request is answered.
	Ask(ctx context.Context, question string, q url.Values) (any, error)
}

// historyRoutes are those that show what was.
func (s *Server) historyRoutes(mux *http.ServeMux) {
	if s.config.History != nil {
		mux.Handle("GET /history/{question}", s.reader(s.history))
	}
}

// linesWrite is how long a reader may take for a piece of an answer.
const linesWrite = 30 * time.Second

func (s *Server) history(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := s.untilStop(r.Context())
	defer cancel()
	answer, err := s.config.History.Ask(ctx, r.PathValue("question"), r.URL.Query())
	if err != nil {
		s.refuse(w, err)
		return
	}
	lines, ok := answer.(iter.Seq2[any, error])
	if !ok {
		s.json(w, http.StatusOK, answer)
		return
	}
	s.lines(w, lines)
}

// lines sends an answer as it is made. What fails in the middle of it ends it with a line that says
// so: the status was sent.
func (s *Server) lines(w http.ResponseWriter, lines iter.Seq2[any, error]) {
	stream := http.NewResponseController(w)
	if err := stream.SetReadDeadline(time.Time{}); err != nil { // at the deadline the answer ends
		s.log.Debug("the read deadline can't be lifted", "err", err)
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	encoder := json.NewEncoder(w)
	for value, err := range lines {
		_ = stream.SetWriteDeadline(time.Now().Add(linesWrite)) // the server's own is for short answers
		if err != nil {
			value = map[string]string{"error": err.Error()}
		}
		if encodeErr := encoder.Encode(value); encodeErr != nil || err != nil {
			return
		}
	}
}
