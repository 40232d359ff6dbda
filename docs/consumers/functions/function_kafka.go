//go:build ignore

package main

import (
	"context"
	"errors"
	"log"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	log.SetFlags(0)
	client, err := kgo.NewClient(
		kgo.SeedBrokers("127.0.0.1:9092"), kgo.ConsumeTopics("k8s.configmaps"),
		kgo.ConsumerGroup(os.Args[2]), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		// So long others wait for the partitions of one that was killed.
		kgo.SessionTimeout(6*time.Second), kgo.RebalanceTimeout(15*time.Second),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for {
		isIdle, err := readOne(context.Background(), client, os.Args[1])
		if err != nil {
			log.Fatal(err)
		}
		if isIdle && slices.Contains(os.Args, "--once") {
			return
		}
	}
}

// readOne reads an event, if one comes within 6 s.
func readOne(ctx context.Context, client *kgo.Client, dir string) (isIdle bool, err error) {
	waiting, cancel := context.WithTimeout(ctx, 6*time.Second)
	defer cancel()
	fetches := client.PollRecords(waiting, 1)
	defer client.AllowRebalance()
	if err := fetches.Err0(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		return false, err
	}
	records := fetches.Records()
	if len(records) == 0 {
		return true, nil
	}
	if err := act(dir, attributes(records[0].Headers), records[0].Value); err != nil {
		return false, err
	}
	return false, client.CommitRecords(ctx, records[0]) // the effect is stored
}

// attributes are those of an event. A record of something else has none.
func attributes(headers []kgo.RecordHeader) map[string]string {
	event := map[string]string{}
	for _, header := range headers {
		if name, ok := strings.CutPrefix(header.Key, "ce_"); ok {
			event[name] = string(header.Value)
		}
	}
	return event
}
