package admin

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"os"
	"sync/atomic"
)

// ServerTLS returns TLS with the certificate and the key of two PEM files. Both are read again for
// every connection, so that they may be renewed. Where they can't be, the last ones that were read
// serve: /healthz must answer without a free file descriptor, and in the middle of a renewal. The
// error is about what is in them now.
func ServerTLS(certFile, keyFile string) (*tls.Config, error) {
	var last atomic.Pointer[tls.Certificate]
	load := func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err == nil {
			last.Store(&pair)
		} else if last.Load() == nil {
			return nil, fmt.Errorf("certificate %s with key %s: %w", certFile, keyFile, err)
		}
		return last.Load(), nil
	}
	if _, err := load(nil); err != nil {
		return nil, err
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: load}, nil
}

// ClientTLS returns TLS that trusts the certificates of a PEM file: authorities, or the server's
// own.
func ClientTLS(file string) (*tls.Config, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("there is no certificate in PEM in %s", file)
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}, nil
}

// OwnTLS returns TLS that trusts the certificate that a server on this machine has in a PEM file.
// The server is asked for by one of the certificate's names: the address of this machine is seldom
// among them.
func OwnTLS(certFile string) (*tls.Config, error) {
	c, err := ClientTLS(certFile)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(certFile)
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(text) // ClientTLS has found one
	leaf, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", certFile, err)
	}
	switch {
	case len(leaf.DNSNames) > 0:
		c.ServerName = leaf.DNSNames[0]
	case len(leaf.IPAddresses) > 0:
		c.ServerName = leaf.IPAddresses[0].String()
	}
	return c, nil
}
