{{/*
The rights of a configuration, as `bridge rbac --offline` finds them: list and watch on each resource of each informer, in its namespaces or in all, and on the namespaces that are selected by their labels.
Where an informer excludes Secrets, no rule for it allows to read them. A role can't subtract: "*." without some resources names the others of the core group, and so does "*" without Secrets, whose other groups are those that the API server has while this is rendered.
*/}}

{{/* The informers of the configuration, or the bridge's default one. */}}
{{- define "bridge.informers" -}}
{{- $informers := list (dict "name" "all" "resources" (list "*") "exclude" (list "leases.coordination.k8s.io" "events" "events.events.k8s.io")) -}}
{{- if kindIs "slice" .Values.config.informers }}
{{- $informers = .Values.config.informers }}
{{- end }}
{{- dict "list" $informers | toJson }}
{{- end }}

{{/* What the rights depend on, as the bridge digests it too. */}}
{{- define "bridge.selection" -}}
{{- $all := list -}}
{{- range (include "bridge.informers" . | fromJson).list }}
{{- $all = append $all (dict "resources" (default list .resources) "exclude" (default list .exclude) "namespaces" (default list .namespaces) "namespaceSelector" (default "" .namespaceSelector) "fieldSelector" (default "" .fieldSelector)) }}
{{- end }}
{{- $all | toJson | sha256sum }}
{{- end }}

{{/* The resources of the core group. */}}
{{- define "bridge.core" -}}
{{- list "configmaps" "endpoints" "events" "limitranges" "namespaces" "nodes" "persistentvolumeclaims" "persistentvolumes" "pods" "podtemplates" "replicationcontrollers" "resourcequotas" "secrets" "serviceaccounts" "services" | toJson }}
{{- end }}

{{/* What an informer excludes, as the bridge reads it: resources as "group/resource", "*" for all. Takes the informer. */}}
{{- define "bridge.excluded" -}}
{{- $core := fromJsonArray (include "bridge.core" .) -}}
{{- $short := dict "cm" "configmaps" "ep" "endpoints" "ev" "events" "limits" "limitranges"
      "ns" "namespaces" "no" "nodes" "pvc" "persistentvolumeclaims" "pv" "persistentvolumes"
      "po" "pods" "rc" "replicationcontrollers" "quota" "resourcequotas" "sa" "serviceaccounts"
      "svc" "services" -}}
{{- $all := list -}}
{{- range .exclude }}
{{- $name := lower . }}
{{- if eq $name "*" }}{{- $all = append $all "*/*" }}
{{- else if hasPrefix "*." $name }}{{- $all = append $all (printf "%s/*" (trimPrefix "*." $name)) }}
{{- else }}
{{- $word := first (splitList "." $name) }}
{{- $group := rest (splitList "." $name) }}
{{- if $group }}{{- if regexMatch "^v[0-9]" (first $group) }}{{- $group = rest $group }}{{- end }}{{- end }}
{{- $group = join "." $group }}
{{- if not $group }}
{{- if has (printf "%ss" $word) $core }}{{- $word = printf "%ss" $word }}{{- else }}{{- $word = get $short $word | default $word }}{{- end }}
{{- end }}
{{- $all = append $all (printf "%s/%s" $group $word) }}
{{- if has (last $all) (list "/events" "events.k8s.io/events") }}{{- $all = append $all "/events" }}{{- $all = append $all "events.k8s.io/events" }}{{- end }}
{{- end }}
{{- end }}
{{- $all | toJson }}
{{- end }}

{{/* Whether an informer excludes Secrets. */}}
{{- define "bridge.excludesSecrets" -}}
{{- $excluded := fromJsonArray (include "bridge.excluded" .) -}}
{{- if or (has "*/*" $excluded) (has "/*" $excluded) (has "/secrets" $excluded) }}true{{- end }}
{{- end }}

