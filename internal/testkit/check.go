package testkit

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kubebridge/bridge/internal/resource"
	"github.com/kubebridge/bridge/internal/settings"
)

// Pods are the objects that most tests are about.
var Pods = resource.Type{Version: "v1", Resource: "pods", Kind: "Pod", Namespaced: true}

// OK ends the test when there is an error.
func OK(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Rounds returns how often a randomised test is played: rounds, or at most short with -short.
func Rounds(rounds, short int) int {
	if testing.Short() {
		return min(rounds, short)
	}
	return rounds
}

// WithDefaults returns a section of the configuration with the defaults of its tags in the place of
// zero values.
func WithDefaults[T any](section T) T {
	settings.Fill(reflect.ValueOf(&section).Elem(), "", nil, true)
	return section
}

// Want fails the test when two lists differ, and prints both, an element in a line.
func Want[T comparable](t testing.TB, got []T, want ...T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got\n%swant\n%s", lines(got), lines(want))
	}
}

func lines[T any](list []T) string {
	var b strings.Builder
	for _, e := range list {
		fmt.Fprintf(&b, "\t%v\n", e)
	}
	return b.String()
}

// Eventually waits until so is true, and ends the test when it is not within 30 seconds: of the
// bubble's time, or of real time for what a bubble can't hold, as processes and embedded servers.
func Eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 30 s: %s", what)
		}
	}
}

// Buffer is a bytes.Buffer for one goroutine that writes and another that reads.
type Buffer struct {
	mu  sync.Mutex
	buf bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String is what was written and not taken.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// Take empties the buffer.
func (b *Buffer) Take() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := bytes.Clone(b.buf.Bytes())
	b.buf.Reset()
	return out
}
