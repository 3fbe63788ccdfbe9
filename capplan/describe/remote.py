"""Files on a Hugging Face hub, read by HTTP range requests: headers and small files, never weights.

The environment is obeyed as huggingface_hub does: ``HF_ENDPOINT``, ``HF_TOKEN`` (or the token file under ``HF_HOME``),
``HF_HUB_OFFLINE``. A token goes to the endpoint's own host and to no other, wherever a redirect leads.
"""

from __future__ import annotations

import os
import re
import socket
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import Any

from capplan import __version__
from capplan.describe.huggingface_cache import home_folder
from capplan.errors import InvalidFileError, NotFoundError, UsageError

DEFAULT_ENDPOINT = "https://huggingface.co"
TIMEOUT_SECONDS = 10.0
DEADLINE_SECONDS = 120.0
MAX_REDIRECTS = 5
MAX_TOKEN_BYTES = 4096
_CHUNK = 64 << 10
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")
_REVISION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,120}")
_CONTENT_RANGE = re.compile(r"bytes (\d{1,20})-(\d{1,20})/(\d{1,20})")


class MissingFileError(NotFoundError):
    """The hub answered that it has no such file."""


def is_offline(environment: Mapping[str, str]) -> bool:
    """Whether ``HF_HUB_OFFLINE`` forbids the network."""
    return environment.get("HF_HUB_OFFLINE", "").strip().lower() in ("1", "true", "yes", "on")


@dataclass(frozen=True)
class Hub:
    """One hub: its address, and the token that it may see.

    Args:
        endpoint: its address, without a slash at the end.
        token: sent to `endpoint` alone; "" where there is none.
        offline: whether asking it is forbidden.
        timeout: seconds that one answer may keep silent.
    """

    endpoint: str = DEFAULT_ENDPOINT
    token: str = field(default="", repr=False)
    offline: bool = False
    timeout: float = TIMEOUT_SECONDS

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Hub:
        """The hub that the environment names.

        Raises:
            UsageError: ``HF_ENDPOINT`` isn't an http or https address.
        """
        endpoint = environment.get("HF_ENDPOINT", "").strip().rstrip("/") or DEFAULT_ENDPOINT
        parts = _split(endpoint)
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname:
            raise UsageError(f"{endpoint[:80]!r} is not an http address", where="HF_ENDPOINT")
        return cls(endpoint, _token(environment), is_offline(environment))

    def address(self, repository: str, file: str, revision: str = "main") -> str:
        """The address of a file of a repository.

        Raises:
            UsageError: not the name of a repository or a revision.
        """
        if not _REPOSITORY.fullmatch(repository) or ".." in repository:
            raise UsageError(f"{repository[:80]!r} is not a Hugging Face id", where="--model")
        if not _REVISION.fullmatch(revision) or ".." in revision:
            raise UsageError(f"{revision[:80]!r} is not a revision", where="--revision")
        quoted = urllib.parse.quote(file)
        return f"{self.endpoint}/{repository}/resolve/{urllib.parse.quote(revision, safe='')}/{quoted}"

    def open(self, address: str, first: int, last: int | None = None) -> HTTPResponse:
        """The answer to a request for bytes `first` to `last` (inclusive; None: to the end).

        Raises:
            NotFoundError: offline, no such file, no right to it, or no answer.
        """
        if self.offline:
            raise NotFoundError(
                "the network is switched off by HF_HUB_OFFLINE",
                where=address,
                hint="unset HF_HUB_OFFLINE, or download the files once so that they are in the local cache",
            )
        request = urllib.request.Request(address, headers={"User-Agent": f"capplan/{__version__}"})
        request.add_header("Range", f"bytes={first}-{'' if last is None else last}")
        # A compressed answer would have other bytes under the same range.
        request.add_header("Accept-Encoding", "identity")
        if self.token and _origin(address) == _origin(self.endpoint):
            request.add_unredirected_header("Authorization", f"Bearer {self.token}")
        opener = urllib.request.build_opener(_Redirects(self))
        try:
            answer: HTTPResponse = opener.open(request, timeout=self.timeout)
        except urllib.error.HTTPError as error:
            error.close()
            raise _refusal(error.code, address) from None
        except (OSError, HTTPException, ValueError) as error:
            raise _no_answer(error, address) from None
        return answer


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows a few redirects over http(s); the token goes along only to the hub's own host."""

    max_redirections = MAX_REDIRECTS
    max_repeats = 2

    def __init__(self, hub: Hub) -> None:
        self.hub = hub

    def redirect_request(
        self, req: urllib.request.Request, fp: Any, code: int, msg: str, headers: Any, newurl: str
    ) -> urllib.request.Request | None:
        parts = _split(newurl)
        was = _split(req.full_url)
        downgrade = was is not None and parts is not None and was.scheme == "https" and parts.scheme != "https"
        if parts is None or parts.scheme not in ("http", "https") or downgrade:
            raise NotFoundError(f"refused to follow a redirect to {newurl[:80]!r}", where=req.full_url)
        request = super().redirect_request(req, fp, code, msg, headers, newurl)
        if request is not None:
            request.headers.pop("Authorization", None)
            if self.hub.token and _origin(newurl) == _origin(self.hub.endpoint):
                request.add_unredirected_header("Authorization", f"Bearer {self.hub.token}")
        return request


