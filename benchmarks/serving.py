"""Measure the server with many users at once, compared with one user.

    pip install -e ".[serve]"
    python benchmarks/serving.py [--run runs/demo] [--requests 1000] [--at-once 32] [--idle 0] [--flood 0]

A request is one sentence of the demonstration's test text, over loopback.  The first figure is for one user, who waits
for each answer before the next request; the second is for ``--at-once`` such users at the same time.  A request is lost
if it has no answer of status 200.  An answer is different if the library, called directly, translates otherwise.
Meanwhile ``--idle`` connections are open on which nothing is sent, and ``--flood`` further users send texts of 2,000
characters and nearly 1,000 tokens, one after the other.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from contest import describe_machine

from minitransformer import Translator
from minitransformer.extras.demo import demo_corpus

SERVE = "import sys, cli.serve; sys.exit(cli.serve.main())"


@dataclass
class Tally:
    """The answers to one round of requests, None if lost, and the seconds that they took."""

    answers: dict[str, str | None]
    seconds: list[float] = field(default_factory=list)
    total: float = 0.0

    @property
    def n_lost(self) -> int:
        return sum(answer is None for answer in self.answers.values())

    def line(self, expected: dict[str, str]) -> str:
        """Return the figures."""
        different = sum(answer not in (None, expected[q]) for q, answer in self.answers.items())
        percentiles = statistics.quantiles(self.seconds, n=100)
        return (
            f"{len(self.seconds) / self.total:7.1f} requests/s   p50 {1e3 * percentiles[49]:6.1f} ms"
            f"   p99 {1e3 * percentiles[98]:6.1f} ms   {self.n_lost} lost, {different} different of {len(self.answers)}"
        )


async def translation(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, text: str) -> str | None:
    """Return the translation of a text, or None if it is refused."""
    body = json.dumps({"q": text, "source": "en", "target": "de"}).encode()
    writer.write(
        b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
        % len(body)
        + body
    )
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
    answer = json.loads(await reader.readexactly(length))
    return answer["translatedText"] if " 200 " in head.partition("\r\n")[0] else None


async def user(port: int, sentences: Iterator[str], tally: Tally) -> None:
    """Send sentences on one connection, one after the other, as long as there are any."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for sentence in sentences:
        start = time.perf_counter()
        answer = await translation(reader, writer, sentence)
        tally.seconds.append(time.perf_counter() - start)
        if answer is not None:
            tally.answers[sentence] = answer
    writer.close()


async def flood(port: int) -> None:
    """Send long texts until cancelled; wait a second after a refusal."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        while True:
            if await translation(reader, writer, "a " * 1_000) is None:
                await asyncio.sleep(1)
    finally:
        writer.close()


async def measured(port: int, sentences: Sequence[str], n_users: int, n_idle: int, n_flood: int) -> Tally:
    """Let ``n_users`` users send the sentences, and return the tally."""
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(n_idle)]
    floods = [asyncio.create_task(flood(port)) for _ in range(n_flood)]
    tally, left, start = Tally(dict.fromkeys(sentences)), iter(sentences), time.perf_counter()
    ends = await asyncio.gather(*(user(port, left, tally) for _ in range(n_users)), return_exceptions=True)
    for failure in filter(None, ends):
        print(f"a user lost the connection: {failure!r}")
    tally.total = time.perf_counter() - start
    for _, writer in idle:
        writer.close()
    for task in floods:
        task.cancel()
    return tally


def main() -> int:
    """Measure, and report; return 1 if a request was lost."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, default=Path("runs/demo"))
    parser.add_argument("--requests", type=int, default=1_000)
    parser.add_argument("--at-once", type=int, default=32)
    parser.add_argument("--idle", type=int, default=0)
    parser.add_argument("--flood", type=int, default=0)
    options = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    describe_machine()
    sentences = [source for source, _ in demo_corpus(n_train=0, n_test=options.requests).test]
    expected = dict(zip(sentences, Translator.load(options.run).translate(sentences), strict=True))
    words = ["--run", str(options.run), "--port", "0", "--source", "en", "--target", "de"]
    command = [sys.executable, "-c", SERVE, *words, "--tokens-per-minute", "1000000000"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        port = int(server.stderr.readline().split()[0].rpartition(":")[2])
        rates, n_lost = [], 0
        for n_users in (1, options.at_once):
            tally = asyncio.run(measured(port, sentences, n_users, options.idle, options.flood))
            rates.append(len(tally.seconds) / tally.total)
            n_lost += tally.n_lost
            print(f"{n_users:3d} at once: {tally.line(expected)}")
        print(f"together {rates[1] / rates[0]:.2f} times as many in a second as one after the other")
        server.terminate()
    return int(n_lost > 0)


if __name__ == "__main__":
    sys.exit(main())
