package kafka

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
)

// produce sends a batch to its partition's leader and returns the offset of its first record.
func (c *cluster) produce(
	ctx context.Context, topic string, partition int, batch []byte,
) (int64, error) {
	res, err := c.askLeader(ctx, topic, partition, &rawproduce.Request{
		Acks: -1,
		// the broker's answer comes before we stop waiting for it
		Timeout: int32(c.timeout.Milliseconds() * 9 / 10),
		Topics: []rawproduce.RequestTopic{{
			Topic: topic,
			Partitions: []rawproduce.RequestPartition{{
				Partition: int32(partition),
				RecordSet: protocol.RawRecordSet{Reader: bytes.NewReader(batch)},
			}},
		}},
	})
	if err != nil {
		return 0, err
	}
	answer := res.(*produce.Response)
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) != 1 {
		return 0, fmt.Errorf("%w to a produce request", errMalformed)
	}
	p := answer.Topics[0].Partitions[0]
	switch {
	case answer.Topics[0].Topic != topic || int(p.Partition) != partition:
		return 0, fmt.Errorf("%w to a produce request: it is about another partition", errMalformed)
	case p.ErrorCode != 0:
		return p.BaseOffset, brokerError(p.ErrorCode, produceDetail(p))
	case p.BaseOffset > math.MaxInt64/2:
		return 0, fmt.Errorf("%w to a produce request: offset %d", errMalformed, p.BaseOffset)
	}
	return p.BaseOffset, nil
}

// produceDetail is what the broker reported besides the code.
func produceDetail(p produce.ResponsePartition) string {
	said := []string{}
	if p.ErrorMessage != "" {
		said = append(said, p.ErrorMessage)
	}
	for _, r := range p.RecordErrors {
		said = append(said, r.BatchIndexErrorMessage)
	}
	return clip(strings.Join(said, "; "))
}

// clip bounds a broker's text: it goes into logs and dead letters.
func clip(text string) string {
	const longest = 1024
	return strings.ToValidUTF8(text[:min(len(text), longest)], "")
}

// errorNames are the names of codes for which kafka-go has no text.
var errorNames = map[int16]string{
	13: "NETWORK_EXCEPTION", 77: "STALE_BROKER_EPOCH", 78: "OFFSET_NOT_AVAILABLE",
	80: "PREFERRED_LEADER_NOT_AVAILABLE", 81: "GROUP_MAX_SIZE_REACHED",
}

// brokerError is a broker's error code with its text.
func brokerError(code int16, detail string) error {
	if kafkago.Error(code).Title() == "" {
		name := cmp.Or(errorNames[code], "an error of a later Kafka")
		detail = strings.TrimSuffix(name+": "+detail, ": ")
	}
	if detail == "" {
		return kafkago.Error(code)
	}
	return fmt.Errorf("%w (%s)", kafkago.Error(code), detail)
}

// newProducer asks any broker for an unused producer id. Without a transactional id any broker
// returns one; kafka-go's Client would look for a transaction coordinator first, which needs rights
// that the sink does not.
func (c *cluster) newProducer(ctx context.Context) (id int64, epoch int16, err error) {
	res, err := c.askAny(ctx, &initproducerid.Request{ProducerID: -1, ProducerEpoch: -1})
	if err != nil {
		return 0, 0, err
	}
	answer := res.(*initproducerid.Response)
	if answer.ErrorCode != 0 {
		return 0, 0, fmt.Errorf("get a producer id: %w", brokerError(answer.ErrorCode, ""))
	}
	if answer.ProducerID < 0 || answer.ProducerEpoch < 0 {
		return 0, 0, fmt.Errorf("%w: producer id %d, epoch %d", errMalformed, answer.ProducerID,
			answer.ProducerEpoch)
	}
	return answer.ProducerID, answer.ProducerEpoch, nil
}

