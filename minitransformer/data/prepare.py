"""Preparation of data: from raw parallel text to a directory of token ids."""

from __future__ import annotations

import difflib
import itertools
import json
import logging
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from minitransformer.config import DataConfig, TokenizerType
from minitransformer.config.checks import imported_function
from minitransformer.config.data import is_language
from minitransformer.config.run import RUN_FILE
from minitransformer.data.corpus import Corpus, FileCorpus, changed_files, text_files
from minitransformer.data.given_tokenizer import GivenTokenizer, made_by, read_tokenizer, require_tags
from minitransformer.data.languages import NAMED_LANGUAGES, language_of_run, without_region
from minitransformer.data.normalisation import LostCharacters
from minitransformer.data.pair_check import log_pairs
from minitransformer.data.profile import USUAL_LINES, LineCounts
from minitransformer.data.selection import (
    HeldOut,
    find_copies,
    reason_to_drop,
    separate,
    worth_holding_out,
    worth_scoring,
    worth_training_on,
)
from minitransformer.data.store import (
    CHECKSUMS,
    MANIFEST,
    TokenStore,
    cut_into_shards,
    remove_shards,
    shard_files,
    write_shard,
    write_store,
)
from minitransformer.data.survey import CorpusError, Found, Pair, fingerprint_of_file, groups_of
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.model.batch import IdPair
from minitransformer.model.files import WEIGHTS_FILE
from minitransformer.system.checksums import checksums_of, compare_files, passes
from minitransformer.system.files import (
    CheckpointError,
    CorruptFileError,
    lock_directory,
    read_json,
    remove_unfinished,
    write_text,
)
from minitransformer.system.provenance import short_hash
from minitransformer.system.records import convert_value, corrupt_file_error, is_object_name, read_object
from parallel.communicator import Communicator, SerialCommunicator, call_on_rank_0, work_in_turn

LONGEST_SCORED = 1_024  # tokens: a longer held-out line is no sentence, and its attention could exhaust the memory
ADDED = "added_characters"  # the manifest's field with the characters appended to a given tokenizer, or null
IN_TRAINING = "validation_in_training"  # the manifest's field with the number of held-out pairs that are trained on
FILE_SIZES = "train_pairs_of_files"  # the manifest's field with the number of training pairs of each file
_OBJECTS = ("config", "files", CHECKSUMS)  # fields of the manifest that are objects
_SPLITS, _TEXTS = ("train", "validation"), ("validation", "test")  # splits with token ids; splits with raw lines
_LINES_AT_ONCE = 10_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class PreparedData:
    """A directory that ``prepare`` wrote: tokenizer, token stores, held-out text, and a manifest with counts."""

    directory: Path
    tokenizer: Tokenizer
    manifest: dict[str, Any]

    @classmethod
    def open(cls, directory: Path, *, anew: bool = False) -> PreparedData:
        """Open a prepared directory.  Compare all bytes with their checksums, unless they have passed (``passes``).

        ``anew`` compares all bytes in any case.  Raises: CheckpointError if the data is missing, incomplete or corrupt.
        """
        if not cls.is_in(directory):
            raise CheckpointError(f"{directory}: no prepared data here (no {MANIFEST}); prepare the data first")
        manifest = read_object(directory / MANIFEST)
        if not all(isinstance(manifest.get(field), dict) for field in _OBJECTS):
            raise CorruptFileError(f"{directory / MANIFEST}: is no manifest of prepared data; prepare the data again")
        data = cls(directory, Tokenizer.load(directory), manifest)
        data._check_files(anew)
        return data

    def _check_files(self, anew: bool) -> None:
        """Compare files with their checksums, and ids with the vocabulary sizes.  Raises: CorruptFileError."""
        listed, found = self.manifest[CHECKSUMS], _files_of(self.directory, self.tokenizer)
        try:
            if listed.keys() != set(found):
                raise CorruptFileError(
                    f"{self.directory}: holds {', '.join(sorted(found))}; expected the files that {MANIFEST} lists"
                )

            def compare() -> bool:
                compare_files(self.directory, found, listed, MANIFEST)
                for store in self.stores.values():
                    store.check_ids(self.tokenizer.n_source_words, self.tokenizer.n_target_words)
                return True

            passes(compare, (self.directory / name for name in sorted(found)), listed, anew=anew)
        except CorruptFileError as error:
            raise CorruptFileError(f"{error}. Prepare the data again") from error

    @property
    def digest(self) -> str:
        """A hash of tokenizer, token ids and held-out text, as ten hexadecimal digits."""
        return short_hash(json.dumps(self.manifest[CHECKSUMS], sort_keys=True))

    @staticmethod
    def is_in(directory: Path) -> bool:
        """Return whether a directory holds complete prepared data."""
        return (directory / MANIFEST).exists()

    @cached_property
    def stores(self) -> dict[str, TokenStore]:
        """The token ids of "train" and "validation"; opening them reads all lengths."""
        return {split: TokenStore(self.directory, split) for split in _SPLITS}

    def text(self, split: str) -> list[Pair]:
        """Return the raw pairs of lines of "validation" or "test"; [] if there is no such split."""
        path = self.directory / f"{split}.json"
        if not path.exists():
            return []
        pairs: list[Pair] = convert_value(
            "pairs", read_json(path), list[Pair], corrupt_file_error(path, "prepare the data again")
        )
        return pairs


