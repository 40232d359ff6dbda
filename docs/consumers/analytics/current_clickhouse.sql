WITH newest AS (
  SELECT * FROM events FINAL WHERE type LIKE 'dev.kubebridge.resource.%'
  ORDER BY stream DESC, sequence DESC LIMIT 1 BY source, informer, partitionkey
), begun AS (
  SELECT source, informer, apiversion, resource,
         max((stream, if(type LIKE '%.gap', position, 0))) AS place FROM events FINAL
  WHERE type = 'dev.kubebridge.informer.gap' AND JSONExtractString(data, 'reason') = 'forgotten'
     OR type = 'dev.kubebridge.informer.synced' AND JSONExtractBool(data, 'first')
  GROUP BY source, informer, apiversion, resource
)
SELECT namespace, name, uid FROM newest
LEFT JOIN begun USING (source, informer, apiversion, resource)
WHERE type NOT LIKE '%.deleted' AND (stream, position) > place
  AND partitionkey LIKE 'deployments.apps/shop/%'
ORDER BY name
