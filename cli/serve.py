"""minitransformer-serve: a page to translate on, and a JSON API."""

from __future__ import annotations

import functools
import ipaddress
import os
import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from autograd.array import Device
from autograd.kernel_registry import KernelChoice, references_only
from cli.command import run_command, say
from cli.options import Repeated, parse_options, require_threads
from minitransformer.config import ConfigError, RunConfig
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.packages import import_extra
from minitransformer.extras.serve.directions import Direction, Directions
from minitransformer.extras.serve.languages import Language, pairs_of
from minitransformer.extras.serve.translation_queue import TranslationQueue
from minitransformer.extras.serve.translation_request import Limits
from minitransformer.inference.search import SearchConfig
from minitransformer.inference.task import task_of_run
from minitransformer.inference.translator import Translator, require_no_trees
from minitransformer.model.files import model_directory, require_weights
from minitransformer.model.transformer import WeightsChoice

DESCRIPTION = """Serve translations: a page for people, and a JSON API that programs for LibreTranslate can use.
Ctrl-C or SIGTERM ends it, after the requests that have begun are answered. Nothing that users type is stored."""

_BOUNDS = {
    "longest_text": (1, 1_000_000),
    "tokens_per_minute": (1, 1_000_000_000),
    "tokens_waiting": (20_000, 1_000_000_000),  # at least one line of the greatest length can wait
}
_PAIR = re.compile("([^-/=]+)-([^-/=]+)=(.+)")  # such as en-de=runs/a; a code's region follows "_", such as pt_BR
_ORIGIN = re.compile(
    r"\*|[a-z-]+-extension://\*|"
    r"(?!http:.*:80$|https:.*:443$)[a-z][a-z0-9+.-]*://([a-z0-9._-]+|\[[0-9a-f:]+\])(:[0-9]+)?"
)


@dataclass(frozen=True)
class ServeOptions:
    """The options of minitransformer-serve."""

    run: Repeated[Path] = ()
    """Directory of a training run, or any directory with a model and its tokenizer; runs/demo if not given. Give --run
    several times for several directions, such as --run en-de=runs/a --run de-en=runs/b; without SOURCE-TARGET= the
    languages are those of the run's training files."""
    host: str = "127.0.0.1"
    """Address to listen on; 127.0.0.1 can be reached from this machine only, 0.0.0.0 from others, too."""
    port: int = 5000
    """Port to listen on; 0 lets the system choose one."""
    source: str | None = None
    """Code of the language that the model reads, such as en; if not given, the ending of the run's training files."""
    target: str | None = None
    """Code of the language that the model writes; if not given, the ending of the run's training files, or all
    languages of a model of several."""
    beam: int = SearchConfig.beam
    """Hypotheses kept alive for each sentence; a request can ask for up to beam − 1 alternatives."""
    alpha: float | None = SearchConfig.alpha
    """Exponent of the length penalty; if not given, the model's."""
    max_length_factor: float | None = SearchConfig.max_length_factor
    """A translation has at most this many tokens for each token of its source, plus 20."""
    max_extra_tokens: int = SearchConfig.max_extra_tokens
    """The greatest number of tokens by which a translation exceeds its source."""
    weights: WeightsChoice = "automatic"
    """The numbers in which the search computes. automatic: float32; on a GPU, products round their factors to TF32.
    float32: nothing is rounded. bfloat16 rounds weights and their inputs, and is faster on a CPU that has instructions
    for it; on a GPU all numbers have 16 bits, as with float16 (GPU only). int8 (CPU only) rounds to 255 levels, and is
    faster still, with slightly worse translations."""
    threads: int | None = None
    """Threads to compute on; all cores if not given."""
    device: Device = RunConfig.device
    """Where to compute."""
    kernels: KernelChoice = RunConfig.kernels
    """"compiled" kernels, or the "reference" of each operation in NumPy or CuPy, which is slower."""
    longest_text: int = 2_000
    """Characters of a request; longer ones are refused (status 400)."""
    tokens_per_minute: int = 100_000
    """Tokens that one client may ask for in a minute; further requests are refused (status 429)."""
    tokens_waiting: int = 64_000
    """Tokens that may wait for translation; further requests are refused (status 503)."""
    allow_origin: tuple[str, ...] = ()
    """Origins of other sites whose pages may use the API, such as https://example.org; "*" allows all,
    moz-extension://* and chrome-extension://* those of all extensions of a browser."""
    proxy: str | None = None
    """Address of a reverse proxy, whose header X-Forwarded-For names the clients."""

    @property
    def search(self) -> SearchConfig:
        """The settings of the search.  Raises: ConfigError for invalid options."""
        return SearchConfig(
            beam=self.beam,
            alpha=self.alpha,
            max_length_factor=self.max_length_factor,
            max_extra_tokens=self.max_extra_tokens,
        )

    def check(self) -> None:
        """Raise ConfigError for options out of bounds."""
        require_threads(self.threads)
        if not 0 <= self.port <= 65_535:
            raise ConfigError(f"--port must be between 0 and 65535; got {self.port}")
        if self.proxy is not None:
            try:
                ipaddress.ip_network(self.proxy)
            except ValueError as error:
                raise ConfigError(f"--proxy must be an IP address or a network; got {self.proxy}") from error
        for origin in self.allow_origin:
            if not _ORIGIN.fullmatch(origin):
                raise ConfigError(
                    '--allow-origin must be "*", moz-extension://*, or scheme://host[:port] as browsers send it: in'
                    f" lower case, without a path, and without the scheme's own port; got {origin}"
                )
        for name, (least, greatest) in _BOUNDS.items():
            if not least <= getattr(self, name) <= greatest:
                option = name.replace("_", "-")
                raise ConfigError(f"--{option} must be between {least:,} and {greatest:,}; got {getattr(self, name)}")


