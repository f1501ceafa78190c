{{- /* The user names that may write the keys that only Kaiwo writes, as a CEL list. */ -}}
{{- define "kaiwo.schedulerUsers" -}}
{{- $names := list (printf "system:serviceaccount:%s:%s" .Release.Namespace (include "kaiwo.name" .)) }}
{{- concat $names .Values.admission.schedulerUsers | uniq | toJson }}
{{- end }}

{{- /* The user names of controllers that make pods for others, as a CEL list. */ -}}
{{- define "kaiwo.trustedControllers" -}}
{{- $names := list "system:kube-controller-manager" }}
{{- range .Values.admission.trustedControllers }}{{ $names = append $names (printf "system:serviceaccount:%s" .) }}{{ end }}
{{- $names | uniq | toJson }}
{{- end }}

{{- /* Takes the CEL expression of some metadata: it has a key of ours. */ -}}
{{- define "kaiwo.hasKeys" -}}
({{ . }}.?annotations.orValue({}).exists(key, key.startsWith("kaiwo.ai/") || key.startsWith("kaiwo.silogen.ai/")) ||
{{ . }}.?labels.orValue({}).exists(key, key.startsWith("kaiwo.ai/") || key.startsWith("kaiwo.silogen.ai/")))
{{- end }}

{{- /* One policy with its binding. Takes (dict "root" . "name" NAME "path" CEL "rules" TEMPLATE): the path is that of the
       metadata below the object. Objects without a key of ours are never looked at. */ -}}
{{- define "kaiwo.keyPolicy" -}}
{{- $path := .path }}{{ $root := .root }}
{{- $name := printf "%s-%s.%s" (include "kaiwo.name" $root) .name $root.Release.Namespace -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {{ $name }}
  labels: {{- include "kaiwo.labels" (list $root "scheduler") | nindent 4 }}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules: {{- include .rules $root | nindent 6 }}
  matchConditions:
    - name: has-keys
      expression: >-
        {{- include "kaiwo.hasKeys" (printf "object.?%s" $path) | nindent 8 }} || (oldObject != null &&
        {{- include "kaiwo.hasKeys" (printf "oldObject.?%s" $path) | nindent 8 }})
    - name: not-the-scheduler
      expression: >-
        !(request.userInfo.username in {{ include "kaiwo.schedulerUsers" $root }})
  variables:
    - name: notes
      expression: object.?{{ $path }}.?annotations.orValue({})
    - name: before
      expression: >-
        oldObject == null ? {} : oldObject.?{{ $path }}.?annotations.orValue({})
    - name: labels
      expression: object.?{{ $path }}.?labels.orValue({})
    - name: labelsBefore
      expression: >-
        oldObject == null ? {} : oldObject.?{{ $path }}.?labels.orValue({})
    - name: changed
      expression: >-
        variables.notes.filter(key, (key.startsWith("kaiwo.ai/") || key.startsWith("kaiwo.silogen.ai/")) &&
        variables.before[?key] != variables.notes[?key])
    - name: taken
      expression: >-
        {{- include "kaiwo.reservedKeys" $root | nindent 8 }}.filter(key,
        variables.before[?key] != variables.notes[?key] || variables.labelsBefore[?key] != variables.labels[?key])
    - name: forms
      expression: >-
        {{- include "kaiwo.keyForms" $root | nindent 8 }}
    - name: lengths
      expression: >-
        {{- include "kaiwo.keyLengths" $root | nindent 8 }}
    - name: tooLong
      expression: >-
        variables.changed.filter(key, size(variables.notes[key]) >
        variables.lengths[?key.substring(key.indexOf("/") + 1)].orValue(1000))
    - name: malformed
      expression: >-
        variables.changed.filter(key, key.substring(key.indexOf("/") + 1) in variables.forms &&
        variables.notes[key] != "" && size(variables.notes[key]) <= 1000 &&
        !variables.notes[key].matches(variables.forms[key.substring(key.indexOf("/") + 1)]))
    - name: mayNameUsers
      expression: >-
        request.userInfo.?groups.orValue([]).exists(group, group == "system:masters" || group in
        {{ $root.Values.webhooks.mayNameUsers | toJson }}) ||
        request.userInfo.username in {{ $root.Values.webhooks.mayNameUsers | toJson }} ||
        (request.userInfo.username in {{ include "kaiwo.trustedControllers" $root }} &&
        object.metadata.?ownerReferences.orValue([]).exists(owner, owner.?controller.orValue(false)))
    - name: otherUsers
      expression: >-
        ["kaiwo.ai/user", "kaiwo.silogen.ai/user"].filter(key,
        (key in variables.notes && variables.before[?key] != variables.notes[?key] &&
        variables.notes[key] != request.userInfo.username) ||
        (key in variables.labels && variables.labelsBefore[?key] != variables.labels[?key] &&
        variables.labels[key] != request.userInfo.username))
  validations:
    - expression: size(variables.taken) == 0
      messageExpression: >-
        variables.taken[0] + " is written by Kaiwo's scheduler alone; leave it as it is"
    {{- if eq .name "pod-keys" }}
    - expression: request.kind.kind != "Binding" || size(variables.changed) == 0
      messageExpression: >-
        "a Binding cannot set " + variables.changed[0] + "; write it on the pod before it is scheduled"
    - expression: >-
        request.operation != "UPDATE" || oldObject.?spec.?nodeName.orValue("") == "" ||
        {{- include "kaiwo.requestKeys" $root | nindent 8 }}.all(key, variables.before[?key] == variables.notes[?key])
      message: >-
        what a pod asks for (the kaiwo.ai/gpu- annotations), its queue and whether it is preemptible
        cannot change once it is bound; create another pod
    {{- end }}
    - expression: size(variables.tooLong) == 0
      messageExpression: >-
        variables.tooLong[0] + " is too long; shorten it to at most " +
        string(variables.lengths[?variables.tooLong[0].substring(variables.tooLong[0].indexOf("/") + 1)].orValue(1000)) +
        " characters"
    - expression: size(variables.malformed) == 0
      messageExpression: >-
        variables.malformed[0] + " has a value that Kaiwo cannot read; docs/concepts.md describes what it may be"
    - expression: size(variables.otherUsers) == 0 || variables.mayNameUsers
      messageExpression: >-
        variables.otherUsers[0] + " must be " + request.userInfo.username + ", who submits this; remove it"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ $name }}
  labels: {{- include "kaiwo.labels" (list $root "scheduler") | nindent 4 }}