{{/* What the name of a resource selects in an informer, as groups and resources of rules. Takes the informer, the name, its path and the root. */}}
{{- define "bridge.selected" -}}
{{- $inf := index . 0 -}}
{{- $excluded := fromJsonArray (include "bridge.excluded" $inf) -}}
{{- $parts := splitList "/" (include "bridge.resource" (list (index . 1) (index . 2))) -}}
{{- $group := first $parts -}}
{{- $resource := last $parts -}}
{{- $all := fromJsonArray (include "bridge.core" .) -}}
{{- $core := list -}}
{{- range $all }}
{{- if not (or (has "*/*" $excluded) (has "/*" $excluded) (has (printf "/%s" .) $excluded)) }}{{- $core = append $core . }}{{- end }}
{{- end }}
{{- $rules := list -}}
{{- if or (has "*/*" $excluded) (has (printf "%s/*" $group) $excluded) (has (printf "%s/%s" $group $resource) $excluded) -}}
{{- else if and (eq $group "") (eq $resource "*") (lt (len $core) (len $all)) -}}
{{- with $core }}{{- $rules = list (dict "apiGroups" (list "") "resources" .) }}{{- end -}}
{{- else if and (eq $group "*") (include "bridge.excludesSecrets" $inf) -}}
{{- with $core }}{{- $rules = list (dict "apiGroups" (list "") "resources" .) }}{{- end -}}
{{- $groups := list -}}
{{- range (index . 3).Capabilities.APIVersions }}
{{- $name := first (splitList "/" .) }}
{{- $isCore := regexMatch "^v[0-9]+((alpha|beta)[0-9]+)?$" $name }}
{{- if not (or $isCore (eq $name "events.k8s.io") (has (printf "%s/*" $name) $excluded)) }}{{- $groups = append $groups $name }}{{- end }}
{{- end }}
{{- with $groups }}{{- $rules = append $rules (dict "apiGroups" (uniq . | sortAlpha) "resources" (list "*")) }}{{- end -}}
{{- else -}}
{{- $rules = list (dict "apiGroups" (list $group) "resources" (list $resource)) -}}
{{- end -}}
{{- $rules | toJson }}
{{- end }}

{{/* Group and resource of a name, as "group/resource". Takes the name and its path. */}}
{{- define "bridge.resource" -}}
{{- $name := index . 0 | lower -}}
{{- $path := index . 1 -}}
{{- $core := fromJsonArray (include "bridge.core" .) -}}
{{- if eq $name "*" -}}
*/*
{{- else if hasPrefix "*." $name -}}
{{ trimPrefix "*." $name }}/*
{{- else -}}
{{- $parts := splitList "." $name -}}
{{- $resource := first $parts -}}
{{- $group := rest $parts -}}
{{- if $group }}{{- if regexMatch "^v[0-9]" (first $group) }}{{- $group = rest $group }}{{- end }}{{- end }}
{{- if and (not $group) (not (has $resource $core)) }}
{{- fail (printf "%s: %s: ambiguous without a cluster: write the plural with its group, such as deployments.apps, or give the rights that `bridge rbac --output helm-values` prints as rbac.roles" $path (index . 0)) }}
{{- end -}}
{{ join "." $group }}/{{ $resource }}
{{- end -}}
{{- end }}

{{/* The name of the only object that a field selector selects, else nothing. */}}
{{- define "bridge.onlyName" -}}
{{- range splitList "," (default "" .) }}
{{- if regexMatch "^metadata\\.name==?[^=]" . }}{{ regexReplaceAll "^metadata\\.name==?" . "" }}{{ end }}
{{- end }}
{{- end }}

{{/* Refuses what can't be read at template time. Takes a path and the value. */}}
{{- define "bridge.constant" -}}
{{- if contains "${" (index . 1 | toJson) }}
{{- fail (printf "%s: what a variable holds is not known here: give the rights that `bridge rbac --output helm-values` prints as rbac.roles" (index . 0)) }}
{{- end }}
{{- end }}