def selected_text(corpus: Corpus, data: PreparedData, config: DataConfig) -> Iterator[tuple[int, Pair]]:
    """Yield the raw pairs of lines of the training pairs in ``data``, which ``prepare`` made from the corpus.

    Each comes with the index of its training file.
    A stage that reads the text after ``prepare`` must read it here, or it learns the copies of held-out pairs.
    """
    keeps_copies = corpus.held_out_location(0) is None or data.manifest.get(IN_TRAINING, 0)
    held_out = set() if keeps_copies else set(_normalise(data.text("validation"), data.tokenizer))
    index = itertools.count()
    for some in groups_of(corpus.train(), _LINES_AT_ONCE):
        encoded = _encode(some, data.tokenizer)
        for pair, normalised, ids, i in zip(some, data.tokenizer.normalised(some), encoded, index, strict=False):
            if normalised not in held_out and not reason_to_drop(ids, config):
                yield corpus.file_of(i), pair


def _files_of(directory: Path, tokenizer: Tokenizer) -> list[str]:
    """Return the names of all files of prepared data except the manifest."""
    shards = itertools.chain.from_iterable(shard_files(directory, split) for split in _SPLITS)
    texts = (f"{split}.json" for split in _TEXTS if (directory / f"{split}.json").exists())
    return [*tokenizer.files, *shards, *texts]


def prepare(
    config: DataConfig,
    directory: Path,
    open_corpus: Callable[[DataConfig], Corpus] = FileCorpus.of,
    given: GivenTokenizer | None = None,
    world: Communicator = SerialCommunicator(),  # noqa: B008  (it has no state)
) -> PreparedData:
    """Read the corpus, train a tokenizer unless one is given, and write token ids.

    ``open_corpus`` opens the corpus of the configuration.  The manifest is written last, so that only a complete
    directory has one.  Ranks divide the shards of the training text; the files are the same for any number of ranks.
    Raises: CorpusError for text that cannot be used; CheckpointError if the directory cannot be written, holds a run or
    a model, or is being written by another process.
    """

    def begin() -> tuple[Corpus, Mapping[str, Mapping[str, Any]], str | None]:
        require_no_model(directory)
        if is_object_name(config.tokenizer):
            imported_function("data.tokenizer", str(config.tokenizer))  # raises before the text is read
        _log.info("generating the demo corpus" if config.task == "demonstration" else "reading the text")
        _require_files(config)
        read = {name: fingerprint_of_file(path) for name, path in text_files(config).items()}
        corpus = open_corpus(config)
        _log_oddities(corpus)
        if config.task == "demonstration":  # pairs of files are shown when they are inspected
            log_pairs(list(enumerate(corpus.train())), corpus.location)
        stack.enter_context(lock_directory(directory, "preparing data"))
        _remove_manifest(directory)  # an incomplete directory has no manifest
        remove_unfinished(directory)
        tokenizer, added = _tokenizer_for(corpus, config, given)
        require_tags(tokenizer, config, corpus)
        tokenizer.save(directory)
        remove_shards(directory, "train")
        _log.info("writing tokens")
        return corpus, read, added

    with ExitStack() as stack:
        corpus, files, added = call_on_rank_0(begin, world)  # files: fingerprints, made before the text was read
        tokenizer = Tokenizer.load(directory)
        selection = _write_training(corpus, tokenizer, config, directory, world)
        call_on_rank_0(lambda: _write_rest(corpus, tokenizer, config, directory, selection, files, added), world)
    return call_on_rank_0(lambda: PreparedData.open(directory), world.node)