spec:
  policyName: {{ $name }}
  validationActions: [Deny]
{{- end }}

{{- /* A CEL expression: the pod asks for GPUs, whole or in part. */ -}}
{{- define "kaiwo.asksForGpus" -}}
(object.?spec.?containers.orValue([]) + object.?spec.?initContainers.orValue([])).exists(each,
        each.?resources.?limits.orValue({}).exists(name, name.startsWith("amd.com/") || name.startsWith("nvidia.com/") ||
        name.startsWith("kaiwo.ai/")))
{{- end }}

{{- define "kaiwo.rules.everyPod" -}}
- apiGroups: [""]
  apiVersions: [v1]
  resources: [pods, pods/status, pods/ephemeralcontainers, pods/resize, pods/binding, bindings]
  operations: [CREATE, UPDATE]
  scope: Namespaced
{{- end }}

{{- define "kaiwo.rules.jobs" -}}
- {apiGroups: [batch], apiVersions: [v1], resources: [cronjobs], operations: [CREATE, UPDATE], scope: Namespaced}
{{- end }}

{{- define "kaiwo.rules.templates" -}}
- {apiGroups: [batch], apiVersions: [v1], resources: [jobs], operations: [CREATE, UPDATE], scope: Namespaced}
- {apiGroups: [apps], apiVersions: [v1], resources: [deployments, replicasets, statefulsets, daemonsets], operations: [CREATE, UPDATE], scope: Namespaced}
{{- end }}

{{- define "kaiwo.rules.workloads" -}}
{{ include "kaiwo.rules.jobs" . }}
{{ include "kaiwo.rules.templates" . }}
{{- end }}
