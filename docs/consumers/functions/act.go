//go:build ignore

package main

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// once stores an effect and its id at once, as a file of that name, unless it was stored before.
func once(dir, id, what string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, "new")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	_, err = temp.WriteString(what)
	if err = errors.Join(err, temp.Close()); err != nil {
		return err
	}
	err = os.Link(temp.Name(), filepath.Join(dir, fmt.Sprintf("%x", sha256.Sum256([]byte(id)))))
	if errors.Is(err, fs.ErrExist) {
		return nil // it was done before
	}
	if err == nil {
		fmt.Print(what)
	}
	return err
}

// act tries an event five times. One that still fails is a dead letter: the others wait no longer.
func act(dir string, event map[string]string, data []byte) error {
	if !strings.HasPrefix(event["type"], "dev.kubebridge.resource.") || event["initial"] != "" {
		return nil // about the stream, or what existed before: no change
	}
	id := event["source"] + " " + event["informer"] + " " + event["id"]
	var err error
	for _, pause := range []time.Duration{100, 300, 1000, 3000, 0} {
		if err = do(dir, id, event, data); err == nil {
			return nil
		}
		time.Sleep(pause * time.Millisecond)
	}
	return once(filepath.Join(dir, "dead"), id, fmt.Sprintf("given up %s: %v\n", event["name"], err))
}

// do is what the function does: it writes down what happened.
func do(dir, id string, event map[string]string, data []byte) error {
	var configMap struct{ Data map[string]string }
	if err := json.Unmarshal(data, &configMap); err != nil {
		return err
	}
	if configMap.Data == nil {
		return errors.New("no data")
	}
	what := strings.TrimPrefix(event["type"], "dev.kubebridge.resource.") + " " + event["name"]
	for _, key := range slices.Sorted(maps.Keys(configMap.Data)) {
		what += " " + configMap.Data[key]
	}
	return once(dir, id, what+"\n")
}
