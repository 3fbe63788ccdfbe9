"""A load generator for OpenAI-compatible servers: a closed loop of clients or arrivals at a rate, and what came back.

Metrics are those of ``vllm bench serve``. TTFT is the time to the first piece of text, ITL the time between pieces,
TPOT ``(latency - TTFT) / (output tokens - 1)`` of each request, E2EL its latency.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import mean, median
from typing import Any, Literal

from calibrate.endpoint_client import Endpoint, Reply, ask, check_reachable
from calibrate.repeats import quantile
from capplan.errors import UsageError

Prefix = Literal["none", "cold", "warm"]

_TEXT = """
time year people way day man thing woman life child world school state family student group country problem
hand part place case week company system program question work number night point home water room mother area
money story fact month lot right study book eye job word business issue side kind head house service friend
father power hour game line end member law car city name team minute idea body back parent face others level
office door health person art war history party result change morning reason research girl guy moment air
teacher force education
"""

WORDS = tuple(_TEXT.split())
"""Common words, of which prompts are made; most are one token."""

PROBES = (40, 240)
"""Words of the two prompts from which the tokens of a word are found out."""

PERCENTILES = (50, 90, 99)
QUANTITIES = ("ttft", "tpot", "itl", "e2el")


@dataclass(frozen=True)
class LoadPlan:
    """What a server is put under.

    Args:
        model: as the server calls it.
        isl: input tokens of a request, without a shared prefix.
        osl: output tokens of a request.
        concurrency: requests at once; None with a rate.
        request_rate: requests a second, at random moments; None with a concurrency.
        requests: how many in all.
        shared_prefix: tokens that prompts begin with beside their own.
        chat: whether by chat completions.
        timeout: seconds after which a request has failed.
        seed: of the prompts and the arrivals.
    """

    model: str
    isl: int
    osl: int
    requests: int
    concurrency: int | None = None
    request_rate: float | None = None
    shared_prefix: int = 0
    chat: bool = False
    timeout: float = 600.0
    seed: int = 0


@dataclass(frozen=True)
class Level:
    """What came back from one load.

    Args:
        plan: the load.
        prefix: whether prompts began alike, and whether the server had seen that.
        replies: in the order of starting.
        duration: seconds from the first request to the last answer.
        words: a prompt's words, from which the tokens are known where a server does not count them.
    """

    plan: LoadPlan
    prefix: Prefix
    replies: tuple[Reply, ...]
    duration: float
    words: int = 0

    @property
    def answered(self) -> list[Reply]:
        """The requests that were answered."""
        return [reply for reply in self.replies if not reply.error]

    @property
    def metrics(self) -> dict[str, float]:
        """Mean, median, 90th and 99th percentile of each time, in milliseconds."""
        found = self.answered
        times = {
            "ttft": [reply.ttft for reply in found],
            "tpot": [reply.tpot for reply in found if reply.tpot is not None],
            "itl": [gap for reply in found for gap in reply.gaps],
            "e2el": [reply.latency for reply in found],
        }
        return {name: 1e3 * value for quantity in QUANTITIES for name, value in _statistics(quantity, times[quantity])}

    @property
    def input_tokens(self) -> int:
        """Tokens of all answered prompts, as counted by the server, else as asked for."""
        asked = self.plan.isl + self.plan.shared_prefix
        return sum(asked if reply.input_tokens is None else reply.input_tokens for reply in self.answered)

    @property
    def output_tokens(self) -> int:
        """Tokens of all answers."""
        return sum(reply.output_tokens for reply in self.answered)


def _statistics(quantity: str, values: Sequence[float]) -> list[tuple[str, float]]:
    if not values:
        return []
    found = [(f"mean_{quantity}_ms", mean(values)), (f"median_{quantity}_ms", median(values))]
    return found + [(f"p{share}_{quantity}_ms", quantile(values, share / 100)) for share in PERCENTILES[1:]]


@dataclass(frozen=True)
class Prompts:
    """Makes prompts of a number of tokens.

    Args:
        per_word: tokens of a word.
        fixed: tokens that stand around the words.
        counted: whether the server told.
    """

    per_word: float = 1.0
    fixed: float = 0.0
    counted: bool = False

    def words(self, tokens: int) -> int:
        """Words that are about so many tokens."""
        return max(1, round((tokens - self.fixed) / self.per_word))

    def text(self, tokens: int, source: random.Random) -> str:
        """Random words of about so many tokens."""
        return " ".join(source.choices(WORDS, k=self.words(tokens)))


Say = Callable[[float, str], None]


@dataclass
class Generator:
    """Sends requests to one server.

    Args:
        endpoint: the server.
        plan: the load.
        say: told how far it is.
    """

    endpoint: Endpoint
    plan: LoadPlan
    say: Say = lambda share, doing: None
    extras: dict[str, Any] = field(default_factory=lambda: {"ignore_eos": True})

    async def run(self) -> list[Level]:
        """All levels of a load: one; or with a shared prefix a cold and a warm one.

        Raises:
            NotFoundError: no server answers.
            UsageError: the server refuses the request.
        """
        await check_reachable(self.endpoint)
        prompts = await self.learn()
        if not self.plan.shared_prefix:
            return [await self.level(prompts, "none")]
        cold = await self.level(prompts, "cold")
        await self.send(self._prompt(prompts, "warm", 0), 1)
        return [cold, await self.level(prompts, "warm")]

    async def learn(self) -> Prompts:
        """How many tokens a word is, from two small requests; these also find out whether `ignore_eos` is known."""
        source = random.Random(self.plan.seed)
        counts = []
        for words in PROBES:
            text = " ".join(source.choices(WORDS, k=words))
            reply = await self.send(text, 2)
            if reply.error and reply.status == 400 and self.extras:
                self.extras = {}
                reply = await self.send(text, 2)
            if reply.error:
                raise UsageError(f"the server refuses: {reply.error}", where="URL", hint="is --model its name?")
            counts.append(reply.input_tokens)
        few, many = counts
        if few is None or many is None or many <= few:
            return Prompts()
        per_word = (many - few) / (PROBES[1] - PROBES[0])
        return Prompts(per_word, few - per_word * PROBES[0], True)

    async def send(self, text: str, new: int) -> Reply:
        """One request."""
        plan = self.plan
        body: dict[str, Any] = {
            "model": plan.model,
            "max_tokens": new,
            "temperature": 0.0,
            "stream": True,
            "stream_options": {"include_usage": True},
            **self.extras,
        }
        if plan.chat:
            body["messages"] = [{"role": "user", "content": text}]
            return await ask(self.endpoint, "/v1/chat/completions", body, plan.timeout)
        body["prompt"] = text
        return await ask(self.endpoint, "/v1/completions", body, plan.timeout)

    async def level(self, prompts: Prompts, prefix: Prefix) -> Level:
        """All requests of one level."""
        texts = [self._prompt(prompts, prefix, number) for number in range(self.plan.requests)]
        begin = time.perf_counter()
        send = self._closed if self.plan.request_rate is None else self._open
        replies = await send(texts, prefix)
        words = prompts.words(self.plan.isl + self.plan.shared_prefix)
        return Level(self.plan, prefix, tuple(replies), time.perf_counter() - begin, words)

    def _prompt(self, prompts: Prompts, prefix: Prefix, number: int) -> str:
        """A request's text; what it begins with is its own in a cold level and everyone's in a warm one."""
        own = random.Random(f"{self.plan.seed} {prefix} {number}")
        if not self.plan.shared_prefix:
            return prompts.text(self.plan.isl, own)
        begins = own if prefix == "cold" else random.Random(f"{self.plan.seed} shared")
        head = prompts.text(self.plan.shared_prefix, begins)
        return f"{head} {prompts.text(self.plan.isl, own)}"

    async def _closed(self, texts: Sequence[str], prefix: Prefix) -> list[Reply]:
        """As many clients as the concurrency says, each sending its next request when it has its answer."""
        replies: dict[int, Reply] = {}
        left = iter(enumerate(texts))

        async def client() -> None:
            for number, text in left:
                replies[number] = await self.send(text, self.plan.osl)
                self.say(len(replies) / len(texts), f"{prefix} prefix, {len(replies)} of {len(texts)}")

        await asyncio.gather(*(client() for _ in range(self.plan.concurrency or 1)))
        return [replies[number] for number in range(len(texts))]

    async def _open(self, texts: Sequence[str], prefix: Prefix) -> list[Reply]:
        """Requests at the moments of a Poisson process."""
        source = random.Random(self.plan.seed)
        rate = self.plan.request_rate or 1.0
        tasks = []
        moment = time.perf_counter()
        for number, text in enumerate(texts):
            await asyncio.sleep(max(0.0, moment - time.perf_counter()))
            tasks.append(asyncio.create_task(self.send(text, self.plan.osl)))
            self.say(number / len(texts), f"{prefix} prefix, {number + 1} of {len(texts)} sent")
            moment += source.expovariate(rate)
        return list(await asyncio.gather(*tasks))


def measure_endpoint(endpoint: Endpoint, plan: LoadPlan, say: Say = lambda share, doing: None) -> list[Level]:
    """Put a server under a load and note what comes back."""
    return asyncio.run(Generator(endpoint, plan, say).run())
