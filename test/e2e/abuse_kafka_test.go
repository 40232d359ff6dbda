package e2e_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/kubebridge/bridge/test/e2e/read"
)

// teamTopics reads the topics of the sink "teams" as if they were named and filled as by default:
// package check compares with these. Events of objects without a team are in a topic of their own.
type teamTopics struct {
	read.Kafka
	namespace string // whose events count
}

func (r *teamTopics) Refresh(ctx context.Context) ([]read.Event, error) {
	all, err := r.Kafka.Refresh(ctx)
	if err != nil {
		return nil, err
	}
	events := slices.Clone(all)
	for i := range events {
		e := &events[i]
		if !e.AboutObject() || e.Attribute("namespace") != r.namespace {
			continue
		}
		team := e.Attribute("team")
		if team == "" {
			team = "-"
		}
		if want := "team." + team; e.Topic != want {
			return nil, fmt.Errorf("%s is in topic %s, want %s", e.ID(), e.Topic, want)
		}
		e.Topic = "k8s." + clusterName + "." + e.Attribute("resource")
		var change struct{ Object json.RawMessage } // payload: change
		if err := json.Unmarshal(e.Data(), &change); err != nil {
			return nil, fmt.Errorf("%s: %w", e.ID(), err)
		}
		e.DataEncoded = change.Object
	}
	return events, nil
}
