"""Scripted key management systems of clouds, and one of KMIP: each answers as its documentation says, and nothing else. vault.py has Vault."""
import base64
import hashlib
import hmac
import http.server
import json
import os
import secrets
import socketserver
import ssl
import struct
import threading
import urllib.parse

from machine import put, run

HOSTS = ("localhost", "kms.eu-west-1.amazonaws.com", "sts.eu-west-1.amazonaws.com", "sts.amazonaws.com", "login.microsoftonline.com", "shop.vault.azure.net")


class Authority:
    """A certificate authority, the servers' certificate for every name in HOSTS, and one for a client; files in `folder`."""

    def __init__(self, folder):
        self.folder = folder
        os.makedirs(folder, exist_ok=True)
        self.ca, self.cert, self.key = (os.path.join(folder, name) for name in ("ca.pem", "server.pem", "server.key"))
        self.client_cert, self.client_key = (os.path.join(folder, name) for name in ("client.pem", "client.key"))
        run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=lab authority", "-keyout", folder + "/ca.key",
             "-out", self.ca])
        names = ",".join(["DNS:" + name for name in HOSTS] + ["IP:127.0.0.1"])
        for cert, key, extension in ((self.cert, self.key, "subjectAltName=" + names), (self.client_cert, self.client_key, "extendedKeyUsage=clientAuth")):
            put(cert + ".ext", extension)
            run(["openssl", "req", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=lab", "-keyout", key, "-out", cert + ".csr"])
            run(["openssl", "x509", "-req", "-in", cert + ".csr", "-CA", self.ca, "-CAkey", folder + "/ca.key", "-CAcreateserial", "-days", "2",
                 "-extfile", cert + ".ext", "-out", cert])

    def server_side(self, client_needs_certificate=False):
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(self.cert, self.key)
        if client_needs_certificate:
            made.load_verify_locations(self.ca)
            made.verify_mode = ssl.CERT_REQUIRED
        return made


class Refused(Exception):
    def __init__(self, status, text):
        super().__init__(text)
        self.status, self.text = status, text


class HttpServer:
    """One server for every HTTP KMS, by host name and path. `tls`: an Authority, or None for plain HTTP."""

    def __init__(self, tls=None, port=0):
        self.asked, self.faults, self.routes = [], [], []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one(self):
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                path, _, query = self.path.partition("?")
                server.asked.append((self.command, path))
                try:
                    if server.faults:
                        raise server.faults.pop(0)
                    for matches, answer in server.routes:
                        if matches(self.headers.get("Host", "").split(":")[0], path):
                            status, reply = 200, answer(self.command, path, query, self.headers, body)
                            break
                    else:
                        raise Refused(404, json.dumps({"errors": []}))
                except Refused as refused:
                    status, reply = refused.status, refused.text
                text = (reply if isinstance(reply, str) else json.dumps(reply)).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = handle_one

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler)
        if tls:
            self.http.socket = tls.server_side().wrap_socket(self.http.socket, server_side=True)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        self.port = self.http.server_port

    def serve(self, host, prefix, answer):
        self.routes.append((lambda name, path: (host is None or name == host) and path.startswith(prefix), answer))

    def end(self):
        self.http.shutdown()
        self.http.server_close()


def signature_v4(headers, method, path, query, body, secret):
    """What the Authorization header must be: https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html"""
    fields = dict(part.strip().split("=", 1) for part in headers["Authorization"].partition(" ")[2].split(","))
    names = fields["SignedHeaders"].split(";")
    scope = fields["Credential"].split("/", 1)[1]
    canonical = "\n".join([method, path, query] + ["%s:%s" % (name, " ".join(headers[name].split())) for name in names] +
                          ["", fields["SignedHeaders"], hashlib.sha256(body).hexdigest()])
    text = "\n".join(["AWS4-HMAC-SHA256", headers["X-Amz-Date"], scope, hashlib.sha256(canonical.encode()).hexdigest()])
    key = ("AWS4" + secret).encode()
    for part in scope.split("/"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return fields, hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


class Aws:
    """KMS' Encrypt and Decrypt, and STS' AssumeRoleWithWebIdentity, in eu-west-1."""
    KEY = "arn:aws:kms:eu-west-1:111122223333:key/lab"
    ROLE = "arn:aws:iam::111122223333:role/lab"

    def __init__(self, server, token):
        self.users, self.sealed, self.token = {"AKIDLAB": "canary-aws-secret"}, {}, token
        server.serve("kms.eu-west-1.amazonaws.com", "/", self.kms)
        for host in ("sts.eu-west-1.amazonaws.com", "sts.amazonaws.com"):
            server.serve(host, "/", self.sts)

    def kms(self, method, path, query, headers, body):
        credential = headers["Authorization"].split("Credential=")[1].split("/")[0]
        if credential not in self.users:
            raise Refused(400, json.dumps({"__type": "UnrecognizedClientException", "message": "The security token included in the request is invalid."}))
        fields, right = signature_v4(headers, method, path, query, body, self.users[credential])
        if fields["Signature"] != right or "host" not in fields["SignedHeaders"].split(";"):
            raise Refused(400, json.dumps({"__type": "InvalidSignatureException", "message": "The request signature we calculated does not match."}))
        asked = json.loads(body)
        if headers["X-Amz-Target"] == "TrentService.Encrypt" and asked["KeyId"] == self.KEY:
            name = secrets.token_bytes(24)
            self.sealed[name] = base64.b64decode(asked["Plaintext"])
            return {"CiphertextBlob": base64.b64encode(name).decode(), "KeyId": self.KEY, "EncryptionAlgorithm": "SYMMETRIC_DEFAULT"}
        if headers["X-Amz-Target"] == "TrentService.Decrypt" and base64.b64decode(asked["CiphertextBlob"]) in self.sealed:
            return {"Plaintext": base64.b64encode(self.sealed[base64.b64decode(asked["CiphertextBlob"])]).decode(), "KeyId": self.KEY}
        raise Refused(400, json.dumps({"__type": "InvalidCiphertextException"}))

    def sts(self, method, path, query, headers, body):
        asked = dict(urllib.parse.parse_qsl(body.decode() or query))
        if (asked.get("Action"), asked.get("RoleArn"), asked.get("WebIdentityToken")) != ("AssumeRoleWithWebIdentity", self.ROLE, self.token):
            raise Refused(403, "<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not authorized</Message></Error></ErrorResponse>")
        self.users["ASIALAB"] = "canary-sts-secret"
        return ('<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult><Credentials>'
                "<AccessKeyId>ASIALAB</AccessKeyId><SecretAccessKey>canary-sts-secret</SecretAccessKey><SessionToken>session</SessionToken>"
                "<Expiration>2099-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>")


class Azure:
    """Entra ID's client assertion, and Key Vault's secrets."""
    TENANT, CLIENT = "72f988bf-0000-41af-91ab-2d7cd011db47", "6731de76-0000-4ae6-b161-4e4bfea7b1c9"

    def __init__(self, server, authority):
        self.authority, self.tokens, self.store = authority, set(), {}
        server.serve("login.microsoftonline.com", "/" + self.TENANT + "/oauth2/v2.0/token", self.login)
        server.serve("shop.vault.azure.net", "/secrets/", self.secret)

    def login(self, method, path, query, headers, body):
        asked = dict(urllib.parse.parse_qsl(body.decode()))
        head, claims, signature = asked["client_assertion"].split(".")
        decode = lambda text: base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))  # noqa: E731
        name = os.path.join(self.authority.folder, "assertion")
        with open(name, "wb") as file:
            file.write(decode(signature))
        put(name + ".text", head + "." + claims)
        public = run(["openssl", "x509", "-in", self.authority.client_cert, "-noout", "-pubkey"])
        put(name + ".pub", public)
        kind = json.loads(decode(head))["alg"]
        padding = ["-sigopt", "rsa_padding_mode:pss", "-sigopt", "rsa_pss_saltlen:-1"] if kind == "PS256" else []
        verified = run(["openssl", "dgst", "-sha256", "-verify", name + ".pub", "-signature", name] + padding + [name + ".text"], ok=False)
        said = json.loads(decode(claims))
        names_client = said["iss"] == said["sub"] == self.CLIENT and self.TENANT in said["aud"]
        if "Verified OK" not in verified or not names_client or "x5t" not in head_fields(head):
            raise Refused(401, json.dumps({"error": "invalid_client", "error_description": "AADSTS700027"}))
        if asked.get("scope") != "https://vault.azure.net/.default" or asked.get("grant_type") != "client_credentials":
            raise Refused(400, json.dumps({"error": "invalid_scope"}))
        made = "eyJ" + secrets.token_hex(16)
        self.tokens.add(made)
        return {"token_type": "Bearer", "expires_in": 3599, "access_token": made}

    def secret(self, method, path, query, headers, body):
        if headers.get("Authorization", "").partition(" ")[2] not in self.tokens:
            raise Refused(401, json.dumps({"error": {"code": "Unauthorized"}}))
        if "api-version=" not in query:
            raise Refused(400, json.dumps({"error": {"code": "BadParameter", "message": "api-version must be specified"}}))
        name = urllib.parse.unquote(path[len("/secrets/"):].rstrip("/"))
        if method == "PUT":
            self.store[name] = json.loads(body)["value"]
        elif name not in self.store:
            raise Refused(404, json.dumps({"error": {"code": "SecretNotFound"}}))
        return {"value": self.store[name], "id": "https://shop.vault.azure.net/secrets/%s/1" % name}


