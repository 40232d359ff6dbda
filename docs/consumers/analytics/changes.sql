-- A record of `encoding: flat` is a row of this table. A repeat may have a later time: so the key has
-- none, and of the rows with one key the earliest stays when parts are merged. For attributes of
-- your own add columns.
CREATE TABLE IF NOT EXISTS changes (
  cluster LowCardinality(String), informer LowCardinality(String), apigroup LowCardinality(String),
  resource LowCardinality(String), namespace String, name String, sequence String, id String,
  op LowCardinality(String), time DateTime64(9, 'UTC'), notbefore Nullable(DateTime64(9, 'UTC')),
  timesource LowCardinality(String), initial Bool, inferred Bool,
  apiversion LowCardinality(String), kind LowCardinality(String), uid String,
  resourceversion String, previous String, changed String, manager LowCardinality(String),
  managersubresource LowCardinality(String), manageroperation LowCardinality(String),
  lastmanager LowCardinality(String), cause LowCardinality(String),
  source LowCardinality(String), type LowCardinality(String), subject String, partitionkey String,
  datacontenttype LowCardinality(String), data String CODEC(ZSTD),
  actor String, actorgrade LowCardinality(String), impersonator String,
  verb LowCardinality(String), auditid String,
  earliest UInt64 MATERIALIZED toUInt64(9223372036854775807 - toUnixTimestamp64Nano(time))
) ENGINE = ReplacingMergeTree(earliest)
ORDER BY (cluster, informer, apigroup, resource, namespace, name, sequence, id);

-- Which of several bridges with the key `shard` has an object: a jump consistent hash.
CREATE FUNCTION IF NOT EXISTS shard_of AS (object, shards) -> arrayFold(
  (a, i) -> if(a.2 >= shards, a, (
    a.2,
    toInt64((a.2 + 1) * (2147483648. / (bitShiftRight(a.3 * 2862933555777941757 + 1, 33) + 1))),
    toUInt64(a.3 * 2862933555777941757 + 1)
  )), range(toUInt64(shards)), (toInt64(-1), toInt64(0), xxHash64(object))
).1;

-- What existed at a time: SELECT * FROM state_at(at = '2026-11-28 12:00:00'). Of each object the
-- row with the greatest sequence, unless that is a delete. After a gap `forgotten` sequences begin
-- with a greater number, and what does not come again is gone. A gap of a shard is about its objects.
CREATE VIEW IF NOT EXISTS state_at AS
WITH forgotten AS (
  SELECT cluster, informer, apigroup, resource, namespace AS scope,
    extract(id, '/shard-([0-9]+)-of-') AS shard, extract(id, '/shard-[0-9]+-of-([0-9]+)/') AS shards,
    max(left(sequence, 9)) AS era
  FROM changes
  WHERE op = 'gap' AND JSONExtractString(data, 'reason') = 'forgotten'
    AND time <= {at:DateTime64(9, 'UTC')}
  GROUP BY ALL
)
SELECT * FROM changes
WHERE (cluster, informer, apigroup, resource, namespace, name, sequence, id) IN (
  SELECT cluster, informer, apigroup, resource, namespace, name, max(sequence) AS last,
    argMax(id, sequence)
  FROM changes LEFT JOIN forgotten USING (cluster, informer, apigroup, resource)
  WHERE name != '' AND op != 'attributed' AND time <= {at:DateTime64(9, 'UTC')}
  GROUP BY cluster, informer, apigroup, resource, namespace, name
  HAVING argMax(op, sequence) != 'deleted'
    AND last >= max(if(scope IN ('', namespace) AND (shards = '' OR shard = toString(
      shard_of(concat(apigroup, '/', resource, '/', namespace, '/', name), toUInt32OrZero(shards)))),
      era, ''))
)
LIMIT 1 BY cluster, informer, id;

-- Changes of each kind in each hour. An id is counted once: repeats, and another informer.
CREATE VIEW IF NOT EXISTS churn AS
SELECT cluster, toStartOfHour(time) AS hour, apigroup, kind, op, uniqExact(id) AS changes
FROM changes WHERE op IN ('added', 'updated', 'deleted') AND NOT initial
GROUP BY ALL;

-- Who changes what, by field manager and, with audit.sinks, by authenticated user: of a change that
-- is in a row of its own, `attributed`, with the id of the change and /actor.
CREATE VIEW IF NOT EXISTS who AS
SELECT c.cluster AS cluster, u.actor AS actor, u.impersonator AS impersonator, manager, manageroperation,
  managersubresource, apigroup, kind, namespace, uniqExact(id) AS changes, max(time) AS last
FROM changes AS c LEFT JOIN (
  SELECT source, informer, id AS userid, max(actor) AS actor, max(impersonator) AS impersonator
  FROM changes WHERE op = 'attributed' GROUP BY ALL
) AS u ON u.source = c.source AND u.informer = c.informer AND userid = concat(c.id, '/actor')
WHERE name != '' AND op != 'attributed' AND (manager != '' OR u.actor != '')
GROUP BY ALL;

-- What is not known. Each partition of a topic has a copy of a gap.
CREATE VIEW IF NOT EXISTS gaps AS
SELECT cluster, informer, apigroup, resource, namespace, JSONExtractString(data, 'reason') AS reason,
  JSONExtractString(data, 'from') AS after, JSONExtractString(data, 'to') AS until,
  min(time) AS observed
FROM changes WHERE op = 'gap'
GROUP BY cluster, informer, apigroup, resource, namespace, reason, after, until, left(sequence, 9);
