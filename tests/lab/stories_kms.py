"""Encrypted volumes whose keys are in a key management system: every type of ceph-csi's, each against a scripted server."""
import json
import os

import kms_servers
from checks import Skip, check, long, say
from machine import MIB, put, read, run
from stories_kube import NODE, ApiServer
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
        self.vault = Vault(TOKEN)
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


def volume_of(lab, agent, kms):
    made = agent.volume(lab.image(kms, size=128 * MIB),
                        attributes=["encrypted=true", "encryptionKMSID=" + kms, "csi.storage.k8s.io/pvc/namespace=" + TENANT])
    if kms == "secrets-metadata":
        made.passphrase_file = lab.write("passphrase", "canary-of-the-class")
    return made


def stage(volume):
    volume.stage(**({"passphrase_file": volume.passphrase_file} if hasattr(volume, "passphrase_file") else {}))


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
