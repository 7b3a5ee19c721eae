"""Writes down what a kubelet sends: a proxy before a driver's CSI socket. tests/sim/kubelet_test.cpp replays the records (tests/kubelet)."""
import json
import os
import threading
import time
from concurrent import futures

import calls
from checks import Failed, wait_for
from machine import put

# The most lines of a record: people read it.
MOST = 100
FAILED = "that failed"


class Recorder:
    """A record is a header and lines: events, and calls by their beginning. It has no secrets. `names` says what is written in the place of a text that
    would differ in each record."""

    def __init__(self, socket, driver, names, kubelet):
        import grpc
        self.socket, self.driver, self.names, self.kubelet = socket, driver, dict(names), kubelet
        self.lock, self.lines, self.held, self.released = threading.Lock(), [], set(), threading.Event()
        self.begun = time.monotonic()  # the driver is registered before a record begins
        self.released.set()
        recorder = self

        class Every(grpc.GenericRpcHandler):
            def service(self, details):
                return grpc.unary_unary_rpc_method_handler(lambda request, context: recorder._pass_on(details.method, request, context))

        self.server = grpc.server(futures.ThreadPoolExecutor(32), handlers=[Every()])
        if not self.server.add_insecure_port("unix:" + socket):
            raise Failed("nobody can listen at " + socket)
        self.server.start()

    def begin(self, situation):
        with self.lock:
            self.begun = time.monotonic()
            self.lines = [{"situation": situation, "kubelet": self.kubelet, "source": "recorded by the story kubelet_recorded"}]

    def event(self, text):
        with self.lock:
            self.lines.append({"at": self._now(), "event": text})

    def hold(self, method):
        """Holds calls of this method back from the driver until release()."""
        self.released.clear()
        self.held.add(method)

    def release(self):
        self.held.clear()
        self.released.set()

    def wait_call(self, method, timeout, code=None, count=1):
        """Waits until so many calls of this method have begun, or have ended with that code, or with any but OK (FAILED)."""
        def counts(line):
            return line.get("call") == method and (code in (None, line.get("code")) or (code is FAILED and line.get("code", "OK") != "OK"))

        def look():
            with self.lock:
                return len([line for line in self.lines if counts(line)]) >= count
        wait_for("%d of kubelet's calls %s %s" % (count, method, code or ""), look, timeout, 0.1)

    def end(self, path):
        with self.lock:
            whole = [line for line in self.lines if "call" not in line or "code" in line]
        if len(whole) > MOST:
            raise Failed("%s has %d lines, more than anybody reads" % (path, len(whole)))
        put(path, "".join(json.dumps(line) + "\n" for line in whole))

    def _now(self):
        return round(time.monotonic() - self.begun, 3)

    def _request(self, method, message):
        from google.protobuf import json_format
        name = method[1:].rpartition(".")[0] + "." + method.rpartition("/")[2] + "Request"
        request = json_format.MessageToDict(calls.MESSAGES[name].FromString(message), preserving_proto_field_name=True)
        request.pop("secrets", None)
        request.get("volume_context", {}).pop("csi.storage.k8s.io/serviceAccount.tokens", None)
        text = json.dumps(request, sort_keys=True)
        for found, name in list(self.names.items()):
            text = text.replace(found, name)
        return json.loads(text)

    def _pass_on(self, method, message, context):
        import grpc
        short, left = method.rpartition("/")[2], context.time_remaining()
        line = {"at": 0, "call": short, "deadline": left and round(left), "request": self._request(method, message)}
        with self.lock:
            line["at"] = begin = self._now()
            self.lines.append(line)
        if short in self.held:
            self.released.wait(left)
        channel = grpc.insecure_channel("unix:" + self.driver)
        asked = channel.unary_unary(method).future(message, timeout=left)
        # Kubelet may leave first, or has left while its call was held.
        if not context.add_callback(asked.cancel):
            asked.cancel()
        try:
            answer, code, details = asked.result(), "OK", ""
        except grpc.RpcError as error:
            answer, code, details = None, error.code().name, error.details()
        except grpc.FutureCancelledError:
            answer, code, details = None, "CANCELLED", ""
        channel.close()
        remaining = context.time_remaining()
        if remaining is not None and remaining <= 0:
            code = "DEADLINE_EXCEEDED"
        elif not context.is_active():
            line["cancelled"], code = True, "CANCELLED"
        with self.lock:
            line.update(code=code, took=round(self._now() - begin, 3))
        if code != "OK" and context.is_active():
            context.abort(getattr(grpc.StatusCode, code), details)
        return answer or b""


def records(lab):
    """The folder where a story leaves its records."""
    folder = os.path.join(lab.out, "records")
    os.makedirs(folder, exist_ok=True)
    return folder
