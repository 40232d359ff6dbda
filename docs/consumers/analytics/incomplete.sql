-- Kinds of which deletes and objects may be unknown: behind this gap no first list has ended.
SELECT informer, resource, data->>'reason', max(time)::TEXT FROM events AS gap
WHERE type = 'dev.kubebridge.informer.gap' AND data->>'reason' IN ('lost', 'dropped') AND NOT EXISTS (
  SELECT 1 FROM events AS list
  WHERE list.type = 'dev.kubebridge.informer.synced' AND list.data->>'first' = 'true'
    AND list.source = gap.source AND list.informer = gap.informer AND list.resource = gap.resource
    AND list.apiversion = gap.apiversion
    AND (list.stream, list.position) > (gap.stream, gap.position)
) GROUP BY ALL ORDER BY ALL;
