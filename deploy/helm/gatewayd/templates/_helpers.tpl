{{/* What all objects of a release are found by. */}}
{{- define "gatewayd.selector" -}}
app.kubernetes.io/name: gatewayd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}
{{- define "gatewayd.labels" -}}
{{ include "gatewayd.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}
{{/* A daemon of a node has room for one release a cluster: names are fixed, but for those of the cluster's scope. */}}
{{- define "gatewayd.secretRules" -}}
# Each Secret and ConfigMap that a Gateway refers to is listed and watched by its name.
- apiGroups: [""]
  resources: [secrets, configmaps]
  verbs: [list, watch]
{{- end }}
{{/* BPF and PERFMON: maps and programs. NET_ADMIN: attaching them, addresses, routes. NET_BIND_SERVICE: ports below 1024.
NET_RAW: telling neighbours of addresses. */}}
{{- define "gatewayd.capabilities" -}}
[BPF, NET_ADMIN, NET_BIND_SERVICE, NET_RAW, PERFMON]
{{- end }}
