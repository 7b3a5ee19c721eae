"""Images of the lab's cluster."""
import json

FEATURES = "layering,exclusive-lock,object-map,fast-diff"


class Image:
    def __init__(self, lab, name, pool):
        self.lab, self.name, self.pool = lab, name, pool

    @property
    def spec(self):
        return self.pool + "/" + self.name

    def info(self):
        return json.loads(self.lab.admin("rbd", "info", "--format", "json", self.spec))

    def remove(self):
        self.lab.admin("rbd", "rm", "--no-progress", self.spec)
