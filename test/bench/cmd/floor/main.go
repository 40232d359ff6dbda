// Command floor reads watch events and does nothing with them: what no client can do without.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig")
	frames := flag.Int("frames", 100_000, "how many to read")
	flag.Parse()
	cfg, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		log.Fatal(err)
	}
	took, bytes, err := read(cfg, *frames)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(took.Nanoseconds(), bytes)
}

func read(cfg *rest.Config, frames int) (took time.Duration, total int, err error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	resp, err := client.Get(cfg.Host + "/api/v1/pods?watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true") //nolint:noctx // it lives as long as the program
	if err != nil {
		return 0, 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return 0, 0, fmt.Errorf("%s", resp.Status)
	}
	buf := make([]byte, 256<<10)
	for seen := 0; seen < frames; {
		n, err := resp.Body.Read(buf)
		seen += bytes.Count(buf[:n], []byte{'\n'})
		total += n
		if err == io.EOF && seen < frames {
			return 0, 0, fmt.Errorf("the stream ended after %d frames", seen)
		}
		if err != nil && err != io.EOF {
			return 0, 0, err
		}
	}
	return time.Since(began), total, nil
}
