package oracle

import (
	"context"
	"strings"
	"testing"
	"time"
)

// Without a URL the client of etcd would wait forever.
func TestNoURL(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if o, err := Open(ctx, ""); o != nil || err == nil || !strings.Contains(err.Error(), "client URL") {
		t.Errorf("Open: %v", err)
	}
}
