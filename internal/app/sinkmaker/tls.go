package sinkmaker

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/kubebridge/bridge/config"
)

// tlsConfig reads what a TLS section names; nil for no section. The bridge's own certificate is
// read again for every connection, so it may be renewed while the bridge runs.
func tlsConfig(c *config.TLS) (*tls.Config, error) {
	if c == nil {
		return nil, nil
	}
	out := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: c.ServerName,
		InsecureSkipVerify: c.InsecureSkipVerify,
	}
	var rootsErr error
	if c.CAFile != "" {
		out.RootCAs, rootsErr = readRoots(c.CAFile)
		rootsErr = aboutKey("tls.caFile", rootsErr)
	}
	if c.CertFile == "" {
		return out, rootsErr
	}
	load := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", c.CertFile, c.KeyFile, err)
		}
		return &pair, nil
	}
	if _, err := load(); err != nil || rootsErr != nil {
		return nil, errors.Join(rootsErr, aboutKey("tls.certFile", err))
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
