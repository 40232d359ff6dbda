SELECT namespace, name, web FROM kept /*+ OPTIONS('scan.bounded.mode' = 'latest-offset') */
  WHERE name = 'colours';
