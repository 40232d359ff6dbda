WITH counted AS (
  SELECT *, arraySum(arrayMap(c -> JSONExtractInt(c, 'restartCount'),
    JSONExtractArrayRaw(data, 'status', 'containerStatuses'))) AS restarts
  FROM events FINAL WHERE partitionkey LIKE 'pods/%' AND type LIKE 'dev.kubebridge.resource.%'
), steps AS (
  SELECT *, restarts - lagInFrame(restarts, 1, restarts) OVER (PARTITION BY uid ORDER BY stream, sequence
    ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS step
  FROM counted
)
SELECT namespace, name, sum(step) AS restarted FROM steps
WHERE step > 0 AND parseDateTime64BestEffort(time) > now() - INTERVAL 24 HOUR
GROUP BY namespace, name, uid ORDER BY restarted DESC, name
