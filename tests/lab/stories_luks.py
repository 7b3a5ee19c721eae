"""Encrypted volumes: what ceph-csi encrypts opens here, and nothing of it hangs or is lost."""
import json
import os
import signal

from checks import check, long, say, wait_for
from machine import CORBD, MIB, processes, put, read, run
from vault import Vault
from writer import Writer, writes_through_kills

PASSPHRASE = "a passphrase of the lab"


def encrypted(lab, agent, name="a", block=False, passphrase=PASSPHRASE, options=(), **more):
    """A static volume of the KMS `default`."""
    image = lab.image(name, size=256 * MIB)
    volume = agent.volume(image, block=block, attributes=["encrypted=true", *options], **more)
    volume.image = image
    volume.passphrase_file = lab.write("passphrase-" + name, passphrase)
    return volume


def stage(volume, **more):
    return volume.stage(passphrase_file=volume.passphrase_file, **more)


def mapping(volume):
    return "/dev/mapper/luks-rbd-" + volume.id


def is_open(volume):
    return os.path.exists(mapping(volume))


def metadata(lab, volume, key):
    return lab.admin("rbd", "image-meta", "get", volume.pool + "/" + volume.id, key, ok=False)[1].strip()


def expect_closed(volume):
    volume.expect_gone()
    check(not is_open(volume), "%s is still open" % mapping(volume))
    check(volume.id not in run(["dmsetup", "table"]), "device-mapper still has a mapping of %s" % volume.id)
    check("cryptsetup" not in read("/proc/keys"), "the kernel's keyring still has a key")


def story_luks_staged(lab):
    """an encrypted volume is staged, published, unstaged without a secret, and staged again with what was written; no plaintext is in the image"""
    agent = lab.agent().start()
    volume = encrypted(lab, agent)
    stage(volume)
    volume.publish()
    volume.expect_staged()
    put(os.path.join(volume.target(), "file"), "canary-plaintext " * 4096)
    run(["sync", "-f", volume.target()])
    check(metadata(lab, volume, "rbd.csi.ceph.com/encrypted") == "encrypted", "the image's metadata do not say that it is encrypted")
    device = "/dev/nbd%d" % volume.device
    check(run(["blkid", "-p", "-o", "value", "-s", "TYPE", device]).strip() == "crypto_LUKS", "%s is not LUKS" % device)
    check(run(["grep", "-c", "canary-plaintext", device], ok=False).strip() == "0", "the image holds plaintext")
    volume.unpublish()
    volume.unstage()
    expect_closed(volume)
    stage(volume)
    check("canary-plaintext" in read(os.path.join(volume.staged_path, "file")), "what was written is gone")
    volume.unstage()
    expect_closed(volume)
    agent.stop()


