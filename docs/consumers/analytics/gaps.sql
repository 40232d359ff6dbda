-- What is not known of the time $1: between the last event before a gap that lost events, and the
-- end of the next first list.
WITH told AS (
  SELECT source, informer, apiversion, resource, stream, position, time, data->>'reason' AS reason,
         type = 'dev.kubebridge.informer.gap' AND reason IN ('lost', 'dropped') AS is_gap,
         type = 'dev.kubebridge.informer.synced' AND data->>'first' = 'true' AS is_first
  FROM events
), gaps AS (
  SELECT informer, resource, reason,
    (SELECT max(time) FROM told AS b WHERE b.source = g.source AND b.informer = g.informer
       AND b.apiversion = g.apiversion AND b.resource = g.resource
       AND (b.stream < g.stream OR b.stream = g.stream AND b.position < g.position)) AS since,
    (SELECT min(time) FROM told AS l WHERE l.is_first AND l.source = g.source AND l.informer = g.informer
       AND l.apiversion = g.apiversion AND l.resource = g.resource
       AND (l.stream > g.stream OR l.stream = g.stream AND l.position > g.position)) AS until
  FROM told AS g WHERE is_gap
)
SELECT informer, resource, reason, since::TEXT, until::TEXT FROM gaps
WHERE (since IS NULL OR since <= $1::TIMESTAMPTZ) AND (until IS NULL OR until > $1::TIMESTAMPTZ)
ORDER BY ALL;
