package testkit

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA signs certificates of servers and clients, for an hour.
type CA struct {
	Pool *x509.CertPool // of it alone
	DER  []byte         // its own certificate
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes one with a key of its own: two do not trust each other.
func NewCA(t testing.TB) *CA {
	t.Helper()
	template := certificate("test CA")
	template.IsCA, template.KeyUsage = true, x509.KeyUsageCertSign
	a := &CA{Pool: x509.NewCertPool(), cert: template}
	a.key, a.DER = a.sign(t, template)
	var err error
	a.cert, err = x509.ParseCertificate(a.DER)
	OK(t, err)
	a.Pool.AddCert(a.cert)
	return a
}

// Issue gives a certificate that is good for servers and clients: of these names, or without any of
// localhost and 127.0.0.1.
func (a *CA) Issue(t testing.TB, names ...string) tls.Certificate {
	t.Helper()
	template := certificate("bridge")
	template.DNSNames = names
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	if len(names) == 0 {
		template.DNSNames, template.IPAddresses = []string{"localhost"}, []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	key, der := a.sign(t, template)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// Files issues a certificate, and writes it and its key below dir, as PEM. Files of before are
// replaced.
func (a *CA) Files(t testing.TB, dir string, names ...string) (certFile, keyFile string) {
	t.Helper()
	pair := a.Issue(t, names...)
	key, err := x509.MarshalPKCS8PrivateKey(pair.PrivateKey)
	OK(t, err)
	certFile, keyFile = filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	OK(t, os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: pair.Certificate[0]}), 0o600))
	OK(t, os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600))
	return certFile, keyFile
}

func certificate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		BasicConstraintsValid: true,
	}
}

// sign makes a key and its certificate; its own where it has none yet.
func (a *CA) sign(t testing.TB, template *x509.Certificate) (*ecdsa.PrivateKey, []byte) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	OK(t, err)
	signer := a.key
	if signer == nil {
		signer = key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, signer)
	OK(t, err)
	return key, der
}
