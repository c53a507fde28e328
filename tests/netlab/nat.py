"""What a router does to the packets of the host behind it, as nftables rules."""

from __future__ import annotations

from enum import Enum


class Nat(Enum):
    """`PORT_PRESERVING`: a host's packets leave with its own port number, so that a hole can be punched. `SYMMETRIC`:
    every destination sees another port. `NO_UDP`: as port-preserving, and nothing but TCP passes."""

    PORT_PRESERVING = "masquerade"
    SYMMETRIC = "masquerade random,fully-random"
    NO_UDP = "masquerade "


def nat_rules(nat: Nat, *, ports: tuple[int, int] | None = None) -> str:
    """The whole ruleset of a router with `wan` and `lan` devices, in place of what it has.

    `ports`: of the outside, from which TCP and UDP flows get theirs. What nobody inside asked for is dropped.
    """
    outside = [f'oifname "wan" {nat.value.strip()}']
    if ports is not None:
        low, high = ports
        to = f"masquerade to :{low}-{high}" + nat.value.strip().removeprefix("masquerade")
        outside = [f'oifname "wan" meta l4proto {{ tcp, udp }} {to}', *outside]
    allowed = 'iifname "lan" meta l4proto tcp accept' if nat is Nat.NO_UDP else 'iifname "lan" accept'
    rules = "\n    ".join(outside)
    return f"""flush ruleset
table ip lab {{
  chain outside {{
    type nat hook postrouting priority 100
    {rules}
  }}
  chain through {{
    type filter hook forward priority 0; policy drop
    ct state established,related accept
    ct status dnat accept
    {allowed}
  }}
  chain here {{
    type filter hook input priority 0; policy drop
    ct state established,related accept
    iifname {{ "lan", "lo" }} accept
  }}
}}
"""


def mapping_rules(public_port: int, address: str, port: int) -> str:
    """Beside those of `nat_rules`: UDP that comes to this port of the router goes to the host behind it."""
    return f"""table ip lab {{
  chain inside {{
    type nat hook prerouting priority -100
    iifname "wan" udp dport {public_port} dnat to {address}:{port}
  }}
}}
"""
