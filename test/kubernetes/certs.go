package main

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"time"
)

// pki is the certificate authority of the cluster and what it has signed, as files below DIR/pki.
//
// An existing authority is used again, so that a kubeconfig written by an earlier run on the same
// directory stays valid, and so do service account tokens. Keys are ECDSA: making RSA keys would
// cost a second at every start.
type pki struct {
	layout
	ca    *x509.Certificate
	caKey crypto.Signer
}

// adminGroup may do everything: RBAC has a binding for it from the start.
const adminGroup = "system:masters"

func newPKI(l layout) (*pki, error) {
	p := &pki{layout: l}
	if err := p.loadAuthority(); errors.Is(err, fs.ErrNotExist) {
		if err := p.createAuthority(); err != nil {
			return nil, fmt.Errorf("create certificate authority: %w", err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("load certificate authority from %s (remove the directory to start afresh): %w", l.pki("ca.crt"), err)
	}
	return p, p.createServing()
}

func (p *pki) loadAuthority() error {
	cert, err := readPEM(p.pki("ca.crt"))
	if err != nil {
		return err
	}
	key, err := readPEM(p.pki("ca.key"))
	if err != nil {
		return err
	}
	if p.ca, err = x509.ParseCertificate(cert); err != nil {
		return err
	}
	p.caKey, err = x509.ParseECPrivateKey(key)
	return err
}

func (p *pki) createAuthority() error {
	key, err := newKey(p.pki("ca.key"))
	if err != nil {
		return err
	}
	if _, err := newKey(p.pki("service-account.key")); err != nil {
		return err
	}
	template := certificateTemplate("bridge-test-ca")
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage |= x509.KeyUsageCertSign
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return err
	}
	if p.ca, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	p.caKey = key
	// ca.crt last: it is what loadAuthority asks for first, so a start that was cut short leaves no
	// half authority.
	return writePEM(p.pki("ca.crt"), "CERTIFICATE", der)
}

// createServing makes the API server's own certificate.
func (p *pki) createServing() error {
	template := certificateTemplate("kube-apiserver")
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback}
	return p.sign(template, p.pki("apiserver.crt"), p.pki("apiserver.key"))
}

// createClient makes a certificate as which user a component calls; all are admins, see
// controllers.go for the reason.
func (p *pki) createClient(name, user string) (certFile, keyFile string, err error) {
	template := certificateTemplate(user)
	template.Subject.Organization = []string{adminGroup}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	certFile, keyFile = p.pki(name+".crt"), p.pki(name+".key")
	return certFile, keyFile, p.sign(template, certFile, keyFile)
}

func (p *pki) sign(template *x509.Certificate, certFile, keyFile string) error {
	key, err := newKey(keyFile)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, p.ca, key.Public(), p.caKey)
	if err != nil {
		return fmt.Errorf("sign %s: %w", certFile, err)
	}
	return writePEM(certFile, "CERTIFICATE", der)
}

func certificateTemplate(commonName string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120)) // rand.Reader never fails
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: commonName},
		NotBefore:    now.Add(-time.Hour), // a clock that is set back a little must not stop a test
		NotAfter:     now.AddDate(1, 0, 0),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func newKey(file string) (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, err
	}
	return key, writePEM(file, "EC PRIVATE KEY", der)
}

func writePEM(file, kind string, der []byte) error {
	return writeFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func readPEM(file string) ([]byte, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(data)
	if block == nil {
		return nil, fmt.Errorf("%s holds no PEM block", file)
	}
	return block.Bytes, nil
}
