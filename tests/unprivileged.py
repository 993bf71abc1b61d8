"""Being refused what root may do: file permissions mean something to root, too, while this lasts.

    with unprivileged():
        …                       # a folder of mode 0 cannot be looked into

Only the capabilities that pass over permissions are laid down, so that everything else goes on as before.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager

_VERSION_3 = 0x20080522
_DAC_OVERRIDE, _DAC_READ_SEARCH = 1, 2


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


@contextmanager
def unprivileged() -> Iterator[None]:
    """For whoever is not root nothing changes."""
    if os.geteuid() != 0:
        yield
        return
    libc, header, data = ctypes.CDLL(None, use_errno=True), _Header(_VERSION_3, 0), (_Data * 2)()
    assert libc.capget(ctypes.byref(header), data) == 0, os.strerror(ctypes.get_errno())
    before = data[0].effective
    data[0].effective &= ~(1 << _DAC_OVERRIDE | 1 << _DAC_READ_SEARCH)
    assert libc.capset(ctypes.byref(header), data) == 0, os.strerror(ctypes.get_errno())
    try:
        yield
    finally:
        data[0].effective = before
        assert libc.capset(ctypes.byref(header), data) == 0, os.strerror(ctypes.get_errno())
