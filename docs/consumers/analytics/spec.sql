WITH steps AS (
  SELECT *, data->>'$.metadata.generation' AS generation,
    lag(generation) OVER (PARTITION BY uid ORDER BY sequence) AS was
  FROM events WHERE partitionkey = 'deployments.apps/shop/api'
)
SELECT name, manager, was, generation FROM steps WHERE generation <> was ORDER BY sequence;
