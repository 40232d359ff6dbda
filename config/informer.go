package config

import (
	"time"

	"github.com/kubebridge/bridge/internal/settings"
)

// Informer selects objects and says how their changes are delivered. Each of its resources is
// listed and watched once, however many sinks it has. Two informers may select the same object; it
// is then sent once for each.
type Informer struct {
	// The fields are flat because the keys are: schema.go, and the reference and the JSON Schema
	// that are made of this struct, have one field for each key and one struct for each section.

	// Name identifies the informer in events, metrics, logs and in the state directory: renaming it
	// is a new informer, with a new snapshot. Lower-case letters, digits and dashes, beginning with
	// a letter. Required.
	Name string `yaml:"name"`
	// Resources are what to watch, as kubectl names them: `pods`, `po`, `deployments.apps`,
	// `deployments.v1.apps`, `widgets.example.com`. `"*"` is everything that can be listed and
	// watched, `"*.example.com"` all of a group. Required.
	Resources []string `yaml:"resources"`
	// Exclude takes resources out again, named in the same ways.
	Exclude []string `yaml:"exclude"`
	// Namespaces are the namespaces to watch. Left out: all, and cluster-scoped objects. When
	// given, cluster-scoped resources may not be named in `resources`, and `"*"` leaves them out.
	Namespaces []string `yaml:"namespaces"`
	// NamespaceSelector is a label selector of Namespaces as kubectl takes it (`env=prod`). Objects
	// of namespaces that match are watched, whatever namespaces come, go and are relabelled. What
	// is in a namespace that comes to match is sent as `added`. When it does not match any more, it
	// is sent as `deleted` with the attribute `cause: left-selector`. Nothing is reported about it
	// from then on, not even that it is deleted. Changes count from when the bridge learns of the
	// Namespace's labels. One watch of all namespaces is read for each resource, and the others are
	// left out here, before they cost memory or disk. Cluster-scoped resources are left out as with
	// `namespaces`, beside which it may not be given. It takes the right to list and watch
	// namespaces.
	NamespaceSelector string `yaml:"namespaceSelector" example:"env=prod"`
	// LabelSelector is a label selector as kubectl takes it (`app=web,tier in (a,b)`). An object
	// that leaves it is sent as `deleted`, one that comes to match as `added`; whether they say so,
	// see `selectAt`.
	LabelSelector string `yaml:"labelSelector" example:"app=web"`
	// FieldSelector is a field selector as kubectl takes it (`spec.nodeName=n1`), evaluated by the
	// API server. What fields there are depends on the resource; `metadata.name` and
	// `metadata.namespace` always.
	FieldSelector string `yaml:"fieldSelector" example:"spec.nodeName=n1"`
	// SelectAt says who evaluates `labelSelector`. `server`, the API server: nothing else is read,
	// and that an object has left looks as if it was deleted. `bridge`: everything is read, and
	// what does not match is left out here, before it costs memory or disk. Events then say in
	// `cause` what happened. Of `deleted` ones it is `deleted`, or `left-selector` for an object
	// that lives on, with the last state that matched. Of `added` ones it is `created`, or
	// `entered-selector` for an object that was there and came to match. Only objects that were
	// reported are reported to have left: with `snapshot: never` not those from before the start.
	// Fields of names only can then be selected in `fieldSelector`, which the API server evaluates
	// in either case. To go from one to the other takes no list.
	SelectAt string `yaml:"selectAt" default:"server" oneof:"server bridge"`
	// Operations are which changes are sent: `added`, `updated`, `deleted`, and `synced` of a
	// resync. Empty: all. Events about the informer itself (gaps, and that a list is complete) are
	// always sent.
	Operations []string `yaml:"operations"`
	// Filter is a CEL condition (`object.status.phase == "Failed"`): only changes for which it is
	// true are sent. It may use four names. `object` is the state after the change, or the last one
	// of a delete. `old` is the version before an update, else null. `op` is one of `operations`.
	// `meta` has kind, apiVersion, group, resource, namespace, name, uid, resourceVersion,
	// generation, labels, annotations, manager (as in the event), deleting, initial, inferred, and
	// changed, a list of parts, which compares with `old` (`"spec" in meta.changed`); the rest
	// costs nothing where `object` has to be decoded. What an object does not have is null.
	// There are Kubernetes' helpers for strings, lists, sets, regular expressions, quantities, URLs
	// and IPs. An expression that fails or costs too much keeps nothing back: the change is sent
	// and counted (`bridge_informer_filter_errors_total`). A filter selects changes, not objects:
	// to see the delete of an object that does not match any more, allow for it (`op == "deleted"
	// || …`). A filter is no way to keep objects confidential: whoever writes an object can make it
	// so large that its expression costs too much.
	Filter string `yaml:"filter"`
	// IgnoreChanges are paths whose changes are no news: an update that touches nothing else is not
	// sent. A path is names behind dots, with `*` for every member or item and `["…"]` for a name
	// with dots in it: `status.conditions.*.lastHeartbeatTime`,
	// `metadata.annotations["example.com/checked"]`. The resourceVersion and managedFields are
	// ignored beside them.
	IgnoreChanges []string `yaml:"ignoreChanges"`
	// ChangedParts are the parts of an object of which an update must touch one to be sent: `spec`,
	// `status`, `metadata`, `data`, or another member. In `metadata` the resourceVersion,
	// generation and managedFields do not count. Left out: any.
	ChangedParts []string `yaml:"changedParts"`
	// IgnoreHeartbeats ignores what is written only to say that somebody is alive, or was looked
	// at. That is `renewTime` of Leases, `lastHeartbeatTime` in the conditions of Nodes, and the
	// leader election annotation of Endpoints and ConfigMaps. Of Endpoints and EndpointSlices it is
	// the time of the last trigger and the resourceVersions of the Pods behind them.
	IgnoreHeartbeats bool `yaml:"ignoreHeartbeats"`
	// Attributes are attributes of your own for the events: a name, and the path of the value in
	// the object, as in `ignoreChanges` but without `*`:
	// `team: metadata.labels["example.com/team"]`. Subjects and topics may name them, as
	// `{attributes.team}`. What an object does not have gives no attribute. Whoever writes an
	// object chooses its labels, so a route by label isolates nobody: route by namespace for that.
	Attributes map[string]string `yaml:"attributes"`
	// Owners adds who controls an object: `ownerkind` and `ownername` of the top controller, and
	// `owners`, the chain to it (`ReplicaSet/web-5d4,Deployment/web`). The chain ends at an owner
	// whose resource no informer has, and at one that was deleted before the bridge started.
	Owners bool `yaml:"owners"`
	// Changed adds the attribute `changed` to updates: the parts of the object that differ from the
	// version before, as `spec,labels`. Subjects and topics may name it, as `{changed}`. Filters
	// have `meta.changed` without it. It costs reading that version from the state.
	Changed bool `yaml:"changed"`
	// Snapshot says when the objects that exist are sent: `initial` at the first start only,
	// `never` (changes only), or `always` at every start.
	Snapshot string `yaml:"snapshot" default:"initial" oneof:"initial never always"`
	// Resync is how often every object is sent again, as type `synced`, for consumers that
	// reconcile; for sinks that say nothing else. 0: never.
	Resync time.Duration `yaml:"resync" default:"0s"`
	// MaxLag is how long the oldest change may wait for a sink before the bridge is not ready. It
	// changes nothing else. 0: as long as it takes.
	MaxLag time.Duration `yaml:"maxLag" default:"1h"`
	// Delivery is `history`: every version is sent; or `latest`: of versions that wait for a slow
	// sink only the newest is; for sinks that say nothing else.
	Delivery string `yaml:"delivery" default:"history" oneof:"history latest"`
	// Secrets is `redacted` or `send`. `redacted`: the values of Secrets (`data`, `stringData`, and
	// annotations but for some harmless names) and credentials in other kinds that are known to
	// hold some are replaced (docs/redaction.md). That is done before anything sends, logs or
	// stores them. `send`: they leave the cluster as they are, and lie in the state directory.
	// `send` takes a second key that is not in this file: the flag --allow-secrets, or
	// BRIDGE_ALLOW_SECRETS=true.
	Secrets string `yaml:"secrets" default:"redacted" oneof:"redacted send"`
	// Redact are paths, written as in `ignoreChanges`, whose values are replaced by a fingerprint
	// (docs/redaction.md) in objects of any kind before anything sends, logs or stores them: a
	// change of a value is seen, the value is not. The copies of the object that kubectl and others
	// keep in annotations are replaced too. What identifies an object (kind, apiVersion, name,
	// namespace, uid, resourceVersion) can't be named.
	Redact []string `yaml:"redact"`
	// Drop are paths that are cut out of objects of any kind, at the same place. An update of
	// nothing but what is dropped is still sent, unless `ignoreChanges` or `changedParts` is given:
	// they compare what is left.
	Drop []string `yaml:"drop"`
	// RedactEnv replaces the values of environment variables and of arguments of containers,
	// wherever containers are, whose name or value looks like a secret: names such as DB_PASSWORD
	// and --api-key, URLs with a password, private keys, and tokens in the form that their issuers
	// document.
	RedactEnv bool `yaml:"redactEnv"`
	// KeepManagedFields sends metadata.managedFields, which otherwise is cut: it is a third of many
	// objects. The event's `manager` is read from it in either case. Not beside `redact`, `drop`
	// and `redactEnv`: managedFields repeat values. Those of redacted Secrets are cut in any case.
	KeepManagedFields bool `yaml:"keepManagedFields"`
	// Queue bounds the memory of what was read and is not yet sent, for each resource of the
	// informer.
	Queue InformerQueue `yaml:"queue"`
	// Sinks are where the changes go. Left out: every sink, with payload `object`.
	Sinks []Binding `yaml:"sinks"`
}