def head_fields(head):
    fields = json.loads(base64.urlsafe_b64decode(head + "=" * (-len(head) % 4)))
    return {name.partition("#")[0] for name in fields}


class KeyProtect:
    """IBM's token service, and wrap and unwrap of a root key."""
    INSTANCE, ROOT = "7abef064-01dd-4237-9ea5-8b3890970be3", "root-key"

    def __init__(self, server):
        self.sealed = {}
        server.serve(None, "/oidc/token", self.token)
        server.serve(None, "/api/v2/keys/" + self.ROOT, self.keys)

    def token(self, method, path, query, headers, body):
        asked = dict(urllib.parse.parse_qsl(body.decode()))
        if asked.get("grant_type") != "urn:ibm:params:oauth:grant-type:apikey" or asked.get("apikey") != "canary-api-key":
            raise Refused(400, json.dumps({"errorCode": "BXNIM0415E", "errorMessage": "Provided API key could not be found."}))
        return {"access_token": "ibm-token", "token_type": "Bearer", "expires_in": 3600, "expiration": 4102444800}

    def keys(self, method, path, query, headers, body):
        if headers.get("Authorization") != "Bearer ibm-token" or headers.get("Bluemix-Instance") != self.INSTANCE:
            raise Refused(401, json.dumps({"resources": [{"errorMsg": "Unauthorized"}]}))
        asked = json.loads(body)
        action = path.rsplit("/", 1)[1] if "/actions/" in path else dict(urllib.parse.parse_qsl(query)).get("action")
        if action == "wrap":
            name = secrets.token_hex(24)
            self.sealed[name] = (asked["plaintext"], asked.get("aad"))
            return {"ciphertext": base64.b64encode(name.encode()).decode()}
        found = self.sealed.get(base64.b64decode(asked["ciphertext"]).decode())
        if action != "unwrap" or found is None or found[1] != asked.get("aad"):
            raise Refused(422, json.dumps({"resources": [{"errorMsg": "Unprocessable Entity: the ciphertext is not valid"}]}))
        return {"plaintext": found[0]}


