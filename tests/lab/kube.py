"""A real API server for the stories: objects by their paths. CORBD_LAB_KUBECONFIG names the server (JSON, made by scripts/lab/kubernetes)."""
import json
import os
import ssl
import urllib.error
import urllib.request

from checks import Failed


class Server:
    def __init__(self):
        with open(os.environ["CORBD_LAB_KUBECONFIG"]) as file:
            config = json.load(file)
        cluster = config["clusters"][0]["cluster"]
        self.url, self.token = cluster["server"], config["users"][0]["user"]["token"]
        self.trust = ssl.create_default_context(cafile=cluster["certificate-authority"])

    def ask(self, method, path, body=None, missing=False, kind=None):
        """The answer; None for an object that is not there, if that is no mistake."""
        kind = kind or ("application/merge-patch+json" if method == "PATCH" else "application/json")
        headers = {"Authorization": "Bearer " + self.token, "Content-Type": kind}
        request = urllib.request.Request(self.url + path, json.dumps(body).encode() if body is not None else None, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60, context=self.trust) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if missing and error.code == 404:
                return None
            raise Failed("%s %s: %d: %s" % (method, path, error.code, error.read()[:500]))

    def get(self, path):
        return self.ask("GET", path, missing=True)

    def create(self, path, kind, version, name, **more):
        return self.ask("POST", path, dict(kind=kind, apiVersion=version, metadata={"name": name}, **more))

    def patch(self, path, **body):
        return self.ask("PATCH", path, body)

    def delete(self, path):
        self.ask("DELETE", path)