// InformerQueue bounds the memory of what was read and is not yet sent.
type InformerQueue struct {
	// Memory is the bound of the change log, for each resource. The DeltaFIFO before it gets a
	// quarter of it. Backlog that waits longer than five seconds in the change log, or exceeds the
	// bound, lies in the state directory; one object larger than it still passes. All resources
	// together hold at most a quarter of the memory that the process may use.
	Memory settings.Size `yaml:"memory" default:"16MiB"`
	// Spool is the bound of the backlog of sinks in the state directory, for each resource: an
	// outage of a sink may last until that much has changed. What happens when it is reached,
	// `whenFull` says. All resources share the disk: reading also stops for one that takes more
	// than three times what is left free there, whatever `whenFull` says, so that the others still
	// have room.
	Spool settings.Size `yaml:"spool" default:"10GiB"`
	// WhenFull is `block` or `drop-oldest`. `block`: reading stops until a sink has taken
	// something, and nothing is dropped. What the API server forgets meanwhile a gap event reports.
	// `drop-oldest`: reading continues, and the oldest changes in the state directory are dropped
	// for the sinks that have not had them. Each of these sinks gets an `informer.gap` event in
	// their place, with the reason `dropped`. It is here and not at the sink because the changes
	// wait once for all sinks. Not for `state.mode: memory`.
	WhenFull string `yaml:"whenFull" default:"block" oneof:"block drop-oldest"`
}