# [failure:101]
def story_luks_wrong_passphrase(lab):
    """a wrong passphrase has an error of its own, leaves nothing behind, is in no log, and the right one still opens the volume"""
    agent = lab.agent().start()
    volume = encrypted(lab, agent)
    stage(volume)
    volume.unstage()
    wrong = lab.write("wrong", "canary-wrong")
    answer = volume.try_stage(passphrase_file=wrong)
    say("%s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] == "UNAUTHENTICATED" and "passphrase" in answer["message"], "it was not told as a wrong passphrase")
    expect_closed(volume)
    stage(volume)
    volume.unstage()
    log = read(agent.log_file)
    check("canary-wrong" not in log and PASSPHRASE not in log, "a passphrase is in the log")
    agent.stop()


@long
def story_luks_expanded(lab):
    """an encrypted volume grows under its mount: device, mapping and filesystem"""
    agent = lab.agent().start()
    volume = encrypted(lab, agent)
    stage(volume)
    before = os.statvfs(volume.staged_path).f_blocks
    lab.admin("rbd", "resize", "--size", "512M", volume.pool + "/" + volume.id)
    volume.expand(512 * MIB, patience=30)
    after = os.statvfs(volume.staged_path).f_blocks
    check(after > 1.8 * before, "the filesystem has %d blocks after, %d before" % (after, before))
    volume.unstage()
    expect_closed(volume)
    agent.stop()


def story_luks_killed_under_writer(lab):
    """kill -9 of the agent under a writer on an encrypted volume: healed without the passphrase, no write lost, no I/O error"""
    agent = lab.agent().start()
    volume = encrypted(lab, agent)
    stage(volume)
    volume.publish()
    writer = Writer(lab, os.path.join(volume.staged_path, "data"), size=16 * MIB).start()
    writes_through_kills(agent, volume, writer)
    volume.unpublish()
    volume.unstage()
    expect_closed(volume)
    agent.stop()


# [failure:205]
def story_luks_integrity(lab):
    """a volume with integrityMode is on two mappings: kill -9 under a writer loses nothing, and an unstage leaves no mapping and no key"""
    agent = lab.agent().start()
    unknown = encrypted(lab, agent, "b", options=["integrityMode=crc32"])
    answer = unknown.try_stage(passphrase_file=unknown.passphrase_file)
    say("%s: %s" % (answer["code"], answer["message"]))
    check(answer["code"] == "INVALID_ARGUMENT" and "hmac-sha256, hmac-sha512" in answer["message"], "the modes that are allowed are not told")
    expect_closed(unknown)
    volume = encrypted(lab, agent, options=["integrityMode=hmac-sha256", "encryptionCipher=aes-xts-random", "encryptionSectorSize=4096"])
    stage(volume, patience=300)
    volume.publish()
    tables = {line.split(":")[0]: line for line in run(["dmsetup", "table"]).splitlines()}
    name = os.path.basename(mapping(volume))
    check(" crypt " in tables[name] and " integrity " in tables[name + "_dif"], "the mappings are %s" % tables)
    writer = Writer(lab, os.path.join(volume.staged_path, "data"), size=16 * MIB).start()
    writes_through_kills(agent, volume, writer)
    put(os.path.join(volume.target(), "file"), "what was written")
    answer = volume.try_expand(512 * MIB)
    check(answer["code"] == "FAILED_PRECONDITION" and "integrityMode" in answer["message"], "its expansion was not refused: %s" % answer)
    volume.unpublish()
    volume.unstage()
    expect_closed(volume)
    # A volume with a header needs none of the options.
    plain = agent.volume(volume.image, attributes=["encrypted=true", "encryptionCipher=rot13"])
    plain.stage(passphrase_file=volume.passphrase_file)
    check(read(os.path.join(plain.staged_path, "file")) == "what was written", "what was written is gone")
    plain.unstage()
    expect_closed(plain)
    agent.stop()


story_luks_integrity.limit = 480


# [failure:102]
@long
def story_luks_integrity_interrupted(lab):
    """agent and helper are killed while the tags of a volume with integrityMode are written: the next stage begins anew, and every sector can be read"""
    agent = lab.agent().start()
    volume = encrypted(lab, agent, block=True, options=["integrityMode=hmac-sha256"])
    call = volume.begin("stage", passphrase_file=volume.passphrase_file)
    wait_for("the mapping", lambda: is_open(volume), 60, pause=0.01)
    agent.kill()
    for pid in processes(CORBD + " helper"):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # one without work ends with its agent
    call.end()
    check(is_open(volume), "the format had ended before it was killed")
    agent.start()
    stage(volume, patience=300)
    device = mapping(volume)
    run(["dd", "if=" + device, "of=/dev/null", "bs=1M", "iflag=direct"])
    volume.unstage()
    expect_closed(volume)
    agent.stop()


story_luks_integrity_interrupted.limit = 480


@long
def story_luks_integrity_of_cryptsetup(lab):
    """a volume that cryptsetup made with integrity opens here, and what is changed below a volume with integrity cannot be read"""
    agent = lab.agent().start()
    image = lab.image("a", size=128 * MIB)
    passphrase_file = lab.write("passphrase", PASSPHRASE)
    plain = agent.volume(image, block=True)
    plain.stage()
    device = "/dev/nbd%d" % plain.device
    run(["cryptsetup", "-q", "luksFormat", "--type", "luks2", "--hash", "sha256", "--pbkdf-memory", "32768", "--cipher", "serpent-xts-plain64",
         "--integrity", "hmac-sha512", device, "-d", passphrase_file], timeout=300)
    plain.unstage()
    lab.admin("rbd", "image-meta", "set", image.spec, "rbd.csi.ceph.com/encrypted", "encrypted")
    volume = agent.volume(image, block=True, attributes=["encrypted=true"])
    volume.stage(passphrase_file=passphrase_file)
    run(["dd", "if=" + mapping(volume), "of=/dev/null", "bs=1M", "iflag=direct"])
    volume.unstage()
    expect_closed(volume)
    plain.stage()
    run(["dd", "if=/dev/urandom", "of=/dev/nbd%d" % plain.device, "bs=4k", "count=1", "seek=%d" % (64 * MIB // 4096), "oflag=direct"])
    plain.unstage()
    volume.stage(passphrase_file=passphrase_file)
    said = run(["dd", "if=" + mapping(volume), "of=/dev/null", "bs=1M", "iflag=direct"], ok=False)
    check("error reading" in said, "the change was not noticed: %s" % said)
    volume.unstage()
    expect_closed(volume)
    agent.stop()


story_luks_integrity_of_cryptsetup.limit = 480


@long
def story_luks_of_cryptsetup(lab):
    """a volume that cryptsetup made with ceph-csi's parameters opens here, and one made here opens with cryptsetup"""
    agent = lab.agent().start()
    made_here = encrypted(lab, agent, "b", block=True)
    stage(made_here)
    device = "/dev/nbd%d" % made_here.device
    run(["cryptsetup", "luksOpen", "--test-passphrase", device, "-d", made_here.passphrase_file])
    made_here.unstage()
    # First stage the image as a plain block volume, and let cryptsetup write through its device. Then stage it as an encrypted volume.
    image = lab.image("a", size=256 * MIB)
    plain = agent.volume(image, block=True)
    plain.stage()
    device, passphrase_file = "/dev/nbd%d" % plain.device, made_here.passphrase_file
    run(["cryptsetup", "-q", "luksFormat", "--type", "luks2", "--hash", "sha256", "--pbkdf-memory", "32768", device, "-d", passphrase_file])
    run(["cryptsetup", "luksOpen", device, "by-hand", "--disable-keyring", "-d", passphrase_file])
    run(["mkfs.ext4", "-q", "/dev/mapper/by-hand"])
    run(["cryptsetup", "luksClose", "by-hand"])
    plain.unstage()
    lab.admin("rbd", "image-meta", "set", image.spec, "rbd.csi.ceph.com/encrypted", "encrypted")
    volume = agent.volume(image, attributes=["encrypted=true"])
    volume.stage(passphrase_file=passphrase_file)
    volume.expect_staged()
    volume.unstage()
    expect_closed(volume)
    agent.stop()


# [failure:172]
def story_luks_vault(lab):
    """a volume whose key Vault stores needs no passphrase; while Vault is sealed only stages of its own volumes fail, and no unstage"""
    account = "/var/run/secrets/kubernetes.io/serviceaccount/token"
    os.makedirs(os.path.dirname(account), exist_ok=True)
    put(account, "of-the-pod\n")
    vault = Vault(lambda token: token == "of-the-pod")
    os.makedirs(os.path.join(lab.dir, "kms"))
    folder = os.path.dirname(lab.write("kms/config.json", json.dumps({"far": {
        "encryptionKMSType": "vault", "vaultAddress": vault.address, "vaultBackend": "kv-v2", "vaultPassphrasePath": "ceph-csi/"}})))
    agent = lab.agent(flags=["--kms-config-dir", folder]).start()
    volume = agent.volume(lab.image("a", size=256 * MIB), attributes=["encrypted=true", "encryptionKMSID=far"])
    volume.stage()
    volume.expect_staged()
    put(os.path.join(volume.staged_path, "file"), "kept")
    key = lab.write("vault-key", vault.key(volume.id))
    run(["cryptsetup", "luksOpen", "--test-passphrase", "/dev/nbd%d" % volume.device, "-d", key])
    vault.sealed = True
    volume.unstage()
    expect_closed(volume)
    ended = volume.try_stage()
    check(ended["code"] == "UNAVAILABLE" and "sealed" in ended["message"], "a stage while Vault is sealed ends with %s" % ended)
    other = encrypted(lab, agent, "b")
    stage(other)
    other.unstage()
    agent.wait_event("kms.silent")
    vault.sealed = False
    volume.stage(patience=60)
    check(read(os.path.join(volume.staged_path, "file")) == "kept", "what was written is gone")
    agent.wait_event("kms.answers")
    volume.unstage()
    expect_closed(volume)
    text = read(agent.log_file)
    check(vault.key(volume.id) not in text and "hvs.lab" not in text, "the log has a key or a token")
    agent.stop()


# [failure:102]
@long
def story_luks_crashed_half_way(lab):
    """the agent dies after the header, and after the mapping, of an encrypted volume's first stage: the next stage ends it"""
    for step in ("luks_format.after", "luks_open.after"):
        agent = lab.agent(name="agent-" + step.replace(".", "-"))
        volume = encrypted(lab, agent, "a-" + step.replace(".", "-").replace("_", "-"))
        agent.start(failpoints=["step.%s=kill" % step])
        volume.begin("stage", passphrase_file=volume.passphrase_file).end()
        agent.wait_exit()
        agent.start()
        stage(volume, patience=60)
        volume.expect_staged()
        check(metadata(lab, volume, "corbd/format") == "", "the format marker is left after a death at " + step)
        volume.unstage()
        expect_closed(volume)
        agent.stop()


# This story derives four keys, each with 32 MiB, and a guest may be emulated.
story_luks_crashed_half_way.limit = 480