class RemoteFile:
    """A file on a hub as a `ByteSource`. Its length is known from the first answer.

    Raises:
        NotFoundError: it isn't there, or there is no answer.
        InvalidFileError: the server doesn't answer range requests.
    """

    def __init__(self, hub: Hub, address: str, first_bytes: int) -> None:
        self.hub = hub
        self.address = address
        self._start, self._size = self._first_answer(first_bytes)

    @property
    def name(self) -> str:
        """Its address."""
        return self.address

    @property
    def size(self) -> int:
        """Its length, as the server says."""
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        """`length` bytes from `offset`; those of the first answer are kept and cost no request."""
        end = offset + length
        if end <= len(self._start):
            return self._start[offset:end]
        known = self._start[offset:]
        begin = offset + len(known)
        with self.hub.open(self.address, begin, end - 1) as answer:
            if answer.status != 206 or _range(answer, self.address)[:2] != (begin, end - 1):
                raise InvalidFileError("the server does not answer range requests", where=self.address)
            return known + _read_all(answer, end - begin, self.address)

    def _first_answer(self, most: int) -> tuple[bytes, int]:
        try:
            answer = self.hub.open(self.address, 0, most - 1)
        except _EmptyFileError:
            return b"", 0
        with answer:
            if answer.status == 206:
                first, last, size = _range(answer, self.address)
                if first != 0 or last >= size or last >= most:
                    raise InvalidFileError("the server answered another range than was asked", where=self.address)
                return _read_all(answer, last + 1, self.address), size
            length = answer.headers.get("Content-Length", "")
            if not length.isdecimal() or len(length) > 20:
                raise InvalidFileError("the server does not say how long the file is", where=self.address)
            size = int(length)
            if size > most:
                raise InvalidFileError("the server does not answer range requests", where=self.address)
            return _read_all(answer, size, self.address), size


def read_remote_text(hub: Hub, address: str, most_bytes: int) -> str:
    """A small text file, whole.

    Raises:
        InvalidFileError: longer than `most_bytes`, or not UTF-8.
        NotFoundError: it isn't there, or there is no answer.
    """
    remote = RemoteFile(hub, address, most_bytes)
    if remote.size > most_bytes:
        raise InvalidFileError(f"the file is longer than {most_bytes} bytes", where=address)
    try:
        return remote.read(0, remote.size).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidFileError(f"the file is not UTF-8 text: {error.reason}", where=address) from None


class _EmptyFileError(NotFoundError):
    """The server has no byte to give: the file is empty."""


def _read_all(answer: HTTPResponse, length: int, address: str) -> bytes:
    """The body, which must have `length` bytes and arrive before the deadline."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    parts: list[bytes] = []
    left = length
    try:
        while left > 0:
            part = answer.read1(min(left, _CHUNK))
            if not part:
                raise InvalidFileError("the answer ended early", where=address)
            parts.append(part)
            left -= len(part)
            if time.monotonic() > deadline:
                raise NotFoundError(f"the answer took more than {DEADLINE_SECONDS:.0f} seconds", where=address)
    except (OSError, HTTPException, ValueError) as error:
        raise _no_answer(error, address) from None
    return b"".join(parts)


def _range(answer: HTTPResponse, address: str) -> tuple[int, int, int]:
    match = _CONTENT_RANGE.fullmatch(answer.headers.get("Content-Range", "").strip())
    if match is None:
        raise InvalidFileError("the server answers range requests in a form that isn't understood", where=address)
    first, last, size = map(int, match.groups())
    return first, last, size


def _refusal(code: int, address: str) -> NotFoundError:
    if code == 416:
        return _EmptyFileError("the file is empty", where=address)
    if code in (401, 403):
        hint = "it may be private or gated: accept its terms on the hub, and set HF_TOKEN"
        return NotFoundError(f"no right to read it (HTTP {code})", where=address, hint=hint)
    if code == 404:
        return MissingFileError("the hub has no such file (HTTP 404)", where=address)
    return NotFoundError(f"the hub refused (HTTP {code})", where=address, hint="try again later" if code >= 429 else "")


def _no_answer(error: Exception, address: str) -> NotFoundError:
    reason = getattr(error, "reason", error)
    if isinstance(reason, (TimeoutError, socket.timeout)):
        what = "the hub did not answer in time"
    else:
        what = f"the hub cannot be reached: {reason}"[:200]
    return NotFoundError(what, where=address, hint="check the network, or HF_ENDPOINT for a mirror")


def _split(address: str) -> urllib.parse.SplitResult | None:
    try:
        parts = urllib.parse.urlsplit(address)
        _ = parts.port  # a port that is no number shows only when it is asked for
    except ValueError:
        return None
    return parts


def _origin(address: str) -> tuple[str, str | None, int | None]:
    parts = _split(address)
    if parts is None:
        return "", None, None
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


def _token(environment: Mapping[str, str]) -> str:
    """``HF_TOKEN``, or what ``huggingface-cli login`` left under ``HF_HOME``."""
    token = environment.get("HF_TOKEN", "").strip()
    if not token:
        path = environment.get("HF_TOKEN_PATH") or home_folder(environment) / "token"
        try:
            with open(path, encoding="ascii") as file:
                token = file.read(MAX_TOKEN_BYTES).strip()
        except (OSError, ValueError):
            return ""
    return token if token.isascii() and token.isprintable() and " " not in token else ""
