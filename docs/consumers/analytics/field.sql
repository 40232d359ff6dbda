-- Of objects like $1 the changes of the value at $2. None: there was no value, or it is not known
-- who has set it, as versions before it are missing.
WITH steps AS (
  SELECT *, data->>$2 AS value, lag(value) OVER versions AS was,
    lag(resourceversion) OVER versions AS before, row_number() OVER versions AS version
  FROM events
  WHERE partitionkey LIKE $1 AND type LIKE 'dev.kubebridge.resource.%' AND type NOT LIKE '%.deleted'
  WINDOW versions AS (PARTITION BY source, informer, uid ORDER BY stream, sequence)
)
SELECT time, namespace, name, CASE WHEN previous = before THEN manager END, was, value FROM steps
WHERE version > 1 AND value IS DISTINCT FROM was ORDER BY time, sequence;
