"""A Vault on loopback that a story scripts: logins of service accounts, and one KV engine of version 2 at secret/."""
import http.server
import json
import threading

TOKEN = "hvs.lab"


class Vault:
    """knows_account(token): whether a service account's token is one of the role's. Vault asks the API server for that."""

    def __init__(self, knows_account):
        self.knows_account, self.sealed, self.secrets, self.asked = knows_account, False, {}, []
        vault = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, body):
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def handle_one(self):
                body = json.loads(self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}")
                vault.asked.append("%s %s" % (self.command, self.path))
                self.answer(*vault.reply(self.command, self.path, self.headers.get("Authorization"), body))

            do_GET = do_PUT = handle_one

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def address(self):
        return "http://127.0.0.1:%d" % self.server.server_address[1]

    def reply(self, method, path, authorization, body):
        if self.sealed:
            return 503, {"errors": ["Vault is sealed"]}
        if path == "/v1/auth/kubernetes/login":
            known = body.keys() == {"role", "jwt"} and body["role"] == "csi-kubernetes" and self.knows_account(body["jwt"])
            return (200, {"auth": {"client_token": TOKEN}}) if known else (403, {"errors": ["permission denied"]})
        if authorization != "Bearer " + TOKEN:
            return 403, {"errors": ["permission denied"]}
        versions = self.secrets.setdefault(path, [])
        if method == "PUT":
            if body.get("options", {}).get("cas", len(versions)) != len(versions):
                return 400, {"errors": ["check-and-set parameter did not match the current version"]}
            versions.append(body["data"])
            return 200, {"data": {"version": len(versions)}}
        if not versions:
            return 404, {"errors": []}
        return 200, {"data": {"data": versions[-1], "metadata": {"version": len(versions)}}}

    def key(self, volume_id):
        """As ceph-csi would read it; None: there is none."""
        versions = self.secrets.get("/v1/secret/data/ceph-csi/" + volume_id)
        return versions[-1]["data"]["passphrase"] if versions else None
