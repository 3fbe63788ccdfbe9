"""The load generator against small servers on the loopback with known delays, whose figures it must recover."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from calibrate.endpoint import PROBES, LoadPlan, Prompts, measure_endpoint
from calibrate.endpoint_answer import EndpointRequest, endpoint_answer, plans
from calibrate.endpoint_client import Reply, parse_endpoint
from capplan.errors import NotFoundError, UsageError
from capplan.measured.bench_results import read_bench_results

FIRST, GAP = 0.05, 0.01
"""Seconds until the first token and between tokens."""

WARM_SHARE = 0.3
"""Share of the first delay where the prompt's beginning was seen before."""

LATE = 0.03
"""Seconds that a busy machine may add to a delay."""

TOKENS_PER_WORD, AROUND = 1.5, 4


class Server:
    """A streaming completions server that only waits; in a thread of its own."""

    def __init__(self, **ways: Any) -> None:
        self.ways = ways
        self.bodies: list[dict[str, Any]] = []
        self.heads: list[str] = []
        self.most_at_once = self.now = 0
        self.seen: set[str] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            length = int(
                next(line.split(":")[1] for line in head.split("\r\n") if line.lower().startswith("content-length"))
            )
            body = json.loads(await reader.readexactly(length))
        except asyncio.IncompleteReadError:
            writer.close()
            return
        self.heads.append(head)
        self.bodies.append(body)
        self.now += 1
        self.most_at_once = max(self.most_at_once, self.now)
        try:
            await self.answer(body, writer)
        finally:
            self.now -= 1
            writer.close()

    async def answer(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        if (self.ways.get("strict") and "ignore_eos" in body) or self.ways.get("refuse"):
            message = b'{"error": "unknown field ignore_eos"}'
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: %d\r\n\r\n%s" % (len(message), message))
            await writer.drain()
            return
        chunked = self.ways.get("chunked", True)
        encoding = b"Transfer-Encoding: chunked\r\n" if chunked else b""
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n" + encoding + b"\r\n")
        text = body["prompt"] if "prompt" in body else body["messages"][0]["content"]
        beginning = " ".join(text.split()[:50])
        warm, _ = beginning in self.seen, self.seen.add(beginning)
        await asyncio.sleep(FIRST * (WARM_SHARE if warm else 1))
        for number in range(body["max_tokens"]):
            if number:
                await asyncio.sleep(GAP)
            if self.ways.get("dies_at") == number and len(self.bodies) > len(PROBES):
                return
            delta = {"text": " x"} if "prompt" in body else {"delta": {"content": " x"}}
            await self.send(writer, {"choices": [delta]}, chunked)
        if self.ways.get("counts", True):
            usage = {
                "prompt_tokens": round(TOKENS_PER_WORD * len(text.split())) + AROUND,
                "completion_tokens": body["max_tokens"],
            }
            await self.send(writer, {"choices": [], "usage": usage}, chunked)
        await self.send(writer, None, chunked)

    async def send(self, writer: asyncio.StreamWriter, event: Any, chunked: bool) -> None:
        data = b"data: [DONE]\n\n" if event is None else b"data: " + json.dumps(event).encode() + b"\n\n"
        last = b"0\r\n\r\n" if event is None else b""
        writer.write(b"%x\r\n%s\r\n%s" % (len(data), data, last) if chunked else data)
        await writer.drain()


@contextmanager
def serving(**ways: Any) -> Iterator[tuple[str, Server]]:
    server, ready, loop = Server(**ways), threading.Event(), asyncio.new_event_loop()
    place: list[int] = []

    async def start() -> None:
        listening = await asyncio.start_server(server.handle, "127.0.0.1", 0)
        place.append(listening.sockets[0].getsockname()[1])
        ready.set()

    def work() -> None:
        loop.run_until_complete(start())
        loop.run_forever()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    assert ready.wait(10)
    try:
        yield f"http://127.0.0.1:{place[0]}/v1", server
    finally:
        asyncio.run_coroutine_threadsafe(_end(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def _end() -> None:
    """Give up whatever is still being answered."""
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
    await asyncio.sleep(0.01)


def plan(**changes: Any) -> LoadPlan:
    fields: dict[str, Any] = {"model": "m", "isl": 100, "osl": 5, "requests": 8, "concurrency": 2, "timeout": 20.0}
    return LoadPlan(**{**fields, **changes})


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("chunked", [False, True])
def test_known_delays_are_recovered(chat: bool, chunked: bool) -> None:
    with serving(chunked=chunked) as (url, server):
        (level,) = measure_endpoint(parse_endpoint(url), plan(chat=chat))
    found = level.metrics
    assert len(level.answered) == 8
    assert FIRST <= found["median_ttft_ms"] / 1e3 <= FIRST + LATE
    assert GAP * 0.9 <= found["median_itl_ms"] / 1e3 <= GAP + LATE
    assert GAP * 0.9 <= found["mean_tpot_ms"] / 1e3 <= GAP + LATE
    assert found["median_e2el_ms"] / 1e3 >= FIRST + 4 * GAP
    assert level.output_tokens == 40
    assert server.most_at_once == 2
    assert all(body["stream"] and body["model"] == "m" for body in server.bodies)


def test_prompts_have_the_tokens_that_were_asked_for() -> None:
    with serving() as (url, server):
        (level,) = measure_endpoint(parse_endpoint(url), plan(isl=200))
    per_request = level.input_tokens / 8
    assert per_request == pytest.approx(200, abs=2)
    texts = [body["prompt"] for body in server.bodies[len(PROBES) :]]
    assert len(set(texts)) == 8


def test_requests_at_a_rate_do_not_wait_for_each_other() -> None:
    with serving() as (url, server):
        (level,) = measure_endpoint(parse_endpoint(url), plan(concurrency=None, request_rate=200.0, requests=12))
    starts = [reply.started for reply in level.replies]
    assert starts == sorted(starts)
    assert starts[-1] - starts[0] < 12 / 200 * 5
    assert server.most_at_once > 4


def test_a_shared_prefix_is_measured_cold_and_warm() -> None:
    with serving() as (url, _):
        cold, warm = measure_endpoint(parse_endpoint(url), plan(isl=20, shared_prefix=200))
    assert (cold.prefix, warm.prefix) == ("cold", "warm")
    assert cold.metrics["median_ttft_ms"] / 1e3 >= FIRST
    assert warm.metrics["median_ttft_ms"] / 1e3 < FIRST
    assert warm.input_tokens / 8 == pytest.approx(220, abs=3)


def test_a_server_that_knows_no_ignore_eos_is_asked_without() -> None:
    with serving(strict=True) as (url, server):
        (level,) = measure_endpoint(parse_endpoint(url), plan())
    assert len(level.answered) == 8
    assert "ignore_eos" not in server.bodies[-1]


def test_a_server_that_counts_nothing_is_counted_by_words_and_pieces() -> None:
    with serving(counts=False) as (url, _):
        (level,) = measure_endpoint(parse_endpoint(url), plan())
    assert level.output_tokens == 40
    assert level.input_tokens == 800
    assert level.words == 100


def test_failed_requests_are_counted_and_said() -> None:
    with serving(dies_at=0) as (url, _):
        answer = endpoint_answer(EndpointRequest(url, "m", 50, 3, concurrencies=[2], most_requests=4), _silent)
    (level,) = answer.result.levels
    assert (level.completed, level.failed) == (0, 4)
    assert level.metrics == {}
    assert level.errors
    assert answer.warnings == ("4 requests failed",)


def test_a_refusing_server_is_an_error() -> None:
    with serving(refuse=True) as (url, _), pytest.raises(UsageError, match="HTTP 400"):
        measure_endpoint(parse_endpoint(url), plan())


def test_a_slow_server_fails_by_its_time() -> None:
    with serving() as (url, _), pytest.raises(UsageError, match="no end within"):
        measure_endpoint(parse_endpoint(url), plan(timeout=0.02))


def test_no_server_is_not_found() -> None:
    with pytest.raises(NotFoundError, match="no server answers"):
        measure_endpoint(parse_endpoint("http://127.0.0.1:9"), plan())


@pytest.mark.parametrize("url", ["", "ftp://x", "http://", "http://x:99999", "http://[x"])
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        parse_endpoint(url)


@pytest.mark.parametrize(
    ("url", "host", "port", "path", "secure"),
    [
        ("localhost:8000", "localhost", 8000, "", False),
        ("http://a.b/v1/", "a.b", 80, "", False),
        ("https://a.b/proxy/v1", "a.b", 443, "/proxy", True),
    ],
)
def test_addresses_are_read(url: str, host: str, port: int, path: str, secure: bool) -> None:
    found = parse_endpoint(url)
    assert (found.host, found.port, found.path, found.secure) == (host, port, path, secure)


def test_times_of_a_reply_follow_from_its_pieces() -> None:
    reply = Reply(10.0, (10.5, 10.6, 10.9), 11.0, 7, 5)
    assert reply.ttft == pytest.approx(0.5)
    assert reply.latency == pytest.approx(0.9)
    assert reply.tpot == pytest.approx(0.1)
    assert reply.gaps == pytest.approx([0.1, 0.3])
    assert Reply(0.0, (1.0,), 1.0, None, 1).tpot is None


def test_words_for_a_number_of_tokens() -> None:
    prompts = Prompts(1.25, 4.0)
    assert prompts.words(129) == 100
    assert prompts.words(1) == 1


def test_levels_are_one_a_concurrency_and_one_a_rate() -> None:
    request = EndpointRequest("localhost", "m", 10, 5, concurrencies=[1, 4], request_rates=[2.0])
    found = plans(request, seed=7)
    assert [(one.concurrency, one.request_rate, one.requests) for one in found] == [
        (1, None, 10), (4, None, 40), (None, 2.0, 100),
    ]  # fmt: skip
    assert len({one.seed for one in found}) == 3
    with pytest.raises(UsageError, match="no load"):
        plans(EndpointRequest("localhost", "m", 10, 5), seed=0)


def test_an_answer_saves_what_the_importer_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_KEY", "secret")
    path = tmp_path / "bench.json"
    with serving() as (url, server):
        request = EndpointRequest(
            url, "m", 50, 4, concurrencies=[2], most_requests=4, save=path, api_key_env="TEST_KEY", seed=1
        )
        answer = endpoint_answer(request, _silent)
    assert "Authorization: Bearer secret" in server.heads[-1]
    assert "secret" not in json.dumps(answer.inputs, default=str)
    (run,) = read_bench_results(path)
    (level,) = answer.result.levels
    assert run.concurrency == 2
    assert run.metrics["mean_ttft_ms"] == pytest.approx(level.metrics["mean_ttft_ms"])
    assert run.metrics["output_throughput"] == pytest.approx(level.output_throughput)
    assert run.osl == 4
    monkeypatch.delenv("TEST_KEY")
    with pytest.raises(UsageError, match="TEST_KEY"):
        endpoint_answer(request, _silent)


def test_an_estimate_stands_beside_where_a_device_is_named() -> None:
    setting = {"model": "llama3.1-8b", "gpu": "h100", "engine": "vllm"}
    with serving() as (url, _):
        request = EndpointRequest(url, "m", 60, 4, concurrencies=[2], most_requests=4, setting=setting)
        answer = endpoint_answer(request, _silent)
    (level,) = answer.result.levels
    assert level.predicted is not None
    assert level.predicted["mean_tpot_ms"] > 1


def test_a_server_that_never_speaks_is_no_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Encrypted words to a plain server get no answer."""
    monkeypatch.setattr("calibrate.endpoint_client.CONNECT_SECONDS", 0.2)
    with serving() as (url, _), pytest.raises(NotFoundError, match=r"no connection within 0\.2 s"):
        endpoint_answer(EndpointRequest(f"https{url[4:]}", "m", 10, 2, concurrencies=[1], most_requests=1), _silent)


def _silent(share: float, doing: str) -> None:
    pass
