package config

// Kafka publishes to Kafka, or to what speaks its protocol. A record's key is the object's
// partitionkey, so an object's events lie in one partition, in order; a broker acknowledges when
// all in-sync replicas have it.
type Kafka struct {
	// Brokers are addresses as host:port of some of the brokers; the others are found from them.
	// Required.
	Brokers []string `yaml:"brokers"`
	// ClientID is the name of this client in the broker's log, metrics and quotas.
	ClientID string `yaml:"clientID" default:"bridge"`
	// Topic is the template of the topic. Fields: {cluster}, {informer}, {group}, {version},
	// {resource}, {kind}, {namespace}, {name}, {uid}, {op}, {type}, and {attributes.NAME} for
	// those of the informer's `attributes`. Use only fields that stay the same over an object's
	// life, or its order is lost. Events go to at most `maxTopics` topics.
	// Resources of two groups with one name share the default topic: see `apiversion`.
	Topic string `yaml:"topic" default:"k8s.{cluster}.{resource}"`
	// MaxTopics bounds the topics that events go to. Events for more are dead letters. It also
	// bounds how many topics that got nothing in the last run are remembered, for reading back and
	// for `newPartitions`. It has no default where `createTopics` makes topics of {name}, {uid} or
	// attributes: who writes objects chooses these, and the first names take what there may be.
	MaxTopics int `yaml:"maxTopics" default:"1000"`
	// DeadLetterTopic is the template of the topic for events that the broker refuses permanently,
	// and those too large for it that `oversize` has no form for: the event with the reason,
	// without its data where that does not fit. Left out: such an event is counted, logged, and
	// goes into the folder of `state.maxUndeliveredBytes`.
	DeadLetterTopic string `yaml:"deadLetterTopic"`
	// Compression of record batches.
	Compression string `yaml:"compression" default:"lz4" oneof:"none gzip snappy lz4 zstd"`
	// CreateTopics makes topics that are missing. Left out: they must be there, or the broker makes
	// them by itself.
	CreateTopics *CreateTopics `yaml:"createTopics"`
	// Tombstones adds a record with the same key and no value after each deleted event, so that a
	// compacted topic forgets the object. Not with payload `patch`, nor with `reference` in binary
	// encoding: a compacted topic would lose the objects.
	Tombstones bool `yaml:"tombstones"`
	// Timestamps is what the time of a record is. `sent`: when the bridge sent it. `event`: the
	// event's `time`, for engines that take it as event time. Kafka's retention goes by it: a topic
	// with a `retention.ms` forgets the snapshot of objects that last changed before, soon after it
	// is stored. So use it with `retention.ms: "-1"` or a compacted topic.
	Timestamps string `yaml:"timestamps" default:"sent" oneof:"sent event"`
	// View makes the topics a table of what exists: of each object the newest event, and nothing of
	// an object that is gone. It sets `tombstones`, `cleanup.policy: compact` in `createTopics`,
	// which makes topics that are missing, and `delivery: latest` for this sink. A topic that is
	// there and not compacted is refused, and its events wait. At the end of each list the keys of
	// objects that do not exist are deleted, for which the topic is read.
	View bool `yaml:"view"`
	// NewPartitions is what is done with partitions that a topic has got since the bridge last ran.
	// `keep`: nothing, events are spread over as many as before, so that all of an object are in
	// one, in order. `use`: over all, which moves objects; a consumer may then read an object's
	// later events before its earlier ones, unless it has read all that was there. What was before
	// is known from the state directory, with `readBack`. While the bridge runs, new partitions are
	// never used.
	NewPartitions string `yaml:"newPartitions" default:"keep" oneof:"keep use"`
	// SASL is how the bridge authenticates. Left out: it does not, or by the certificate in `tls`.
	SASL *SASL `yaml:"sasl"`
	// TLS turns TLS on (`tls: {}`). Left out: plain text.
	TLS *TLS `yaml:"tls"`
}

// CreateTopics says how missing topics are made. Topics that are there are never changed.
type CreateTopics struct {
	// Partitions of each topic. 0: the broker's default. More that are added later get nothing, or
	// break the order of objects once: see `newPartitions`.
	Partitions int `yaml:"partitions" default:"0"`
	// ReplicationFactor of each topic. 0: the broker's default.
	ReplicationFactor int `yaml:"replicationFactor" default:"0"`
	// Config are settings of each topic by Kafka's names, such as `cleanup.policy: compact`.
	Config map[string]string `yaml:"config"`
}

// SASL is how the bridge authenticates to Kafka.
type SASL struct {
	// Mechanism is `PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER`, or `AWS_MSK_IAM` for
	// Amazon MSK with IAM, which needs `tls`. There is no Kerberos (GSSAPI). Required.
	Mechanism string `yaml:"mechanism" oneof:"PLAIN SCRAM-SHA-256 SCRAM-SHA-512 OAUTHBEARER AWS_MSK_IAM"`
	// Username for PLAIN and SCRAM.
	Username string `yaml:"username"`
	// Password for PLAIN and SCRAM. Better `passwordFile` or ${VARIABLE}.
	Password Secret `yaml:"password"`
	// PasswordFile is the path of a file that holds the password.
	PasswordFile string `yaml:"passwordFile"`
	// TokenFile is the path of a file that holds the token of OAUTHBEARER. It is read again for
	// each connection, so it may be renewed by others.
	TokenFile string `yaml:"tokenFile"`
	// OAuth gets the token of OAUTHBEARER from an identity provider, in place of `tokenFile`.
	OAuth *OAuth `yaml:"oauth"`
	// Extensions are what the broker wants beside the token of OAUTHBEARER, as name=value:
	// `logicalCluster=lkc-abc`, `identityPoolId=pool-abc` for Confluent Cloud.
	Extensions []string `yaml:"extensions"`
	// AWS is whose credentials AWS_MSK_IAM signs with. Left out: those of the pod or machine.
	AWS *AWS `yaml:"aws"`
}

// AWS is how credentials for Amazon MSK are found: in variables (`AWS_ACCESS_KEY_ID`, …), by a web
// identity (IRSA), in a profile, from EKS Pod Identity, or from the instance, as AWS's other
// programs do. They are renewed before they end.
type AWS struct {
	// Region of the cluster, such as `eu-central-1`. Left out: `AWS_REGION`, or that of the
	// profile.
	Region string `yaml:"region"`
	// Profile in the files of AWS's configuration. Left out: `AWS_PROFILE`, or `default`.
	Profile string `yaml:"profile"`
	// RoleARN is a role that the bridge takes on with these credentials, for a cluster of another
	// account: `arn:aws:iam::123456789012:role/bridge`. Left out: none.
	RoleARN string `yaml:"roleARN"`
}

// OAuth gets tokens from an identity provider by the client credentials grant of OAuth 2.0 (OIDC).
type OAuth struct {
	// TokenURL is the token endpoint of the provider. Required.
	TokenURL string `yaml:"tokenURL"`
	// ClientID names the bridge to the provider. Required.
	ClientID string `yaml:"clientID"`
	// ClientSecret of the client. Better `clientSecretFile` or ${VARIABLE}.
	ClientSecret Secret `yaml:"clientSecret"`
	// ClientSecretFile is the path of a file that holds the secret. It is read for each token.
	ClientSecretFile string `yaml:"clientSecretFile"`
	// Scopes to ask for.
	Scopes []string `yaml:"scopes"`
}
