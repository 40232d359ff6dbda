package audit

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/kubebridge/bridge/internal/settings"
)

// webhook takes events that API servers post. It answers when they are on disk, so that an API
// server sends them again until they are.
type webhook struct {
	*source
	storing sync.Mutex // guards the state
}

const (
	webhookName = "webhook"
	// webhookLag is how long an API server may keep an event before it posts it.
	webhookLag = time.Minute
	// maxPost bounds the memory for a post, of which there are maxPostings at a time. An API server
	// bounds them with --audit-webhook-truncate-enabled, to 10 MiB.
	maxPost     = 32 << 20
	maxPostings = 2
)

// serve takes events until ctx ends.
func (w *webhook) serve(ctx context.Context) error {
	config, err := w.tls()
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", w.Config.Address)
	if err != nil {
		return err
	}
	now := time.Now()
	if w.state.Since.IsZero() {
		w.state.Since = now
	}
	if !w.state.Until.IsZero() && now.Sub(w.state.Until) > 2*webhookLag { // else they try again
		w.lose(w.state.Until, now, "nothing took the events that API servers post")
	}
	server := &http.Server{
		Handler:           http.MaxBytesHandler(w.handler(), maxPost),
		ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute, IdleTimeout: 5 * time.Minute,
		TLSConfig: config, MaxHeaderBytes: 64 << 10,
	}
	ended := make(chan error, 1)
	go func() { ended <- server.ServeTLS(listener, "", "") }() // the configuration has the certificate
	ticker := time.NewTicker(w.pause(storeEvery))
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			err = w.keep(ctx, &batch{})
		case err = <-ended:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if err != nil {
			closed, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer cancel()
			return errors.Join(err, server.Shutdown(closed), server.Close())
		}
	}
}

// keep stores a batch, and that there was no other one.
func (w *webhook) keep(ctx context.Context, b *batch) error {
	w.storing.Lock()
	defer w.storing.Unlock()
	w.state.Until = time.Now().Add(-webhookLag)
	return w.store(ctx, b)
}

// miss says that posted events could not be stored, or were not waited for: the API server gives up
// when it has tried for long.
func (w *webhook) miss(why string) {
	w.storing.Lock()
	defer w.storing.Unlock()
	now := time.Now()
	w.lose(now.Add(-webhookLag), now, why)
}

// handler takes a few posts at a time, of those who are admitted.
func (w *webhook) handler() http.Handler {
	slots := make(chan struct{}, maxPostings)
	return http.HandlerFunc(func(answer http.ResponseWriter, request *http.Request) {
		if err := w.admit(request); err != nil {
			http.Error(answer, err.Error(), http.StatusUnauthorized)
			return
		}
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
			w.take(answer, request)
		case <-request.Context().Done():
			w.miss("events came faster than they were stored")
		}
	})
}

// take stores the events of a post.
func (w *webhook) take(answer http.ResponseWriter, request *http.Request) {
	if request.Method != http.MethodPost {
		http.Error(answer, "post a list of audit events (audit.k8s.io/v1)", http.StatusMethodNotAllowed)
		return
	}
	var list struct {
		Kind  string
		Items []json.RawMessage
	}
	err := json.NewDecoder(request.Body).Decode(&list)
	if tooLarge, isSize := errors.AsType[*http.MaxBytesError](err); isSize {
		w.miss("an API server posts too many events at once")
		http.Error(answer, fmt.Sprintf("more than %d bytes", tooLarge.Limit), http.StatusRequestEntityTooLarge)
		return
	}
	if err != nil || list.Kind != "EventList" {
		w.Metrics.unreadable.Inc()
		http.Error(answer, "it is no EventList of audit.k8s.io", http.StatusBadRequest)
		return
	}
	b := batch{since: time.Now().Add(-webhookLag)}
	for i, item := range list.Items {
		if err = w.add(&b, item, place{"a post", int64(i)}); err != nil {
			break
		}
	}
	if err == nil {
		err = w.keep(request.Context(), &b)
	}
	if err != nil {
		w.miss("events could not be stored")
		w.Log.Error("audit events can't be stored; the API server sends them again", "err", err)
		http.Error(answer, "not stored", http.StatusServiceUnavailable)
	}
}

// admit returns why a request is refused: TLS has checked its certificate.
func (w *webhook) admit(request *http.Request) error {
	if w.Config.TokenFile == "" {
		return nil
	}
	want, err := settings.ReadSecret("", w.Config.TokenFile)
	if err != nil {
		w.Log.Error("audit events are refused", "err", err)
		return errors.New("no token")
	}
	got, _ := strings.CutPrefix(request.Header.Get("Authorization"), "Bearer ")
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	if subtle.ConstantTimeCompare(a[:], b[:]) == 0 {
		return errors.New("another token is wanted")
	}
	return nil
}

// tls reads the certificate for each connection, so that it may be renewed.
func (w *webhook) tls() (*tls.Config, error) {
	load := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(w.Config.CertFile, w.Config.KeyFile)
		return &pair, err
	}
	if _, err := load(nil); err != nil {
		return nil, err
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: load}
	if file := w.Config.ClientCAFile; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		config.ClientCAs, config.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
		if !config.ClientCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("there is no certificate in PEM in %s", file)
		}
	}
	return config, nil
}
