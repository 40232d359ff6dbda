{{/*
Where the bridge may connect to, as NetworkPolicyEgressRules: the ports of DNS, of the API server and of the addresses in the configuration, on any host, since a NetworkPolicy knows no names. Nothing, which is everywhere, where an address is not known here.
*/}}
{{- define "bridge.egress" -}}
{{- $addresses := list -}}
{{- range default list .Values.config.sinks }}
{{- if hasKey . "nats" }}{{- $nats := default dict .nats }}{{- if not $nats.embedded }}
{{- range default (list "nats://127.0.0.1:4222") $nats.servers }}{{- $addresses = append $addresses . }}{{- end }}
{{- end }}{{- end }}
{{- with .kafka }}
{{- range .brokers }}{{- $addresses = append $addresses (printf "kafka://%s" .) }}{{- end }}
{{- $addresses = append $addresses (dig "sasl" "oauth" "tokenURL" "" .) }}
{{- end }}
{{- with .http }}{{- $addresses = append $addresses (default "" .url) }}{{- $addresses = append $addresses (default "" .deadLetterURL) }}{{- end }}
{{- range dig "audit" "streams" list (default dict .history) }}{{- $addresses = append $addresses .from }}{{- end }}
{{- end }}
{{- $addresses = append $addresses (dig "tracing" "endpoint" "" .Values.config) -}}
{{- $ports := list 443 6443 -}}
{{- $known := not (or .Values.existingConfig.configMap .Values.existingConfig.secret) -}}
{{- range $addresses | uniq }}
{{- $authority := regexReplaceAll "^[a-z]+://(.*@)?([^/?]*).*$" . "${2}" }}
{{- $port := regexFind ":[0-9]+$" $authority | trimPrefix ":" }}
{{- $scheme := regexFind "^[a-z]+" . }}
{{- if not . }}
{{- else if $port }}{{- $ports = append $ports (int $port) }}
{{- else if contains "${" . }}{{- $known = false }}
{{- else }}{{- $ports = append $ports (get (dict "nats" 4222 "tls" 4222 "ws" 80 "wss" 443 "http" 80 "https" 443 "kafka" 9092) $scheme | default 443 | int) }}
{{- end }}
{{- end }}
{{- range .Values.env }}
{{- if regexMatch "^(BRIDGE_SINKS.*|BRIDGE_TRACING.*|(?i:https?|all)_(?i:proxy))$" .name }}{{- $known = false }}{{- end }}
{{- end }}
{{- if or .Values.envFrom (not .Values.config.sinks) }}{{- $known = false }}{{- end }}
{{- $rules := list -}}
{{- if $known }}
{{- $dns := list (dict "port" 53 "protocol" "UDP") (dict "port" 53 "protocol" "TCP") -}}
{{- $tcp := list -}}
{{- range $ports | uniq }}{{- $tcp = append $tcp (dict "port" . "protocol" "TCP") }}{{- end }}
{{- $rules = list (dict "ports" (concat $dns $tcp)) -}}
{{- end }}
{{- $rules | toJson }}
{{- end }}
