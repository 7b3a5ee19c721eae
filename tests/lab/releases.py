"""Two releases, as scripts/release makes them. A story that installs them takes their files and nothing of the build."""
import glob
import os

from checks import Skip, check
from machine import REPO, read, run


def processor():
    return run(["dpkg", "--print-architecture"]).strip()


class Release:
    def __init__(self, folder):
        self.folder = folder
        self.version = os.path.basename(self.file("corbd-kubernetes-*.tar.gz"))[len("corbd-kubernetes-"):-len(".tar.gz")]

    def file(self, pattern):
        found = glob.glob(os.path.join(self.folder, pattern))
        check(len(found) == 1, "%s has %d files %s" % (self.folder, len(found), pattern))
        return found[0]

    @property
    def image(self):
        return self.file("corbd-image-*-%s.tar" % processor())

    @property
    def package(self):
        """For this machine's Debian."""
        number = [line.partition("=")[2].strip('"') for line in read("/etc/os-release").splitlines() if line.startswith("VERSION_ID=")]
        return self.file("corbd_*+deb%s_%s.deb" % ((number or ["none"])[0], processor()))


def two():
    """The first release, and the one that follows it."""
    folders = os.environ.get("CORBD_RELEASES", "").split() or [os.path.join(REPO, "build/dist", name) for name in ("first", "second")]
    if len(folders) != 2 or not all(os.path.exists(os.path.join(folder, "SHA256SUMS")) for folder in folders):
        raise Skip("no two releases: `scripts/release VERSION --out build/dist/first` makes one, and with another version in build/dist/second the other")
    return [Release(folder) for folder in folders]
