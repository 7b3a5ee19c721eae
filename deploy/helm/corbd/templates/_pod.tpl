{{/* Where config.json and cluster-mapping.json come from. */}}
{{- define "corbd.configSource" -}}
{{- if .Values.mappingConfigMapName -}}
projected:
  sources:
    - configMap:
        name: {{ toYaml .Values.configMapName }}
        optional: true
        items: [{key: {{ toYaml .Values.configMapKey }}, path: config.json}, {key: mounters.json, path: mounters.json}]
    - configMap:
        name: {{ toYaml .Values.mappingConfigMapName }}
        optional: true
        items: [{key: {{ toYaml .Values.mappingConfigMapKey }}, path: cluster-mapping.json}]
{{- else if ne .Values.configMapKey "config.json" -}}
configMap:
  name: {{ toYaml .Values.configMapName }}
  optional: true
  items:
    - {key: {{ toYaml .Values.configMapKey }}, path: config.json}
    - {key: cluster-mapping.json, path: cluster-mapping.json}
    - {key: mounters.json, path: mounters.json}
{{- else -}}
configMap: {name: {{ toYaml .Values.configMapName }}, optional: true}
{{- end -}}
{{- end -}}

{{/* CSI-Addons' sidecar. It needs the agent's socket and nothing else of the node. */}}
{{- define "corbd.sidecar" -}}
- name: csi-addons
  image: {{ printf "%s:%s" .Values.csiAddons.image.repository .Values.csiAddons.image.tag | toYaml }}
  imagePullPolicy: {{ .Values.csiAddons.image.pullPolicy }}
  args:
    - --node-id=$(NODE_ID)
    - --csi-addons-address=unix:///csi/csi-addons.sock
    - --controller-port={{ .Values.csiAddons.port }}
    - --pod=$(POD_NAME)
    - --namespace=$(POD_NAMESPACE)
    - --pod-uid=$(POD_UID)
    - --stagingpath={{ .Values.kubeletDir }}/plugins/kubernetes.io/csi/
  env:
    - name: NODE_ID
      valueFrom: {fieldRef: {fieldPath: spec.nodeName}}
    - name: POD_NAME
      valueFrom: {fieldRef: {fieldPath: metadata.name}}
    - name: POD_NAMESPACE
      valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
    - name: POD_UID
      valueFrom: {fieldRef: {fieldPath: metadata.uid}}
  ports:
    - {name: csi-addons, containerPort: {{ .Values.csiAddons.port }}, hostPort: {{ .Values.csiAddons.port }}}
  resources:
    {{- toYaml .Values.csiAddons.resources | nindent 4 }}
  securityContext:
    # The socket is root's.
    runAsUser: 0
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: [ALL]
  volumeMounts:
    - {name: plugin, mountPath: /csi, readOnly: true}
{{- end -}}
