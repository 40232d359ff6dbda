package config

import (
	"fmt"
	"time"

	"github.com/kubebridge/bridge/internal/settings"
)

// Config is the whole configuration of `bridge`. Every key may be left out: a bridge without a file
// streams every resource but Leases and Events into an embedded NATS JetStream server, and into a
// history of a week and 1 GiB in the state directory.
type Config struct {
	// Cluster names the Kubernetes cluster in every event: in its source (`/clusters/<cluster>`)
	// and in subjects and topics. Changing it changes where events go and what consumers take them
	// for. Left out: the cluster of the kubeconfig's context, or inside a cluster the uid of the
	// namespace kube-system.
	Cluster string `yaml:"cluster"`
	// Kubernetes says which API server to read, and how fast.
	Kubernetes Kubernetes `yaml:"kubernetes"`
	// State says where the bridge keeps what it must remember over a restart.
	State State `yaml:"state"`
	// Admin is the HTTP server for health, readiness, metrics and status.
	Admin Admin `yaml:"admin"`
	// Standby has several bridges of one configuration stand by for each other: one publishes, the
	// others take over when it is gone.
	Standby Standby `yaml:"standby"`
	// Redaction says with which key values are made unreadable.
	Redaction Redaction `yaml:"redaction"`
	// Tracing sends OpenTelemetry traces of what the bridge does with changes. Off unless it has an
	// endpoint.
	Tracing Tracing `yaml:"tracing"`
	// Log says what the bridge logs about itself on standard error.
	Log Log `yaml:"log"`
	// ShutdownTimeout is how long a stopping bridge continues to send what it has read. It ends
	// earlier where sinks take nothing. The rest is sent after the next start. Keep it below the
	// pod's terminationGracePeriodSeconds.
	ShutdownTimeout time.Duration `yaml:"shutdownTimeout" default:"15s"`
	// ReloadInterval is how often the bridge checks its configuration file, and the files with
	// passwords that the configuration names, for changes. A change is applied to the running
	// bridge, and what did not change is not interrupted. SIGHUP and `bridge reload` do so at once.
	// A file with a mistake is refused as a whole. So is one with a change that needs a restart:
	// sending more of the objects (`secrets`, `redact`, `drop`, `redactEnv`), to another address,
	// with another file of credentials, or by another check of a certificate. 0: only SIGHUP
	// and `bridge reload`.
	ReloadInterval time.Duration `yaml:"reloadInterval" default:"5s"`
	// Shard splits the objects of all informers between several processes with one configuration:
	// `0/3`, `1/3` and `2/3` each have a third, by a hash of an object's resource, namespace and
	// name. `auto/3` takes the number from the end of the host's name, as a StatefulSet's pods have
	// it (`bridge-2`). Each has a state directory of its own, and reads everything but what it
	// leaves out at once. With `standby.enabled` each shard has a Lease of its own, and `auto/3`
	// begins again after the third pod: of six, `bridge-2` and `bridge-5` stand by for each other.
	// A shard keeps what it has when there are more of them than before; docs/operations.md says
	// how to go from one number to another. Left out: one process has all.
	Shard string `yaml:"shard"`
	// Informers say what is watched. Left out: one informer `all` of every resource but Leases and
	// Events.
	Informers []Informer `yaml:"informers"`
	// Sinks say where events go. Left out: two sinks, `nats` (an embedded NATS JetStream server on
	// 127.0.0.1:4222) and `history` (a week, and at most 1 GiB, below `state.dir`).
	Sinks []Sink `yaml:"sinks"`

	origins settings.Origins
}

