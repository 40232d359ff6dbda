package http_test

import (
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	nethttp "net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
	"github.com/kubebridge/bridge/internal/sinks/http"
	"github.com/kubebridge/bridge/internal/sinks/sinktest"
	"github.com/kubebridge/bridge/internal/testkit"
)

// Keys of Standard Webhooks.
const (
	oldKey = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	newKey = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
	badKey = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"
)

func write(t *testing.T, file, text string) string {
	t.Helper()
	testkit.OK(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// A receiver with the library of Standard Webhooks verifies the events and the dead letters, with
// each of the keys, and keys are replaced while the sink runs.
func TestSignature(t *testing.T) {
	var headers nethttp.Header
	var body []byte
	server := httptest.NewServer(nethttp.HandlerFunc(func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		headers = r.Header
		body, _ = io.ReadAll(r.Body)
	}))
	defer server.Close()
	verifies := func(key string) error {
		w, err := standardwebhooks.NewWebhook(key)
		testkit.OK(t, err)
		return w.Verify(body, headers)
	}
	file := write(t, filepath.Join(t.TempDir(), "key"), oldKey+"\n")
	s := newSink(t, http.Options{
		Config: http.Config{
			URL: settings.URL(server.URL), DeadLetterURL: settings.URL(server.URL + "/dead"), SigningKeyFile: file,
		},
		Common: sinks.Common{Encoding: sinks.Structured},
	})
	defer func() { testkit.OK(t, s.Close()) }()
	testkit.OK(t, publish(t, s))
	testkit.OK(t, verifies(oldKey))
	if verifies(badKey) == nil {
		t.Error("another key verifies the event")
	}
	id := headers.Get("Webhook-Id")
	if e, err := sinktest.ParseStructured(body); err != nil || id == "" || e.Attributes["id"] != id {
		t.Errorf("webhook-id %q of %v, %v", id, e.Attributes, err)
	}
	body = append(slices.Clip(body), ' ')
	if verifies(oldKey) == nil {
		t.Error("another body is verified")
	}
	write(t, file, oldKey+"\n"+newKey+"\n")
	testkit.OK(t, publish(t, s))
	testkit.OK(t, errors.Join(verifies(oldKey), verifies(newKey)))
	if again := headers.Get("Webhook-Id"); again != id {
		t.Errorf("the same event has the ids %q and %q", id, again)
	}
	dotted := sinktest.NewEvent("web", 1, 300)
	dotted.ID = "a.b c"
	testkit.OK(t, s.DeadLetter(t.Context(), dotted, errors.New("no"), 1))
	testkit.OK(t, verifies(newKey))
	if id := headers.Get("Webhook-Id"); id != "a%2Eb%20c" {
		t.Errorf("webhook-id %q", id)
	}
	headers = nil
	for _, text := range []string{"", "hunter2", "whsec_!", "whsec_aHVudGVyMg=="} {
		write(t, file, text)
		err := publish(t, s)
		if sinks.Classify(err) != sinks.Reconnect || headers != nil {
			t.Errorf("with the key %q: %v, sent %v", text, err, headers)
		}
		if err == nil || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("with the key %q: %v", text, err)
		}
	}
}

// An endpoint that wants a certificate of the bridge gets it, also a renewed one, and one without a
// certificate that the endpoint takes sends nothing.
func TestMutualTLS(t *testing.T) {
	ca, other := testkit.NewCA(t), testkit.NewCA(t)
	var client atomic.Value
	server := httptest.NewUnstartedServer(nethttp.HandlerFunc(func(_ nethttp.ResponseWriter, r *nethttp.Request) {
		client.Store(r.TLS.PeerCertificates[0].DNSNames[0])
	}))
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{ca.Issue(t)}, ClientAuth: tls.RequireAndVerifyClientCert,
		ClientCAs: ca.Pool,
	}
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	dir := t.TempDir()
	files := sinks.TLS{
		CAFile: filepath.Join(dir, "ca.pem"), CertFile: filepath.Join(dir, "cert.pem"), KeyFile: filepath.Join(dir, "key.pem"),
	}
	write(t, files.CAFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.DER})))
	issue := func(by *testkit.CA, name string) {
		pair := by.Issue(t, name)
		key, err := x509.MarshalECPrivateKey(pair.PrivateKey.(*ecdsa.PrivateKey))
		testkit.OK(t, err)
		write(t, files.CertFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]})))
		write(t, files.KeyFile, string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: key})))
	}
	post := func(encryption *sinks.TLS) error {
		s := newSink(t, http.Options{Config: http.Config{URL: settings.URL(server.URL), TLS: encryption, Timeout: 5 * time.Second}})
		defer func() { testkit.OK(t, s.Close()) }()
		return publish(t, s)
	}
	issue(ca, "bridge")
	testkit.OK(t, post(&files))
	issue(ca, "renewed")
	testkit.OK(t, post(&files))
	if name := client.Load(); name != "renewed" {
		t.Errorf("the endpoint saw the certificate of %v", name)
	}
	issue(other, "intruder")
	for name, encryption := range map[string]*sinks.TLS{
		"a certificate of another authority": &files, "no certificate": {CAFile: files.CAFile},
		"an unknown authority of the endpoint": nil,
	} {
		if err := post(encryption); err == nil || sinks.Classify(err) == sinks.Refused {
			t.Errorf("%s: %v", name, err)
		}
	}
	if name := client.Load(); name != "renewed" {
		t.Errorf("the endpoint took an event of %v", name)
	}
}
