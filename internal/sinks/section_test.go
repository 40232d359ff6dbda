package sinks_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/sinks"
)

// certificate writes a certificate with its key, and gives their paths.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, der []byte) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	return write("cert.pem", "CERTIFICATE", der), write("key.pem", "EC PRIVATE KEY", keyDER)
}

// A renewed certificate is read again.
func TestRenewedCertificate(t *testing.T) {
	cert, key := certificate(t)
	c, err := (&sinks.TLS{CAFile: cert, CertFile: cert, KeyFile: key, ServerName: "broker"}).Load()
	if err != nil || c.RootCAs == nil || c.ServerName != "broker" {
		t.Fatal(c, err)
	}
	first, err := c.GetClientCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	newCert, newKey := certificate(t)
	for from, to := range map[string]string{newCert: cert, newKey: key} {
		if err := os.Rename(from, to); err != nil {
			t.Fatal(err)
		}
	}
	second, err := c.GetClientCertificate(nil)
	if err != nil || string(first.Certificate[0]) == string(second.Certificate[0]) {
		t.Errorf("the old certificate is still used: %v", err)
	}
}

// Wrong TLS files are reported plainly.
func TestWrongTLSFiles(t *testing.T) {
	cert, key := certificate(t)
	for want, c := range map[string]*sinks.TLS{
		"tls.caFile: open ":                          {CAFile: cert + "-missing"},
		"tls.caFile: there is no certificate in PEM": {CAFile: key},
		"tls.certFile: certificate ":                 {CertFile: key, KeyFile: cert},
	} {
		if _, err := c.Load(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if c, err := (*sinks.TLS)(nil).Load(); c != nil || err != nil {
		t.Errorf("no section: %v, %v", c, err)
	}
}
