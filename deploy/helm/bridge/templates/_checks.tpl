{{/* What the schema can't say, in words. Everything here ends the rendering. */}}
{{- define "bridge.checks" -}}
{{- $c := .Values.config -}}
{{- if and .Values.existingConfig.configMap .Values.existingConfig.secret }}
{{- fail "existingConfig: name a ConfigMap or a Secret, not both" }}
{{- end }}
{{- if and (include "bridge.ownConfig" .) (include "bridge.makesKey" .) }}
{{- fail "existingConfig: several replicas need one key of redacted values, and the chart can't write it into your file: name a Secret in secrets, and its file in redaction.keyFile of bridge.yaml and of config" }}
{{- end }}
{{- if and (include "bridge.ownConfig" .) (include "bridge.adminSecret" .) }}
{{- fail "existingConfig: the chart can't write adminTLS into your file: name the Secret in secrets, and its files in admin.tls of bridge.yaml" }}
{{- end }}
{{- if not (or (dig "sinks" list $c) (include "bridge.ownConfig" .)) }}
{{- fail "config.sinks: say where events go, such as {name: audit, nats: {servers: [nats://nats.nats:4222]}}; without it the bridge would run a NATS server that nobody outside of its pod reaches" }}
{{- end }}
{{- if and (eq .Chart.AppVersion "0.0.0") (not .Values.image.tag) (not .Values.image.digest) }}
{{- fail "image.tag: this chart is from a source tree, and no image of its version 0.0.0 was published: build one with `make snapshot`, push it, and set image.repository and image.tag; or install the chart of a release" }}
{{- end }}
{{- if and .Values.persistence.existingClaim (gt (int .Values.replicas) 1) }}
{{- fail (printf "persistence.existingClaim: replicas: %d would share one volume, and each needs its own: leave existingClaim out, or set replicas: 1" (int .Values.replicas)) }}
{{- end }}
{{- $shards := ternary (include "bridge.shards" . | int) 1 (hasPrefix "auto/" (dig "shard" "" $c)) -}}
{{- if lt (int .Values.replicas) $shards }}
{{- fail (printf "replicas: of %d shards (config.shard: %s) only %d would have a bridge, and what the others have would not be sent: set replicas: %d, or with config.standby.enabled a multiple of it" $shards $c.shard (int .Values.replicas) $shards) }}
{{- end }}
{{- if and (gt $shards 1) (gt (int .Values.replicas) $shards) (not (dig "standby" "enabled" false $c)) }}
{{- fail (printf "replicas: %d is more than there are shards (config.shard: %s): set config.standby.enabled, so that the others wait to take over, or replicas: %d" (int .Values.replicas) $c.shard $shards) }}
{{- end }}
{{- if and (eq $shards 1) (gt (int .Values.replicas) 1) (not (dig "standby" "enabled" false $c)) }}
{{- fail (printf "replicas: %d bridges would each send everything: set config.standby.enabled, so that one sends and the others wait to take over, or replicas: 1" (int .Values.replicas)) }}
{{- end }}
{{- if include "bridge.onDisk" . }}
{{- if not (hasPrefix "/var/lib/bridge/" (dig "state" "dir" "" $c)) }}
{{- fail (printf "config.state.dir: %s is not on the volume: choose a directory below /var/lib/bridge/" (dig "state" "dir" "" $c | quote)) }}
{{- end }}
{{- if and (not .Values.persistence.enabled) (not .Values.persistence.allowLoss) }}
{{- fail "persistence.enabled: without a volume each new pod starts without state, and does not notice what was deleted meanwhile: set config.state.mode: memory, or persistence.allowLoss: true, if that is what you want" }}
{{- end }}
{{- end }}
{{- range $i, $inf := dig "informers" list $c }}
{{- if and (eq (default "" $inf.secrets | toString) "send") (not $.Values.allowSecrets) }}
{{- fail (printf "config.informers[%d].secrets: values of Secrets leave the cluster only where allowSecrets: true says so too" $i) }}
{{- end }}
{{- end }}
{{- include "bridge.noSecrets" (list "config" $c) }}
{{- include "bridge.graceful" . }}
{{- end }}

{{/* Refuses passwords in clear: the configuration lies in a ConfigMap. Takes a path and a value. */}}
{{- define "bridge.noSecrets" -}}
{{- $path := index . 0 -}}
{{- $value := index . 1 -}}
{{- if kindIs "map" $value }}
{{- range $key, $v := $value }}
{{- $at := printf "%s.%s" $path $key }}
{{- if and (has $key (list "password" "token" "clientSecret")) (kindIs "string" $v) $v (not (regexMatch "^\\$\\{[A-Za-z_][A-Za-z0-9_]*\\}$" $v)) }}
{{- fail (printf "%s: would lie in a ConfigMap in clear: write ${NAME} and set NAME in env from a Secret, or use %sFile with a file of secrets" $at $key) }}
{{- else if and (eq $key "servers") (regexMatch "://[^/@,]*:[^@$,/][^@/]*@" (toString $v)) }}
{{- fail (printf "%s: its password would lie in a ConfigMap in clear: use username and passwordFile with a file of secrets, or ${NAME} and env" $at) }}
{{- end }}
{{- include "bridge.noSecrets" (list $at $v) }}
{{- end }}
{{- else if kindIs "slice" $value }}
{{- range $i, $v := $value }}
{{- include "bridge.noSecrets" (list (printf "%s[%d]" $path $i) $v) }}
{{- end }}
{{- end }}
{{- end }}

{{/* A pod that is killed while it drains loses nothing, but sends some of it twice. */}}
{{- define "bridge.graceful" -}}
{{- $drain := dig "shutdownTimeout" "15s" .Values.config | toString -}}
{{- $second := dict "s" 1 "m" 60 "h" 3600 -}}
{{- if regexMatch "^[0-9]+[smh]$" $drain }}
{{- $seconds := mul (regexFind "^[0-9]+" $drain | int) (get $second (regexFind "[smh]$" $drain)) }}
{{- if le (int .Values.terminationGracePeriodSeconds) (int $seconds) }}
{{- fail (printf "terminationGracePeriodSeconds: %d is not longer than config.shutdownTimeout, %s: the bridge would be killed while it drains" (int .Values.terminationGracePeriodSeconds) $drain) }}
{{- end }}
{{- end }}
{{- end }}
