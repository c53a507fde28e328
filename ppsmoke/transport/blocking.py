"""A stream's reads and writes for a plain thread that waits for them: no event loop, and little Python, in between.

The generated glue of iroh 1.2.0 makes a coroutine of every call, and resolves it by a Python callback in the library's
own thread. A write costs it 31 us of computing with warm caches; by the same entry points, called one by one, it is 11,
and a reader is woken by a native function that needs no interpreter. The names are those of uniffi's scaffolding:
a future is polled with a callback until it is ready (or woken, then polled again), completed, and freed.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

import ppsmoke.iroh_fix

_glue: Any = importlib.import_module(f"{ppsmoke.iroh_fix.iroh.__name__}.iroh_ffi")
_lib: Any = _glue._UniffiLib
_Callback: Any = _glue._UNIFFI_RUST_FUTURE_CONTINUATION_CALLBACK

# Python's own locks, to be waited for without the interpreter's lock and released without it.
_locks = ctypes.CDLL(ctypes.pythonapi._name, handle=ctypes.pythonapi._handle)
_allocate_lock = _locks.PyThread_allocate_lock
_allocate_lock.restype = ctypes.c_void_p
_free_lock = _locks.PyThread_free_lock
_free_lock.argtypes, _free_lock.restype = (ctypes.c_void_p,), None
_acquire_lock = _locks.PyThread_acquire_lock_timed
_acquire_lock.argtypes = (ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int)
_release_lock = _locks.PyThread_release_lock
_release_lock.argtypes, _release_lock.restype = (ctypes.c_void_p,), None
_WAKE = _Callback(ctypes.cast(_release_lock, ctypes.c_void_p).value)
"""As a future's callback: releases the lock whose address is the callback's argument."""

_READY = 0
_PREFIX_BYTES = 4  # a buffer of the library begins with the length of its bytes, big-endian


class _Buffer(ctypes.Structure):
    """The library's buffer, with the address of its bytes as a number."""

    _fields_ = (("capacity", ctypes.c_uint64), ("len", ctypes.c_uint64), ("data", ctypes.c_void_p))


def _entry(name: str, result: Any, *arguments: Any, quick: bool = False) -> Any:
    """An entry point of the library with types of our own. `quick`: it only allocates, so it keeps the interpreter's
    lock, which another thread might else take for a while. Whatever touches a future must not: the library may hold
    the future's lock in a callback that waits for the interpreter's."""
    kind = ctypes.PYFUNCTYPE if quick else ctypes.CFUNCTYPE
    return kind(result, *arguments)(ctypes.cast(getattr(_lib, name), ctypes.c_void_p).value or 0)


_Status = ctypes.POINTER(_glue._UniffiRustCallStatus)
_u64, _u32 = ctypes.c_uint64, ctypes.c_uint32
_clone_recv = _entry("uniffi_iroh_ffi_fn_clone_recvstream", _u64, _u64, _Status, quick=True)
_clone_send = _entry("uniffi_iroh_ffi_fn_clone_sendstream", _u64, _u64, _Status, quick=True)
_allocate = _entry("ffi_iroh_ffi_rustbuffer_alloc", _Buffer, _u64, _Status, quick=True)
_release = _entry("ffi_iroh_ffi_rustbuffer_free", None, _Buffer, _Status, quick=True)
_read = _entry("uniffi_iroh_ffi_fn_method_recvstream_read", _u64, _u64, _u32)
_read_exact = _entry("uniffi_iroh_ffi_fn_method_recvstream_read_exact", _u64, _u64, _u32)
_write_all = _entry("uniffi_iroh_ffi_fn_method_sendstream_write_all", _u64, _u64, _Buffer)
_poll_bytes = _entry("ffi_iroh_ffi_rust_future_poll_rust_buffer", None, _u64, _Callback, _u64)
_complete_bytes = _entry("ffi_iroh_ffi_rust_future_complete_rust_buffer", _Buffer, _u64, _Status)
_free_bytes = _entry("ffi_iroh_ffi_rust_future_free_rust_buffer", None, _u64)
_poll_void = _entry("ffi_iroh_ffi_rust_future_poll_void", None, _u64, _Callback, _u64)
_complete_void = _entry("ffi_iroh_ffi_rust_future_complete_void", None, _u64, _Status)
_free_void = _entry("ffi_iroh_ffi_rust_future_free_void", None, _u64)


