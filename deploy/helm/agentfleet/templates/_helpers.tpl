{{/* Names. */}}
{{- define "agentfleet.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "agentfleet.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "agentfleet.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "agentfleet.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "agentfleet.serviceAccount" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "agentfleet.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "agentfleet.secret" -}}
{{- default (include "agentfleet.fullname" .) .Values.secrets.existing }}
{{- end }}

{{- define "agentfleet.hasSecret" -}}
{{- if or .Values.secrets.existing .Values.secrets.values }}true{{ end }}
{{- end }}

{{- define "agentfleet.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- define "agentfleet.selector" -}}
app.kubernetes.io/name: {{ include "agentfleet.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "agentfleet.labels" -}}
{{ include "agentfleet.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/*
The roles, as YAML: where their values are, their command, port, subscription, and how often the grace
may be used up one after another when they stop. A role drains, and then its HTTP connections; `up`
drains role by role.
*/}}
{{- define "agentfleet.roles" -}}
orchestrator: { values: orchestrator, command: orchestrator, port: 9464, stages: 2, models: true, topic: agent-request, subscription: orchestrator }
aggregator: { values: aggregator, command: aggregator, port: 9464, stages: 2, models: false, topic: explainability, subscription: aggregator }
graph-writer: { values: graphWriter, command: graph-writer, port: 9464, stages: 2, models: false, topic: explainability, subscription: graph-writer }
{{- if .Values.gateway.enabled }}
gateway: { values: gateway, command: up, port: 8700, stages: 3, models: true }
{{- end }}
{{- end }}

{{/* Whether a role speaks HTTPS: only what `up` serves does; takes (list context role). */}}
{{- define "agentfleet.tls" -}}
{{- if and (eq (index . 1).command "up") (index . 0).Values.gateway.tls.secret }}true{{ end }}
{{- end }}

{{/* A topic's full name on Pulsar; takes (list context topic). */}}
{{- define "agentfleet.topic" -}}
{{- $root := index . 0 }}{{ $topic := index . 1 }}
{{- $name := default $topic (get $root.Values.broker.topics $topic) }}
{{- if contains "://" $name }}{{ $name }}
{{- else }}{{ printf "persistent://%s/%s/%s" $root.Values.broker.tenant $root.Values.broker.namespace $name }}
{{- end }}
{{- end }}

{{/* The port of an address, or that of its scheme. */}}
{{- define "agentfleet.port" -}}
{{- $usual := dict "pulsar" "6650" "pulsar+ssl" "6651" "http" "80" "https" "443" "postgres" "5432" "postgresql" "5432" }}
{{- $parts := splitList "://" . }}
{{- $host := index (splitList "/" (index $parts 1)) 0 }}
{{- default (get $usual (index $parts 0)) (trimPrefix ":" (regexFind ":[0-9]+$" $host)) }}
{{- end }}

{{/* The ports of all servers, each once, as a YAML list; takes (list context models). */}}
{{- define "agentfleet.ports" -}}
{{- $root := index . 0 }}
{{- $ports := list }}
{{- $parts := splitList "://" $root.Values.broker.url }}
{{- range splitList "," (index $parts 1) }}
{{- $ports = append $ports (include "agentfleet.port" (printf "%s://%s" (index $parts 0) (trim .))) }}
{{- end }}
{{- range (list $root.Values.broker.adminUrl $root.Values.records.url $root.Values.graph.url $root.Values.graph.queryUrl $root.Values.graph.updateUrl $root.Values.coordination.url) }}
{{- if . }}{{ $ports = append $ports (include "agentfleet.port" .) }}{{ end }}
{{- end }}
{{- if $root.Values.settings.archive }}{{ $ports = append $ports "443" }}{{ end }}
{{- if index . 1 }}
{{- $ports = append $ports "443" }}
{{- with $root.Values.modelBaseUrl }}{{ $ports = append $ports (include "agentfleet.port" .) }}{{ end }}
{{- end }}
{{- range $ports | uniq | sortAlpha }}
- { protocol: TCP, port: {{ . }} }
{{- end }}
{{- end }}

{{/* Variables that every role has; takes (list context role). */}}
{{- define "agentfleet.env" -}}
{{- $root := index . 0 }}{{ $role := index . 1 }}
{{- $values := $root.Values }}
{{- $own := get $values $role.values }}
{{- $env := dict
  "AGENTFLEET_DATA" "/var/lib/agentfleet"
  "AGENTFLEET_BROKER" $values.broker.url
  "AGENTFLEET_BROKER_ADMIN" $values.broker.adminUrl
  "AGENTFLEET_BROKER_TENANT" $values.broker.tenant
  "AGENTFLEET_BROKER_NAMESPACE" $values.broker.namespace
  "AGENTFLEET_RECORDS" $values.records.url
  "AGENTFLEET_GRAPH" $values.graph.url
  "AGENTFLEET_GRAPH_QUERY" $values.graph.queryUrl
  "AGENTFLEET_GRAPH_UPDATE" $values.graph.updateUrl
  "AGENTFLEET_COORDINATION" $values.coordination.url
  "AGENTFLEET_LOG" $values.log.level
  "AGENTFLEET_LOG_FORMAT" $values.log.format
  "AGENTFLEET_GRACE" (printf "%ds" (int $own.graceSeconds))
}}
{{- if eq $values.broker.authentication "token" }}
{{- $_ := set $env "AGENTFLEET_BROKER_TOKEN" "file:/etc/agentfleet/token/token" }}
{{- end }}
{{- if $values.broker.certificates.secret }}
{{- $_ := set $env "AGENTFLEET_BROKER_CERTIFICATES" "/etc/agentfleet/certificates/ca.pem" }}
{{- end }}
{{- $topics := list }}
{{- range $ours := keys $values.broker.topics | sortAlpha }}
{{- $topics = append $topics (printf "%s=%s" $ours (get $values.broker.topics $ours)) }}
{{- end }}
{{- $_ := set $env "AGENTFLEET_BROKER_TOPICS" (join "," $topics) }}
{{- /* The others call no model, so they need no key; without this they would look for one. */}}
{{- $_ := set $env "AGENTFLEET_MODEL" (ternary $values.model "offline" $role.models) }}
{{- if $role.models }}
{{- $_ := set $env "AGENTFLEET_BASE_URL" $values.modelBaseUrl }}
{{- $_ := set $env "AGENTFLEET_CONCURRENCY" ($own.concurrency | int | toString) }}
{{- end }}
{{- $door := ternary "AGENTFLEET_LISTEN" "AGENTFLEET_HEALTH" (eq $role.command "up") }}
{{- $_ := set $env $door (printf "0.0.0.0:%d" (int $role.port)) }}
{{- if eq $role.command "up" }}
{{- /* The names of its Service, beside addresses. */}}
{{- $service := include "agentfleet.fullname" $root }}
{{- $local := printf "%s.%s" $service $root.Release.Namespace }}
{{- $_ := set $env "AGENTFLEET_ALLOWED_HOSTS" (printf "%s,%s,%s.svc,%s.svc.cluster.local" $service $local $local $local) }}
{{- end }}
{{- if include "agentfleet.tls" . }}
{{- $_ := set $env "AGENTFLEET_TLS_CERTIFICATE" "/etc/agentfleet/tls/tls.crt" }}
{{- $_ := set $env "AGENTFLEET_TLS_KEY" "/etc/agentfleet/tls/tls.key" }}
{{- end }}
{{- range $name, $value := $values.settings }}
{{- $_ := set $env (printf "AGENTFLEET_%s" (upper $name)) (ternary (printf "%v" ($value | int64)) ($value | toString) (kindIs "float64" $value)) }}
{{- end }}
{{- range $name := keys $env | sortAlpha }}
{{- if ne (get $env $name) "" }}
- name: {{ $name }}
  value: {{ get $env $name | quote }}
{{- end }}
{{- end }}
{{- if include "agentfleet.hasSecret" $root }}
{{- $secrets := list "AGENTFLEET_GRAPH_USER" "AGENTFLEET_GRAPH_PASSWORD" "AGENTFLEET_GRAPH_TOKEN" "AGENTFLEET_FLEET_SECRET" "PGPASSWORD" "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" "AWS_SESSION_TOKEN" }}
{{- if eq $role.command "up" }}
{{- $secrets = append $secrets "AGENTFLEET_HTTP_TOKEN" }}
{{- end }}
{{- if $role.models }}
{{- $secrets = concat $secrets (list "OPENAI_API_KEY" "ANTHROPIC_API_KEY" "GEMINI_API_KEY" "GOOGLE_API_KEY") }}
{{- end }}
{{- range $secrets }}
- name: {{ . }}
  valueFrom:
    secretKeyRef: { name: {{ include "agentfleet.secret" $root }}, key: {{ . }}, optional: true }
{{- end }}
{{- end }}
{{- with $own.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Volumes and their mounts; take (list context role). */}}
{{- define "agentfleet.volumes" -}}
{{- $root := index . 0 }}{{ $role := index . 1 }}
- name: data
  emptyDir: { sizeLimit: {{ $root.Values.scratch.sizeLimit }} }
- name: tmp
  emptyDir: { sizeLimit: {{ $root.Values.scratch.sizeLimit }} }
{{- if eq $root.Values.broker.authentication "token" }}
- name: token
  secret:
    secretName: {{ include "agentfleet.secret" $root }}
    items: [{ key: AGENTFLEET_BROKER_TOKEN, path: token }]
{{- end }}
{{- with $root.Values.broker.certificates }}
{{- if .secret }}
- name: certificates
  secret:
    secretName: {{ .secret }}
    items: [{ key: {{ .key }}, path: ca.pem }]
{{- end }}
{{- end }}
{{- if include "agentfleet.tls" . }}
{{- with $root.Values.gateway.tls }}
- name: tls
  secret:
    secretName: {{ .secret }}
    items: [{ key: {{ .certificate }}, path: tls.crt }, { key: {{ .key }}, path: tls.key }]
{{- end }}
{{- end }}
{{- with (get $root.Values $role.values).extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "agentfleet.mounts" -}}
{{- $root := index . 0 }}{{ $role := index . 1 }}
- { name: data, mountPath: /var/lib/agentfleet }
- { name: tmp, mountPath: /tmp }
{{- if eq $root.Values.broker.authentication "token" }}
- { name: token, mountPath: /etc/agentfleet/token, readOnly: true }
{{- end }}
{{- if $root.Values.broker.certificates.secret }}
- { name: certificates, mountPath: /etc/agentfleet/certificates, readOnly: true }
{{- end }}
{{- if include "agentfleet.tls" . }}
- { name: tls, mountPath: /etc/agentfleet/tls, readOnly: true }
{{- end }}
{{- with (get $root.Values $role.values).extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end }}