{{/* The roles, as a list of {namespace, rules}; "" is all namespaces. */}}
{{- define "bridge.roles" -}}
{{- range .Values.env }}
{{- if hasPrefix "BRIDGE_INFORMERS" .name }}
{{- fail (printf "env: %s may change what is watched, which the chart does not see: put it into config, or give the rights that `bridge rbac --output helm-values` prints as rbac.roles" .name) }}
{{- end }}
{{- if and (eq .name "BRIDGE_SHARD") (dig "standby" "enabled" false $.Values.config) }}
{{- fail "env: BRIDGE_SHARD changes the names of the leases, which the chart does not see: put it into config.shard, or give the rights that `bridge rbac --output helm-values` prints as rbac.roles" }}
{{- end }}
{{- end }}
{{- if dig "standby" "enabled" false .Values.config }}
{{- include "bridge.constant" (list "config.shard" (dig "shard" "" .Values.config)) }}
{{- end }}
{{- $roles := dict "" (dict "get//namespaces/kube-system" (dict "apiGroups" (list "") "resources" (list "namespaces") "resourceNames" (list "kube-system") "verbs" (list "get"))) -}}
{{- range $i, $inf := (include "bridge.informers" . | fromJson).list }}
{{- $path := printf "config.informers[%d]" $i }}
{{- range $key := list "resources" "exclude" "namespaces" "namespaceSelector" "fieldSelector" }}
{{- include "bridge.constant" (list (printf "%s.%s" $path $key) (get $inf $key)) }}
{{- end }}
{{- if $inf.namespaceSelector }}
{{- $_ := set (get $roles "") "/namespaces/" (dict "apiGroups" (list "") "resources" (list "namespaces") "verbs" (list "list" "watch")) }}
{{- end }}
{{- $name := include "bridge.onlyName" $inf.fieldSelector }}
{{- range $namespace := default (list "") $inf.namespaces }}
{{- $rules := default dict (get $roles $namespace) }}
{{- range $j, $resource := $inf.resources }}
{{- $at := printf "%s.resources[%d]" $path $j }}
{{- range $rule := fromJsonArray (include "bridge.selected" (list $inf $resource $at $)) }}
{{- $_ := set $rule "verbs" (list "list" "watch") }}
{{- if $name }}{{- $_ := set $rule "resourceNames" (list $name) }}{{- end }}
{{- $_ := set $rules (printf "%s/%s/%s" (join "," $rule.apiGroups) (join "," $rule.resources) $name) $rule }}
{{- end }}
{{- end }}
{{- $_ := set $roles $namespace $rules }}
{{- end }}
{{- end }}
{{- $list := list }}
{{- range $namespace, $rules := $roles }}
{{- $ordered := list }}
{{- range $_, $rule := $rules }}{{- $ordered = append $ordered $rule }}{{- end }}
{{- $list = append $list (dict "namespace" $namespace "rules" $ordered) }}
{{- end }}
{{- dict "list" $list | toJson }}
{{- end }}

{{/* Into how many shards `config.shard` splits the objects; 1 for none. */}}
{{- define "bridge.shards" -}}
{{- $shard := dig "shard" "" .Values.config -}}
{{- if regexMatch "^(auto|[0-9]+)/[1-9][0-9]*$" $shard -}}
{{ regexReplaceAll "^.*/" $shard "" }}
{{- else -}}
1
{{- end -}}
{{- end }}

{{/* What bridges that stand by for each other need: two Leases for each shard, which the first of them makes. As {namespace, rules}, or nothing. */}}
{{- define "bridge.leases" -}}
{{- if dig "standby" "enabled" false .Values.config -}}
{{- $name := dig "standby" "lease" "name" "bridge" .Values.config -}}
{{- $shards := include "bridge.shards" . | int -}}
{{- $names := list -}}
{{- range $i := until $shards -}}
{{- $lease := ternary (printf "%s-%d-of-%d" $name $i $shards) $name (gt $shards 1) -}}
{{- $names = append (append $names $lease) (printf "%s-progress" $lease) -}}
{{- end -}}
{{- $leases := dict "apiGroups" (list "coordination.k8s.io") "resources" (list "leases") -}}
{{- $create := merge (dict "verbs" (list "create")) $leases -}}
{{- $write := merge (dict "verbs" (list "get" "update") "resourceNames" $names) $leases -}}
{{- dict "namespace" (dig "standby" "lease" "namespace" "" .Values.config | default .Release.Namespace) "rules" (list $create $write) | toJson }}
{{- end }}
{{- end }}

{{/* The roles that were given, when they are for this configuration. */}}
{{- define "bridge.givenRoles" -}}
{{- if ne .Values.rbac.selection (include "bridge.selection" .) }}
{{- fail "rbac.roles: these rights were made for other resources, namespaces or field selectors than config.informers has: print them again with `bridge rbac --output helm-values`" }}
{{- end }}
{{- with include "bridge.leases" . }}
{{- $in := (fromJson .).namespace }}
{{- $has := false }}
{{- range $.Values.rbac.roles }}{{- if eq .namespace $in }}{{- $has = true }}{{- end }}{{- end }}
{{- if not $has }}
{{- fail (printf "rbac.roles: there is none for the leases of config.standby in namespace %s: print them again with `bridge rbac --output helm-values --namespace %s`" $in $in) }}
{{- end }}
{{- end }}
{{- dict "list" .Values.rbac.roles | toJson }}
{{- end }}
