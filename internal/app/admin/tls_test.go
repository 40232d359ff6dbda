package admin_test

import (
	"crypto/tls"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/internal/app/admin"
	"github.com/kubebridge/bridge/internal/testkit"
)

// A certificate that is renewed while the server runs is that of the next connection. One that
// can't be read leaves the last one.
func TestRenewedCertificate(t *testing.T) {
	authority := testkit.NewCA(t)
	dir := t.TempDir()
	certFile, keyFile := authority.Files(t, dir, "first.example.com")
	secured, err := admin.ServerTLS(certFile, keyFile)
	testkit.OK(t, err)
	url, _ := start(t, admin.Config{TLS: secured})
	name := func(trusting *tls.Config) string {
		t.Helper()
		client := http.Client{Transport: &http.Transport{TLSClientConfig: trusting, DisableKeepAlives: true}}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet,
			strings.Replace(url, "http:", "https:", 1)+"/healthz", nil)
		testkit.OK(t, err)
		answer, err := client.Do(request)
		testkit.OK(t, err)
		testkit.OK(t, answer.Body.Close())
		return answer.TLS.PeerCertificates[0].DNSNames[0]
	}
	trusted := func() *tls.Config {
		t.Helper()
		own, err := admin.OwnTLS(certFile)
		testkit.OK(t, err)
		return own
	}
	if got := name(trusted()); got != "first.example.com" {
		t.Errorf("the certificate is for %s", got)
	}
	authority.Files(t, dir, "second.example.com")
	second := trusted()
	if got := name(second); got != "second.example.com" {
		t.Errorf("the renewed certificate is for %s", got)
	}
	testkit.OK(t, os.Remove(keyFile))
	if got := name(second); got != "second.example.com" {
		t.Errorf("without a key the certificate is for %s", got)
	}
}

// TestWrongCertificate: what can't be used is refused before the server listens, with the files.
func TestWrongCertificate(t *testing.T) {
	authority := testkit.NewCA(t)
	certFile, _ := authority.Files(t, t.TempDir(), "a.example.com")
	_, otherKey := authority.Files(t, t.TempDir(), "b.example.com")
	if _, err := admin.ServerTLS(certFile, otherKey); err == nil || !strings.Contains(err.Error(), otherKey) {
		t.Errorf("a key of another certificate: %v", err)
	}
	broken := filepath.Join(t.TempDir(), "broken.crt")
	testkit.OK(t, os.WriteFile(broken, []byte("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"), 0o600))
	if _, err := admin.OwnTLS(broken); err == nil || !strings.Contains(err.Error(), broken) {
		t.Errorf("a broken certificate: %v", err)
	}
}