class Kmip:
    """DiscoverVersions, Encrypt, Decrypt and Get of KMIP 1.4: https://docs.oasis-open.org/kmip/spec/v1.4/kmip-spec-v1.4.html

    PyKMIP is asked the same (tests/process/kmip_contract). What a real one does that this one does not: it keeps keys that clients make, each with a state and
    an owner by the client's certificate; it encrypts (here a text is a name of what it stands for, and the nonce must be the same); it locates and destroys.
    """
    KEY, FOREIGN = "key-of-the-lab", "key-of-another-client"
    NOT_FOUND, DENIED, FAILED = 1, 0x0C, 0x100

    def __init__(self, authority):
        self.sealed, self.asked = {}, []
        server, context = self, authority.server_side(client_needs_certificate=True)

        class Handler(socketserver.BaseRequestHandler):
            def handle(self):
                with context.wrap_socket(self.request, server_side=True) as stream:
                    while True:
                        head = read_exactly(stream, 8)
                        if head is None:
                            return
                        length = struct.unpack(">I", head[4:])[0]
                        stream.sendall(server.answer(head + read_exactly(stream, length)))

        socketserver.ThreadingTCPServer.allow_reuse_address = True
        self.tcp = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self.tcp.daemon_threads = True
        threading.Thread(target=self.tcp.serve_forever, daemon=True).start()
        self.port = self.tcp.server_address[1]

    def answer(self, request):
        message = parse(request)[0][2]
        item = find(message, 0x42000F)
        operation, identifier, payload = find(item, 0x42005C), find(item, 0x420093), find(item, 0x420079)
        self.asked.append(operation)
        version = structure(0x420069, integer(0x42006A, 1), integer(0x42006B, 4))
        reply = {0x1E: lambda: version, 0x1F: self.encrypt, 0x20: self.decrypt, 0x0A: self.get}[operation]
        made = reply() if operation == 0x1E else self.refusal(payload) or reply(payload)
        status = [enumeration(0x42007F, 1), enumeration(0x42007E, made)] if isinstance(made, int) else [enumeration(0x42007F, 0), structure(0x42007C, made)]
        echoed = [octets(0x420093, identifier)] if identifier is not None else []
        head = structure(0x42007A, version, moment(0x420092), integer(0x42000D, 1))
        return structure(0x42007B, head, structure(0x42000F, enumeration(0x42005C, operation), *echoed, *status))

    def refusal(self, payload):
        return {self.KEY: None, self.FOREIGN: self.DENIED}.get(find(payload, 0x420094), self.NOT_FOUND)

    def encrypt(self, payload):
        name = secrets.token_bytes(32)
        self.sealed[name] = (find(payload, 0x4200C2), find(payload, 0x42003D))
        return text(0x420094, self.KEY) + octets(0x4200C2, name)

    def decrypt(self, payload):
        data, nonce = self.sealed.get(find(payload, 0x4200C2), (None, None))
        return text(0x420094, self.KEY) + octets(0x4200C2, data) if data is not None and nonce == find(payload, 0x42003D) else self.FAILED

    def get(self, payload):
        material = structure(0x420045, octets(0x420043, b"k" * 32))
        value = structure(0x420040, enumeration(0x420042, 1), material, enumeration(0x420028, 3), integer(0x42002A, 256))
        return enumeration(0x420057, 2) + text(0x420094, self.KEY) + structure(0x42008F, value)


