package event

import (
	"time"

	"github.com/kubebridge/bridge/internal/resource"
)

// quarantinedData is the payload of a quarantined event.
type quarantinedData struct {
	Reason string `json:"reason"`
	// Key of the object, where it is known: <namespace>/<name>.
	Key     string `json:"key,omitempty"`
	Message string `json:"message,omitempty"`
	// Size is how many bytes were read; Partial that there are more.
	Size    int  `json:"size"`
	Partial bool `json:"partial,omitempty"`
	// SHA256 of what was read, or Fingerprint, under the bridge's own key, where the bytes may hold
	// secrets.
	SHA256      string `json:"sha256,omitempty"`
	Fingerprint string `json:"fingerprint,omitempty"`
	// Raw is the first 256 KiB, in base64; none where the bytes may hold secrets.
	Raw  []byte `json:"raw,omitempty"`
	Note string `json:"note"`
}

// Quarantined makes the event that reports something which the API server sent and the bridge
// can't understand. Where the object is known, its partition key keeps the event in order with the
// object's.
func (m *Maker) Quarantined(u *resource.Unreadable, era Era, observed time.Time) Event {
	e := m.about("quarantined", Quarantined, era.in(u.ID()), observed)
	if u.Key != "" {
		namespace, name := u.Key.Split()
		e.PartitionKey = m.prefixes.partitionKey(namespace, name)
		e.CompactionKey += "/" + string(u.Key)
	}
	data := quarantinedData{
		Reason: u.Reason, Key: string(u.Key), Message: u.Message, Size: u.Size, Partial: u.Partial,
		SHA256: u.Digest, Raw: u.Raw,
		Note: note(u),
	}
	if u.Withheld {
		data.SHA256, data.Fingerprint = "", u.Digest
	}
	if m.cfg.Payload == PayloadDebezium {
		data.Raw = nil // an attribute has no room for it
	}
	m.report(&e, data)
	return e
}

// note says what comes of it.
func note(u *resource.Unreadable) string {
	const what = "the API server sent what can't be understood: "
	switch {
	case u.Listed && u.Key == "":
		return what + "an item of a list, and it is unknown which object it is; the list " +
			"continues behind it, and nothing is taken for deleted by it"
	case u.Listed, u.Version != "":
		return what + "a state of this object; it counts as what it was before until a state of it can " +
			"be understood, or it is deleted; all else continues"
	default:
		return what + "a list of everything follows, and what differs is reported after a gap event"
	}
}
