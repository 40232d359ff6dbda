package http

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/kubebridge/bridge/internal/event"
	"github.com/kubebridge/bridge/internal/settings"
	"github.com/kubebridge/bridge/internal/sinks"
)

// signingKeys are those with which a request is signed, each for itself.
type signingKeys [][]byte

// keyPrefix marks a key of Standard Webhooks; what follows is base64.
const keyPrefix = "whsec_"

// Bounds of a key in bytes, of the specification.
const minKey, maxKey = 24, 64

// readSigningKeys reads the keys from a file, one a line.
func readSigningKeys(file string) (signingKeys, error) {
	text, err := settings.ReadToken(file)
	if err != nil {
		return nil, err
	}
	var keys signingKeys
	for line := range strings.Lines(text) {
		encoded, isKey := strings.CutPrefix(strings.TrimSpace(line), keyPrefix)
		key, err := base64.StdEncoding.DecodeString(encoded)
		if !isKey || err != nil || len(key) < minKey || len(key) > maxKey {
			return nil, fmt.Errorf("%s: want lines of %s and %d to %d bytes in base64", file, keyPrefix,
				minKey, maxKey)
		}
		keys = append(keys, key)
	}
	return keys, nil
}

// errNoKeys keeps an event from being sent without a signature.
var errNoKeys = errors.New("the file of signingKeyFile has no key")

// sign sets the headers of Standard Webhooks, which prove that the body is of a holder of the key,
// and when it was sent: https://www.standardwebhooks.com. An id is the same in each attempt.
func sign(r *http.Request, id string, body []byte, keys signingKeys) error {
	if len(keys) == 0 {
		return errNoKeys
	}
	id = strings.ReplaceAll(event.HeaderValue(id), ".", "%2E") // a dot ends the id in what is signed
	now := strconv.FormatInt(time.Now().Unix(), 10)
	signatures := make([]string, len(keys))
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + now + "."))
		mac.Write(body)
		signatures[i] = "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	r.Header.Set("Webhook-Id", id)
	r.Header.Set("Webhook-Timestamp", now)
	r.Header.Set("Webhook-Signature", strings.Join(signatures, " "))
	return nil
}

// signed signs a request with an event, where the configuration has a key.
func (s *Sink) signed(r *http.Request, m message) error {
	if s.cfg.SigningKeyFile == "" || m.id == "" {
		return nil
	}
	keys, err := readSigningKeys(s.cfg.SigningKeyFile)
	if err == nil {
		err = sign(r, m.id, m.body, keys)
	}
	if err != nil {
		return &sinks.Error{Class: sinks.Reconnect, Err: err}
	}
	return nil
}
