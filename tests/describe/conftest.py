"""A hub on this machine: serves files by range requests, with redirects, refusals and faults on demand."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


@dataclass
class Seen:
    """One request that reached a server."""

    path: str
    range: str | None
    authorization: str | None


@dataclass
class RangeServer:
    """What it serves, how it misbehaves, and what it was asked.

    `behaviour` maps a path to: ``302 <address>``, a status code, ``no-range``, ``wrong-range``, ``short``, ``slow``,
    ``no-length``.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    behaviour: dict[str, str] = field(default_factory=dict)
    seen: list[Seen] = field(default_factory=list)
    address: str = ""

    @property
    def bytes_asked(self) -> int:
        """Bytes of all ranges that were asked for."""
        return sum(last - first + 1 for first, last in (_bounds(seen.range) for seen in self.seen))


def _bounds(header: str | None) -> tuple[int, int]:
    match = re.fullmatch(r"bytes=(\d+)-(\d+)", header or "")
    return (int(match[1]), int(match[2])) if match else (0, -1)


@contextmanager
def range_server() -> Iterator[RangeServer]:
    """A running server on a free port of this machine."""
    state = RangeServer()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            state.seen.append(Seen(self.path, self.headers["Range"], self.headers["Authorization"]))
            how = state.behaviour.get(self.path, "")
            if how.startswith("302 "):
                self._answer(302, b"", {"Location": how[4:]})
            elif how.isdecimal():
                self._answer(int(how), b"refused")
            elif self.path not in state.files:
                self._answer(404, b"nothing here")
            else:
                self._range(state.files[self.path], how)

        def _range(self, data: bytes, how: str) -> None:
            first, last = _bounds(self.headers["Range"])
            if how == "no-range":
                self._answer(200, data)
                return
            if first >= len(data):
                self._answer(416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
            last = min(last, len(data) - 1)
            part = data[first : last + 1]
            shown = first + 1 if how == "wrong-range" else first
            headers = {"Content-Range": f"bytes {shown}-{last}/{len(data)}"}
            if how == "slow":
                time.sleep(0.5)
            self._answer(206, part[:-1] if how == "short" else part, headers, length=len(part))

        def _answer(
            self, status: int, body: bytes, headers: dict[str, str] | None = None, length: int | None = None
        ) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) if length is None else length))
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(body)
            self.close_connection = True

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    state.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def server() -> Iterator[RangeServer]:
    """A hub."""
    with range_server() as running:
        yield running


@pytest.fixture
def elsewhere() -> Iterator[RangeServer]:
    """A host that isn't the hub."""
    with range_server() as running:
        yield running