// Binding sends an informer's changes to a sink.
type Binding struct {
	// Name is the name of a sink in `sinks`. Required.
	Name string `yaml:"name"`
	// Payload is what an event's data is. `object`: the object's JSON. `change`: `{"object":…}`,
	// and of updates also `"old"`, the version before, and `"patch"`, what is different as a JSON
	// Patch (RFC 6902). `patch`: of updates the JSON Merge Patch (RFC 7386) to the version before,
	// as `application/merge-patch+json`. Of everything else it is the object, as
	// `application/json`, to put in the place of what the reader has. So is an update that sets a
	// member to null, which a merge patch can't say. `metadata`: a PartialObjectMetadata.
	// `reference`: no data, the attributes name the object. `debezium`: `{"before":…, "after":…,
	// "source":…, "op":…, "ts_ms":…}` for engines that read debezium-json (docs/consumers.md says
	// what is in it), not with `encoding: structured`. Deleted events carry the last state. The
	// version before is the one that the cluster had, whether it was sent to this sink or a filter
	// kept it back.
	Payload string `yaml:"payload" default:"object" oneof:"object change patch metadata reference debezium"`
	// Types is `bridge` or `knative`. `bridge`: events are of type `dev.kubebridge.resource.added`,
	// `.updated`, `.deleted`. `knative`: they have the types and subjects of Knative's
	// ApiServerSource, so that its Triggers take them: `dev.knative.apiserver.resource.add`,
	// `.update`, `.delete`, and with payload `reference` `dev.knative.apiserver.ref.add` and so on,
	// and an ObjectReference as data. Resyncs and events about an informer, which Knative does not
	// have, keep their types.
	Types string `yaml:"types" default:"bridge" oneof:"bridge knative"`
	// Operations are which changes are sent to this sink, of those that the informer's `operations`
	// let through. Empty: all.
	Operations []string `yaml:"operations"`
	// Filter is a CEL condition for this sink, beside the informer's `filter`.
	Filter string `yaml:"filter"`
	// Delivery is `history` or `latest` for this sink; left out: that of the informer. With
	// `latest` a sink that can't follow, or was unavailable, gets of each object the newest state
	// only, as client-go's workqueue has it, whether the others wait in memory or on disk. An
	// object that it was sent nothing of comes as added, with the newest state. Deletes are always
	// sent, even of an object that this sink never got, and before one that is created again under
	// the name. Nothing before an event about the informer is merged with something after it. The
	// version before an update is then the one that this sink was sent last. After a crash an older
	// state may come again, and then all that followed it, with the ids of before: take such a
	// stream in its order, and don't drop by id. Not with `queue.whenFull: drop-oldest`.
	Delivery string `yaml:"delivery" oneof:"history latest"`
	// Resync is how often this sink is sent every object again; left out: as often as the informer
	// says.
	Resync time.Duration `yaml:"resync"`
	// Progress is how often at most this sink is sent an event `dev.kubebridge.informer.progress`,
	// of each resource: all changes up to its resourceVersion are in the stream before it, in each
	// partition of Kafka. It comes with a bookmark of the API server, of which there is about one a
	// minute. `0s`: never, but to a history `1m`: it says what it is complete up to. A sink is also
	// sent one after a time in which nobody watched, with `since`, its beginning.
	Progress time.Duration `yaml:"progress" default:"0s"`
}
