"""Host addresses as text. The schemas read and write them as bytes: `primitives.host`."""

from __future__ import annotations

from functools import lru_cache

from .quick import IPV4_BYTES, IPV6_BYTES

PORT_MAX = 65535
"""Highest valid port. The field has four bytes, but consumers cannot decode a message with a higher port."""


@lru_cache(maxsize=4096)
def host_text(ip: bytes, port: int) -> str:
    """`ip:port`, `[ip]:port` for IPv6; an address of another length is shown as hex."""
    if len(ip) == IPV4_BYTES:
        return f"{'.'.join(map(str, ip))}:{port}"
    if len(ip) != IPV6_BYTES:
        return f"{ip.hex()}:{port}"
    from ipaddress import ip_address

    return f"[{ip_address(ip)}]:{port}"


@lru_cache(maxsize=4096)
def host_of(text: str) -> tuple[bytes, int]:
    """Inverse of `host_text`. Raises ValueError for anything that is not `ip:port`."""
    from ipaddress import ip_address

    address, separator, port = text.rpartition(":")
    if not separator:
        raise ValueError(f"not ip:port: {text!r}")
    number = int(port)
    if not -(2**31) <= number < 2**31:
        raise ValueError(f"port out of range: {text!r}")
    return ip_address(address.strip("[]")).packed, number
