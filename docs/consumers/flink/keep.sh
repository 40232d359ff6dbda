echo "SET 'execution.checkpointing.dir' = 'file://$PWD/checkpoints';" > checkpoint.sql
newest=$(ls -t checkpoints/*/chk-*/_metadata 2>> java.log | head -1)
if [ -n "$newest" ]; then
  echo "SET 'execution.state-recovery.path' = 'file://$PWD/${newest%/_metadata}';" >> checkpoint.sql
fi
exec java --add-opens=java.base/java.util=ALL-UNNAMED -cp 'jars/*' \
  Sql.java checkpoint.sql table.sql kept.sql keep.sql 2>> java.log
