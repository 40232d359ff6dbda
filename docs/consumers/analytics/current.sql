CREATE OR REPLACE VIEW current AS
WITH newest AS (
  SELECT * FROM events WHERE type LIKE 'dev.kubebridge.resource.%'
  QUALIFY row_number() OVER (PARTITION BY source, informer, partitionkey
                             ORDER BY stream DESC, sequence DESC) = 1
), begun AS (
  SELECT source, informer, apiversion, resource,
         max((stream, if(type LIKE '%.gap', position, 0))) AS place FROM events
  WHERE type = 'dev.kubebridge.informer.gap' AND data->>'reason' = 'forgotten'
     OR type = 'dev.kubebridge.informer.synced' AND data->>'first' = 'true' GROUP BY ALL
)
SELECT newest.* FROM newest
LEFT JOIN begun USING (source, informer, apiversion, resource)
WHERE type NOT LIKE '%.deleted' AND (place IS NULL OR (newest.stream, newest.position) > place);

SELECT namespace, name, data->>'$.status.replicas' FROM current
WHERE partitionkey LIKE 'deployments.apps/shop/%';
