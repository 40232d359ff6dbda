-- Of objects like $1 those whose value at $2 changed most.
WITH steps AS (
  SELECT *, data->>$2 AS value,
    lag(value) OVER (PARTITION BY source, informer, uid ORDER BY sequence) AS was
  FROM events WHERE partitionkey LIKE $1 AND type LIKE 'dev.kubebridge.resource.%'
)
SELECT namespace, name, count(*) FROM steps WHERE value <> was
GROUP BY ALL ORDER BY count(*) DESC, name LIMIT 5;
