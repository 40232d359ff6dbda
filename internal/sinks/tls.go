package sinks

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"

	"github.com/kubebridge/bridge/internal/settings"
)

// TLS is how a broker's certificate is checked and how the bridge identifies itself. With Kafka,
// being there at all (`tls: {}`) turns TLS on; with NATS the URL's scheme `tls://` does, or the
// server.
type TLS struct {
	// CAFile is the path of a PEM file with the authorities that may sign the broker's certificate.
	// Left out: the system's.
	CAFile string `yaml:"caFile"`
	// CertFile is the path of a PEM file with the bridge's own certificate. Needs `keyFile`.
	CertFile string `yaml:"certFile"`
	// KeyFile is the path of a PEM file with the private key of `certFile`.
	KeyFile string `yaml:"keyFile"`
	// ServerName is the name that the broker's certificate must be for. Left out: the host that is
	// connected to.
	ServerName string `yaml:"serverName"`
	// InsecureSkipVerify accepts any certificate. For tests: whoever is between can read and change
	// everything.
	InsecureSkipVerify bool `yaml:"insecureSkipVerify"`
}

// Validate reports what is wrong with the keys; nothing for a section that is not there.
func (t *TLS) Validate(ps *settings.Report, path string) {
	switch {
	case t == nil:
	case t.CertFile != "" && t.KeyFile == "":
		ps.Add(path+".keyFile", "required beside certFile")
	case t.KeyFile != "" && t.CertFile == "":
		ps.Add(path+".certFile", "required beside keyFile")
	case t.InsecureSkipVerify && t.CAFile != "":
		ps.Add(path+".caFile", "has no effect beside insecureSkipVerify")
	}
}

// WarnOfSkippedVerify reports that any certificate is accepted.
func (t *TLS) WarnOfSkippedVerify(ps *settings.Report, path string, p Protection) {
	if p == AnyCertificate {
		ps.Add(path+".tls.insecureSkipVerify", "accepts any certificate, so whoever is between can "+
			"read and change everything")
	}
}

// Load reads the files that the section names; nil for no section. The bridge's own certificate is
// read again for every connection, so it may be renewed while the bridge runs.
func (t *TLS) Load() (*tls.Config, error) {
	if t == nil {
		return nil, nil
	}
	out := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: t.ServerName,
		InsecureSkipVerify: t.InsecureSkipVerify,
	}
	var rootsErr error
	if t.CAFile != "" {
		out.RootCAs, rootsErr = readRoots(t.CAFile)
		rootsErr = AboutKey("tls.caFile", rootsErr)
	}
	if t.CertFile == "" {
		return out, rootsErr
	}
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", t.CertFile, t.KeyFile, err)
		}
		return &pair, nil
	}
	if _, err := load(); err != nil || rootsErr != nil {
		return nil, errors.Join(rootsErr, AboutKey("tls.certFile", err))
	}
	out.GetClientCertificate = func(
		*tls.CertificateRequestInfo,
	) (*tls.Certificate, error) {
		return load()
	}
	return out, nil
}

func readRoots(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("there is no certificate in PEM in %s", file)
	}
	return roots, nil
}

// Protection is how a connection is protected, the weakest first.
type Protection int

// Values of Protection.
const (
	PlainText Protection = iota
	AnyCertificate
	CheckedTLS
)

func (p Protection) String() string {
	return [...]string{"plain text", "TLS that takes any certificate", "TLS"}[p]
}

// Protection returns how a connection is protected that is encrypted or not. t may be nil.
func (t *TLS) Protection(encrypted bool) Protection {
	switch {
	case !encrypted:
		return PlainText
	case t != nil && t.InsecureSkipVerify:
		return AnyCertificate
	}
	return CheckedTLS
}

// OnLoopback reports whether a URL leads to this machine.
func OnLoopback(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip != nil && ip.IsLoopback()
}
