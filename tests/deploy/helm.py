"""The chart of deploy/helm, rendered by tests/deploy/render, which does what Helm does. Needs Go and Debian's packages of sprig (scripts/setup)."""
import functools
import json
import os
import pathlib
import shutil
import subprocess

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
CHART = ROOT / "deploy/helm/corbd"
GO = pathlib.Path(os.environ.get("CORBD_GOPATH", "/usr/share/gocode"))
# The program that the manifests start.
PROGRAM = os.environ.get("CORBD", str(ROOT / "build/dev/corbd"))
NEEDED = ["github.com/Masterminds/sprig", "github.com/xeipuuv/gojsonschema", "sigs.k8s.io/yaml"]


class Missing(Exception):
    """This machine cannot render."""


class Refused(Exception):
    """The chart refuses the values."""


@functools.lru_cache
def renderer():
    go = shutil.which("go")
    lacks = [] if go else ["go"]
    lacks += [name for name in NEEDED if not (GO / "src" / name).exists()]
    if lacks:
        raise Missing("no %s: scripts/setup installs it" % ", ".join(lacks))
    build = ROOT / "build/deploy"
    build.mkdir(parents=True, exist_ok=True)
    # Nothing comes from a network, and nothing of the user's own Go counts.
    env = dict(os.environ, GO111MODULE="off", GOPATH=str(GO), GOCACHE=str(build / "go-cache"), GOFLAGS="", GOTOOLCHAIN="local", GOPROXY="off", CGO_ENABLED="0")
    made = subprocess.run([go, "build", "-o", str(build / "render"), "."], cwd=ROOT / "tests/deploy/render", env=env, capture_output=True, text=True, timeout=300)
    if made.returncode != 0:
        raise RuntimeError("tests/deploy/render: " + made.stderr)
    return build / "render"


def render(values=None, *, files=(), release="corbd", namespace="ceph-csi", kube="1.30.0", chart=CHART):
    """The text of each template by its name. `values` are by their paths, with dots."""
    words = [str(renderer()), "--release", release, "--namespace", namespace, "--kube-version", kube]
    for name in files:
        words += ["--values", str(name)]
    for path, value in (values or {}).items():
        words += ["--set-json", "%s=%s" % (path, json.dumps(value))]
    done = subprocess.run(words + [str(chart)], capture_output=True, text=True, timeout=60)
    if done.returncode != 0:
        raise Refused(done.stderr.strip())
    return json.loads(done.stdout)


def documents(texts):
    """The objects of a rendering."""
    found = []
    for name, text in sorted(texts.items()):
        if name != "templates/NOTES.txt":
            found += [one for one in yaml.safe_load_all(text) if one is not None]
    return found


def objects(values=None, **more):
    return documents(render(values, **more))


def only(kind, found):
    one, = [each for each in found if each["kind"] == kind]
    return one
