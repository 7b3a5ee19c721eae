"""The one NBD netlink command that the cleanup needs. It depends on nothing that is under test.

Run as a program, it disconnects every device of the lab. Their identifiers begin with "lab-".
"""
import glob
import os
import re
import socket
import struct

NLM_F_REQUEST, NLM_F_ACK = 1, 4
CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME, GENL_ID_CTRL = 3, 1, 2, 0x10
NBD_CMD_DISCONNECT, NBD_ATTR_INDEX = 2, 1


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


def disconnect(index):
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16) as sock:
        sock.settimeout(30)
        sock.bind((0, 0))
        family = _ask(sock, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, _attribute(CTRL_ATTR_FAMILY_NAME, b"nbd\0"))
        number = struct.unpack("=H", family[CTRL_ATTR_FAMILY_ID][:2])[0]
        _ask(sock, number, NBD_CMD_DISCONNECT, _attribute(NBD_ATTR_INDEX, struct.pack("=I", index)))


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
