"""A router forgets every flow it translates, as one that is restarted: `python -m tests.netlab.flush_flows` in it."""

from __future__ import annotations

import os
import socket
import struct

_NETLINK_NETFILTER = 12
_DELETE_FLOWS = (1 << 8) | 2  # NFNL_SUBSYS_CTNETLINK, IPCTNL_MSG_CT_DELETE; without a tuple: all
_REQUEST_ACK = 1 | 4
_ERROR = 2


def flush_flows() -> None:
    """Raises OSError."""
    family = struct.pack("=BBH", socket.AF_INET, 0, 0)
    head = struct.pack("=IHHII", 16 + len(family), _DELETE_FLOWS, _REQUEST_ACK, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_NETFILTER) as kernel:
        kernel.settimeout(10)
        kernel.send(head + family)
        answer = kernel.recv(4096)
    kind, number = struct.unpack_from("=4xH10xi", answer)
    if kind != _ERROR or number != 0:
        raise OSError(-number, os.strerror(-number))


if __name__ == "__main__":
    flush_flows()
