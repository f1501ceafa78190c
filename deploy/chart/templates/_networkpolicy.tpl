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
    {{- if gt (len .) 4 }}
    # The API server asks from an address that is not known here.
    - ports:
        - {protocol: TCP, port: {{ index . 4 }}}
    {{- end }}
  egress:
    # The API server, whose address is not known here. Its name is not needed, so there is no DNS.
    - ports:
        {{- range $root.Values.networkPolicy.apiServerPorts }}
        - {protocol: TCP, port: {{ . }}}
        {{- end }}
{{- end }}
