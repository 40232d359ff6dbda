// Command apiserver serves synthetic pods for benchmarks: on plain HTTP, or on TLS with HTTP/2 with
// a certificate that it makes.
package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/kubebridge/bridge/test/bench/apiserver"
)

func main() {
	pods := flag.Int("pods", 100_000, "how many pods there are")
	address := flag.String("address", "127.0.0.1:0", "where to listen")
	kubeconfig := flag.String("kubeconfig", "", "file to write a kubeconfig to")
	plain := flag.Bool("plain", false, "plain HTTP instead of TLS")
	idle := flag.Int("idle", 0, "resources more, in which nothing happens")
	control := flag.String("control", "", "where to listen for the benchmark's own requests, on plain HTTP; its URL is printed instead")
	flag.Parse()
	if err := serve(*pods, *idle, *address, *kubeconfig, *plain, *control); err != nil {
		log.Fatal(err)
	}
}

func serve(pods, idle int, address, kubeconfig string, plain bool, control string) error {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return err
	}
	handler := apiserver.New(pods)
	handler.ServeIdle(idle)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	url := "http://" + listener.Addr().String()
	var ca []byte
	if !plain {
		var cert tls.Certificate
		if cert, ca, err = apiserver.Certificate(); err != nil {
			return err
		}
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{cert}, MinVersion: tls.VersionTLS12}
		url = "https://" + listener.Addr().String()
	}
	if kubeconfig != "" {
		if err := os.WriteFile(kubeconfig, apiserver.Kubeconfig(url, ca), 0o600); err != nil {
			return err
		}
	}
	if control != "" {
		if url, err = serveControl(handler, control); err != nil {
			return err
		}
	}
	fmt.Println(url)
	if plain {
		return server.Serve(listener)
	}
	return server.ServeTLS(listener, "", "")
}

func serveControl(handler http.Handler, address string) (url string, err error) {
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return "", err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go func() { log.Fatal(server.Serve(listener)) }()
	return "http://" + listener.Addr().String(), nil
}
