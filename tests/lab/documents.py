"""The commands that the documents show an operator, and where each is run. tests/house/commands sees to it that each has its place; the stories
of stories_docs.py and stories_released.py take the commands of FOLLOWED from the documents and run them."""
import os
import re

MIGRATING, RUNBOOK, README, KUBERNETES = "docs/migrating-from-ceph-csi.md", "docs/runbook.md", "README.md", "deploy/kubernetes/README.md"
RELEASES, STANDALONE, OPERATIONS, KEYS = "docs/releases.md", "docs/standalone.md", "docs/operations.md", "docs/rotating-keys.md"

# What a command begins with.
PROGRAMS = ("apt-get", "ceph", "cephcsi", "corbd", "corbd-probe", "crictl", "ctr", "helm", "kubectl", "modprobe", "nbd-client", "pkill", "podman", "rbd",
            "scripts/manifests", "sed", "sha256sum", "ssh", "systemctl", "tar", "umount", "until")
# Their sections are looked at. Of other documents and sections other tests of tests/house look at what they show.
SECTIONS = {
    MIGRATING: None,  # all of them
    RUNBOOK: None,
    README: ["Put it on a cluster", "Put it on a host", "Operations"],
    RELEASES: None,
    OPERATIONS: None,
    KEYS: None,
    STANDALONE: ["Set up"],
    KUBERNETES: ["Install it", "Rook"],
}
# The stories run all commands of these but those of ELSEWHERE.
FOLLOWED = [(MIGRATING, "The cache of rbd-nbd"), (MIGRATING, "Before"), (MIGRATING, "In its place: raw manifests"), (MIGRATING, "Back"),
            (README, "Operations"), (KUBERNETES, "Install it"), (KEYS, "What each node has"), (KEYS, "With your own Secrets"), (README, "Put it on a cluster"), (README, "Put it on a host"), (STANDALONE, "Set up"),
            (RELEASES, "Upgrade the manifests"), (RELEASES, "Roll the manifests back"), (RELEASES, "Upgrade the Debian package"),
            (RELEASES, "Roll the Debian package back"), (RELEASES, "Uninstall from a cluster"), (RELEASES, "Uninstall from a host")]

