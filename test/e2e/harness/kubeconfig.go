package harness

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// WriteExpiredKubeconfig writes a kubeconfig for an admin whose client certificate was good until
// yesterday.
func (c *ControlPlane) WriteExpiredKubeconfig(path string) error {
	ca, err := tls.LoadX509KeyPair(filepath.Join(c.dir, "pki", "ca.crt"), filepath.Join(c.dir, "pki", "ca.key"))
	if err != nil {
		return err
	}
	authority, err := x509.ParseCertificate(ca.Certificate[0])
	if err != nil {
		return err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	const day = 24 * time.Hour
	certificate, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: "yesterdays-admin", Organization: []string{"system:masters"}},
		NotBefore:    time.Now().Add(-2 * day), NotAfter: time.Now().Add(-day),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, authority, &key.PublicKey, ca.PrivateKey)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	return writeKubeconfig(path, c.Server, c.admin.CAData, &api.AuthInfo{
		ClientCertificateData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}),
		ClientKeyData:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
	})
}

// WriteKubeconfig writes a kubeconfig for a bearer of a token.
func (c *ControlPlane) WriteKubeconfig(path, token string) error {
	return c.WriteKubeconfigThrough(path, c.Server, c.admin.CAData, token)
}

// WriteKubeconfigThrough writes a kubeconfig for a bearer of a token who reaches the API server
// through something else: at another URL, or behind another certificate.
func (c *ControlPlane) WriteKubeconfigThrough(path, server string, ca []byte, token string) error {
	return writeKubeconfig(path, server, ca, &api.AuthInfo{Token: token})
}

func writeKubeconfig(path, server string, ca []byte, user *api.AuthInfo) error {
	config := api.NewConfig()
	config.Clusters["e2e"] = &api.Cluster{Server: server, CertificateAuthorityData: ca}
	config.AuthInfos["e2e"] = user
	config.Contexts["e2e"] = &api.Context{Cluster: "e2e", AuthInfo: "e2e"}
	config.CurrentContext = "e2e"
	return clientcmd.WriteToFile(*config, path)
}