def read_exactly(stream, count):
    data = b""
    while len(data) < count:
        more = stream.recv(count - len(data))
        if not more:
            return None
        data += more
    return data


def parse(data):
    """TTLV: a list of (tag, type, value)."""
    found = []
    while data:
        tag, kind, length = int.from_bytes(data[:3], "big"), data[3], struct.unpack(">I", data[4:8])[0]
        raw = data[8:8 + length]
        value = {1: lambda: parse(raw), 2: lambda: struct.unpack(">i", raw)[0], 5: lambda: struct.unpack(">I", raw)[0], 7: raw.decode}.get(kind, lambda: raw)()
        found.append((tag, kind, value))
        data = data[8 + -(-length // 8) * 8:]
    return found


def find(items, tag):
    return next((value for this, _, value in items if this == tag), None)


def item(tag, kind, raw):
    return tag.to_bytes(3, "big") + bytes([kind]) + struct.pack(">I", len(raw)) + raw + b"\0" * (-len(raw) % 8)


def structure(tag, *parts):
    return item(tag, 1, b"".join(parts))


def integer(tag, value):
    return item(tag, 2, struct.pack(">i", value))


def enumeration(tag, value):
    return item(tag, 5, struct.pack(">I", value))


def text(tag, value):
    return item(tag, 7, value.encode())


def octets(tag, value):
    return item(tag, 8, value)


def moment(tag):
    return item(tag, 9, struct.pack(">q", 1769860800))
