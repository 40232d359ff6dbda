package informer_test

import (
	"errors"
	"sync"

	"github.com/kubebridge/bridge/internal/informer/changelog"
)

// brokenCommits is a Committer whose commits fail while it is asked to.
type brokenCommits struct {
	changelog.Committer
	mu     sync.Mutex
	broken bool
	tries  int
}

func (b *brokenCommits) fail(broken bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.broken = broken
}

func (b *brokenCommits) tried() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tries
}

func (b *brokenCommits) Commit() error {
	b.mu.Lock()
	broken := b.broken
	b.tries++
	b.mu.Unlock()
	if broken {
		return errors.New("no space left on device")
	}
	return b.Committer.Commit()
}