// describe reads the settings of a topic. It fails when the bridge's user may not.
func (c *cluster) describe(ctx context.Context, topic string) (map[string]string, error) {
	const topicResource = 2
	res, err := c.askController(ctx, &describeconfigs.Request{
		Resources: []describeconfigs.RequestResource{{
			ResourceType: topicResource,
			ResourceName: topic,
		}},
	})
	if err != nil {
		return nil, err
	}
	answer := res.(*describeconfigs.Response)
	if len(answer.Resources) != 1 || answer.Resources[0].ResourceName != topic {
		return nil, fmt.Errorf("%w to a describe-configs request", errMalformed)
	}
	r := answer.Resources[0]
	if r.ErrorCode != 0 {
		return nil, needing("DescribeConfigs on the topic",
			brokerError(r.ErrorCode, clip(r.ErrorMessage)))
	}
	settings := make(map[string]string, len(r.ConfigEntries))
	for _, entry := range r.ConfigEntries {
		settings[entry.ConfigName] = entry.ConfigValue
	}
	return settings, nil
}

// create creates a topic. It is no error that the topic exists.
func (c *cluster) create(ctx context.Context, topic string, how *CreateTopics) error {
	request := createtopics.RequestTopic{
		Name: topic, NumPartitions: int32(how.Partitions),
		ReplicationFactor: int16(how.ReplicationFactor),
	}
	for name, value := range how.Config {
		request.Configs = append(request.Configs, createtopics.RequestConfig{
			Name:  name,
			Value: value,
		})
	}
	res, err := c.askController(ctx, &createtopics.Request{
		Topics:    []createtopics.RequestTopic{request},
		TimeoutMs: int32(c.timeout / time.Millisecond * 9 / 10),
	})
	if err != nil {
		return err
	}
	answer := res.(*createtopics.Response)
	if len(answer.Topics) != 1 || answer.Topics[0].Name != topic {
		return fmt.Errorf("%w to a create-topics request", errMalformed)
	}
	t := answer.Topics[0]
	if code := kafkago.Error(t.ErrorCode); code != 0 && code != kafkago.TopicAlreadyExists {
		return brokerError(t.ErrorCode, clip(t.ErrorMessage))
	}
	return nil
}

// checkSettings warns of settings that break the promise. It returns the largest batch that the
// topic accepts, and how long it keeps what it has (keptFor); 0 where that can't be read. It needs
// the right to describe the topic's configuration; without it the sink works, and learns the size
// limit from refusals.
func (s *Sink) checkSettings(
	ctx context.Context, c *cluster, name string, l layout, view bool,
) (most int, keeps time.Duration, err error) {
	settings, err := c.describe(ctx, name)
	if err != nil {
		s.log.Warn("can't read the topic's settings, so can't say whether they keep what is "+
			"acknowledged", "topic", name, "err", explain(err))
		return 0, 0, nil
	}
	if err := checkPolicy(name, settings); view && err != nil {
		return 0, 0, err
	}
	for _, problem := range unsafeSettings(settings, l) {
		s.log.Warn("the topic's settings may lose acknowledged events", "topic", name,
			"problem", problem)
	}
	for _, problem := range s.lossySettings(settings) {
		s.log.Warn("the topic's settings keep less than everything", "topic", name,
			"problem", problem)
	}
	for _, problem := range s.timeSettings(settings) {
		s.log.Warn("the topic's settings do not go with the time of events", "topic", name,
			"problem", problem)
	}
	if s.config.Timestamps == EventTime { // retention goes by it
		return maxMessageBytes(settings), 0, nil
	}
	return maxMessageBytes(settings), keptFor(settings), nil
}

// errPolicy: the topic of a view is not compacted.
var errPolicy = errors.New("a view needs compact, or it loses objects that do not change")

// checkPolicy returns why a topic can't hold a view.
func checkPolicy(topic string, settings map[string]string) error {
	policy := settings[cleanupPolicy]
	if policy == "compact" {
		return nil
	}
	return fmt.Errorf("cleanup.policy of topic %s is %q: %w. Set it (kafka-configs.sh --alter "+
		"--entity-type topics --entity-name %[1]s --add-config cleanup.policy=compact), or choose "+
		"another topic", topic, policy, errPolicy)
}

// keptFor is how long a topic keeps each record; 0 where that is not known, or depends on the
// number of bytes.
func keptFor(settings map[string]string) time.Duration {
	bytes, err := strconv.ParseInt(settings["retention.bytes"], 10, 64)
	ms, errMS := strconv.ParseInt(settings["retention.ms"], 10, 64)
	switch {
	case err != nil || errMS != nil || bytes >= 0:
		return 0
	case ms < 0 || ms > math.MaxInt64/int64(time.Millisecond),
		!strings.Contains(settings[cleanupPolicy], "delete"):
		return math.MaxInt64
	}
	return time.Duration(ms) * time.Millisecond
}

