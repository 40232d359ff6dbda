package admin

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Inspector shows what goes through the bridge, and what it knows. Its methods may be called
// concurrently. An Error says how the request is answered.
type Inspector interface {
	// Tail begins to show events. It is closed by the server.
	Tail(o TailOptions) (Tail, error)
	// Object returns the last settled state of an object: a value that encodes as JSON. It is that
	// of the last commit: Tail shows an event when a sink has answered, up to state.commitInterval
	// earlier.
	Object(ctx context.Context, resource, namespace, name string) (any, error)
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