// Kubernetes says which API server to read, and how fast.
type Kubernetes struct {
	// Kubeconfig is the path of a kubeconfig file. Left out: the files in $KUBECONFIG, else
	// ~/.kube/config, else the service account of the pod that the bridge runs in.
	Kubeconfig string `yaml:"kubeconfig"`
	// Context is the context of the kubeconfig to use. Left out: its current context.
	Context string `yaml:"context"`
	// QPS is how many requests per second the bridge may send to the API server, over all
	// informers. A watch is one request however long it lasts, so this slows down starts and lists,
	// and never changes. 0: no limit.
	QPS float32 `yaml:"qps" default:"50"`
	// Burst is how many requests may exceed `qps` at once, as at a start, when every informer opens
	// its watch.
	Burst int `yaml:"burst" default:"100"`
	// WatchIdleTimeout is how long a watch may bring neither an event nor a bookmark before it is
	// opened again. Half a minute later the bridge is not ready. The API server sends a bookmark
	// each minute, but none for Events: there a watch that it accepts counts as well. 0: only the
	// API server's own end of a watch, after 5 to 10 minutes, bounds the silence.
	WatchIdleTimeout time.Duration `yaml:"watchIdleTimeout" default:"5m"`
	// DiscoveryInterval is how often the API server is asked what it serves, so that resources that
	// appear (a CRD is installed), change version or vanish start, move and stop by themselves.
	// That costs two requests, or one per API group and version before Kubernetes 1.27. An informer
	// that watches customresourcedefinitions, or gets a 404, asks at once. 0: never, all stays as
	// it was at the start.
	DiscoveryInterval time.Duration `yaml:"discoveryInterval" default:"30s"`
}

// State says where the bridge keeps what it must remember over a restart: the last version of each
// object that all sinks have, the changes that no sink has yet, and where each watch resumes.
type State struct {
	// Dir is the directory of the state. It is made when missing, belongs to one running bridge,
	// and needs a disk that survives a restart. Without it the bridge takes a new snapshot, and
	// deletes of the meantime are not noticed. A gap event with the reason `forgotten` says so.
	Dir string `yaml:"dir" default:"./bridge-state"`
	// CommitInterval is how often what was acknowledged is committed and synced to disk. After a
	// crash at most this much is sent a second time, with the same ids; while another sink is
	// unavailable, at most five seconds more. Shorter costs more fsyncs.
	CommitInterval time.Duration `yaml:"commitInterval" default:"200ms"`
	// BodiesPerSecond bounds how many updated objects are written to the state a second, of all
	// informers together. Their versions always are, and new objects too. A flood of updates beyond
	// that takes about half the CPU. In it objects stay on disk as they were at an earlier version,
	// until a later update of theirs, or until no update was beyond it for ten seconds. Then what
	// is behind is read from the API server, one request a second. Until then an inferred delete
	// has the last version in its attributes, and an earlier state of the object in its data.
	// Informers with a filter, `resync`, `attributes`, `changed`, or a payload of `change` or
	// `patch` write all of theirs, and where an informer has `owners`, all do. 0: no bound.
	BodiesPerSecond int `yaml:"bodiesPerSecond" default:"1000"`
	// MaxUndeliveredBytes bounds the folder `undelivered` in the directory. It has events that a
	// sink has refused permanently and that have no place in dead letters, or one that did not take
	// them for the sink's `deadLetterWait`. Each is in a file, to be read, sent again by other
	// means, and taken away. When it is full, or 0, such an event waits for its place, and without
	// a place it is lost.
	MaxUndeliveredBytes settings.Size `yaml:"maxUndeliveredBytes" default:"256MiB"`
	// Mode is `disk`, or `memory` for nothing on disk: every start is then a first start, and the
	// backlog of a sink is bounded by memory.
	Mode string `yaml:"mode" default:"disk" oneof:"disk memory"`
}

// Admin is the HTTP server for health, readiness, metrics and status, with a status page for
// browsers, and for commands (`bridge pause`, `resume`, `snapshot`, `log-level`, `reload`).
// `/healthz`, `/readyz` and `/metrics` are open. Commands, and `/status`, `/tail`, `/object` and
// profiles, need the token, on the bridge's own machine (of a pod: by `kubectl exec` or
// `kubectl port-forward`). Outside of a pod the bridge's own user may read without it.
// `bridge token` prints the token.
type Admin struct {
	// Address is where it listens, as host:port. In a pod, probes and Prometheus need `:8080`.
	// Empty: no server.
	Address string `yaml:"address" default:"127.0.0.1:8080"`
	// TokenFile is the path of a file with the token, of at least 16 bytes. It is read for each
	// request, so that it may be renewed. Left out: the bridge makes a token, in the file
	// `admin-token` of the state directory, which only its own user can read. With
	// `state.mode: memory` there is none.
	TokenFile string `yaml:"tokenFile"`
	// Remote admits other hosts, and requests through a proxy, with the token. Without `tls`, let
	// the network keep the token secret.
	Remote bool `yaml:"remote"`
	// TLS is the server's certificate. Left out: plain HTTP.
	TLS AdminTLS `yaml:"tls"`
	// Pprof serves Go's profiles under /debug/pprof/. A profile shows memory, so it can show parts
	// of objects.
	Pprof bool `yaml:"pprof"`
}

