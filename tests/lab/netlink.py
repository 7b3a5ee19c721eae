"""The NBD netlink commands that the cleanup and a measurement of the driver need. They depend on nothing that is under test.

Run as a program, it disconnects every device of the lab. Their identifiers begin with "lab-".
"""
import glob
import os
import re
import socket
import struct

NLM_F_REQUEST, NLM_F_ACK = 1, 4
CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME, GENL_ID_CTRL = 3, 1, 2, 0x10
NBD_CMD_CONNECT, NBD_CMD_DISCONNECT, NBD_CMD_RECONFIGURE = 1, 2, 3
(NBD_ATTR_INDEX, NBD_ATTR_SIZE_BYTES, NBD_ATTR_BLOCK_SIZE_BYTES, NBD_ATTR_SERVER_FLAGS, NBD_ATTR_SOCKETS, NBD_ATTR_DEAD_CONN_TIMEOUT,
 NBD_ATTR_BACKEND_IDENTIFIER) = 1, 2, 3, 5, 7, 8, 10
NBD_SOCK_ITEM = NBD_SOCK_FD = NBD_FLAG_HAS_FLAGS = 1


def _attribute(kind, payload):
    return struct.pack("=HH", 4 + len(payload), kind) + payload + b"\0" * (-len(payload) % 4)


def _ask(sock, family, command, attributes):
    body = struct.pack("=BBH", command, 1, 0) + attributes
    sock.send(struct.pack("=IHHII", 16 + len(body), family, NLM_F_REQUEST | NLM_F_ACK, 1, 0) + body)
    found = {}
    while True:
        data = sock.recv(65536)
        while data:
            length, kind = struct.unpack_from("=IH", data)
            if kind == 2:  # NLMSG_ERROR, which with 0 is the acknowledgement
                error = -struct.unpack_from("=i", data, 16)[0]
                if error:
                    raise OSError(error, "nbd netlink")
                return found
            place = 20
            while place + 4 <= length:
                size, name = struct.unpack_from("=HH", data, place)
                found[name & 0x3FFF] = data[place + 4 : place + size]
                place += (size + 3) & ~3
            data = data[(length + 3) & ~3 :]


class Nbd:
    """The driver. Each call waits until it has carried the command out."""

    def __enter__(self):
        self.sock = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
        self.sock.settimeout(30)
        self.sock.bind((0, 0))
        family = _ask(self.sock, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, _attribute(CTRL_ATTR_FAMILY_NAME, b"nbd\0"))
        self.family = struct.unpack("=H", family[CTRL_ATTR_FAMILY_ID][:2])[0]
        return self

    def __exit__(self, *_):
        self.sock.close()

    def connect(self, link, size, identifier):
        """Returns the device's number."""
        found = _ask(self.sock, self.family, NBD_CMD_CONNECT, _number("=Q", NBD_ATTR_SIZE_BYTES, size) + _number("=Q", NBD_ATTR_BLOCK_SIZE_BYTES, 4096)
                     + _number("=Q", NBD_ATTR_SERVER_FLAGS, NBD_FLAG_HAS_FLAGS) + _number("=Q", NBD_ATTR_DEAD_CONN_TIMEOUT, 600)
                     + _attribute(NBD_ATTR_BACKEND_IDENTIFIER, identifier.encode() + b"\0") + _socket(link))
        return struct.unpack("=I", found[NBD_ATTR_INDEX][:4])[0]

    def reconfigure(self, index, link, identifier):
        _ask(self.sock, self.family, NBD_CMD_RECONFIGURE,
             _number("=I", NBD_ATTR_INDEX, index) + _attribute(NBD_ATTR_BACKEND_IDENTIFIER, identifier.encode() + b"\0") + _socket(link))

    def disconnect(self, index):
        _ask(self.sock, self.family, NBD_CMD_DISCONNECT, _number("=I", NBD_ATTR_INDEX, index))


def _number(form, kind, value):
    return _attribute(kind, struct.pack(form, value))


def _socket(link):
    return _attribute(NBD_ATTR_SOCKETS, _attribute(NBD_SOCK_ITEM, _number("=I", NBD_SOCK_FD, link.fileno())))


def disconnect(index):
    with Nbd() as nbd:
        nbd.disconnect(index)


# A volume of a story, or one with a handle of ceph-csi's whose cluster ID is "lab" or "lab-old". Others' devices are left alone.
LABS = re.compile(r"lab-|0001-[0-9a-f]{4}-lab-")


def lab_devices():
    """Indexes of the connected devices that carry an identifier of the lab."""
    found = []
    for path in glob.glob("/sys/block/nbd*"):
        try:
            with open(path + "/backend") as file:
                if LABS.match(file.read()) and os.path.exists(path + "/pid"):
                    found.append(int(os.path.basename(path)[3:]))
        except OSError:
            continue
    return found


if __name__ == "__main__":
    for number in lab_devices():
        disconnect(number)
