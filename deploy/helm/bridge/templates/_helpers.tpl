{{- define "bridge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 52 | trimSuffix "-" }}
{{- end }}

{{/* A StatefulSet's pods have a label of its name with a hash: 52 characters at most. */}}
{{- define "bridge.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "bridge.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "bridge.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "bridge.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "bridge.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- required "serviceAccount.name: which one, when serviceAccount.create is false?" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "bridge.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}
{{- end }}

{{- define "bridge.selector" -}}
app.kubernetes.io/name: {{ include "bridge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Of the pod of `helm test`. It is none of the bridge's pods. */}}
{{- define "bridge.testSelector" -}}
app.kubernetes.io/name: {{ include "bridge.name" . }}-test
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "bridge.labels" -}}
{{ include "bridge.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* Labels and annotations of an object: those of all objects, and its own. Takes root, labels, annotations. */}}
{{- define "bridge.meta" -}}
labels:
  {{- include "bridge.labels" .root | nindent 2 }}
  {{- with merge (dict) (default dict .labels) .root.Values.commonLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with merge (dict) (default dict .annotations) .root.Values.commonAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The port of config.admin.address; 0 for none. */}}
{{- define "bridge.port" -}}
{{- $address := dig "admin" "address" "" .Values.config -}}
{{- if $address -}}
{{ regexReplaceAll "^.*:" $address "" | atoi }}
{{- else -}}
0
{{- end -}}
{{- end }}

{{/* Whether the configuration is in a ConfigMap or Secret that is not the chart's. */}}
{{- define "bridge.ownConfig" -}}
{{- if or .Values.existingConfig.configMap .Values.existingConfig.secret }}true{{ end }}
{{- end }}

{{/* Whether the running bridge follows a changed configuration. */}}
{{- define "bridge.reloads" -}}
{{- $c := .Values.config -}}
{{- $looks := not (regexMatch "^0[a-zµ]*$" (dig "reloadInterval" "5s" $c | toString)) -}}
{{- if and (eq .Values.onConfigChange "reload") $looks }}true{{ end }}
{{- end }}

{{/*
What of the configuration makes a new pod: what the bridge can't change while it runs, as config/changes.go says, and
what it refuses so that who may edit the ConfigMap alone reads no more by that (config/loosen.go).
*/}}
{{- define "bridge.restarts" -}}
{{- $c := .Values.config -}}
{{- if include "bridge.reloads" . -}}
{{- $servers := dict -}}
{{- $places := list -}}
{{- range dig "sinks" list $c -}}
{{- if dig "nats" "embedded" false . -}}
{{- $_ := set $servers .name (pick .nats "servers" "storeDir") -}}
{{- end -}}
{{- $place := dict -}}
{{- range $key, $section := . -}}
{{- if kindIs "map" $section -}}
{{- $_ := set $place $key (pick $section "servers" "brokers" "url" "deadLetterURL" "tls" "dir") -}}
{{- end -}}
{{- end -}}
{{- $places = append $places (pick $place "nats" "kafka" "http" "history" "stdout" | toJson) -}}
{{- end -}}
{{- $withheld := dict -}}
{{- range $informer := dig "informers" list $c -}}
{{- with pick $informer "secrets" "redact" "drop" "redactEnv" -}}
{{- $_ := set $withheld $informer.name . -}}
{{- end -}}
{{- end -}}
{{- $fixed := omit $c "informers" "sinks" "log" -}}
{{- merge (dict "log" (omit (dig "log" dict $c) "level") "servers" $servers "places" ($places | uniq | sortAlpha) "withheld" $withheld) $fixed | toJson -}}
{{- else -}}
{{- $c | toJson -}}
{{- end -}}
{{- end }}

{{/* Whether the chart makes the key of redacted values. One bridge keeps its own beside its state; several need the same one. */}}
{{- define "bridge.makesKey" -}}
{{- if and (gt (int .Values.replicas) 1) (not (dig "redaction" "keyFile" "" .Values.config)) }}true{{ end }}
{{- end }}

{{- define "bridge.keySecret" -}}
{{ include "bridge.fullname" . }}-redaction
{{- end }}

{{/* The Secret with the certificate of the admin server; nothing for plain HTTP. */}}
{{- define "bridge.adminSecret" -}}
{{- if include "bridge.port" . | int -}}
{{- if .Values.adminTLS.secret }}{{ .Values.adminTLS.secret }}
{{- else if .Values.adminTLS.issuerRef }}{{ include "bridge.fullname" . }}-admin
{{- end }}
{{- end }}
{{- end }}

{{/* A probe, by TLS where the admin server has it. Takes the root and the probe. */}}
{{- define "bridge.probe" -}}
{{- $probe := index . 1 | deepCopy -}}
{{- if and $probe.httpGet (include "bridge.adminSecret" (index . 0)) -}}
{{- $_ := set $probe "httpGet" (merge $probe.httpGet (dict "scheme" "HTTPS")) -}}
{{- end -}}
{{- toYaml $probe -}}
{{- end }}

{{/* The configuration, with the files of what the chart mounts: the key that it makes, the certificate of the admin server. */}}
{{- define "bridge.config" -}}
{{- $c := .Values.config | deepCopy -}}
{{- if include "bridge.makesKey" . -}}
{{- $_ := set $c "redaction" (dict "keyFile" "/etc/bridge/redaction/key") -}}
{{- end -}}
{{- if include "bridge.adminSecret" . -}}
{{- $_ := set $c.admin "tls" (dict "certFile" "/etc/bridge/admin/tls.crt" "keyFile" "/etc/bridge/admin/tls.key") -}}
{{- end -}}
{{- toYaml $c -}}
{{- end }}

{{/* Whether the state lies on a volume. */}}
{{- define "bridge.onDisk" -}}
{{- if ne (dig "state" "mode" "disk" .Values.config) "memory" }}true{{ end }}
{{- end }}

{{/* The name of the volume of a Secret, in which there may be no dots. */}}
{{- define "bridge.secretVolume" -}}
secret-{{ .name | replace "." "-" | trunc 56 | trimSuffix "-" }}
{{- end }}
