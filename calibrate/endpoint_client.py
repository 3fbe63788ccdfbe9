"""One streamed request to an OpenAI-compatible server over plain sockets: when each piece came, and what was counted.

HTTP/1.1 by the standard library alone: a connection a request, chunked or closed bodies, server-sent events.
The clock starts when the request is written, after connecting.

Sources: RFC 9112 (HTTP/1.1), section 7.1 (chunked coding); WHATWG HTML, "Server-sent events", event stream format.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from capplan.errors import NotFoundError, UsageError

CONNECT_SECONDS = 10.0
"""For a first connection, encryption included, before a server is taken to be absent."""

MOST_LINE_BYTES = 1 << 20
MOST_ERROR_CHARACTERS = 200


@dataclass(frozen=True)
class Endpoint:
    """Where a server listens.

    Args:
        url: as the user wrote it.
        host: of the server.
        port: of the server.
        path: before ``/v1``.
        secure: whether over TLS.
        headers: further headers, such as an authorisation.
    """

    url: str
    host: str
    port: int
    path: str
    secure: bool
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Reply:
    """What became of one request.

    Args:
        started: seconds on the loop's clock when the request was written.
        pieces: seconds at which each piece of text came.
        ended: seconds at which the answer ended.
        input_tokens: as the server counted them; None where it did not.
        output_tokens: likewise; else the pieces that came.
        error: why it failed, or empty.
        status: of HTTP.
    """

    started: float
    pieces: tuple[float, ...]
    ended: float
    input_tokens: int | None
    output_tokens: int
    error: str = ""
    status: int = 200

    @property
    def ttft(self) -> float:
        """Seconds to the first piece."""
        return self.pieces[0] - self.started

    @property
    def latency(self) -> float:
        """Seconds until the last piece."""
        return self.pieces[-1] - self.started

    @property
    def tpot(self) -> float | None:
        """Seconds of each further token; None for a single one."""
        return (self.latency - self.ttft) / (self.output_tokens - 1) if self.output_tokens > 1 else None

    @property
    def gaps(self) -> list[float]:
        """Seconds between neighbouring pieces."""
        return [after - before for before, after in zip(self.pieces, self.pieces[1:], strict=False)]


def parse_endpoint(url: str, headers: Mapping[str, str] | None = None) -> Endpoint:
    """A server's address: ``http://localhost:8000``, with or without ``/v1`` behind it.

    Raises:
        UsageError: not an http or https address.
    """
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(f"{url[:80]!r} is not the address of a server", where="URL", hint="http://localhost:8000")
    path = parts.path.rstrip("/").removesuffix("/v1")
    secure = parts.scheme == "https"
    return Endpoint(url, parts.hostname, port or (443 if secure else 80), path, secure, dict(headers or {}))


async def ask(endpoint: Endpoint, path: str, body: Mapping[str, Any], timeout: float) -> Reply:
    """Send one streamed request and note when each piece of text comes; a failure is a reply with an error."""
    now = time.perf_counter
    begin = now()
    try:
        return await asyncio.wait_for(_ask(endpoint, path, body), timeout)
    except TimeoutError:
        return Reply(begin, (), now(), None, 0, f"no end within {timeout:g} s", 0)
    except (OSError, asyncio.IncompleteReadError, ValueError, ssl.SSLError) as error:
        return Reply(begin, (), now(), None, 0, f"{type(error).__name__}: {error}"[:MOST_ERROR_CHARACTERS], 0)


async def check_reachable(endpoint: Endpoint) -> None:
    """Return if something listens there.

    Raises:
        NotFoundError: nothing does.
    """
    try:
        _, writer = await asyncio.wait_for(_connect(endpoint), CONNECT_SECONDS)
    except OSError as error:
        reason = error.strerror or str(error) or f"no connection within {CONNECT_SECONDS:g} s"
        raise NotFoundError(f"no server answers at {endpoint.url}: {reason}", where="URL") from None
    writer.close()


async def _connect(endpoint: Endpoint) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    context = ssl.create_default_context() if endpoint.secure else None
    return await asyncio.open_connection(endpoint.host, endpoint.port, ssl=context, limit=MOST_LINE_BYTES)


async def _ask(endpoint: Endpoint, path: str, body: Mapping[str, Any]) -> Reply:
    reader, writer = await _connect(endpoint)
    try:
        payload = json.dumps(body).encode()
        writer.write(_head(endpoint, path, len(payload)) + payload)
        started = time.perf_counter()
        await writer.drain()
        status, headers = await _status(reader)
        if status != 200:
            text = b"".join([part async for part in _parts(reader, headers)])
            message = text.decode("utf-8", "replace").strip()[:MOST_ERROR_CHARACTERS]
            return Reply(started, (), time.perf_counter(), None, 0, f"HTTP {status}: {message}", status)
        return await _stream(reader, headers, started)
    finally:
        writer.close()


def _head(endpoint: Endpoint, path: str, length: int) -> bytes:
    lines = [
        f"POST {endpoint.path}{path} HTTP/1.1",
        f"Host: {endpoint.host}:{endpoint.port}",
        "Content-Type: application/json",
        "Accept: text/event-stream",
        f"Content-Length: {length}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in endpoint.headers.items()),
    ]
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


async def _status(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    """The status and the headers, names in lower case."""
    words = (await reader.readline()).decode("latin-1").split()
    if len(words) < 2 or not words[1].isdigit():
        raise ValueError("this is no HTTP server")
    headers: dict[str, str] = {}
    while line := (await reader.readline()).decode("latin-1").strip():
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(words[1]), headers


async def _parts(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> AsyncIterator[bytes]:
    """The body as it comes: by chunks, by its length, or until the server closes."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while size := int((await reader.readline()).split(b";")[0] or b"0", 16):
            yield await reader.readexactly(size)
            await reader.readexactly(2)
        return
    left = int(headers["content-length"]) if headers.get("content-length", "").isdigit() else None
    while left is None or left > 0:
        part = await reader.read(1 << 16 if left is None else min(left, 1 << 16))
        if not part:
            return
        left = None if left is None else left - len(part)
        yield part


