package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/kubebridge/bridge/config"
)

// contentOf returns a digest of what files hold. It reads them, since notifications of changes miss
// some: a volume of a ConfigMap changes by a link to another directory, editors write a new file
// and rename it, and network file systems send none.
func contentOf(files ...string) string {
	h := sha256.New()
	for _, file := range files {
		data, err := os.ReadFile(file)
		fmt.Fprintf(h, "%s %d %v\n", file, len(data), err)
		h.Write(data)
	}
	return string(h.Sum(nil))
}

// versionOf distinguishes the configurations of replicas: by what a running bridge changes, as it
// is written in the file, so that replicas may have paths and values of variables of their own. ""
// without a file.
func versionOf(file string) string {
	data, err := os.ReadFile(file)
	if file == "" || err != nil {
		return ""
	}
	var live struct {
		Informers, Sinks any
	}
	if err := yaml.Unmarshal(data, &live); err != nil {
		return "" // it is refused
	}
	sum := sha256.Sum256(fmt.Append(nil, live)) // maps in the order of their keys
	return hex.EncodeToString(sum[:4])
}

// secretsOf returns what the files with secrets that are read once hold, by sink.
func secretsOf(c *config.Config) map[string]string {
	secrets := map[string]string{}
	for i := range c.Sinks {
		secrets[c.Sinks[i].Name] = contentOf(c.Sinks[i].ReadOnce()...)
	}
	return secrets
}

// content returns what a configuration is made of holds now. The caller holds changing.
func (r *reloader) content() string { return contentOf(r.files()...) }

// files returns what a configuration is made of: the file, the redaction key's, and what its sinks
// read once. The caller holds changing.
func (r *reloader) files() []string {
	list := []string{r.file}
	if key := r.assembler.config.Redaction.KeyFile; key != "" {
		list = append(list, key)
	}
	for i := range r.assembler.config.Sinks {
		list = append(list, r.assembler.config.Sinks[i].ReadOnce()...)
	}
	return list
}

// sameInterval is how often files are read that are not to change.
const sameInterval = time.Second

// whileSame calls changed when files have another content, or returns when ctx ends.
func whileSame(ctx context.Context, content string, files []string, changed func()) {
	tick := time.NewTicker(sameInterval)
	defer tick.Stop()
	for contentOf(files...) == content {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
	changed()
}

// readFiles gives what there is now, and reports whether it has been dealt with, or ctx has ended.
func (r *reloader) readFiles(ctx context.Context) (content string, done bool) {
	if r.changing.Acquire(ctx, 1) != nil {
		return "", true
	}
	defer r.changing.Release(1)
	content = r.content()
	return content, content == r.done
}

// watch reloads at each SIGHUP, and when the configuration file has changed, or a file that is
// read once, until ctx ends. A change counts when it was seen twice: who writes a file may be in
// the middle of it. What could not be tried is tried again. 0 looks at no file.
func (r *reloader) watch(ctx context.Context, hangups <-chan os.Signal, interval time.Duration) {
	var ticks <-chan time.Time
	if interval > 0 {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		ticks = tick.C
	}
	for last := ""; ; {
		select {
		case <-ctx.Done():
			return
		case <-hangups:
			_, _ = r.reload(ctx, "SIGHUP") // what comes of it is logged
		case <-ticks:
			now, done := r.readFiles(ctx)
			if !done && now == last {
				_, _ = r.reload(ctx, "the file has changed")
			}
			last = now
		}
	}
}
