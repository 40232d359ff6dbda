-- How often the value at $2 changed, of objects like $1.
WITH steps AS (
  SELECT *, data->>$2 AS value, lag(value) OVER versions AS was, row_number() OVER versions AS version
  FROM events
  WHERE partitionkey LIKE $1 AND type LIKE 'dev.kubebridge.resource.%' AND type NOT LIKE '%.deleted'
  WINDOW versions AS (PARTITION BY source, informer, uid ORDER BY stream, sequence)
)
SELECT max(time), namespace, name, count(*) FROM steps
WHERE version > 1 AND value IS DISTINCT FROM was
GROUP BY namespace, name, uid ORDER BY count(*) DESC, name;