async def _stream(reader: asyncio.StreamReader, headers: Mapping[str, str], started: float) -> Reply:
    """The events of an answer: pieces of text, and the counts at the end."""
    pieces: list[float] = []
    usage: Mapping[str, Any] = {}
    buffer = b""
    async for part in _parts(reader, headers):
        came = time.perf_counter()
        buffer += part
        *lines, buffer = buffer.split(b"\n")
        for line in lines:
            event = _event(line)
            if event is None:
                continue
            if "error" in event:
                message = json.dumps(event["error"])[:MOST_ERROR_CHARACTERS]
                return Reply(started, (), came, None, 0, f"the server stopped: {message}")
            usage = event.get("usage") or usage
            if _has_text(event):
                pieces.append(came)
    ended = time.perf_counter()
    if not pieces:
        return Reply(started, (), ended, None, 0, "the answer holds no text: is it streamed?")
    output = usage.get("completion_tokens") or len(pieces)
    return Reply(started, tuple(pieces), ended, usage.get("prompt_tokens"), int(output))


def _event(line: bytes) -> dict[str, Any] | None:
    """The object of a ``data:`` line; None for any other line and for the last one."""
    text = line.strip()
    if not text.startswith(b"data:") or text == b"data: [DONE]":
        return None
    data = json.loads(text[5:])
    return data if isinstance(data, dict) else None


def _has_text(event: Mapping[str, Any]) -> bool:
    """Whether an event brings text, thoughts included."""
    for choice in event.get("choices") or ():
        delta = choice.get("delta") or {}
        if choice.get("text") or delta.get("content") or delta.get("reasoning_content") or delta.get("reasoning"):
            return True
    return False
