"""Measure the server with many users at once, compared with one user.

    pip install -e ".[serve]"
    python benchmarks/serving.py [--run runs/demo] [--requests 1000] [--at-once 32] [--idle 0] [--flood long]

A request is one sentence of the demonstration's test text, over loopback.  The first figure is for one user, who waits
for each answer before the next request; the second is for ``--at-once`` such users at the same time.  A request is lost
if it has no answer of status 200.  An answer is different if the library, called directly, translates otherwise.
Meanwhile ``--idle`` connections are open on which nothing is sent.  With ``--flood``, another client, of the address
127.0.0.2, sends one of FLOODS on many connections, and each user also sends the sentences without the flood: the
figures "alone".
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
from typing import Any, TypeAlias

from contest import describe_machine

from minitransformer import Translator
from minitransformer.extras.demo import demo_corpus

LANGUAGES = {"source": "en", "target": "de"}
UNIT = "<trans-unit id='{}'><source>the <g id='1'>small</g> dog <x id='2'/> sees {{0}} houses</source></trans-unit>"
XLIFF = (
    "<xliff version='1.2'><file source-language='en' target-language='de' original='x' datatype='plaintext'><body>"
    + "".join(map(UNIT.format, range(150)))
    + "</body></file></xliff>"
)
Fields: TypeAlias = dict[str, Any]
FLOODS: dict[str, tuple[int, str, Fields]] = {
    "lines": (64, "/translate", {"q": "a " * 120}),
    "short-lines": (64, "/translate", {"q": "a " * 40}),
    "documents": (16, "/translate_file", {"file": XLIFF}),
    "long": (64, "/translate", {"q": "a " * 1_000}),
    "attention": (32, "/attention", {"q": "a " * 250, "translation": "ein " * 250}),
    "html": (16, "/translate", {"q": "<p>the <b>small</b> dog</p>" * 70, "format": "html"}),
    "alternatives": (64, "/translate", {"q": "the small dog sees three red houses", "alternatives": 3}),
}
"""Floods of one client: the number of its connections, and the path and the fields of its requests."""
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


async def answer(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, fields: Fields
) -> Fields | None:
    """Return the answer to a request, or None if it is refused; fields with a "file" are sent as a form."""
    kind, body = "application/json", json.dumps(fields)
    if "file" in fields:
        kind, names = "multipart/form-data; boundary=X", {"file": 'file"; filename="a.xlf'}
        parts = [f'form-data; name="{names.get(name, name)}"\r\n\r\n{value}' for name, value in fields.items()]
        body = "".join(f"--X\r\nContent-Disposition: {part}\r\n" for part in parts) + "--X--\r\n"
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write((head + body).encode())
    status, _, headers = (await reader.readuntil(b"\r\n\r\n")).decode().lower().partition("\r\n")
    length = int(headers.partition("content-length: ")[2].partition("\r\n")[0])
    found: Fields = json.loads(await reader.readexactly(length))
    return found if " 200 " in status else None


async def user(port: int, sentences: Iterator[str], tally: Tally) -> None:
    """Send sentences on one connection, one after the other, as long as there are any."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for sentence in sentences:
        start = time.perf_counter()
        found = await answer(reader, writer, "/translate", {"q": sentence, **LANGUAGES})
        tally.seconds.append(time.perf_counter() - start)
        if found is not None:
            tally.answers[sentence] = found["translatedText"]
    writer.close()


async def flood(port: int, path: str, fields: Fields) -> None:
    """Send a request again and again until cancelled; wait a second after a refusal."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
    try:
        while True:
            if await answer(reader, writer, path, LANGUAGES | fields) is None:
                await asyncio.sleep(1)
    finally:
        writer.close()


async def measured(port: int, sentences: Sequence[str], n_users: int, n_idle: int, kind: str | None) -> Tally:
    """Let ``n_users`` users send the sentences beside a flood of this kind, and return the tally."""
    idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(n_idle)]
    n_flood, *request = FLOODS[kind] if kind else (0,)
    floods = [asyncio.create_task(flood(port, *request)) for _ in range(n_flood)]
    await asyncio.sleep(3 if kind else 0)
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
    parser.add_argument("--flood", choices=FLOODS)
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
            for kind in dict.fromkeys((None, options.flood)):
                tally = asyncio.run(measured(port, sentences, n_users, options.idle, kind))
                n_lost += tally.n_lost
                print(f"{n_users:3d} at once{f', beside {kind}' if kind else ''}: {tally.line(expected)}")
            rates.append(len(tally.seconds) / tally.total)
        print(f"together {rates[1] / rates[0]:.2f} times as many in a second as one after the other")
        server.terminate()
    return int(n_lost > 0)


if __name__ == "__main__":
    sys.exit(main())
