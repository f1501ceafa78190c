{{- /* Takes (list . COMPONENT NAME PORT [WEBHOOKS]): who may ask on that port, and that only the API server is asked. */ -}}
{{- define "kaiwo.networkPolicy" -}}
{{- $root := index . 0 -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ index . 2 }}
  namespace: {{ $root.Release.Namespace }}
  labels: {{- include "kaiwo.labels" . | nindent 4 }}
spec:
  podSelector:
    matchLabels: {{- include "kaiwo.selector" . | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    - from:
        - podSelector: {}
        {{- with $root.Values.networkPolicy.from }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        - {protocol: TCP, port: {{ index . 3 }}}
        {{- if and (eq (index . 1) "scheduler") (include "kaiwo.hearsAgents" $root) }}
        - {protocol: TCP, port: {{ $root.Values.api.agentsPort }}}
        {{- end }}
    {{- if gt (len .) 4 }}
    # The API server, whose address is not known here.
    - ports:
        - {protocol: TCP, port: {{ index . 4 }}}
    {{- end }}
  egress:
    # The API server, whose address is not known here. Its name is not needed{{ if ne (index . 1) "agent" }}, so there is no DNS{{ end }}.
    - ports:
        {{- range $root.Values.networkPolicy.apiServerPorts }}
        - {protocol: TCP, port: {{ . }}}
        {{- end }}
    {{- if and (eq (index . 1) "agent") (include "kaiwo.hearsAgents" $root) }}
    # The scheduler, by name: its certificate is for that name.
    - to:
        - podSelector:
            matchLabels: {{- include "kaiwo.selector" (list $root "scheduler") | nindent 14 }}
      ports:
        - {protocol: TCP, port: {{ $root.Values.api.agentsPort }}}
    - ports:
        - {protocol: UDP, port: 53}
        - {protocol: TCP, port: 53}
    {{- end }}
{{- end }}
