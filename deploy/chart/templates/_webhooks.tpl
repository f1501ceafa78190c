{{- define "kaiwo.webhooks" -}}
{{ include "kaiwo.name" . }}-webhooks
{{- end }}

{{- /* Takes (list . PATH FAILUREPOLICY): what all webhooks have in common. */ -}}
{{- define "kaiwo.webhook" -}}
{{- $root := index . 0 -}}
clientConfig:
  # caBundle is written by the scheduler.
  service:
    name: {{ include "kaiwo.webhooks" $root }}
    namespace: {{ $root.Release.Namespace }}
    port: {{ $root.Values.webhooks.port }}
    path: {{ index . 1 }}
failurePolicy: {{ index . 2 }}
matchPolicy: Equivalent
sideEffects: None
timeoutSeconds: {{ $root.Values.webhooks.timeoutSeconds }}
admissionReviewVersions: [v1]
{{- end }}

{{- /* Namespaces whose pods must start when nobody answers: the cluster's own, and ours. */ -}}
{{- define "kaiwo.outside" -}}
- key: kubernetes.io/metadata.name
  operator: NotIn
  values: {{ concat (list "kube-system" "kube-node-lease" "kube-public" .Release.Namespace) .Values.webhooks.excludedNamespaces | uniq | toJson }}
{{- end }}

{{- define "kaiwo.rules.pods" -}}
- {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: [CREATE, UPDATE], scope: Namespaced}
{{- end }}

{{- define "kaiwo.rules.builtin" -}}
- {apiGroups: [batch], apiVersions: [v1], resources: [jobs, cronjobs], operations: [CREATE, UPDATE], scope: Namespaced}
- {apiGroups: [apps], apiVersions: [v1], resources: [deployments, replicasets, statefulsets], operations: [CREATE, UPDATE], scope: Namespaced}
{{- end }}

{{- /* Their templates lie in many places, so they are asked about whatever they say. */ -}}
{{- define "kaiwo.rules.operators" -}}
- {apiGroups: [jobset.x-k8s.io], apiVersions: ["*"], resources: [jobsets], operations: [CREATE, UPDATE], scope: Namespaced}
- {apiGroups: [leaderworkerset.x-k8s.io], apiVersions: ["*"], resources: [leaderworkersets], operations: [CREATE, UPDATE], scope: Namespaced}
- apiGroups: [kubeflow.org]
  apiVersions: ["*"]
  resources: [jaxjobs, mpijobs, paddlejobs, pytorchjobs, tfjobs, xgboostjobs]
  operations: [CREATE, UPDATE]
  scope: Namespaced
- {apiGroups: [ray.io], apiVersions: ["*"], resources: [rayclusters, rayjobs], operations: [CREATE, UPDATE], scope: Namespaced}
- {apiGroups: [kaiwo.silogen.ai], apiVersions: ["*"], resources: [kaiwojobs], operations: [CREATE, UPDATE], scope: Namespaced}
{{- end }}

{{- /* Takes the CEL expression of some metadata: it has a label or an annotation of ours. */ -}}
{{- define "kaiwo.words" -}}
{{ . }}.?annotations.orValue({}).exists(key, key.startsWith("kaiwo.ai/")) ||
{{ . }}.?labels.orValue({}).exists(key, key.startsWith("kaiwo.ai/"))
{{- end }}

{{- define "kaiwo.named.pods" -}}
object.spec.?schedulerName.orValue("") == "{{ .Values.schedulerName }}" ||
{{ include "kaiwo.words" "object.metadata" }}
{{- end }}

{{- define "kaiwo.named.builtin" -}}
{{ include "kaiwo.words" "object.metadata" }} ||
{{ include "kaiwo.words" "object.spec.?template.?metadata.orValue({})" }} ||
{{ include "kaiwo.words" "object.spec.?jobTemplate.?spec.?template.?metadata.orValue({})" }} ||
object.spec.?template.?spec.?schedulerName.orValue("") == "{{ .Values.schedulerName }}" ||
object.spec.?jobTemplate.?spec.?template.?spec.?schedulerName.orValue("") == "{{ .Values.schedulerName }}"
{{- end }}
