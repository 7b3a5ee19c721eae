"""Bad values are refused before anything is installed, and the message names the value."""
import unittest

import helm

REFUSED = {
    "an unknown value": ({"storageClass.create": True}, "Additional property storageClass is not allowed"),
    "a misspelt value": ({"nodeplugin.toleration": []}, "nodeplugin: Additional property toleration is not allowed"),
    "a driver's name with a slash": ({"driverName": "rbd/ceph"}, "driverName: Does not match pattern"),
    "a relative kubelet folder": ({"kubeletDir": "var/lib/kubelet"}, "kubeletDir: Does not match pattern"),
    "a kubelet folder with a slash at its end": ({"kubeletDir": "/var/lib/kubelet/"}, "kubeletDir: Does not match pattern"),
    "a kubelet folder that climbs": ({"kubeletDir": "/var/../etc"}, "kubeletDir: Does not match pattern"),
    "an unknown mounter": ({"defaultMounter": "nbd"}, "defaultMounter must be one of the following"),
    "a log level that is a text": ({"logLevel": "5"}, "logLevel: Invalid type. Expected: integer, given: string"),
    "a log level that nobody has": ({"logLevel": 6}, "logLevel: Must be less than or equal to 5"),
    "a port that is none": ({"nodeplugin.httpMetrics.containerPort": 70000}, "nodeplugin.httpMetrics.containerPort: Must be less than or equal to 65535"),
    "keys that are not on a tmpfs": ({"hostPaths.runtime": "/var/lib/corbd"}, "hostPaths.runtime: Does not match pattern '^/run"),
    "a rollout that never begins": ({"nodeplugin.maxUnavailable": 0}, "nodeplugin.maxUnavailable"),
    "more io threads than the agent takes": ({"nodeplugin.ioThreads": 17}, "nodeplugin.ioThreads: Must be less than or equal to 16"),
    "metrics of volumes that nobody has": ({"nodeplugin.httpMetrics.volumeMetrics": "all"}, "nodeplugin.httpMetrics.volumeMetrics must be one of the following"),
    "a request that is slow after less than a second": ({"nodeplugin.slowRequestSeconds": 0.5}, "nodeplugin.slowRequestSeconds: Invalid type. Expected: integer"),
    "a trim each minute": ({"nodeplugin.trimEvery": "1m"}, "nodeplugin.trimEvery: Does not match pattern"),
    "a second driver under the first one's name": ({"driverName": "blue.rbd.csi.ceph.com"}, "Give fullnameOverride, for example corbd-blue"),
    "an --accept-refused without its time": ({"nodeplugin.plugin.extraArgs": ["--accept-refused"]}, "write --accept-refused=TIME"),
    "a grace that the chart cannot read": ({"nodeplugin.plugin.extraArgs": ["--leave-grace"]}, "write --leave-grace=SECONDS"),
    "a number that was taken away": ({"nodeplugin.shutdownGraceSeconds": None}, "nodeplugin: shutdownGraceSeconds is required"),
    "a port that was taken away": ({"nodeplugin.httpMetrics.containerPort": None}, "nodeplugin.httpMetrics: containerPort is required"),
    "an unknown update strategy": ({"nodeplugin.updateStrategy": "Recreate"}, "nodeplugin.updateStrategy must be one of the following"),
    "an annotation that is no text": ({"nodeplugin.podAnnotations": {"a": True}}, "nodeplugin.podAnnotations.a: Invalid type. Expected: string, given: boolean"),
    "a cluster without monitors": ({"externallyManagedConfigmap": False, "csiConfig": [{"clusterID": "ceph"}]}, "csiConfig.0: monitors is required"),
    "a flag that is two words": ({"nodeplugin.plugin.extraArgs": ["--heal-at-once 4"]}, "nodeplugin.plugin.extraArgs.0: Does not match pattern"),
    "a flag that the chart sets": ({"nodeplugin.plugin.extraArgs": ["--metricsport=1"]}, "extraArgs has --metricsport: the chart sets that by nodeplugin.httpMetrics.containerPort"),
    "a flag that a variable sets": ({"nodeplugin.plugin.extraArgs": ["--drivername=x"]}, "extraArgs has --drivername: the chart sets that by driverName"),
    "a grace that the pod does not give": ({"nodeplugin.plugin.extraArgs": ["--shutdown-grace=300"]}, "extraArgs has --shutdown-grace: the chart sets that by nodeplugin.shutdownGraceSeconds"),
    "a folder that is not mounted": ({"nodeplugin.plugin.extraArgs": ["--kubelet-dir=/data"]}, "extraArgs has --kubelet-dir: the chart sets that by kubeletDir"),
    "a flag that is given twice": ({"nodeplugin.plugin.extraArgs": ["--heal-at-once=1", "--heal-at-once=2"]}, "extraArgs has --heal-at-once twice"),
    "a sidecar without a tag": ({"csiAddons.image.tag": ""}, "csiAddons.image.tag: String length must be greater than or equal to 1"),
    "clusters that nobody would read": ({"csiConfig": [{"clusterID": "ceph", "monitors": ["192.0.2.1"]}]}, "while externallyManagedConfigmap is true: set it to false"),
    "a PodMonitor without HTTP": ({"nodeplugin.podMonitor.enabled": True, "nodeplugin.httpMetrics.enabled": False}, "nodeplugin.podMonitor.enabled needs"),
    "a Service without HTTP": ({"nodeplugin.httpMetrics": {"enabled": False, "service": {"enabled": True}}}, "service.enabled needs nodeplugin.httpMetrics.enabled"),
    "an account that is neither made nor named": ({"serviceAccounts.nodeplugin.create": False}, "give the name of an existing account"),
    "a label that would break the selector": ({"nodeplugin.podLabels": {"app": "other"}}, "nodeplugin.podLabels"),
}


class Refusals(unittest.TestCase):
    def test_bad_values_are_refused_and_the_message_names_the_value(self):
        for name, (values, message) in REFUSED.items():
            with self.subTest(name):
                with self.assertRaises(helm.Refused) as refused:
                    helm.render(values)
                self.assertIn(message, str(refused.exception))

    def test_an_API_server_that_is_too_old_is_refused(self):
        with self.assertRaises(helm.Refused) as refused:
            helm.render(kube="1.19.3")
        self.assertIn("kubeVersion: >=1.20.0-0", str(refused.exception))

    def test_a_parent_chart_s_global_values_are_no_mistake(self):
        helm.render({"global": {"anything": 1}})


if __name__ == "__main__":
    unittest.main()