def _require_files(config: DataConfig) -> None:
    if missing := [path for path in text_files(config).values() if not path.exists()]:
        near = difflib.get_close_matches(missing[0].name, [path.name for path in missing[0].parent.glob("*")], n=1)
        meant = f"did you mean {missing[0].with_name(near[0])}? Or " if near else ""
        raise CorpusError(f"{missing[0]}: not found; {meant}{config.remedy_if_missing}")


def require_no_model(directory: Path) -> None:
    """Raise CheckpointError if a directory holds a run or a model: its tokenizer would be overwritten."""
    if found := [name for name in (RUN_FILE, WEIGHTS_FILE, "checkpoints") if (directory / name).exists()]:
        raise CheckpointError(
            f"{directory}: holds a run or a model ({found[0]} is there), whose tokenizer would be overwritten; expected"
            f" a directory for prepared data alone: set data.directory to another one, such as {directory / 'data'}"
        )


@dataclass
class _PairSelection:
    """The held-out pairs, the indices of their copies among the training pairs, and counts of pairs and lost lines."""

    held_out: Sequence[HeldOut]
    copies: Collection[int]
    dropped: dict[str, Found]
    in_training: Found
    lost: LostCharacters
    lines: LineCounts
    n_pairs: Counter[int] = field(default_factory=Counter)  # training pairs of each file


def _write_training(
    corpus: Corpus, tokenizer: Tokenizer, config: DataConfig, directory: Path, world: Communicator
) -> _PairSelection:
    """Select the held-out pairs, and write the shards of the training text; all ranks must call this."""
    selection = _hold_out(corpus, tokenizer, config, world)

    def write(shard: tuple[int, Iterator[Pair]]) -> tuple[Counter[int], dict[str, Found], LostCharacters, LineCounts]:
        (first, pairs), dropped, lost, n_pairs = shard, dict[str, Found](), LostCharacters(), Counter[int]()
        lines, compared = LineCounts(selection.lines.language), None if corpus.targets_are_symbols else lost
        encoded = _encode(lines.count_sentences(pairs), tokenizer, compared, lambda i: corpus.location(first + i))
        kept = worth_training_on(encoded, config, dropped, corpus.location, selection.copies, first)
        counted = _count_pairs_of_files(kept, corpus, n_pairs)
        write_shard(directory, "train", first, lines.count_tokens(counted), _n_words(tokenizer))
        return n_pairs, dropped, lost, lines

    for n_pairs, dropped, lost, lines in work_in_turn(cut_into_shards(corpus.train()), write, world):
        selection.n_pairs.update(n_pairs)
        selection.lost.extend(lost)
        selection.lines.add(lines)
        for reason, found in dropped.items():
            selection.dropped.setdefault(reason, Found()).extend(found)
    return selection


def _count_pairs_of_files(
    pairs: Iterable[tuple[int, IdPair]], corpus: Corpus, n_pairs: Counter[int]
) -> Iterator[IdPair]:
    """Yield the pairs without their indices in the training text; count the pairs of each file in ``n_pairs``."""
    for i, pair in pairs:
        n_pairs[corpus.file_of(i)] += 1
        yield pair


