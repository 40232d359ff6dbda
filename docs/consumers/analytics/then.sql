-- Objects like $1 that existed at $2: as current.sql, of what had happened by then.
WITH past AS (
  SELECT * FROM events WHERE time <= $2::TIMESTAMPTZ
), newest AS (
  SELECT * FROM past WHERE type LIKE 'dev.kubebridge.resource.%' AND partitionkey LIKE $1
  QUALIFY row_number() OVER (PARTITION BY source, informer, partitionkey
                             ORDER BY stream DESC, sequence DESC) = 1
), begun AS (
  SELECT source, informer, apiversion, resource,
         max((stream, if(type LIKE '%.gap', position, 0))) AS place FROM past
  WHERE type = 'dev.kubebridge.informer.gap' AND data->>'reason' = 'forgotten'
     OR type = 'dev.kubebridge.informer.synced' AND data->>'first' = 'true' GROUP BY ALL
)
SELECT newest.namespace, newest.name FROM newest
LEFT JOIN begun USING (source, informer, apiversion, resource)
WHERE type NOT LIKE '%.deleted' AND (place IS NULL OR (newest.stream, newest.position) > place)
ORDER BY ALL;
