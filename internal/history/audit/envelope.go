package audit

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/kubebridge/bridge/internal/resource/jsonscan"
)

// envelope is what a message may be instead of one event.
type envelope struct {
	// A list, as API servers post it.
	Items []json.RawMessage `json:"items"`
	// A record of a subscription of CloudWatch Logs. The log group of an EKS cluster has the logs
	// of other components too.
	LogStream string `json:"logStream"`
	LogEvents []struct {
		Message string `json:"message"`
	} `json:"logEvents"`
	// MessageType of what CloudWatch Logs sends to see whether the destination is there.
	MessageType string `json:"messageType"`
	// Records of an Azure diagnostic setting, of all its categories.
	Records []struct {
		Category   string `json:"category"`
		Properties struct {
			Log string `json:"log"`
		} `json:"properties"`
	} `json:"records"`
}

var errGoogle = errors.New("an AuditLog of Google Cloud is no event of audit.k8s.io: it lacks the answer's code " +
	"and the times of the request")

// eachEvent calls add with each audit event that a message holds. The events of an envelope that
// can be read are added, whatever the others are.
func eachEvent(data []byte, add func(text []byte)) error {
	data, err := unpack(data)
	if err != nil || len(bytes.TrimSpace(data)) == 0 { // a tombstone
		return err
	}
	key := formOf(data)
	if key == "protoPayload" {
		return errGoogle
	}
	if key == "" {
		add(data)
		return nil
	}
	var e envelope
	if err := json.Unmarshal(data, &e); err != nil {
		return fmt.Errorf("%s: %w", key, err)
	}
	for _, item := range e.Items {
		add(item)
	}
	isAudit := strings.HasPrefix(e.LogStream, "kube-apiserver-audit") || e.LogStream == ""
	if isAudit && e.MessageType != "CONTROL_MESSAGE" {
		for _, event := range e.LogEvents {
			add([]byte(event.Message))
		}
	}
	for _, record := range e.Records {
		if strings.HasPrefix(record.Category, "kube-audit") {
			add([]byte(record.Properties.Log))
		}
	}
	return nil
}

// unpack returns what a message has, also one that gzip has compressed.
func unpack(data []byte) ([]byte, error) {
	if !bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		return data, nil
	}
	in, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	unpacked, err := io.ReadAll(io.LimitReader(in, maxPost+1))
	if err == nil && len(unpacked) > maxPost {
		err = fmt.Errorf("more than %d bytes are compressed in it", maxPost)
	}
	return unpacked, err
}

// formOf returns the key that an envelope is known by; "" for an event, and for what is neither.
func formOf(data []byte) string {
	s := jsonscan.Of(data)
	if s.Peek() != '{' {
		return ""
	}
	for s.Open('{'); s.Next('}'); s.Skip() {
		switch key := string(s.Key()); key {
		case "items", "logEvents", "records", "protoPayload":
			return key
		case "auditID":
			return "" // without the objects behind it
		}
	}
	return ""
}
