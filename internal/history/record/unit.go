package record

import (
	"strings"

	"github.com/kubebridge/bridge/internal/history/keys"
)

// ArchiveSource is the source of the events by which an archiver says what it could not read.
const ArchiveSource = "/archive"

// Unit is one resource of an informer of a cluster.
type Unit struct {
	Number uint32 `json:"number"`
	// SourceNumber is the same for all units of a Source.
	SourceNumber uint32 `json:"sourceNumber"`
	// Source is that of the events: /clusters/<cluster>.
	Source   string `json:"source"`
	Informer string `json:"informer"`
	Resource string `json:"resource"` // "deployments"; "" of an informer's events without one
	Group    string `json:"group,omitempty"`
	Kind     string `json:"kind,omitempty"`
}

// GroupResource is "deployments.apps", or "pods" for the core group.
func (u *Unit) GroupResource() string {
	if u.Group == "" {
		return u.Resource
	}
	return u.Resource + "." + u.Group
}

// Cluster is the name of the cluster, as events' source has it.
func (u *Unit) Cluster() string { return strings.TrimPrefix(u.Source, "/clusters/") }

// String names the unit within its cluster, as "workloads/deployments.apps".
func (u *Unit) String() string { return u.Informer + "/" + u.GroupResource() }

// Key is where a unit is stored, as JSON.
func (u *Unit) Key() []byte { return keys.InUnit(nil, keys.SpaceUnit, u.Number) }