def _write_rest(
    corpus: Corpus,
    tokenizer: Tokenizer,
    config: DataConfig,
    directory: Path,
    selection: _PairSelection,
    files: Mapping[str, Mapping[str, Any]],
    added: str | None,
) -> None:
    """Write held-out pairs and the manifest; ``files`` are fingerprints that were made before the text was read."""
    held_out, dropped, in_training = selection.held_out, selection.dropped, selection.in_training
    if not selection.n_pairs:
        raise CorpusError(f"no training pair is left; {_losses(dropped)}. Look at data.max_length and the text")
    unscored = Found()
    n_validation = _write_held_out(held_out, corpus, tokenizer, config, directory, dropped, unscored)
    if changed := changed_files(config, files):
        names = ", ".join(map(str, changed))
        raise CorpusError(f"{names}: has changed while it was read; prepare the data again")
    odd = {path: {kind: found.count for kind, found in seen.odd.items()} for path, seen in corpus.surveys.items()}
    manifest = {
        "train_pairs": selection.n_pairs.total(),
        FILE_SIZES: [selection.n_pairs[i] for i in range(max(1, len(config.train_source)))],
        "validation_pairs": n_validation,
        "faults": corpus.inspection.counts,
        "dropped": {reason: found.count for reason, found in dropped.items()},
        "first_dropped": {reason: found.first for reason, found in dropped.items()},
        IN_TRAINING: in_training.count,
        "validation_too_long": unscored.count,
        "targets_with_lost_characters": selection.lost.found.count,
        "source_words": tokenizer.n_source_words,
        "target_words": tokenizer.n_target_words,
        ADDED: added,
        "files": files,
        NAMED_LANGUAGES: _languages_of(corpus),
        USUAL_LINES: selection.lines.usual(),
        "odd_lines": {name: odd[path] for name, path in text_files(config).items() if odd.get(path)},
        "config": config.preparation(),
        CHECKSUMS: checksums_of(directory, _files_of(directory, tokenizer)),
    }
    write_text(directory / MANIFEST, json.dumps(manifest, indent=2) + "\n")
    if not corpus.targets_are_symbols:
        _log.info(f"sentences in a line of the source: {selection.lines.description}")
    for reason, found in dropped.items():
        _log.info(f"pairs dropped as {reason}: {found.count:,} ({found.locations})")
    if in_training.count:
        _log.warning(
            f"validation pairs that are also trained on: {in_training.count:,} of {len(held_out):,} (number"
            f" {in_training.locations}). Their loss and score show what is learnt by heart: take them out of the"
            " training text, or name other validation text"
        )
    if unscored.count:
        _log.info(
            f"too long for the validation loss: {unscored.count:,} validation pairs (number {unscored.locations})"
        )
    _log_lost(selection.lost, config)
    losses = ", ".join(f"{found.count:,} {reason}" for reason, found in dropped.items()) or "none"
    _log.info(
        f"{selection.n_pairs.total():,} training pairs (dropped: {losses}), {n_validation:,} validation pairs in"
        f" {directory}"
    )


def _tokenizer_for(corpus: Corpus, config: DataConfig, given: GivenTokenizer | None) -> tuple[Tokenizer, str | None]:
    """Return a new tokenizer for a corpus, or the given one, and the characters that were appended to it."""
    if given is None and isinstance(config.tokenizer, Path):
        given = GivenTokenizer(read_tokenizer(config.tokenizer))
    if given is not None:
        return (given.tokenizer, None) if corpus.targets_are_symbols else given.for_text(corpus)
    text = _RepeatableText(corpus.train)
    if is_object_name(config.tokenizer):
        return made_by(str(config.tokenizer), text, config), None
    _log.info(f"training a {config.tokenizer} tokenizer of {config.vocabulary_size:,} pieces")
    tokenizer = Tokenizer.train(
        text,
        vocabulary_size=config.vocabulary_size,
        kind=cast(TokenizerType, config.tokenizer),
        normalisation=config.normalisation,
        joint=config.joint_vocabulary,
        symbols=corpus.targets_are_symbols,
        languages=dict.fromkeys(config.tags),
    )
    if tokenizer.kind == "word":
        tokenizer = tokenizer.with_lexicon(_encode(corpus.train(), tokenizer))
    return tokenizer, None


def _remove_manifest(directory: Path) -> None:
    try:
        (directory / MANIFEST).unlink(missing_ok=True)
    except OSError as error:
        raise CheckpointError(
            f"{directory / MANIFEST}: cannot be removed ({error}), so nothing can be prepared there; set run (or"
            " data.directory) to another directory"
        ) from error


