"""Encrypted volumes whose keys are in a key management system: every type of ceph-csi's, each against a scripted server."""
import json
import os

import kms_servers
import kube
from checks import Skip, check, long, say
from machine import MIB, put, read, run
from stories_kube import NODE, ApiServer, attachment_of
from stories_kubelet import ATTACHMENTS
from stories_luks import expect_closed
from vault import TOKEN as VAULT_TOKEN
from vault import Vault
from volume import DRIVER
from writer import Writer

TENANT, OWN = "shop", "ceph-csi"
TOKEN = "canary-token-of-the-pod"


class Servers:
    """Every KMS, the API server that has their Secrets, and the agent's KMS config."""

    def __init__(self, lab):
        if lab.native:
            raise Skip("two clouds have fixed host names, and a story names no hosts on this machine")
        self.authority = authority = kms_servers.Authority(os.path.join(lab.dir, "authority"))
        hosts = lab.write("hosts", "127.0.0.1 %s\n" % " ".join(kms_servers.HOSTS))
        run(["mount", "--bind", hosts, "/etc/hosts"])
        os.environ["SSL_CERT_FILE"], os.environ["POD_NAMESPACE"] = authority.ca, OWN
        for path in ("/run/secrets/tokens/oidc-token", "/run/secrets/kubernetes.io/serviceaccount/token"):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            put(path, TOKEN)
        self.https = kms_servers.HttpServer(authority, 443)
        self.vault = Vault(lambda token: token == TOKEN)
        self.aws = kms_servers.Aws(self.https, TOKEN)
        self.azure = kms_servers.Azure(self.https, authority)
        self.ibm = kms_servers.KeyProtect(self.https)
        self.kmip = kms_servers.Kmip(authority)
        self.kubernetes(ApiServer(lab))
        self.config(lab)

    def kubernetes(self, api):
        # So that no volume needs a VolumeAttachment.
        api.objects["/api/v1/nodes/" + NODE] = {"metadata": {"name": NODE}, "status": {}}
        api.objects["/apis/storage.k8s.io/v1/csidrivers/" + DRIVER] = {"metadata": {"name": DRIVER}, "spec": {"attachRequired": False}}
        api.secret(OWN, "ceph-csi-aws-credentials", AWS_ACCESS_KEY_ID="AKIDLAB", AWS_SECRET_ACCESS_KEY="canary-aws-secret", AWS_CMK_ARN=self.aws.KEY)
        api.secret(TENANT, "ceph-csi-aws-credentials", awsRoleARN=self.aws.ROLE, awsCMKARN=self.aws.KEY, awsRegion="eu-west-1")
        api.secret(OWN, "ceph-csi-azure-credentials", CLIENT_CERT=read(self.authority.client_cert) + "\n" + read(self.authority.client_key) + "\n")
        api.secret(OWN, "ceph-csi-kp-credentials", IBM_KP_SERVICE_API_KEY="canary-api-key", IBM_KP_CUSTOMER_ROOT_KEY=self.ibm.ROOT)
        api.secret(OWN, "ceph-csi-kmip-credentials", CA_CERT=read(self.authority.ca) + "\n", CLIENT_CERT=read(self.authority.client_cert) + "\n",
                   CLIENT_KEY=read(self.authority.client_key) + "\n", UNIQUE_IDENTIFIER=self.kmip.KEY)
        api.secret(TENANT, "ceph-csi-kms-token", token=VAULT_TOKEN)
        api.secret(TENANT, "storage-encryption-secret", encryptionPassphrase="canary-of-the-tenant")
        api.made["/api/v1/namespaces/%s/serviceaccounts/ceph-csi-vault-sa/token" % TENANT] = {"status": {"token": TOKEN}}
        api.objects["/api/v1/namespaces/%s/serviceaccounts/ceph-csi-vault-sa" % TENANT] = {"metadata": {"name": "ceph-csi-vault-sa", "namespace": TENANT}}

    def config(self, lab):
        vault, ibm = self.vault.address, "https://localhost"
        self.types = {
            "vault": {"encryptionKMSType": "vault", "vaultAddress": vault, "vaultAuthPath": "/v1/auth/kubernetes/login", "vaultRole": "csi-kubernetes",
                      "vaultBackend": "kv-v2", "vaultDestroyKeys": "true", "vaultPassphraseRoot": "/v1/secret", "vaultPassphrasePath": "ceph-csi/",
                      "vaultCAVerify": "false"},
            "vault-tokens": {"encryptionKMSType": "vaulttokens", "vaultAddress": vault, "vaultBackend": "kv-v2", "vaultBackendPath": "secret/",
                             "vaultTLSServerName": "localhost", "vaultCAVerify": "false", "tenantConfigName": "ceph-csi-kms-config",
                             "tenantTokenName": "ceph-csi-kms-token", "tenants": {"an-other-app": {"tenantTokenName": "storage-encryption-token"}}},
            "vault-tenant-sa": {"encryptionKMSType": "vaulttenantsa", "vaultAddress": vault, "vaultBackend": "kv-v2", "vaultBackendPath": "secret",
                                "vaultCAVerify": "false", "tenantConfigName": "ceph-csi-kms-config", "tenantSAName": "ceph-csi-vault-sa"},
            "secrets-metadata": {"encryptionKMSType": "metadata"},
            "user-secrets-metadata": {"encryptionKMSType": "metadata", "secretName": "storage-encryption-secret"},
            "aws-metadata": {"KMS_PROVIDER": "aws-metadata", "KMS_SECRET_NAME": "ceph-csi-aws-credentials", "AWS_REGION": "eu-west-1"},
            "aws-sts-metadata": {"encryptionKMSType": "aws-sts-metadata", "secretName": "ceph-csi-aws-credentials"},
            "azure": {"KMS_PROVIDER": "azure-kv", "AZURE_CERT_SECRET_NAME": "ceph-csi-azure-credentials", "AZURE_VAULT_URL": "https://shop.vault.azure.net",
                      "AZURE_CLIENT_ID": self.azure.CLIENT, "AZURE_TENANT_ID": self.azure.TENANT},
            "ibmkeyprotect": {"KMS_PROVIDER": "ibmkeyprotect", "IBM_KP_SECRET_NAME": "ceph-csi-kp-credentials", "IBM_KP_SERVICE_INSTANCE_ID": self.ibm.INSTANCE,
                              "IBM_KP_BASE_URL": ibm, "IBM_KP_TOKEN_URL": ibm + "/oidc/token", "IBM_KP_REGION": "us-south-2"},
            "kmip": {"KMS_PROVIDER": "kmip", "KMIP_ENDPOINT": "localhost:%d" % self.kmip.port, "KMIP_SECRET_NAME": "ceph-csi-kmip-credentials",
                     "TLS_SERVER_NAME": "localhost", "READ_TIMEOUT": 10, "WRITE_TIMEOUT": 10},
            "kmip-key": {"KMS_PROVIDER": "kmip", "KMIP_ENDPOINT": "localhost:%d" % self.kmip.port, "TLS_SERVER_NAME": "localhost", "USE_CRYPTO_RPC": "false"}}
        self.folder = os.path.join(lab.dir, "kms")
        os.makedirs(self.folder)
        put(self.folder + "/config.json", json.dumps(self.types))

    def end(self):
        self.https.end()
        self.vault.server.shutdown()
        self.vault.server.server_close()
        self.kmip.tcp.shutdown()
        self.kmip.tcp.server_close()
        run(["umount", "/etc/hosts"], ok=False)