UNIT_COMMANDS = "tests/unit/ops/command_test.cpp"
HOST = "tests/lab/stories_host.py"
SEEN, MOVED, UNIT = "tests/lab/stories_seen.py", "tests/lab/stories_migrate.py", "tests/unit/ops/fencing_test.cpp"
NO_HELM = "Helm is no package of Debian. tests/deploy renders the chart with these values, and an API server takes it (tests/deploy/server)"
NO_OPERATOR = "there is no ceph-csi-operator and no Rook here, and the document says so"
LABELLED = "with the chart's names, what the story runs in ceph-csi's place; tests/deploy/test_migration.py checks names and labels"
KUBES_OWN = "Kubernetes' own command, which only looks, as its manual has it"
CEPHS_OWN = "Ceph's own command, which only looks, as its manual has it"
IN_PASSING = "the name of a command, in passing"
NO_PLUGIN = "Debian's librbd has no plugin for a persistent cache, so no image of the lab can have one"
# (document, section; None: any of it) -> what a command begins with -> why the story does not run it: a sentence; or a file, and a text in it that runs it.
ELSEWHERE = {
    (MIGRATING, "From ceph-csi's node plugin, and back"): {
        "kubectl set image": IN_PASSING, "helm upgrade": IN_PASSING},
    (MIGRATING, "The cache of rbd-nbd"): {
        "corbd doctor --before-migration": IN_PASSING, "ceph config": IN_PASSING, "corbd heal --adopt": ("tests/lab/stories_adopt.py", '"heal", "--adopt"'),
        "corbd heal ID --loss-accepted": ("tests/lab/stories_adopt.py", '"heal", volume.id, "--loss-accepted"'), "corbd status": IN_PASSING, "corbd volumes": IN_PASSING,
        "rbd info": CEPHS_OWN, "rbd persistent-cache": NO_PLUGIN},
    (OPERATIONS, "How much a raw block volume uses"): {
        "corbd top": ("tests/lab/stories_accept.py", '"top", "--once"'), "corbd volume": IN_PASSING, "rbd du": ("tests/lab/stories_accept.py", '"rbd", "du"'),
        "rbd object-map rebuild": CEPHS_OWN},
    (MIGRATING, "Timing"): {"corbd volumes": (SEEN, '"volumes"')},
    (MIGRATING, "Where nothing is attached"): {
        "kubectl get csidriver": IN_PASSING, "corbd doctor --before-migration": (MOVED, '"doctor", "--before-" + what'),
        "corbd heal ID --without-proof": ("tests/lab/stories_owner.py", '"heal", volume.id, "--without-proof"')},
    (MIGRATING, "Before"): {
        "podman build": ("tests/lab/image", "deploy/Containerfile"),
        "corbd doctor --before-migration --config-dir DIR": (MOVED, '"doctor", "--before-" + what'),
        "rbd feature enable": "ceph-csi's volumes have the feature already, and rbd ends with an error then",
        "modprobe nbd nbds_max=0": ("scripts/lab/guest-run", "modprobe nbd nbds_max=0")},
    (MIGRATING, "In its place: raw manifests"): {
        "kubectl drain": "the story ends rbd-nbd under its writer instead; it drains on the way back",
        "cephcsi heal --adopt": ("tests/lab/stories_adopt.py", '"heal", "--adopt"')},
    (MIGRATING, "Beside it: Helm"): {
        "helm": NO_HELM, "kubectl": LABELLED, "until kubectl": LABELLED, "POD=": LABELLED, "ssh NODE systemctl restart kubelet": LABELLED,
        "crictl pull": "the story's images need no pull"},
    (MIGRATING, "Beside it: ceph-csi-operator"): {"kubectl": NO_OPERATOR, "helm": NO_OPERATOR},
    (MIGRATING, "Back"): {
        "POD=$(kubectl -n ceph-csi-rbd": LABELLED, "kubectl -n ceph-csi-rbd": LABELLED, "kubectl label node": LABELLED, "helm uninstall": NO_HELM, "kubectl -n NAMESPACE": NO_OPERATOR,
        "corbd heal ID --loss-accepted": ("tests/lab/stories_adopt.py", '"heal", volume.id, "--loss-accepted"'),
        "cephcsi drain --undo": "the story leaves the node to ceph-csi", "corbd drain --undo": ("tests/unit/cli/drain_test.cpp", "undo")},
    (MIGRATING, "What is different"): {"corbd volumes": (SEEN, '"volumes"')},
    (README, "Operations"): {
        "corbd drain": "the story runs it as the page on migrations has it",
        "kubectl corbd": "the story runs it as the page on migrations has it"},
    (RUNBOOK, None): {
        "kubectl taint node NODE DRIVERNAME/agent-not-ready-": ("tests/lab/kube_lab.cpp", 'kubectl("taint node '),
        "corbd mount --refresh-keys": ("deploy/systemd/corbd-keys.service", "corbd mount --refresh-keys"),
        "corbd status": (SEEN, '"status"'), "corbd volumes": (SEEN, '"volumes"'), "corbd volume ID": (SEEN, '"volume", volume.id'),
        "corbd events": ("tests/unit/cli/agent_test.cpp", '"events"'), "corbd top --sort latency": ("tests/unit/cli/top_test.cpp", "sort_top"),
        "corbd heal ID": (SEEN, '"heal", volume.id'), "corbd heal ID --without-proof": ("tests/lab/stories_owner.py", '"heal", volume.id, "--without-proof"'),
        "corbd fail ID --yes-really": ("tests/lab/stories_heal.py", '"fail", volume.id, "--yes-really"'),
        "corbd holders VOLUME": ("tests/lab/stories_fence.py", '"holders", volume.id'), "corbd fence ls": ("tests/lab/stories_fence.py", '"fence", "ls"'),
        "corbd unfence --self-check": (UNIT, '"unfence", "--self-check"'),
        "corbd drain": (MOVED, '"drain"'), "corbd drain --undo": ("tests/unit/cli/drain_test.cpp", "undo"),
        "corbd alive": ("tests/unit/ops/command_test.cpp", "corbd alive ends with 0"), "corbd-probe": ("tests/process/probe_test.cpp", 'probes(ground, "alive"'),
        "corbd doctor": ("tests/lab/stories_container.py", '"doctor"'),
        "rbd persistent-cache": NO_PLUGIN, "rbd status": ("tests/lab/stories_owner.py", '"rbd", "status"'), "rbd lock ls": ("tests/lab/stories_fence.py", '"rbd", "lock", "ls"'),
        "rbd lock add": ("tests/lab/rbd_lab.cpp", 'rbd_lock_exclusive(other, "maintenance")'),
        "rbd snap create": "Ceph's own command, as its manual has it; the document says that no test runs these steps",
        "rbd resize": ("tests/lab/stories_accept.py", '"rbd", "resize"'), "rbd info": CEPHS_OWN, "rbd export": CEPHS_OWN, "rbd config image ls": CEPHS_OWN,
        "rbd image-meta get": CEPHS_OWN, "rbd image-meta remove": ("tests/sim/late_key_test.cpp", 'metadata.erase("corbd/first-key")'),
        "ceph osd blocklist ls": ("tests/lab/stories_accept.py", '"ceph", "osd", "blocklist", "ls"'), "ceph auth get": CEPHS_OWN, "ceph auth caps": IN_PASSING,
        "ceph health detail": CEPHS_OWN, "ceph config dump": CEPHS_OWN, "kubectl rollout undo": IN_PASSING,
        "systemctl restart corbd": "the path of a crash, which the stories of the keeper take", "kubectl cordon": "the story drains, which cordons first",
        "kubectl describe pod": KUBES_OWN,
        "corbd version": ("tests/unit/cli/version_test.cpp", "corbd version"), "corbd csi stage": ("tests/lab/calls.py", "stage"), "corbd keys": (UNIT_COMMANDS, "corbd keys ends with 0"), "kubectl apply -k": IN_PASSING, "helm upgrade": IN_PASSING,
        "helm rollback": IN_PASSING, "apt-get install": IN_PASSING,
        "nbd-client -d": "no story loses a record whose device nothing names any more"},
    (RUNBOOK, "Runbook"): {
        "kubectl -n ceph-csi exec POD -c corbd -- corbd status": "as in deploy/kubernetes; the story runs it in ceph-csi's place",
        "kubectl -n ceph-csi exec POD -c corbd -- corbd doctor --bundle": ("tests/unit/doctor/bundle_test.cpp", "write_bundle"),
        "kubectl -n ceph-csi exec POD -c corbd -- cat": KUBES_OWN,
        "corbd doctor --before-rollback": (MOVED, '"doctor", "--before-" + what')},
    (OPERATIONS, "How many volumes"): {"helm upgrade": IN_PASSING},
    (RUNBOOK, "A damaged filesystem"): {"corbd fsck ID": ("tests/lab/stories_failures.py", "fsck(agent, refusing, code=1)"),
        "corbd fsck --repair ID": ("tests/lab/stories_failures.py", 'fsck(agent, refusing, "--repair"')},
    (RUNBOOK, "CorbdServesBeyondItsEnd"): {
        "kubectl -n ceph-csi rollout undo": ("tests/lab/stories_rollout.py", "node.controller.apply(node.first"),
        "kubectl -n ceph-csi get pods": KUBES_OWN, "kubectl -n ceph-csi describe pod": KUBES_OWN},
    (RUNBOOK, "CorbdRolloutStalled"): {
        "kubectl -n ceph-csi rollout undo": ("tests/lab/stories_rollout.py", "node.controller.apply(node.first"),
        "kubectl -n ceph-csi get pods": KUBES_OWN, "kubectl -n ceph-csi describe pod": KUBES_OWN},
    (RUNBOOK, "Going back to ceph-csi"): {
        "corbd doctor --before-rollback": (MOVED, 'forecast(agent, "rollback"'), "kubectl drain": "the story runs it as the page on migrations has it",
        "kubectl uncordon": "the story runs it as the page on migrations has it",
        "pkill -TERM -x rbd-nbd": "the story runs it as the page on migrations has it", "kubectl delete pod": IN_PASSING, "kubectl rollout undo": IN_PASSING,
        "nbd-client -d": "what nobody shall do", "umount -f": "what nobody shall do",
        "corbd csi unstage": ("tests/lab/calls.py", "unstage")},
    (RELEASES, "arm64"): {"corbd unfence --self-check": IN_PASSING},
    (RELEASES, "Releases"): {
        "kubectl corbd": IN_PASSING, "kubectl apply": IN_PASSING, "kubectl kustomize": IN_PASSING, "podman build": IN_PASSING,
        "sha256sum -c --ignore-missing SHA256SUMS": ("tests/lab/release_files", "SHA256SUMS")},
    (RELEASES, "Your registry"): {
        "podman load -i corbd-image-VERSION-amd64.tar": ("tests/lab/loads", "podman"), "podman push REGISTRY/corbd:VERSION": "there is no registry here"},
    (RELEASES, "Make one"): {"kubectl corbd": IN_PASSING, "kubectl krew install": "Krew is no package of Debian; tests/lab/release_files checks the manifest's sum"},
    (RELEASES, "Without a registry"): {"ctr -n k8s.io images label": "the lab's runtime removes no image"},
    (RELEASES, "From Debian 12 to 13"): {
        begin: "no story upgrades a whole Debian" for begin in (
            "corbd unmount --all", "apt-get remove corbd", "apt-get install", "systemctl enable --now", "corbd mount --all")},
    (RELEASES, "Roll the manifests back"): {"kubectl apply -k": IN_PASSING, "kubectl -n ceph-csi rollout history": KUBES_OWN},
    (RELEASES, "Upgrade the chart"): {"helm": NO_HELM},
    (RELEASES, "Upgrade the Debian package"): {"systemctl restart corbd": "the path of a crash, which the stories of the keeper take"},
    (RELEASES, "Upgrade on Nomad and in ceph-csi's place"): {"kubectl set image": IN_PASSING},
    (RELEASES, "Uninstall from a cluster"): {"kubectl delete -k": IN_PASSING, "helm uninstall corbd": NO_HELM},
    (OPERATIONS, None): {
        "cephcsi --type=liveness": ("tests/process/cephcsi_test.cpp", '"--type=liveness"'),
        "kubectl -n ceph-csi get pods": KUBES_OWN, "kubectl -n ceph-csi logs": KUBES_OWN,
        "kubectl -n ceph-csi exec POD -c corbd -- corbd volumes": (SEEN, '"volumes"'), "corbd volumes": (SEEN, '"volumes"'), "corbd status": (SEEN, '"status"'),
        "corbd doctor": ("tests/lab/stories_container.py", '"doctor"'), "corbd doctor --bundle FILE": ("tests/unit/doctor/bundle_test.cpp", "write_bundle"),
        "corbd log-level": ("tests/unit/ops/command_test.cpp", '"log-level", "debug"'), "corbd drain": (MOVED, '"drain"'),
        "corbd fail ID --yes-really": ("tests/lab/stories_heal.py", '"fail", volume.id, "--yes-really"'),
        "corbd heal ID --adopt": ("tests/lab/stories_adopt.py", '"heal", "--adopt"'),
        "corbd heal ID --without-proof": ("tests/lab/stories_owner.py", '"heal", volume.id, "--without-proof"'),
        "corbd holders VOLUME": ("tests/lab/stories_fence.py", '"holders", volume.id'), "corbd take": (UNIT, '"take", "volume-1"'),
        "corbd volume ID": (SEEN, '"volume", volume.id'),
        "corbd mount": IN_PASSING, "corbd keys": IN_PASSING, "ceph auth rm": "Ceph's own command, as its manual has it",
        "systemctl edit corbd.service": "an editor, which no story uses", "systemctl restart corbd": "the path of a crash, which the stories of the keeper take",
        "ssh NODE systemctl reboot": "no story reboots a node of Kubernetes; `host_reboot` reboots a host",
        "kubectl drain": "the story runs it as the page on migrations has it", "kubectl uncordon": "the story runs it as the page on migrations has it",
        "kubectl label namespace ceph-csi pod-security.kubernetes.io/enforce-": "the lab's Kubernetes has no Pod Security",
        "ctr -n k8s.io images rm": "the lab's runtime removes no image",
        "rbd snap rollback": ("tests/lab/stories_model.py", '"snap", "rollback"'), "rbd object-map rebuild": ("tests/lab/stories_model.py", '"object-map", "rebuild"'),
        **dict.fromkeys(("nbd-client -d", "rbd unmap -o force", "umount -f", "umount -l", "rbd lock rm"), "what nobody shall do")},
    (STANDALONE, "Set up"): {
        "ceph config generate-minimal-conf": CEPHS_OWN, "corbd run --standalone": "corbd.service starts it so", "corbd mount --cluster": IN_PASSING},
    (KUBERNETES, "Install it"): {
        "podman build": ("tests/lab/image", "deploy/Containerfile"),
        "kubectl apply -f deploy/kubernetes/examples": ("tests/deploy/server", '"deploy/kubernetes/examples"'),
        "kubectl exec writer": "the lab has no provisioner for the claims of the examples",
        "kubectl wait --for=condition=Ready pod/writer": "the lab has no provisioner for the claims of the examples",
        "kubectl corbd -l app=csi-rbdplugin": "the story runs it as the page on migrations has it", "kubectl apply": IN_PASSING,
        "corbd volumes": (SEEN, '"volumes"'), "corbd volume ID": (SEEN, '"volume", volume.id'), "corbd drain": (MOVED, '"drain"'),
        "kubectl kustomize deploy/kubernetes/base | sed": ("tests/lab/stories_docs.py", "kubectl kustomize deploy/kubernetes/base | sed"),
        "corbd-probe": "the story's kubelet runs it as a probe", "scripts/manifests --text": ("scripts/manifests", "--text")},
    (KEYS, "With your own Secrets"): {
        "ceph auth import -i FILE": IN_PASSING, "ceph tell mon": CEPHS_OWN},
    (KEYS, "With Rook"): {"kubectl": NO_OPERATOR},
    (KEYS, "On a host without Kubernetes"): {
        "corbd mount --refresh-keys": ("deploy/systemd/corbd-keys.service", "corbd mount --refresh-keys"), "corbd keys": (HOST, '"corbd", "keys", "client."'),
        "ceph auth get client": CEPHS_OWN, "ceph auth rm client": (HOST, '"ceph", "auth", "rm"'),
        "corbd mount --write-unit": (HOST, '"mount", "--write-unit"'), "corbd unmount": ("tests/lab/stories_standalone.py", '"unmount"')},
    (KEYS, None): {
        "corbd keys": (UNIT_COMMANDS, "corbd keys ends with 0"), "corbd version": ("tests/unit/cli/version_test.cpp", "corbd version"),
        "corbd doctor": ("tests/lab/stories_container.py", '"doctor"'), "ceph versions": CEPHS_OWN, "ceph auth get-key": IN_PASSING, "ceph auth get-or-create": IN_PASSING,
        "corbd heal ID --adopt": ("tests/lab/stories_adopt.py", '"heal", "--adopt"')},
    (KUBERNETES, "Rook"): {"kubectl": NO_OPERATOR, "scripts/manifests": NO_OPERATOR},
}


