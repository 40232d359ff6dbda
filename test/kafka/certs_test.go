package kafkatest_test

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

// authority signs the certificates of the broker and of the bridge.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(dir string) (*authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	a := &authority{dir: dir}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, describe("the tests' authority", true), describe("the tests' authority", true), &a.key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	if err := a.write("ca.pem", block("CERTIFICATE", der)); err != nil {
		return nil, err
	}
	for _, name := range []string{"broker", "bridge"} {
		if err := a.issue(name); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// issue writes a key and its certificate into one file, as Kafka wants them.
func (a *authority) issue(name string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, describe(name, false), a.cert, &key.PublicKey, a.key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return a.write(name+".pem", append(block("PRIVATE KEY", private), block("CERTIFICATE", der)...))
}

func describe(name string, isCA bool) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: isCA, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func (a *authority) file(name string) string { return filepath.Join(a.dir, name) }

func (a *authority) write(name string, data []byte) error {
	return os.WriteFile(a.file(name), data, 0o600)
}

// client is the TLS configuration of a sink, with a certificate of its own when it has a name.
func client(t *testing.T, name string) *tls.Config {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(dir, "certs", "ca.pem"))
	must(t, err)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	config := &tls.Config{RootCAs: pool}
	if name != "" {
		file := filepath.Join(dir, "certs", name+".pem")
		cert, err := tls.LoadX509KeyPair(file, file)
		must(t, err)
		config.Certificates = []tls.Certificate{cert}
	}
	return config
}