def volume_of(lab, agent, kms, tenant=TENANT):
    made = agent.volume(lab.image(kms, size=128 * MIB),
                        attributes=["encrypted=true", "encryptionKMSID=" + kms, "csi.storage.k8s.io/pvc/namespace=" + tenant])
    if kms == "secrets-metadata":
        made.passphrase_file = lab.write("passphrase", "canary-of-the-class")
    return made


def stage(volume):
    volume.stage(**({"passphrase_file": volume.passphrase_file} if hasattr(volume, "passphrase_file") else {}))


TENANTS_ACCOUNT = "ceph-csi-vault-sa"


def tenant_on(server, made):
    """The service accounts of a tenant, in `default`, with the rights of deploy/helm's rbac-kms.yaml for the agent. Adds the objects' paths."""
    accounts, rights = "/api/v1/namespaces/default/serviceaccounts", "/apis/rbac.authorization.k8s.io/v1/namespaces/default/"
    made += [accounts + "/" + TENANTS_ACCOUNT, accounts + "/another", rights + "roles/corbd-kms", rights + "rolebindings/corbd-kms"]
    for name in (TENANTS_ACCOUNT, "another"):
        server.create(accounts, "ServiceAccount", "v1", name)
    server.create(rights + "roles", "Role", "rbac.authorization.k8s.io/v1", "corbd-kms", rules=[
        {"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get"]},
        {"apiGroups": [""], "resources": ["serviceaccounts/token"], "resourceNames": [TENANTS_ACCOUNT, "another"], "verbs": ["create"]}])
    server.create(rights + "rolebindings", "RoleBinding", "rbac.authorization.k8s.io/v1", "corbd-kms",
                  roleRef={"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "corbd-kms"},
                  subjects=[{"kind": "ServiceAccount", "name": "corbd", "namespace": OWN}])


def attach(server, volume, made):
    """Adds the paths of the objects that show a volume to be attached to this node."""
    name = attachment_of(volume)
    made += ["/api/v1/persistentvolumes/" + volume.id, ATTACHMENTS + "/" + name]
    server.create("/api/v1/persistentvolumes", "PersistentVolume", "v1", volume.id, spec={
        "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "128Mi"}, "csi": {"driver": DRIVER, "volumeHandle": volume.id}})
    server.create(ATTACHMENTS, "VolumeAttachment", "storage.k8s.io/v1", name, spec={
        "attacher": DRIVER, "nodeName": NODE, "source": {"persistentVolumeName": volume.id}})
    server.patch(made[-1] + "/status", status={"attached": True})


def story_vault_reviews_tokens(lab):
    """a Vault that lets a real API server review each token gives keys to the tenant's service account, and none to another one"""
    if not os.environ.get("CORBD_LAB_KUBECONFIG"):
        raise Skip(os.environ.get("CORBD_LAB_KUBE_MISSING") or "no API server: scripts/lab/kubernetes start, env")
    server, reviewed, made = kube.Server(), [], ["/api/v1/nodes/" + NODE]
    # The agent has the rights of the manifests, and those of the tenant's Role.
    os.environ["KUBERNETES_CONFIG_PATH"] = os.environ["CORBD_LAB_KUBE_AGENT"]

    def knows(token):
        """As auth/kubernetes of Vault does it (developer.hashicorp.com/vault/docs/auth/kubernetes): the API server says whose token it is."""
        status = server.ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {
            "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}})["status"]
        reviewed.append(status.get("user", {}).get("username"))
        return status.get("authenticated", False) and reviewed[-1] == "system:serviceaccount:default:" + TENANTS_ACCOUNT

    vault, folder = Vault(knows), os.path.join(lab.dir, "kms")
    terms = {"encryptionKMSType": "vaulttenantsa", "vaultAddress": vault.address, "vaultBackend": "kv-v2", "vaultBackendPath": "secret",
             "vaultRole": "csi-kubernetes", "vaultCAVerify": "false", "tenantConfigName": "ceph-csi-kms-config"}
    os.makedirs(folder)
    put(folder + "/config.json", json.dumps({"tenants": dict(terms, tenantSAName=TENANTS_ACCOUNT), "others": dict(terms, tenantSAName="another")}))
    try:
        server.create("/api/v1/nodes", "Node", "v1", NODE)
        tenant_on(server, made)
        agent = lab.agent(flags=["--kms-config-dir", folder]).start()
        tenants, others = (volume_of(lab, agent, kms, "default") for kms in ("tenants", "others"))
        for volume in (tenants, others):
            attach(server, volume, made)
        tenants.stage()
        check(vault.secrets, "no key is in the Vault")
        answer = others.try_stage(timeout=60)
        say("another account: %s: %s" % (answer["code"], answer["message"]))
        check(answer["code"] != "OK" and "permission denied" in answer["message"], "the refusal does not say what Vault said")
        check(set(reviewed) == {"system:serviceaccount:default:" + name for name in (TENANTS_ACCOUNT, "another")}, "the API server reviewed %s" % reviewed)
        tenants.unstage(patience=30)
        tenants.stage(patience=30)
        tenants.unstage(patience=30)
        expect_closed(tenants)
    finally:
        vault.server.shutdown()
        for path in made:
            if server.get(path):
                server.delete(path)


@long
def story_kms_types(lab):
    """a volume of every type of KMS is encrypted, opened again, and healed while its KMS is down; no key is in the log, a record or an argument list"""
    servers = Servers(lab)
    try:
        agent = lab.agent(flags=["--kms-config-dir", servers.folder]).start()
        volumes = [volume_of(lab, agent, kms) for kms in servers.types]
        for volume in volumes:
            stage(volume)
            put(os.path.join(volume.staged_path, "file"), volume.id)
            volume.unstage()
            expect_closed(volume)
        for volume in volumes:
            stage(volume)
            check(read(os.path.join(volume.staged_path, "file")) == volume.id, "what was written to %s is gone" % volume.id)
        writer = Writer(lab, os.path.join(volumes[0].staged_path, "data"), size=16 * MIB).start()
        servers.end()
        kill = agent.kill()
        agent.start()
        for volume in volumes:
            agent.wait_event("device.reconnected", 120, volume=volume.id)
        writer.wait_more(30)
        writer.stop()
        writer.expect_nothing_lost([kill])
        for volume in volumes:
            volume.unstage(patience=30)
        for volume in volumes:
            expect_closed(volume)
        answer = volumes[0].try_stage(timeout=60)
        say("without its KMS: %s: %s" % (answer["code"], answer["message"]))
        check(answer["code"] != "OK" and "vault" in answer["message"], "the refusal does not name the KMS")
        expect_no_keys(servers, agent)
        agent.stop()
    finally:
        servers.end()


story_kms_types.limit = 400


def expect_no_keys(servers, agent):
    """No secret of the servers, and no key of a volume, is in the agent's log or state."""
    keys = {"canary-aws-secret", "canary-sts-secret", "canary-api-key", "canary-of-the-tenant", "canary-of-the-class", TOKEN, VAULT_TOKEN}
    keys |= {versions[-1]["data"]["passphrase"] for versions in servers.vault.secrets.values() if versions}
    keys |= set(servers.azure.store.values()) | {plain.decode() for plain in servers.aws.sealed.values()}
    check(len(keys) > 9, "the servers have seen too few keys: %d" % len(keys))
    records = [os.path.join(folder, name) for folder, _, names in os.walk(agent.state_dir) for name in names if name.endswith(".json")]
    texts = [read(path) for path in [agent.log_file, *records]]
    check(not any(key in text for key in keys for text in texts), "a key is in the log or a record")