class Command:
    def __init__(self, document, section, text):
        self.document, self.section, self.text = document, section, text

    @property
    def row(self):
        """Of ELSEWHERE: the place, and what this command begins with. None if no row speaks of it."""
        for place in ((self.document, self.section), (self.document, None)):
            rows = ELSEWHERE.get(place, {})
            begin = max((begin for begin, why in rows.items()
                         if self.text == begin or why != IN_PASSING and re.match(re.escape(begin) + r"(?![\w-])", self.text)), key=len, default=None)
            if begin is not None:
                return place, begin
        return None

    @property
    def elsewhere(self):
        """Why the story does not run it; None if it does."""
        return None if self.row is None else ELSEWHERE[self.row[0]][self.row[1]]

    def __repr__(self):
        return "%s, %s: `%s`" % (self.document, self.section, self.text)


def is_command(text):
    return text.startswith("POD=") or text.split(" ")[0] in PROGRAMS and " " in text.strip()


def _of_section(lines):
    """What a section shows: whole lines of its blocks, and what stands between backticks in its tables and sentences."""
    joined, fenced = "", False
    for line in lines:
        if line.startswith("```"):
            fenced = not fenced
        if fenced:
            continue
        if joined or line.startswith("    "):
            # A comment of ours behind a command begins after two blanks.
            text = re.sub(r"\s{2,}# .*", "", line.strip())
            if text.endswith("\\"):
                joined += text[:-1]
                continue
            text, joined = joined + text, ""
            if is_command(text):
                yield text
                continue
        for text in re.findall(r"`([^`]+)`", line):
            if is_command(text):
                yield text


def commands(root, document):
    """All of a document, in its order."""
    with open(os.path.join(root, document)) as file:
        lines = file.read().splitlines()
    section, of_it, found = None, [], []

    def end():
        chosen = SECTIONS[document]
        if section and (chosen is None or section in chosen):
            found.extend(Command(document, section, text) for text in _of_section(of_it))
    for line in lines:
        heading = re.match(r"#+ (.+)", line)
        if heading:
            end()
            section, of_it = heading[1], []
        else:
            of_it.append(line)
    end()
    return found


def to_run(root, document, section):
    """The texts of the commands that the story shall run for a section."""
    return [one.text for one in commands(root, document) if one.section == section and one.elsewhere is None]
