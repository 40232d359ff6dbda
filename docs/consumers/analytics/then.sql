WITH moment AS (
  SELECT min(time) AS moment FROM events
  WHERE type LIKE '%.deleted' AND partitionkey = 'deployments.apps/shop/web'
), newest AS (
  SELECT * FROM events, moment WHERE type LIKE 'dev.kubebridge.resource.%' AND time < moment
  QUALIFY row_number() OVER (PARTITION BY source, informer, partitionkey
                             ORDER BY sequence DESC) = 1
)
SELECT name FROM newest
WHERE type NOT LIKE '%.deleted' AND partitionkey LIKE 'deployments.apps/shop/%' ORDER BY name;
