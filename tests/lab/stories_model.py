"""An image's bytes against a model of them, in the manner of fsx: random requests, and what may happen to the agent, the volume and the image meanwhile.

Everything is chosen from a seed, and CORBD_MODEL_SEED repeats one. Other clients do what Ceph's own fsx does (test/librbd/fsx.cc): they resize, clone with
another striping, and flatten; and every parent is compared at the end. Beside that they take snapshots, roll back, and switch the object map.
"""
import os
import random

from checks import Failed, check, long, say
from cluster import FEATURES, Image
from machine import KIB, MIB
from stories_order import Disturbances
from stories_seen import ask
from stories_zeroes import FLAG, takes_write_zeroes
from writer import Model

SEED = 20261128
REQUESTS = 150  # of a round
LAYOUTS = ((4 * MIB, 4 * MIB, 1), (MIB, 64 * KIB, 4), (MIB, 16 * KIB, 3), (64 * KIB, 64 * KIB, 1))  # object size, stripe unit, stripe count


class Kind:
    """What an image can be."""

    def __init__(self, features=FEATURES, data_pool=None, layout=LAYOUTS[0]):
        self.features = features
        # A clone has its parent's striping unless it is told another.
        self.options = ["--object-size", "%dB" % layout[0], "--stripe-unit", "%dB" % layout[1], "--stripe-count", str(layout[2])]
        self.options += ["--data-pool", data_pool] if data_pool else []

    def __str__(self):
        return " ".join([self.features] + self.options)


def layout_of(image):
    """In the words of corbd-writer, as the cluster says it."""
    found = image.info()
    values = (found["object_size"], found.get("stripe_unit", found["object_size"]), found.get("stripe_count", 1))
    return [word for name, value in zip(("object-size", "stripe-unit", "stripe-count"), values) for word in ("--" + name, str(value))]


def chosen_kind(chosen):
    return Kind(chosen.choice((FEATURES, FEATURES, "layering,exclusive-lock", "layering")), chosen.choice((None, "other")), chosen.choice(LAYOUTS))


class Modelled(Disturbances):
    """A raw block volume under random requests. Its image may be replaced by a clone."""

    def __init__(self, lab, seed, kind, keeper=False, zeroes=False):
        self.chosen, self.seed, self.kind = random.Random(seed), seed, kind
        self.requests, self.rounds, self.snapshots = 0, 0, 0
        self.saved = None  # (name of the latest snapshot of this image, its model)
        self.kept = []  # (image or snapshot, its model): what nobody changes any more
        self.has_parent = False
        size = self.chosen.randrange(16 * MIB, 32 * MIB, 4 * KIB)
        self.image = lab.image("%d" % seed, size=size, features=kind.features, options=kind.options)
        self.model = Model(lab, os.path.join(lab.dir, "model-%d" % seed), size, layout_of(self.image))
        flags = (["--keeper"] if keeper else []) + ([FLAG] if zeroes else [])
        agent = lab.agent("agent-%d" % seed, flags=flags).start()
        super().__init__(lab, agent, [agent.volume(self.image, block=True)], keeper)
        self.stage()

    @property
    def volume(self):
        return self.volumes[0]

    def stage(self):
        self.volume.stage(patience=30)
        self.volume.publish(patience=30)

    def unstage(self):
        self.volume.unpublish(patience=30)
        self.volume.unstage(patience=60)
        self.volume.expect_gone()

    def rbd(self, *words):
        self.lab.admin("rbd", *words)

    def play(self, *happens):
        """A round of requests, in the middle of which that happens."""
        self.rounds += 1
        self.model.start(self.volume.staged_path, self.seed * 1000 + self.rounds, self.requests + 1, REQUESTS)
        self.requests += REQUESTS
        for number, one in enumerate(happens):
            self.model.wait_until(REQUESTS - 20 * (number + 1))
            one()
        told = self.model.end()
        check(not told["not_supported"] or not takes_write_zeroes(self.volume.device), "a device that takes WRITE_ZEROES refused some: %s" % told)

    # --- under requests

    def kill(self):
        if "exclusive-lock" in self.kind.features:
            super().kill()
            return
        # Nothing shows who wrote last, so an operator says it.
        check(not self.keeper, "not made for this")
        self.agent.kill()
        self.agent.start()
        self.agent.wait_event("volume.heal_failed", 60, volume=self.volume.id, code="unproven")
        ask(self.agent, "heal", self.volume.id, "--without-proof")
        self.agent.wait_event("device.reconnected", 60, volume=self.volume.id)

    def change_object_map(self):
        for change, names in (("disable", ("fast-diff", "object-map")), ("enable", ("object-map", "fast-diff"))):
            self.rbd("feature", change, self.image.spec, *names)
        # The maps of snapshots are empty and invalid until they are rebuilt too, and a rollback copies them to the image as they are.
        for spec in [self.image.spec] + [spec for spec, _ in self.kept if spec.startswith(self.image.spec + "@")]:
            self.rbd("object-map", "rebuild", spec)

    def flatten(self):
        self.rbd("flatten", self.image.spec)
        self.has_parent = False

    def pass_snapshot(self):
        for action in ("create", "rm"):
            self.rbd("snap", action, self.image.spec + "@passing")

    def grow(self):
        size = self.model.size + self.chosen.randrange(4 * KIB, 8 * MIB, 4 * KIB)
        self.rbd("resize", "-s", "%dB" % size, self.image.spec)
        grown = self.volume.expand(size, patience=30)
        check(grown == size, "the volume grew to %d bytes, not %d" % (grown, size))
        self.model.resize(size)

    # --- between requests

    def snapshot(self):
        self.snapshots += 1
        name = "s%d" % self.snapshots
        self.rbd("snap", "create", self.image.spec + "@" + name)
        self.saved = (name, self.model.copy("%s.%s" % (self.model.path, name)))
        self.kept.append((self.image.spec + "@" + name, self.saved[1]))

    def shrink(self):
        self.unstage()
        size = self.chosen.randrange(4 * MIB, max(self.model.size, 8 * MIB), 4 * KIB)
        self.rbd("resize", "--allow-shrink", "-s", "%dB" % size, self.image.spec)
        self.model.resize(size)
        self.stage()

    def roll_back(self):
        self.unstage()
        self.rbd("snap", "rollback", "%s@%s" % (self.image.spec, self.saved[0]))
        self.model = self.saved[1].copy(self.model.path)
        self.stage()

    def go_on_with_clone(self, kind):
        self.unstage()
        name, model = self.saved
        self.rbd("snap", "protect", "%s@%s" % (self.image.spec, name))
        clone = Image(self.lab, "%s-%s" % (self.image.name, name), self.image.pool)
        self.lab.admin("rbd", "rm", "--no-progress", clone.spec, ok=False)
        self.rbd("clone", "--image-feature", kind.features, *kind.options, "%s@%s" % (self.image.spec, name), clone.spec)
        self.kept.append((self.image.spec, self.model))
        self.model = model.copy("%s.%s.clone" % (self.model.path, name), layout_of(clone))
        self.image, self.kind, self.saved, self.has_parent = clone, kind, None, True
        self.volumes = [self.agent.volume(clone, block=True, user=self.volume.user, key_file=self.volume.key_file)]
        self.stage()

    # --- at the end

    def compare(self):
        """Another client reads every image and snapshot, and finds what the model says."""
        self.unstage()
        self.agent.stop()
        self.kept.append((self.image.spec, self.model))
        exported = os.path.join(self.lab.out, "exported")
        for spec, model in self.kept:
            self.rbd("export", spec, exported)
            try:
                model.expect(exported)
            except Failed as failed:
                raise Failed("%s: %s" % (spec, failed))
            finally:
                os.unlink(exported)
        self.check_object_map()

    def check_object_map(self):
        if "object-map" in self.kind.features:
            self.rbd("object-map", "check", self.image.spec)
            flags = self.image.info()["flags"]
            check(not flags, "%s: %s" % (self.image.spec, flags))


