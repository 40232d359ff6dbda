-- Of objects like $1 the changes of the value at $2.
WITH steps AS (
  SELECT *, data->>$2 AS value,
    lag(value) OVER (PARTITION BY source, informer, uid ORDER BY sequence) AS was
  FROM events WHERE partitionkey LIKE $1 AND type LIKE 'dev.kubebridge.resource.%'
)
SELECT namespace, name, manager, was, value FROM steps WHERE value <> was ORDER BY time, sequence;