// maxMessageBytes is the largest batch that a topic takes, by its settings; 0 when they do not say.
func maxMessageBytes(settings map[string]string) int {
	most, _ := strconv.Atoi(settings["max.message.bytes"])
	return max(most, 0)
}

// maxMessageBytes reads the largest batch that a topic takes.
func (c *cluster) maxMessageBytes(ctx context.Context, topic string) (int, error) {
	settings, err := c.describe(ctx, topic)
	return maxMessageBytes(settings), err
}

// unsafeSettings returns the settings of a topic that weaken acks=all.
func unsafeSettings(settings map[string]string, l layout) (found []string) {
	if l.replicas == 1 {
		found = append(found, "it has one replica: a lost disk loses its events; use a "+
			"replication factor of 3")
	}
	if insync, err := strconv.Atoi(settings["min.insync.replicas"]); err == nil && insync < 2 &&
		l.replicas > 1 {
		found = append(found, "min.insync.replicas is 1: an event may be acknowledged with one "+
			"copy only; set it to 2")
	}
	if settings["unclean.leader.election.enable"] == "true" {
		found = append(found, "unclean.leader.election.enable is true: a replica that lags may "+
			"become leader and drop acknowledged events; set it to false")
	}
	return found
}

// defaultMaxMessage is the brokers' default, and about the largest size of a Kubernetes object.
const defaultMaxMessage = 1048588

// lossySettings returns settings that keep less than the topic's creator may expect.
func (s *Sink) lossySettings(settings map[string]string) (found []string) {
	compacted := strings.Contains(settings["cleanup.policy"], "compact")
	if compacted && s.config.LostByCompaction != nil {
		if lost := s.config.LostByCompaction(); lost != "" {
			found = append(found, "cleanup.policy is compact: "+lost)
		}
	}
	if compacted && !s.config.Tombstones {
		found = append(found, "cleanup.policy is compact: of each object's history only the last "+
			"event is kept, and deleted objects are kept forever; set it to delete, or the "+
			"sink's tombstones to true if the last state is all that is wanted")
	}
	if n, err := strconv.Atoi(settings["max.message.bytes"]); err == nil && n < defaultMaxMessage {
		found = append(found, fmt.Sprintf("max.message.bytes is %d: larger events are sent in "+
			"a smaller form; objects may have 1 MiB", n))
	}
	return found
}

// timeSettings returns settings that do not go with the time of events as the time of records.
func (s *Sink) timeSettings(settings map[string]string) (found []string) {
	if s.config.Timestamps != EventTime {
		return nil
	}
	if settings["message.timestamp.type"] == "LogAppendTime" {
		return []string{"message.timestamp.type is LogAppendTime: records get the broker's time, " +
			"and timestamps: event has no effect; set it to CreateTime"}
	}
	retention := settings["retention.ms"]
	if strings.Contains(settings["cleanup.policy"], "delete") && retention != "" && retention != "-1" {
		found = append(found, fmt.Sprintf("retention.ms is %s and goes by the time of events: the "+
			"snapshot of objects that last changed before is deleted soon after it is stored; set "+
			"retention.ms to -1 or cleanup.policy to compact", retention))
	}
	const before = "message.timestamp.before.max.ms"
	if limit := settings[before]; limit != "" && limit != strconv.FormatInt(math.MaxInt64, 10) {
		found = append(found, fmt.Sprintf("%s is %s: events of objects that last changed before are "+
			"refused and become dead letters; remove the setting", before, limit))
	}
	return found
}

// checkTopic reports whether Kafka accepts a name for a topic.
func checkTopic(name string) error {
	const longest = 249
	switch {
	case name == "" || name == "." || name == "..":
		return fmt.Errorf("%q can't be the name of a topic", name)
	case len(name) > longest:
		return fmt.Errorf("topic name of %d characters, Kafka takes %d: %s", len(name), longest,
			name)
	}
	for i := range len(name) {
		c := name[i]
		if c != '.' && c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') &&
			(c < 'A' || c > 'Z') {
			return fmt.Errorf("%q can't be the name of a topic: it may hold letters, digits, "+
				"'.', '_' and '-'", name)
		}
	}
	return nil
}
