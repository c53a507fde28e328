"""What a router says about a packet that is too long for the way on: RFC 792, RFC 1191. Pure."""

from __future__ import annotations

import socket
import struct

_HEADER_BYTES = 20
_QUOTED_BYTES = 8
_ICMP = 1
_UNREACHABLE, _FRAGMENTATION_NEEDED = 3, 4


def too_long_notice(packet: bytes, mtu: int, router: str) -> bytes | None:
    """The IPv4 packet that tells the sender of `packet` the size limit `mtu`; None for what is not IPv4."""
    if packet[0] >> 4 != 4:
        return None
    quoted = packet[: (packet[0] & 15) * 4 + _QUOTED_BYTES]
    body = struct.pack("!BBHHH", _UNREACHABLE, _FRAGMENTATION_NEEDED, 0, 0, mtu) + quoted
    body = body[:2] + _checksum(body) + body[4:]
    length = _HEADER_BYTES + len(body)
    header = struct.pack("!BBHHHBBH", 0x45, 0, length, 0, 0, 64, _ICMP, 0) + socket.inet_aton(router) + packet[12:16]
    return header[:10] + _checksum(header) + header[12:] + body


def _checksum(data: bytes) -> bytes:
    """RFC 1071."""
    total = sum(struct.unpack(f"!{(len(data) + 1) // 2}H", data + bytes(len(data) % 2)))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return struct.pack("!H", ~total & 0xFFFF)