// AdminTLS is the certificate of the admin server. Its files are read again for each connection, so
// that they may be renewed. Commands on the bridge's own machine trust it; others name its
// authority with `--admin-ca`.
type AdminTLS struct {
	// CertFile is the path of a PEM file with the certificate, and those between it and its
	// authority. Needs `keyFile`.
	CertFile string `yaml:"certFile"`
	// KeyFile is the path of a PEM file with the private key of `certFile`.
	KeyFile string `yaml:"keyFile"`
}

// Redaction says with which key values are made unreadable. Which values these are, the informers
// say: `secrets`, `redact`, `redactEnv`.
type Redaction struct {
	// KeyFile is the path of a file with the key of the fingerprints that replace values: at least
	// 16 bytes from a random source (`openssl rand -hex 32`). It is read again when it changes. All
	// replicas and shards need the same one, else each value looks changed after a takeover. Left
	// out: a random key of the state directory, which lies in it and is lost with it.
	KeyFile string `yaml:"keyFile"`
}

// Tracing sends OpenTelemetry traces of what the bridge does with changes. With an endpoint, each
// event has CloudEvents' attribute `traceparent`, and the spans that consumers make of it are in
// the trace of the change. Trace and span are made of the event's source, id, informer and sink: an
// event that is sent again has the same ones.
type Tracing struct {
	// Endpoint is the URL of a collector that takes OTLP over HTTP: `http://otel-collector:4318`.
	// Without a path it is asked at /v1/traces. Headers, certificates, compression and timeouts are
	// those of OpenTelemetry's own variables (OTEL_EXPORTER_OTLP_HEADERS, …). Empty: no traces, and
	// no `traceparent`.
	Endpoint settings.URL `yaml:"endpoint" default:""`
	// SampleRatio is the share of changes whose spans are sent, from 0 to 1. All events of a change
	// are sampled or none, by the id of its trace; those that are not have a `traceparent` that
	// says so. After a change of it an event that is sent again may say another.
	SampleRatio float64 `yaml:"sampleRatio" default:"0.01"`
}

// Log says what the bridge logs about itself on standard error.
type Log struct {
	// Level is the least severe level that is written. `debug` adds requests that
	// are sent again, and what the libraries of brokers and the database say. No level has a line
	// per event.
	Level string `yaml:"level" default:"info" oneof:"debug info warn error"`
	// Format is `json`, `text`, or `auto`: text on a terminal and JSON elsewhere.
	Format string `yaml:"format" default:"auto" oneof:"auto json text"`
}

// Standby has several bridges of one configuration stand by for each other. All of them watch, each
// with a state directory of its own; the one that has the lease publishes. When it is gone another
// one resumes where it was: out of its own log, without a list.
type Standby struct {
	// Enabled turns it on. Sinks with an embedded server, `state.mode: memory` and informers with
	// another `snapshot` than `initial` can't be combined with it.
	Enabled bool `yaml:"enabled"`
	// Lease is the object that says who publishes, the same for all bridges that stand by for each
	// other. What the leader has delivered is kept in another one beside it, `<name>-progress`.
	// With `shard` each shard has its own two: `<name>-0-of-3` and `<name>-0-of-3-progress`.
	Lease StandbyLease `yaml:"lease"`
	// Identity names this bridge in the lease and in logs. A random part is added, so that no two
	// are the same. Left out: the host's name, which is the pod's.
	Identity string `yaml:"identity"`
	// LeaseDuration is how long the others wait for a leader that is not heard of, in whole
	// seconds. A leader that stops in order hands over at once.
	LeaseDuration time.Duration `yaml:"leaseDuration" default:"15s"`
	// RenewDeadline is how long after its last renewal a leader that can't reach the API server
	// continues to publish. It then stops and exits with code 1. It must be shorter than
	// `leaseDuration`: the time between is for what is on the wire.
	RenewDeadline time.Duration `yaml:"renewDeadline" default:"10s"`
	// RetryPeriod is the time between renewals, and at least that between looks of the others,
	// which wait up to 2.2 times as long.
	RetryPeriod time.Duration `yaml:"retryPeriod" default:"500ms"`
}

