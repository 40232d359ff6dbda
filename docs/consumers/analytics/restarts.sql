WITH counted AS (
  SELECT *, coalesce(list_sum((data->'$.status.containerStatuses[*].restartCount')::BIGINT[]), 0)
    AS restarts
  FROM events WHERE partitionkey LIKE 'pods/%' AND type LIKE 'dev.kubebridge.resource.%'
), steps AS (
  SELECT *, restarts - lag(restarts, 1, restarts) OVER (PARTITION BY uid ORDER BY stream, sequence) AS step
  FROM counted
)
SELECT namespace, name, sum(step)::BIGINT AS restarted FROM steps
WHERE step > 0 AND time > now() - INTERVAL 24 HOUR
GROUP BY namespace, name, uid ORDER BY restarted DESC, name;