class CallsCancelled(Exception):
    """`cancel` was called; the call in progress was dropped."""

    def __init__(self) -> None:
        super().__init__("it was told to stop")


class _Waiting:
    """Drives one future at a time to its end. `cancel` may come from any thread."""

    def __init__(self) -> None:
        self.cancelled = False
        self._lock = _allocate_lock()
        _acquire_lock(self._lock, 0, 0)
        self._code: int | None = None
        self._told = _Callback(self._tell)
        self._status: Any = _glue._UniffiRustCallStatus()
        self._status_at = ctypes.byref(self._status)

    def __del__(self) -> None:
        _free_lock(self._lock)  # no future is left that could release it

    def cancel(self) -> None:
        """End the call in progress and every later one: they raise CallsCancelled."""
        self.cancelled = True
        _release_lock(self._lock)

    def _wait(self, poll: Any, future: int, first: Any) -> None:
        """Poll until the future is ready; `first` is the callback for the first time."""
        self._code = None
        poll(future, first, self._lock)
        while True:
            # Every poll is answered by one release of the lock, from whatever thread and at whatever moment.
            _acquire_lock(self._lock, -1, 0)
            if self.cancelled:
                raise CallsCancelled
            if self._code == _READY:
                return
            self._code = None
            poll(future, self._told, self._lock)

    def _tell(self, _lock: int, code: int) -> None:
        self._code = code
        _release_lock(self._lock)

    def _check(self) -> None:
        """Raise the library's error, if the newest call gave one."""
        if self._status.code:
            status, self._status = self._status, _glue._UniffiRustCallStatus()
            self._status_at = ctypes.byref(self._status)
            _glue._uniffi_check_call_status(_glue._UniffiFfiConverterTypeIrohError__as_error, status)


class BlockingReceiver(_Waiting):
    """The reading half of a stream, an iroh RecvStream, for one thread. A cancelled read has taken nothing."""

    def __init__(self, recv: Any) -> None:
        super().__init__()
        self._recv = recv

    def read(self, limit: int) -> bytes:
        """What has arrived, waiting for something; b"" at the end. Raises the library's errors, CallsCancelled."""
        return self._run(_read, limit)

    def read_exact(self, size: int) -> bytes:
        return self._run(_read_exact, size)

    def _run(self, method: Any, size: int) -> bytes:
        if self.cancelled:
            raise CallsCancelled
        future = method(_clone_recv(self._recv._handle, self._status_at), size)
        try:
            self._wait(_poll_bytes, future, _WAKE)
            found = _complete_bytes(future, self._status_at)
            self._check()
            data = ctypes.string_at(found.data + _PREFIX_BYTES, found.len - _PREFIX_BYTES)
            _release(found, self._status_at)
            return data
        finally:
            _free_bytes(future)


class BlockingSender(_Waiting):
    """The writing half of a stream, an iroh SendStream, for one thread. A cancelled write may have sent a part."""

    def __init__(self, send: Any) -> None:
        super().__init__()
        self._send = send
        self._buffer: Any = None
        self._size = -1

    def __del__(self) -> None:
        if self._buffer is not None:
            _release(self._buffer, self._status_at)
        super().__del__()

    def prepare(self, size: int) -> None:
        """Have a buffer at hand for the next write, of `size` bytes."""
        if self._size == size:
            return
        if self._buffer is not None:
            _release(self._buffer, self._status_at)
        self._buffer = _allocate(size + _PREFIX_BYTES, self._status_at)
        self._buffer.len = size + _PREFIX_BYTES
        self._size = size
        ctypes.memmove(self._buffer.data, size.to_bytes(_PREFIX_BYTES, "big"), _PREFIX_BYTES)

    def write(self, *parts: bytes) -> None:
        """All of `parts`, waiting while the stream's window is full. Raises the library's errors, CallsCancelled."""
        if self.cancelled:
            raise CallsCancelled
        self.prepare(sum(map(len, parts)))
        place = self._buffer.data + _PREFIX_BYTES
        for part in parts:
            ctypes.memmove(place, part, len(part))
            place += len(part)
        buffer, self._buffer, self._size = self._buffer, None, -1
        future = _write_all(_clone_send(self._send._handle, self._status_at), buffer)
        try:
            self._wait(_poll_void, future, self._told)
            _complete_void(future, self._status_at)
            self._check()
        finally:
            _free_void(future)
