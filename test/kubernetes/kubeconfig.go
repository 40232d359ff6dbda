package main

import (
	"os"

	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// clusterName is what `kubectl config get-contexts` shows.
const clusterName = "bridge-test"

// writeKubeconfig writes a kubeconfig for a client certificate, with everything inside: it can be
// copied elsewhere.
func (p *pki) writeKubeconfig(path, server, name, user string) error {
	certFile, keyFile, err := p.createClient(name, user)
	if err != nil {
		return err
	}
	login := api.NewAuthInfo()
	if login.ClientCertificateData, err = os.ReadFile(certFile); err != nil {
		return err
	}
	if login.ClientKeyData, err = os.ReadFile(keyFile); err != nil {
		return err
	}
	cluster := api.NewCluster()
	cluster.Server = server
	if cluster.CertificateAuthorityData, err = os.ReadFile(p.pki("ca.crt")); err != nil {
		return err
	}
	context := api.NewContext()
	context.Cluster = clusterName
	context.AuthInfo = name

	config := api.NewConfig()
	config.Clusters[clusterName] = cluster
	config.AuthInfos[name] = login
	config.Contexts[clusterName] = context
	config.CurrentContext = clusterName
	data, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	return writeFile(path, data)
}
