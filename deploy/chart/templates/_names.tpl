{{- define "kaiwo.name" -}}
{{- $name := replace "." "-" .Release.Name }}{{ if not (contains "kaiwo" $name) }}{{ $name = printf "%s-kaiwo" $name }}{{ end }}{{ $name | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- /* Cluster roles have no namespace, so two releases of one name need different ones. */ -}}
{{- define "kaiwo.clusterName" -}}
{{ .Release.Namespace }}:{{ include "kaiwo.name" . }}
{{- end }}

{{- define "kaiwo.image" -}}
{{- $repository := required "image.repository is not set, and no image of Kaiwo is published yet: build one with deploy/Dockerfile, push it, and name it with --set image.repository=registry.example/kaiwo" .Values.image.repository }}
{{- if .Values.image.digest }}{{ $repository }}@{{ .Values.image.digest }}{{ else }}{{ $repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* Takes (list . "scheduler") or (list . "agent"). */ -}}
{{- define "kaiwo.selector" -}}
app.kubernetes.io/name: kaiwo
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "kaiwo.labels" -}}
{{ include "kaiwo.selector" . }}
app.kubernetes.io/part-of: kaiwo
app.kubernetes.io/version: {{ (index . 0).Chart.AppVersion | quote }}
{{- end }}

{{- /* Kubernetes accepts two equal ports in one pod, but then one listener fails. */ -}}
{{- define "kaiwo.checkPorts" -}}
{{- $ports := dict "api.port" .Values.api.port }}
{{- if .Values.webhooks.enabled }}{{ $_ := set $ports "webhooks.port" .Values.webhooks.port }}{{ end }}
{{- if include "kaiwo.hearsAgents" . }}{{ $_ := set $ports "api.agentsPort" .Values.api.agentsPort }}{{ end }}
{{- range $name, $port := $ports }}
{{- range $other, $number := $ports }}
{{- if and (lt $name $other) (eq (int $port) (int $number)) }}
{{- fail (printf "%s and %s are both %d; give each its own port" $name $other (int $port)) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Agents report to the scheduler if they are enabled and there are certificates. */ -}}
{{- define "kaiwo.hearsAgents" -}}
{{- if and .Values.agent.enabled .Values.webhooks.enabled }}true{{ end }}
{{- end }}

{{- /* The Secret with the keys of grants, and the ConfigMap with their public parts. */ -}}
{{- define "kaiwo.grants" -}}
{{ include "kaiwo.name" . }}-grants
{{- end }}

{{- /* YAML reads the bare words on and off as true and false. */ -}}
{{- define "kaiwo.partitions" -}}
{{- $policy := .Values.partitions.policy }}
{{- if kindIs "bool" $policy }}{{ ternary "on" "off" $policy }}{{ else }}{{ $policy }}{{ end }}
{{- end }}
