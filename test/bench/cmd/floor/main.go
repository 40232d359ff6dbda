// Command floor does what no client can do without, and nothing else: it reads watch events, and
// with -nats it publishes each of them as it came to JetStream and waits for the acknowledgement.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

const path = "/api/v1/pods?watch=true&sendInitialEvents=true" +
	"&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"

func main() {
	kubeconfig := flag.String("kubeconfig", "", "kubeconfig")
	frames := flag.Int("frames", 100_000, "how many to read")
	url := flag.String("nats", "", "URL of a NATS server: publish each frame there, without end")
	flag.Parse()
	if err := run(*kubeconfig, *frames, *url); err != nil {
		log.Fatal(err)
	}
}

func run(kubeconfig string, frames int, url string) error {
	cfg, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	began := time.Now()
	body, err := watch(cfg)
	if err != nil {
		return err
	}
	defer body.Close()
	if url != "" {
		return publish(body, url)
	}
	total, err := read(body, frames)
	if err != nil {
		return err
	}
	fmt.Println(time.Since(began).Nanoseconds(), total)
	return nil
}

func watch(cfg *rest.Config) (io.ReadCloser, error) {
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	resp, err := client.Get(cfg.Host + path) //nolint:noctx // it lives as long as the program
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, errors.Join(errors.New(resp.Status), resp.Body.Close())
	}
	return resp.Body, nil
}

// read reads so many frames, and returns how many bytes they are.
func read(body io.Reader, frames int) (total int, err error) {
	buf := make([]byte, 256<<10)
	for seen := 0; seen < frames; {
		n, err := body.Read(buf)
		seen += bytes.Count(buf[:n], []byte{'\n'})
		total += n
		if err == io.EOF && seen < frames {
			return 0, fmt.Errorf("the stream ended after %d frames", seen)
		}
		if err != nil && err != io.EOF {
			return 0, err
		}
	}
	return total, nil
}

// window is how many frames may wait for their acknowledgement, as in the program clientgo.
const window = 4096

// publish publishes each frame until the stream ends.
func publish(body io.Reader, url string) error {
	nc, err := nats.Connect(url)
	if err != nil {
		return err
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		return err
	}
	stream := jetstream.StreamConfig{
		Name: "K8S", Subjects: []string{"k8s.>"}, Storage: jetstream.FileStorage,
	}
	if _, err := js.CreateOrUpdateStream(context.Background(), stream); err != nil {
		return err
	}
	inFlight, inbox := make(chan struct{}, window), nc.NewInbox()
	if _, err := nc.Subscribe(inbox, func(*nats.Msg) { <-inFlight }); err != nil {
		return err
	}
	frames := bufio.NewReaderSize(body, 256<<10)
	for {
		frame, err := frames.ReadSlice('\n')
		if err != nil {
			return err
		}
		if bytes.HasPrefix(frame, bookmark) {
			continue
		}
		inFlight <- struct{}{}
		if err := nc.PublishRequest("k8s.bench.core.v1.pods", inbox, frame); err != nil {
			return err
		}
	}
}

var bookmark = []byte(`{"type":"BOOKMARK"`)
