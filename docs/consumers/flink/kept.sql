CREATE TABLE kept (
  uid STRING, namespace STRING, name STRING, resourceversion STRING, web STRING,
  PRIMARY KEY (uid) NOT ENFORCED
) WITH (
  'connector' = 'upsert-kafka', 'topic' = 'kept.configmaps',
  'key.format' = 'json', 'value.format' = 'json',
  'properties.bootstrap.servers' = '127.0.0.1:9092'
);
