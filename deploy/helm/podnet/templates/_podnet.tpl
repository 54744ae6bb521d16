{{- /* The image's reference, of the value `image`. */}}
{{- define "podnet.image" -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag }}{{ end }}
{{- end }}

{{- /* Labels of every object, which no selector uses. */}}
{{- define "podnet.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Further options by which agents, controllers and webhooks read lists of networks. */}}
{{- define "podnet.lists" -}}
{{- if kindIs "slice" .Values.delegatesAllowed }}
- --delegates-allowed={{ join "," .Values.delegatesAllowed }}
{{- end }}
{{- if .Values.namespaceIsolation }}
- --namespace-isolation
{{- end }}
{{- with .Values.globalNamespaces }}
- --global-namespaces={{ join "," . }}
{{- end }}
{{- end }}
