"""Volumes with encrypted files: what ceph-csi's library makes opens here and the other way round, nothing is lost, and no key stays behind."""
import os
import shutil

from checks import Skip, check, long, say
from machine import MIB, put, read, run
from writer import Writer, writes_through_kills

PASSPHRASE = "a passphrase of the lab"
FOLDER = "ceph-csi-encrypted"
ATTRIBUTES = ["encrypted=true", "encryptionType=file"]


def encrypted(lab, agent, image):
    """A static volume of the KMS `default`."""
    run(["modprobe", "ext4"], ok=False)
    if not os.path.exists("/sys/fs/ext4/features/encryption"):
        raise Skip("this kernel cannot encrypt files")
    volume = agent.volume(image, attributes=ATTRIBUTES)
    volume.passphrase_file = lab.write("passphrase", PASSPHRASE)
    return volume


def stage(volume, **more):
    return volume.stage(passphrase_file=volume.passphrase_file, **more)


def folder(volume):
    return os.path.join(volume.staged_path, FOLDER)


def keys():
    return [line for line in read("/proc/keys").splitlines() if "fscrypt" in line]


def raw_key(lab):
    """A file of 32 bytes, as ceph-csi makes them of a passphrase."""
    path = os.path.join(lab.dir, "raw-key")
    with open(path, "wb") as file:
        file.write(PASSPHRASE.encode().ljust(32, b"\0"))
    return path


def fscrypt(*arguments):
    return run(["fscrypt"] + list(arguments) + ["--quiet"])


def needs_fscrypt():
    if shutil.which("fscrypt") is None:
        raise Skip("there is no program fscrypt")
    if not os.path.exists("/etc/fscrypt.conf"):
        put("/etc/fscrypt.conf", '{"source":"custom_passphrase","hash_costs":{"time":"2","memory":"8192","parallelism":"2"},'
            '"options":{"padding":"32","contents":"AES_256_XTS","filenames":"AES_256_CTS","policy_version":"2"}}')


# [failure:181]
def story_fscrypt_staged(lab):
    """a volume with encrypted files is staged, published, unstaged without a secret, and staged again with what was written; neither names nor text are readable
    without the key"""
    agent, image = lab.agent().start(), lab.image("a", size=256 * MIB)
    volume = encrypted(lab, agent, image)
    stage(volume)
    volume.publish()
    check(keys(), "the kernel does not tell of the folder's key")
    put(os.path.join(volume.target(), "canary-name"), "canary-plaintext " * 4096)
    check(os.listdir(folder(volume)) == ["canary-name"], "a pod does not get the encrypted folder")
    check(not os.path.exists(os.path.join(volume.target(), ".fscrypt")), "a pod sees the metadata")
    run(["sync", "-f", volume.target()])
    device = "/dev/nbd%d" % volume.device
    check(run(["grep", "-c", "canary", device], ok=False).strip() == "0", "the image holds a plain name or text")
    volume.unpublish()
    volume.unstage()
    volume.expect_gone()
    check(not keys(), "a key stays behind: %s" % keys())
    # The same image as a volume that is not encrypted.
    bare = agent.volume(image)
    bare.stage()
    names = os.listdir(folder(bare))
    say("without the key: %s" % names)
    check(len(names) == 1 and "canary" not in names[0], "a name is readable without the key")
    bare.unstage()
    wrong = volume.try_stage(passphrase_file=lab.write("wrong", "canary-wrong"))
    say("%s: %s" % (wrong["code"], wrong["message"]))
    check(wrong["code"] == "UNAUTHENTICATED", "a wrong passphrase was not told as such")
    volume.expect_gone()
    stage(volume)
    check("canary-plaintext" in read(os.path.join(folder(volume), "canary-name")), "what was written is gone")
    volume.unstage()
    volume.expect_gone()
    log = read(agent.log_file)
    check("canary-wrong" not in log and PASSPHRASE not in log, "a passphrase is in the log")
    agent.stop()


# [failure:180]
def story_fscrypt_killed_under_writer(lab):
    """kill -9 of the agent under a writer on encrypted files: healed without the passphrase, no write lost, no I/O error, and no key stays behind"""
    agent, image = lab.agent().start(), lab.image("a", size=256 * MIB)
    volume = encrypted(lab, agent, image)
    stage(volume)
    volume.publish()
    # Without inline encryption the kernel makes a write with O_DIRECT a cached one.
    writer = Writer(lab, os.path.join(volume.target(), "data"), size=16 * MIB, mode="fsync").start()
    writes_through_kills(agent, volume, writer)
    volume.unpublish()
    volume.unstage()
    volume.expect_gone()
    check(not keys(), "a key stays behind: %s" % keys())
    agent.stop()


@long
def story_fscrypt_of_fscrypt(lab):
    """the program fscrypt opens a folder that was made here, and a folder that it made with ceph-csi's parameters opens here"""
    agent, image = lab.agent().start(), lab.image("a", size=256 * MIB)
    made_here = encrypted(lab, agent, image)
    needs_fscrypt()
    stage(made_here)
    put(os.path.join(folder(made_here), "file"), "text")
    made_here.unstage()
    bare = agent.volume(image)
    bare.stage()
    fscrypt("unlock", folder(bare), "--key=" + raw_key(lab))
    check(read(os.path.join(folder(bare), "file")) == "text", "fscrypt does not open what was made here")
    bare.unstage()
    # First stage the image as a volume that is not encrypted, for fscrypt. Then stage it as an encrypted one.
    image = lab.image("b", size=256 * MIB)
    plain = agent.volume(image, attributes=["mkfsOptions=-m0 -Oencrypt"])
    plain.stage()
    os.mkdir(folder(plain))
    fscrypt("setup", plain.staged_path)
    fscrypt("encrypt", folder(plain), "--source=raw_key", "--name=ceph-csi", "--key=" + raw_key(lab))
    put(os.path.join(folder(plain), "file"), "text")
    plain.unstage()
    volume = encrypted(lab, agent, image)
    stage(volume)
    check(read(os.path.join(folder(volume), "file")) == "text", "what fscrypt made does not open here")
    volume.unstage()
    volume.expect_gone()
    agent.stop()


# [failure:180]
@long
def story_fscrypt_crashed_half_way(lab):
    """the agent dies before and after it makes the folder of a first stage, and after it locks the folder of an unstage: the next call ends it"""
    for step in ("fscrypt_make.before", "fscrypt_make.after", "fscrypt_lock.after"):
        name = "a-" + step.replace(".", "-").replace("_", "-")
        agent = lab.agent(name=name)
        volume = encrypted(lab, agent, lab.image(name, size=256 * MIB))
        agent.start(failpoints=["step.%s=kill" % step])
        volume.begin("stage", passphrase_file=volume.passphrase_file).end()
        if "lock" in step:
            volume.begin("unstage").end()
        agent.wait_exit()
        agent.start()
        stage(volume, patience=60)
        put(os.path.join(folder(volume), "file"), "text")
        volume.unstage()
        volume.expect_gone()
        check(not keys(), "a key stays behind after a death at %s: %s" % (step, keys()))
        agent.stop()


# An emulated guest stages six times, and boots five agents.
story_fscrypt_crashed_half_way.limit = 480
