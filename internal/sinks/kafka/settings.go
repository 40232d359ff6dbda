package kafka

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// checkSettings warns of settings that break the promise. It returns the size that batches are to
// have, and the largest that the topic accepts, 0 where that can't be read. It needs the right to
// describe the topic's configuration; without it the sink works, and learns the size limit from
// refusals.
func (s *Sink) checkSettings(
	ctx context.Context, c *cluster, name string, l layout,
) (limit, most int, err error) {
	limit = s.config.Records.MaxBatchBytes
	settings, err := c.describe(ctx, name)
	if err != nil {
		s.log.Warn("can't read the topic's settings, so can't say whether they keep what is "+
			"acknowledged", "topic", name, "err", explain(err))
		return limit, 0, nil
	}
	if policy := settings["cleanup.policy"]; s.config.View && policy != "compact" {
		return 0, 0, fmt.Errorf("cleanup.policy of topic %s is %q: a view needs compact, or it "+
			"loses objects that do not change. Set it (kafka-configs.sh --alter --entity-type "+
			"topics --entity-name %[1]s --add-config cleanup.policy=compact), or choose another "+
			"topic", name, policy)
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
	if n, err := strconv.Atoi(settings["max.message.bytes"]); err == nil && n > 0 {
		limit, most = min(limit, n), n
	}
	return limit, most, nil
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
	if compacted && !s.config.Records.Tombstones {
		found = append(found, "cleanup.policy is compact: of each object's history only the last "+
			"event is kept, and deleted objects are kept forever; "+
			"set it to delete, or the sink's tombstones to true if the last state is all that is "+
			"wanted")
	}
	if n, err := strconv.Atoi(settings["max.message.bytes"]); err == nil && n < defaultMaxMessage {
		found = append(found, fmt.Sprintf("max.message.bytes is %d: larger events are refused "+
			"and become dead letters; objects may have 1 MiB", n))
	}
	return found
}

// timeSettings returns settings that do not go with the time of events as the time of records.
func (s *Sink) timeSettings(settings map[string]string) (found []string) {
	if s.config.Records.Timestamps != EventTime {
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