def main() -> int:
    """Run the command."""
    return run_command(lambda: serve(sys.argv[1:]))


def serve(arguments: Sequence[str]) -> int:
    """Serve until a signal ends it."""
    options = parse_options(ServeOptions, DESCRIPTION, arguments, 'to name a run, give "--run {file}"')
    options.check()
    with references_only(when=options.kernels == "reference"):
        _serve(options)
    return 0


def _serve(options: ServeOptions) -> None:
    search = options.search
    for module in ("starlette", "uvicorn", "prometheus_client"):
        import_extra("serve", module)
    from minitransformer.extras.serve.app import create_app  # noqa: PLC0415
    from minitransformer.extras.serve.guard import is_loopback  # noqa: PLC0415
    from minitransformer.extras.serve.metrics import Metrics  # noqa: PLC0415
    from minitransformer.extras.serve.server import address_of, listen, run_server  # noqa: PLC0415

    is_local = is_loopback(options.host)
    runs = _runs(options)
    with listen(options.host, options.port) as listening:
        load = functools.cache(functools.partial(Translator.load, device=options.device, weights=options.weights))
        directions = Directions([Direction(*pair, load(run)) for pair, run in runs.items()])
        metrics = Metrics()
        queue = TranslationQueue(
            search,
            max_tokens=options.tokens_waiting,
            n_threads=options.threads,
            on_batch=metrics.count_batch,
            on_cut=metrics.count_cut,
        )
        app = create_app(
            queue,
            directions,
            Limits(characters=options.longest_text, alternatives=options.beam - 1),
            metrics,
            tokens_per_minute=options.tokens_per_minute,
            allowed_origins=options.allow_origin,
            local_only=is_local and options.proxy is None,
            known_words=task_of_run(next(iter(runs.values()))).known_words if len(runs) == 1 else "",
            origin_remedy="start the server with --allow-origin and this origin to allow it",
        )
        say(f"{address_of(listening)} translates {_description(runs)}; Ctrl-C ends it")
        if not is_local:
            say(f"warning: everybody who reaches {options.host} can use it, without a password and unencrypted")
        try:
            run_server(app, listening, proxy=options.proxy)
        except KeyboardInterrupt:
            say("stopped")
        finally:
            _end(queue)


def _runs(options: ServeOptions) -> dict[tuple[Language, Language], Path]:
    """Return the run of each pair of languages.

    Raises: ConfigError if languages are not known, or two runs have the same; CheckpointError if there is no model.
    """
    given = options.run or (RunConfig.run,)
    pairs = [None if run.exists() else _PAIR.fullmatch(str(run)) for run in given]
    if (options.source or options.target) and (len(given) > 1 or pairs[0]):
        raise ConfigError("--source and --target go with one --run PATH; else name languages as in --run en-de=PATH")
    found: dict[tuple[Language, Language], Path] = {}
    for run, pair in zip(given, pairs, strict=True):
        source, target, path = pair.groups() if pair else (options.source, options.target, run)
        require_weights(model_directory(Path(path)))
        require_no_trees(Path(path), Tokenizer.load(Path(path)))
        for languages in pairs_of(Path(path), source, target):
            if languages in found:
                names = " to ".join(language.name for language in languages)
                raise ConfigError(f"--run: {found[languages]} and {path} both translate {names}; give one of them")
            found[languages] = Path(path)
    return found


def _description(pairs: Iterable[tuple[Language, Language]]) -> str:
    """Return pairs of languages as text, such as "English to German, French; German to English"."""
    targets: dict[str, list[str]] = {}
    for source, target in pairs:
        targets.setdefault(source.name, []).append(target.name)
    return "; ".join(f"{source} to {', '.join(names)}" for source, names in targets.items())


def _end(queue: TranslationQueue) -> None:
    """Close the queue; end the process if a translation that nobody waits for is still being computed."""
    if not queue.close(1):
        say("warning: a translation that nobody waits for was cut off")
        os._exit(1)
