"""Building blocks of the schemas: linked lengths, record sizes, host addresses.

All integers of a store are big-endian and signed unless a schema says otherwise (spec/README.md, "Conventions"). A
schema is a construct `Struct` whose members all have names; the text behind `*` describes a field in the annotated dump
and in the manual page.
"""

from __future__ import annotations

from typing import Any

from construct import Bytes, Construct, Container, Int32sb, Rebuild, Struct
from construct.expr import FuncPath


def length_of(value: Any) -> Any:
    """Number of bytes of a value, or of each string of a column."""
    lengths = getattr(value, "length", None)
    return len(value) if lengths is None else lengths


#: `size_(this.body)`: number of bytes of another member; works for one record and for columns.
size_ = FuncPath(length_of)


def record_size(context: Any) -> int:
    """Size in bytes of the record whose members are in `context`; all members must have names."""
    known = Container(context)
    members = context["_subcons"]
    for name, member in members.items():
        rebuild = rebuild_of(member)
        if rebuild is not None and rebuild.func is not record_size:
            known[name] = rebuild.func(context)
    return sum(int(member._sizeof(known, name)) for name, member in members.items())


def rebuild_of(member: Construct[Any, Any]) -> Any | None:
    """The `Rebuild` inside the wrappers of a member, None without one."""
    inner: Any = member
    while inner is not None and not isinstance(inner, Rebuild):
        inner = getattr(inner, "subcon", None)
    return inner


def record_size_field(subcon: Construct[Any, Any]) -> Construct[Any, Any]:
    """A field that holds the size of the record in which it is."""
    return Rebuild(subcon, record_size)


def host(address_bytes: int) -> Construct[Any, Any]:
    """An address as brokers write it: the IP, then the port as a 4-byte integer (spec 1.2)."""
    return Struct("ip" / Bytes(address_bytes) * "IP address", "port" / Int32sb * "port")


IPV4_BYTES = 4
IPV6_BYTES = 16
HOST_V4 = host(IPV4_BYTES)
HOST_V6 = host(IPV6_BYTES)
