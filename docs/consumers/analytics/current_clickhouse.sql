WITH newest AS (
  SELECT * FROM events FINAL WHERE type LIKE 'dev.kubebridge.resource.%'
  ORDER BY sequence DESC LIMIT 1 BY source, informer, partitionkey
), forgotten AS (
  SELECT source, informer, apiversion, resource, max(position) AS place FROM events FINAL
  WHERE type = 'dev.kubebridge.informer.gap' AND JSONExtractString(data, 'reason') = 'forgotten'
  GROUP BY source, informer, apiversion, resource
)
SELECT namespace, name, uid FROM newest
LEFT JOIN forgotten USING (source, informer, apiversion, resource)
WHERE type NOT LIKE '%.deleted' AND position > place
  AND partitionkey LIKE 'deployments.apps/shop/%'
ORDER BY name
