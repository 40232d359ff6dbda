SET 'execution.checkpointing.interval' = '1 s';

INSERT INTO kept SELECT uid, namespace, name, resourceversion, object.data['web']
  FROM configmaps /*+ OPTIONS('scan.bounded.mode' = 'unbounded') */;
