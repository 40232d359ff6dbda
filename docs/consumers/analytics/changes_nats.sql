-- The sink: {name: rows, encoding: flat, nats: {servers: ["nats://127.0.0.1:4222"]}}
-- The consumer: nats consumer add K8S clickhouse --pull --ack explicit --deliver all --defaults
CREATE TABLE IF NOT EXISTS changes_nats ENGINE = NATS
SETTINGS nats_url = '127.0.0.1:4222', nats_subjects = 'k8s.>', nats_stream = 'K8S',
  nats_consumer_name = 'clickhouse', nats_format = 'JSONEachRow',
  date_time_input_format = 'best_effort'
EMPTY AS SELECT * FROM changes;

CREATE MATERIALIZED VIEW IF NOT EXISTS changes_from_nats TO changes AS
SELECT * FROM changes_nats;
