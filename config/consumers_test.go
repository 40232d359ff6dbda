package config_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/kubebridge/bridge/config"
)

// TestConsumerPages: the configurations in docs/consumers have no mistake. make test-recipes runs
// most of them.
func TestConsumerPages(t *testing.T) {
	pages, err := filepath.Glob("../docs/consumers/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	block, found := regexp.MustCompile("(?ms)^```yaml title=\"[^\"]+\"\n(.*?)^```$"), 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range block.FindAllStringSubmatch(string(text), -1) {
			if !strings.Contains(one[1], "\ninformers:") {
				continue // of another program
			}
			found++
			if _, err := config.Load(config.Options{File: page, Data: []byte(one[1])}); err != nil {
				t.Errorf("%s: %v", page, err)
			}
		}
	}
	if found < 8 {
		t.Errorf("only %d configurations were found", found)
	}
}