def judged(lab, seed, kind, rounds, keeper=False, zeroes=False):
    """rounds: called with the scene, makes its rounds."""
    scene = None
    try:
        scene = Modelled(lab, seed, kind, keeper, zeroes and not lab.native)
        rounds(scene)
        scene.compare()
    except Failed as failed:
        raise Failed("CORBD_MODEL_SEED=%d, round %d of %s%s: %s" % (seed, scene.rounds if scene else 0, scene.kind if scene else kind,
                                                                     " with a keeper" if keeper else "", failed))
    say("seed %d: %d requests in %d rounds, %d images and snapshots are as the model says" % (seed, scene.requests, scene.rounds, len(scene.kept)))


# [failure:1][failure:150]
def story_modelled(lab):
    """random reads, writes, discards and zeroings, over kills, a handover, a new Ceph user, snapshots, resizes, a clone and a rollback, leave every byte as a model says"""
    def rounds(scene):
        scene.play(scene.kill)
        scene.snapshot()
        scene.play(scene.hand_over, scene.pass_snapshot)
        scene.grow()
        scene.play(scene.change_object_map)
        scene.go_on_with_clone(Kind(data_pool="other", layout=LAYOUTS[1]))
        scene.play(scene.kill)
        scene.snapshot()
        scene.play(scene.flatten, scene.rotate)
        scene.shrink()
        scene.play()
        scene.roll_back()
        scene.play()
    judged(lab, int(os.environ.get("CORBD_MODEL_SEED", SEED)), Kind(), rounds, zeroes=True)


def chosen_rounds(scene):
    for _ in range(8):
        happens = [scene.hand_over, scene.pass_snapshot, scene.grow]
        happens += [scene.kill] if not scene.keeper or "exclusive-lock" in scene.kind.features else []
        happens += [] if scene.keeper else [scene.rotate]
        happens += [scene.change_object_map] if "object-map" in scene.kind.features else []
        happens += [scene.flatten] if scene.has_parent else []
        scene.play(*scene.chosen.sample(happens, scene.chosen.randrange(1, 4)))
        then = [scene.snapshot, scene.shrink]
        then += [scene.roll_back, lambda: scene.go_on_with_clone(chosen_kind(scene.chosen))] if scene.saved else []
        scene.chosen.choice(then)()
    scene.play()


@long
def story_modelled_20(lab):
    """random requests of 20 seeds to images of every kind, with and without a keeper, over whatever happens to agent, volume and image, leave every byte as a model says"""
    seeds = [int(os.environ["CORBD_MODEL_SEED"])] if "CORBD_MODEL_SEED" in os.environ else range(SEED, SEED + 20)
    for seed in seeds:
        judged(lab, seed, chosen_kind(random.Random(seed)), chosen_rounds, keeper=seed % 2 == 1, zeroes=seed // 2 % 2 == 1)


story_modelled_20.limit = 3600
