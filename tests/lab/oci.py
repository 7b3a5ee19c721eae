#!/usr/bin/env python3
"""Unpacks the image of an archive, a tar that is an OCI layout, as a container's runtime does that imports it: the digest of every blob is checked, the
layers are applied in their order, and what a layer deletes is deleted. FOLDER/DIGEST gets the image's files in `root`, its configuration in `config.json`
and its name in `reference`. An image that is there is not unpacked again, and one that no archive has is removed. Owners need root.

Usage: oci.py FOLDER ARCHIVE...     prints FOLDER/DIGEST of each archive, one a line"""
import gzip
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile

REFERENCE = "org.opencontainers.image.ref.name"
LAYERS = {"application/vnd.oci.image.layer.v1.tar": lambda file: file, "application/vnd.oci.image.layer.v1.tar+gzip": lambda file: gzip.GzipFile(fileobj=file)}
MIB = 1 << 20


class Invalid(Exception):
    """No runtime would take the archive."""


class Layout:
    def __init__(self, archive):
        self.archive, self.tar = archive, tarfile.open(archive, "r:")
        version = json.load(self.open("oci-layout"))["imageLayoutVersion"]
        if version != "1.0.0":
            raise Invalid("%s is a layout of version %s" % (archive, version))
        described = json.load(self.open("index.json"))["manifests"]
        if len(described) != 1:
            raise Invalid("%s has %d images; one is expected" % (archive, len(described)))
        self.digest = described[0]["digest"]
        self.reference = described[0].get("annotations", {}).get(REFERENCE, "")
        # ctr names the image after the date otherwise (containerd, core/images/archive/reference.go, refTranslator).
        if not set("/:@") & set(self.reference):
            raise Invalid("%s names its image '%s' in %s; a whole name is expected" % (archive, self.reference, REFERENCE))
        self.manifest = json.loads(self.blob(described[0]))
        self.text = self.blob(self.manifest["config"])
        self.config = json.loads(self.text)
        if len(self.manifest["layers"]) != len(self.config["rootfs"]["diff_ids"]):
            raise Invalid("%s has %d layers and %d diff_ids" % (archive, len(self.manifest["layers"]), len(self.config["rootfs"]["diff_ids"])))

    def open(self, name):
        try:
            return self.tar.extractfile(name)
        except KeyError:
            raise Invalid("%s has no %s" % (self.archive, name)) from None

    def find(self, of):
        """The file of a descriptor, whose digest and size are right."""
        algorithm, _, digest = of["digest"].partition(":")
        if algorithm != "sha256":
            raise Invalid("%s: a digest by %s" % (self.archive, algorithm))
        name = "blobs/sha256/" + digest
        size, found = copy(self.open(name), None)
        if (size, found) != (of["size"], digest):
            raise Invalid("%s: %s has the sha256 %s and %d bytes; %d were promised" % (self.archive, name, found, size, of["size"]))
        return self.open(name)

    def blob(self, of):
        return self.find(of).read()

    def unpack(self, folder):
        root = os.path.join(folder, "root")
        os.makedirs(root)
        for of, diff_id in zip(self.manifest["layers"], self.config["rootfs"]["diff_ids"]):
            if of["mediaType"] not in LAYERS:
                raise Invalid("%s: a layer of type %s" % (self.archive, of["mediaType"]))
            layer = os.path.join(folder, "layer")
            with LAYERS[of["mediaType"]](self.find(of)) as file, open(layer, "wb") as into:
                found = "sha256:" + copy(file, into)[1]
            if found != diff_id:
                raise Invalid("%s: a layer has the sha256 %s unpacked, and its diff_id is %s" % (self.archive, found, diff_id))
            apply(layer, root)
            os.unlink(layer)
        for name, text in (("config.json", self.text), ("reference", self.reference.encode())):
            with open(os.path.join(folder, name), "wb") as file:
                file.write(text)


def copy(file, into):
    """(size, sha256)"""
    size, found = 0, hashlib.sha256()
    for part in iter(lambda: file.read(MIB), b""):
        size += len(part)
        found.update(part)
        if into:
            into.write(part)
    return size, found.hexdigest()


def inside(root, name):
    """The path of a layer's file, but for a link at its end; it must be below the root."""
    path = os.path.normpath(os.path.join(root, name))
    folder = os.path.realpath(os.path.dirname(path))
    if path != root and not (folder + "/").startswith(os.path.realpath(root) + "/"):
        raise Invalid("a layer has %s, which is not below its root" % name)
    return os.path.join(folder, os.path.basename(path))


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def apply(layer, root):
    """What the layer deletes or makes something else of is of the layers before it, so it goes first."""
    with tarfile.open(layer, "r:") as tar:
        for member in tar:
            path = inside(root, member.name)
            folder, name = os.path.split(path)
            if name == ".wh..wh..opq":
                for each in os.listdir(folder) if os.path.isdir(folder) else ():
                    remove(os.path.join(folder, each))
            elif name.startswith(".wh."):
                remove(os.path.join(folder, name[len(".wh."):]))
            elif not member.isdir() and path != root:
                remove(path)
    done = subprocess.run(["tar", "--extract", "--file", layer, "--directory", root, "--numeric-owner", "--same-owner", "--preserve-permissions",
                           "--exclude=.wh.*"], stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        raise Invalid("a layer cannot be unpacked: " + done.stderr.strip()[-500:])


def unpack(folder, archives):
    """Their folders."""
    layouts = [Layout(archive) for archive in archives]
    os.makedirs(folder, exist_ok=True)
    names = [layout.digest.partition(":")[2] for layout in layouts]
    for left in set(os.listdir(folder)) - set(names):
        remove(os.path.join(folder, left))
    for name, layout in zip(names, layouts):
        if not os.path.exists(os.path.join(folder, name)):
            new = os.path.join(folder, "new")
            remove(new)
            layout.unpack(new)
            os.rename(new, os.path.join(folder, name))
    found = [os.path.join(folder, name) for name in names]
    # A User Mode Linux stands still while this machine's disk is read for it: a writer in it would see that as a stall of its volume.
    subprocess.run(["find", *found, "-type", "f", "-exec", "cat", "{}", "+"], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)
    return found


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    try:
        print("\n".join(unpack(sys.argv[1], sys.argv[2:])))
    except Invalid as invalid:
        sys.exit("oci: %s" % invalid)