// StandbyLease names a Lease of coordination.k8s.io.
type StandbyLease struct {
	// Name of the Lease. Bridges of different configurations in one namespace need different names.
	Name string `yaml:"name" default:"bridge"`
	// Namespace of the Lease. Left out: that of the pod, or of the kubeconfig's context, else
	// `default`.
	Namespace string `yaml:"namespace"`
}

func (s *Standby) validate(ps *settings.Report, c *Config) {
	if s.LeaseDuration < time.Second || s.LeaseDuration%time.Second != 0 {
		ps.Add("standby.leaseDuration", "want whole seconds, at least 1s, got %v", s.LeaseDuration)
	}
	if s.RenewDeadline >= s.LeaseDuration {
		ps.Add("standby.renewDeadline", "must be shorter than leaseDuration (%v), is %v", s.LeaseDuration,
			s.RenewDeadline)
	}
	const jitter = 1.2 // so that a leader tries twice at least, as in client-go's election
	if s.RetryPeriod <= 0 || float64(s.RenewDeadline) <= jitter*float64(s.RetryPeriod) {
		ps.Add("standby.retryPeriod",
			"must be more than 0, and less than renewDeadline (%v) divided by %v, is %v", s.RenewDeadline,
			jitter, s.RetryPeriod)
	}
	if !s.Enabled {
		return
	}
	if s.Lease.Name == "" {
		ps.Add("standby.lease.name", "required")
	}
	if c.State.Mode == "memory" {
		ps.Add("standby.enabled", "needs a state on disk: what the leader has not delivered waits "+
			"there; set state.mode: disk")
	}
	for i := range c.Informers {
		if c.Informers[i].Snapshot != "initial" {
			ps.Add(fmt.Sprintf("informers[%d].snapshot", i),
				"must be initial with standby.enabled: a bridge that stands by has to know what exists, and "+
					"its start is no start of the stream; it is %q", c.Informers[i].Snapshot)
		}
	}
	for i, sink := range c.Sinks {
		if sink.NATS != nil && sink.NATS.Embedded {
			ps.Add(fmt.Sprintf("sinks[%d].nats.embedded", i),
				"can't be combined with standby.enabled: each bridge would publish into a server of its own, "+
					"which goes with it; run a NATS server, and name its url")
		}
	}
}

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
	// object chooses its labels, so a route by label isolates none: route by namespace for that.
	Attributes map[string]string `yaml:"attributes"`
	// Owners adds who controls an object: `ownerkind` and `ownername` of the top controller, and
	// `owners`, the chain to it (`ReplicaSet/web-5d4,Deployment/web`). The chain ends at an owner
	// whose resource no informer has, and at one that was deleted before the bridge started.
	Owners bool `yaml:"owners"`
	// Indexes find objects by a value, beside the indexes `owner` (uid of an owner) and `node`
	// (`spec.nodeName` of pods), which need no configuration. A new one is built from the stored
	// objects while the bridge runs.
	Indexes []Index `yaml:"indexes"`
	// Changed adds the attribute `changed` to updates: the parts of the object that differ from the
	// version before, as `spec,labels`. Subjects and topics may name it, as `{changed}`. Filters
	// have `meta.changed` without it. It costs reading that version from the state.
	Changed bool `yaml:"changed"`
	// Snapshot says when the objects that exist are sent: `initial` at the first start only,
	// `never`, or `always` at every start. With `never` the first change of an object that existed
	// comes as `added`, since nothing is known of it before. To be sent changes alone, leave
	// `added` out of `operations` instead.
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

// Index finds the objects of an informer by a value: `label`, or `name` with `cel`.
type Index struct {
	// Label is the key of a label: the index `label:<key>`. `bridge snapshot --selector` then reads
	// only the objects that have it.
	Label string `yaml:"label" example:"app"`
	// Name is that of the index, as that of an informer.
	Name string `yaml:"name"`
	// CEL is an expression over `object` that gives a string, or a list of strings
	// (`object.spec.containers.map(c, c.image)`). An object for which it fails has the value
	// `!failed`.
	CEL string `yaml:"cel"`
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
	// what is in it), with `encoding: binary`. Deleted events carry the last state. The
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
	// sent one after an unwatched time, with `since`, its beginning.
	Progress time.Duration `yaml:"progress" default:"0s"`
}
