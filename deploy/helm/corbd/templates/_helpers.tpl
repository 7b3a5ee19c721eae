{{/* Names are as in ceph-csi's chart: the release's name, and the chart's where the release's has it not in it. */}}
{{- define "corbd.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "corbd.fullname" -}}
{{- $name := include "corbd.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Of an object of the whole cluster. A release of the same name in another namespace has its own. ceph-csi's namespace is the default. */}}
{{- define "corbd.clusterName" -}}
{{- $name := include "corbd.fullname" . -}}
{{- if or (eq .Release.Namespace "ceph-csi") (hasSuffix (printf "-%s" .Release.Namespace) $name) -}}
{{- $name -}}
{{- else -}}
{{- printf "%s-%s" $name .Release.Namespace | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "corbd.serviceAccount" -}}
{{- with .Values.serviceAccounts.nodeplugin -}}
{{- if .create -}}
{{- default (include "corbd.fullname" $) .name -}}
{{- else -}}
{{- required "serviceAccounts.nodeplugin.create is false: give the name of an existing account in serviceAccounts.nodeplugin.name" .name -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* No chart version among them: a label of the pods would replace every agent with each new chart. `app` is the selector's. */}}
{{- define "corbd.labels" -}}
{{- merge (dict "app" (include "corbd.fullname" .)) .Values.commonLabels | toYaml -}}
{{- end -}}

{{/* With labels of the object's own, which win: .root, .labels. */}}
{{- define "corbd.labelsAnd" -}}
{{- merge (deepCopy .labels) (dict "app" (include "corbd.fullname" .root)) .root.Values.commonLabels | toYaml -}}
{{- end -}}

{{- define "corbd.podAnnotations" -}}
{{- $own := dict "kubectl.kubernetes.io/default-container" "corbd" -}}
{{- with .Values.nodeplugin -}}
{{- if and .httpMetrics.enabled (not .podMonitor.enabled) (not .httpMetrics.address) -}}
{{- $own = merge $own (dict "prometheus.io/scrape" "true" "prometheus.io/port" (toString .httpMetrics.containerPort)) -}}
{{- end -}}
{{- merge (deepCopy .podAnnotations) $own | toYaml -}}
{{- end -}}
{{- end -}}

{{- define "corbd.image" -}}
{{- with .Values.nodeplugin.plugin.image -}}
{{ .repository }}:{{ default $.Chart.AppVersion .tag }}
{{- end -}}
{{- end -}}

{{- define "corbd.pluginDir" -}}
{{ .Values.kubeletDir }}/plugins/{{ .Values.driverName }}
{{- end -}}

{{/* The ConfigMap with ceph.conf, or nothing. */}}
{{- define "corbd.cephConf" -}}
{{- if .Values.cephConfConfigMapName -}}
{{- .Values.cephConfConfigMapName -}}
{{- else if .Values.cephconf -}}
{{- include "corbd.fullname" . }}-ceph-config
{{- end -}}
{{- end -}}

{{/* What a value alone cannot say about itself; values.schema.json has the rest. csidriver.yaml asks this, whatever is rendered. */}}
{{- define "corbd.check" -}}
{{- if and .Values.externallyManagedConfigmap (or .Values.csiConfig .Values.csiMapping .Values.encryptionKMSConfig) -}}
{{- fail "csiConfig, csiMapping and encryptionKMSConfig mean nothing while externallyManagedConfigmap is true: set it to false, or write them into the existing ConfigMaps" -}}
{{- end -}}
{{- if and (ne .Values.driverName "rbd.csi.ceph.com") (eq (include "corbd.fullname" .) "corbd") (not .Values.fullnameOverride) -}}
{{- fail (printf "driverName is %s, and the objects would be named corbd as those of the driver rbd.csi.ceph.com: without Helm's own check they would replace its agents. Give fullnameOverride, for example corbd-%s; fullnameOverride=corbd if there is no other driver" .Values.driverName (splitList "." .Values.driverName | first)) -}}
{{- end -}}
{{- if and .Values.nodeplugin.podMonitor.enabled (not .Values.nodeplugin.httpMetrics.enabled) -}}
{{- fail "nodeplugin.podMonitor.enabled needs nodeplugin.httpMetrics.enabled" -}}
{{- end -}}
{{- if and .Values.nodeplugin.httpMetrics.service.enabled (not .Values.nodeplugin.httpMetrics.enabled) -}}
{{- fail "nodeplugin.httpMetrics.service.enabled needs nodeplugin.httpMetrics.enabled" -}}
{{- end -}}
{{- if and .Values.nodeplugin.httpMetrics.address (or .Values.nodeplugin.podMonitor.enabled .Values.nodeplugin.httpMetrics.service.enabled) -}}
{{- fail "nodeplugin.httpMetrics.address binds the metrics to one address, and podMonitor and httpMetrics.service ask the pod's: leave the address empty, or both of them off" -}}
{{- end -}}
{{- end -}}

{{/* What the pod's agent may take to end: --shutdown-grace and a command to the kernel's driver, or --leave-grace. */}}
{{- define "corbd.gracePeriod" -}}
{{- $grace := max 240 (add .Values.nodeplugin.shutdownGraceSeconds 150) -}}
{{- range .Values.nodeplugin.plugin.extraArgs -}}
{{- if eq . "--leave-grace" -}}
{{- fail "nodeplugin.plugin.extraArgs has --leave-grace without its number: write --leave-grace=SECONDS, from which the pod's grace period follows" -}}
{{- end -}}
{{- if or (eq . "--accept-refused") (eq . "--accept-refused=true") -}}
{{- fail "nodeplugin.plugin.extraArgs has --accept-refused without its time: write --accept-refused=TIME, in UTC and at most 7 days ahead, such as 2026-11-28T12:00:00Z" -}}
{{- end -}}
{{- if hasPrefix "--leave-grace=" . -}}
{{- $grace = max $grace (add 40 (trimPrefix "--leave-grace=" . | int)) -}}
{{- end -}}
{{- end -}}
{{- $grace -}}
{{- end -}}

{{/* The flags that extraArgs may not have, each with the value that it follows. One given beside its value would contradict the pod around the agent:
     its mounts, its grace period, its port. */}}
{{- define "corbd.flags" -}}
--nodeid: itself
--metricsip: nodeplugin.httpMetrics.address
--drivername: driverName
--endpoint: driverName
--csi-addons-endpoint: csiAddons.enabled
--kubelet-dir: kubeletDir
--pluginpath: kubeletDir
--state-dir: kubeletDir
--runtime-dir: hostPaths.runtime
--config-dir: configMapName
--kms-config-dir: kmsConfigMapName
--ceph-conf: cephConfConfigMapName
--default-mounter: defaultMounter
--verbose: logLevel
--domainlabels: topology.domainLabels
--enable-read-affinity: readAffinity.enabled
--crush-location-labels: readAffinity.crushLocationLabels
--enable-fencing: fencing.enabled
--fence-out-of-service: fencing.outOfService
--metricsport: nodeplugin.httpMetrics.containerPort
--volume-metrics: nodeplugin.httpMetrics.volumeMetrics
--io-threads: nodeplugin.ioThreads
--slow-request: nodeplugin.slowRequestSeconds
--max-volumes: nodeplugin.maxVolumes
--remove-startup-taint: nodeplugin.startupTaint
--trim-every: nodeplugin.trimEvery
--no-rbd-nbd: nodeplugin.noRbdNbd
--shutdown-grace: nodeplugin.shutdownGraceSeconds
--handover: nodeplugin.handover
--keeper: nodeplugin.keeper
--pod: itself
--pod-namespace: itself
{{- end -}}

{{/* Whether a rollout puts the next pod beside the present one. Before Kubernetes 1.22 a DaemonSet cannot. CSI-Addons' sidecar has a port of the host. */}}
{{- define "corbd.surges" -}}
{{- with .Values.nodeplugin -}}
{{- if and .handover (eq .updateStrategy "RollingUpdate") (not $.Values.csiAddons.enabled) (semverCompare ">=1.22.0-0" $.Capabilities.KubeVersion.Version) -}}
true
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The pod's tolerations. With startupTaint the agent has to run on a node that still has the taint. */}}
{{- define "corbd.tolerations" -}}
{{- $all := .Values.nodeplugin.tolerations -}}
{{- if .Values.nodeplugin.startupTaint -}}
{{- $all = append $all (dict "key" (printf "%s/agent-not-ready" .Values.driverName) "operator" "Exists") -}}
{{- end -}}
{{- with $all -}}
{{- toYaml . -}}
{{- end -}}
{{- end -}}

{{/* The flags of `corbd run`, as YAML. */}}
{{- define "corbd.args" -}}
{{- $args := list "run" -}}
{{- if include "corbd.surges" . -}}
{{- $args = append $args "--handover" -}}
{{- end -}}
{{- if .Values.nodeplugin.keeper -}}
{{- $args = append $args "--keeper" -}}
{{- end -}}
{{- if .Values.nodeplugin.httpMetrics.enabled -}}
{{- $args = append $args (printf "--metricsport=%d" (int .Values.nodeplugin.httpMetrics.containerPort)) -}}
{{- with .Values.nodeplugin.httpMetrics.address -}}
{{- $args = append $args (printf "--metricsip=%s" .) -}}
{{- end -}}
{{- if ne .Values.nodeplugin.httpMetrics.volumeMetrics "counters" -}}
{{- $args = append $args (printf "--volume-metrics=%s" .Values.nodeplugin.httpMetrics.volumeMetrics) -}}
{{- end -}}
{{- end -}}
{{- $args = append $args (printf "--default-mounter=%s" .Values.defaultMounter) -}}
{{- if ne .Values.kubeletDir "/var/lib/kubelet" -}}
{{- $args = append $args (printf "--kubelet-dir=%s" .Values.kubeletDir) -}}
{{- $args = append $args (printf "--pluginpath=%s/plugins" .Values.kubeletDir) -}}
{{- end -}}
{{- with include "corbd.cephConf" . -}}
{{- $args = append $args "--ceph-conf=/etc/ceph/ceph.conf" -}}
{{- end -}}
{{- with .Values.topology.domainLabels -}}
{{- $args = append $args (printf "--domainlabels=%s" (join "," .)) -}}
{{- end -}}
{{- if .Values.readAffinity.enabled -}}
{{- $args = append $args "--enable-read-affinity" -}}
{{- with .Values.readAffinity.crushLocationLabels -}}
{{- $args = append $args (printf "--crush-location-labels=%s" (join "," .)) -}}
{{- end -}}
{{- end -}}
{{- if .Values.fencing.enabled -}}
{{- $args = append $args "--enable-fencing" -}}
{{- end -}}
{{- if .Values.fencing.outOfService -}}
{{- $args = append $args "--fence-out-of-service" -}}
{{- end -}}
{{- if ne (int .Values.nodeplugin.ioThreads) 1 -}}
{{- $args = append $args (printf "--io-threads=%d" (int .Values.nodeplugin.ioThreads)) -}}
{{- end -}}
{{- if ne (int .Values.nodeplugin.slowRequestSeconds) 30 -}}
{{- $args = append $args (printf "--slow-request=%d" (int .Values.nodeplugin.slowRequestSeconds)) -}}
{{- end -}}
{{- with int .Values.nodeplugin.maxVolumes -}}
{{- $args = append $args (printf "--max-volumes=%d" .) -}}
{{- end -}}
{{- if .Values.nodeplugin.startupTaint -}}
{{- $args = append $args "--remove-startup-taint" -}}
{{- end -}}
{{- with .Values.nodeplugin.trimEvery -}}
{{- $args = append $args (printf "--trim-every=%s" .) -}}
{{- end -}}
{{- if .Values.nodeplugin.noRbdNbd -}}
{{- $args = append $args "--no-rbd-nbd" -}}
{{- end -}}
{{- if ne (int .Values.nodeplugin.shutdownGraceSeconds) 90 -}}
{{- $args = append $args (printf "--shutdown-grace=%d" (int .Values.nodeplugin.shutdownGraceSeconds)) -}}
{{- end -}}
{{- if ge (int .Values.logLevel) 4 -}}
{{- $args = append $args "--verbose" -}}
{{- end -}}
{{- $ours := include "corbd.flags" . | fromYaml -}}
{{- $given := list -}}
{{- range .Values.nodeplugin.plugin.extraArgs -}}
{{- $name := splitList "=" . | first -}}
{{- if hasKey $ours $name -}}
{{- fail (printf "nodeplugin.plugin.extraArgs has %s: the chart sets that by %s" $name (get $ours $name)) -}}
{{- end -}}
{{- if has $name $given -}}
{{- fail (printf "nodeplugin.plugin.extraArgs has %s twice: the agent takes a flag only once" $name) -}}
{{- end -}}
{{- $given = append $given $name -}}
{{- $args = append $args . -}}
{{- end -}}
{{- toYaml $args -}}
{{- end -}}