def _hold_out(corpus: Corpus, tokenizer: Tokenizer, config: DataConfig, world: Communicator) -> _PairSelection:
    """Return the held-out pairs, and the indices of the training pairs to drop because they are copies of these."""
    dropped, in_training = dict(corpus.inspection.dropped), Found()
    encoded = _encode(corpus.validation(), tokenizer)
    held_out = list(worth_holding_out(corpus.validation(), encoded, config, dropped, corpus.held_out_location))
    normalised = list(_normalise((one.pair for one in held_out), tokenizer))

    def find(shard: tuple[int, Iterator[Pair]]) -> list[array[int]]:
        first, pairs = shard
        return find_copies(held_out, normalised, enumerate(_normalise(pairs, tokenizer), first), config)

    found = work_in_turn(cut_into_shards(corpus.train()), find, world)
    copies = [list(itertools.chain(*(shard[i] for shard in found))) for i in range(len(held_out))]
    language = language_of_run({"data": config.preparation(), NAMED_LANGUAGES: _languages_of(corpus)}, "source")
    apart = separate(held_out, copies, dropped, in_training)
    return _PairSelection(*apart, dropped, in_training, LostCharacters(), LineCounts(language))


def _write_held_out(
    held_out: Sequence[HeldOut],
    corpus: Corpus,
    tokenizer: Tokenizer,
    config: DataConfig,
    directory: Path,
    dropped: Mapping[str, Found],
    unscored: Found,
) -> int:
    """Write ids and text of held-out pairs, and text of test pairs; return the number of pairs whose ids were written.

    The text also has the pairs that are too long for the loss, because BLEU is computed from all pairs.
    """
    if not held_out:
        raise CorpusError(
            f"no held-out pair is left; {_losses(dropped)}. Look at the text, or set data.validation_source and"
            " data.validation_target"
        )
    longest = max(LONGEST_SCORED, config.max_length)
    scored = worth_scoring((one.ids for one in held_out), longest, unscored)
    n_validation = write_store(directory, "validation", scored, _n_words(tokenizer))
    if n_validation == 0:
        raise CorpusError(
            f"no validation pair is left: all {unscored.count:,} have more than {longest:,} tokens on a side;"
            " expected one sentence per line"
        )
    for split, pairs in zip(_TEXTS, ([one.pair for one in held_out], list(corpus.test())), strict=True):
        write_text(directory / f"{split}.json", json.dumps(pairs, ensure_ascii=False, indent=0))
    return n_validation


def _languages_of(corpus: Corpus) -> list[str]:
    """Return the codes of source and target in the first file that names both; [] if none does, or targets differ."""
    every = (found.languages for found in corpus.surveys.values())
    named = [list(codes) for codes in every if codes and all(map(is_language, codes))]
    return named[0] if len({without_region(target) for _, target in named}) == 1 else []


def _n_words(tokenizer: Tokenizer) -> int:
    return max(tokenizer.n_source_words, tokenizer.n_target_words)


def _losses(dropped: Mapping[str, Found]) -> str:
    return "dropped: " + ", ".join(f"{found.count:,} {reason} ({found.locations})" for reason, found in dropped.items())


def _log_oddities(corpus: Corpus) -> None:
    for path, seen in corpus.surveys.items():
        for kind, found in seen.odd.items():
            _log.info(f"{path}: {kind}: {found.count:,} lines ({found.locations})")


@dataclass(frozen=True)
class _RepeatableText:
    """An iterable that reads the text from its beginning in each iteration."""

    read: Callable[[], Iterator[Pair]]

    def __iter__(self) -> Iterator[Pair]:
        return self.read()


def _log_lost(lost: LostCharacters, config: DataConfig) -> None:
    if lost.found.count:
        remedy = '; to keep them, set data.normalisation to "keep"' if config.normalisation == "nmt_nfkc" else ""
        _log.warning(f"{lost.description}{remedy}")


def _encode(
    pairs: Iterable[Pair],
    tokenizer: Tokenizer,
    lost: LostCharacters | None = None,
    location: Callable[[int], str] = str,
) -> Iterator[IdPair]:
    """Yield the ids of pairs; add to ``lost`` the characters that the target ids lose."""
    for some in groups_of(pairs, _LINES_AT_ONCE):
        targets = [target for _, target in some]
        target_ids = tokenizer.encode_target(targets)
        if lost is not None:
            lost.compare(targets, tokenizer.decode_target(target_ids), location)
        yield from zip(tokenizer.encode_source([source for source, _ in some]), target_ids, strict=True)


def _normalise(pairs: Iterable[Pair], tokenizer: Tokenizer) -> Iterator[Pair]:
    return itertools.chain.from_iterable(map(tokenizer.normalised, groups_of(pairs, _LINES_AT_ONCE)))
