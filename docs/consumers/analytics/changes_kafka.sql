-- The sink: {name: rows, encoding: flat, kafka: {brokers: ["127.0.0.1:9092"], topic: k8s.changes}}
CREATE TABLE IF NOT EXISTS changes_kafka ENGINE = Kafka
SETTINGS kafka_broker_list = '127.0.0.1:9092', kafka_topic_list = 'k8s.changes',
  kafka_group_name = 'clickhouse', kafka_format = 'JSONEachRow',
  date_time_input_format = 'best_effort'
EMPTY AS SELECT * FROM changes;

CREATE MATERIALIZED VIEW IF NOT EXISTS changes_from_kafka TO changes AS
SELECT * FROM changes_kafka;
