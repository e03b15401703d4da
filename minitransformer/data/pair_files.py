"""Files with both sides of a text: translation memories, tables, JSON lines, and archives in the format of Moses.

Each file is read as units.  A unit has texts of the same meaning, and the codes of their languages.

Source: the archives that OPUS (https://opus.nlpl.eu) offers in the format of Moses; the JSON lines of Hugging Face's
datasets for translation.
"""

from __future__ import annotations

import io
import itertools
import json
import logging
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from minitransformer.config.data import is_language
from minitransformer.data.languages import normalised, without_region
from minitransformer.data.normalisation import words_of_line
from minitransformer.data.survey import N_NAMED, READ_ERRORS, CorpusError, Found, Survey, open_bytes, read_lines
from minitransformer.data.tmx import read_tmx
from minitransformer.data.units import Unit
from minitransformer.system.file_kinds import is_compressed

INCOMPLETE = "unit without text in both languages (left out)"
ILLEGAL = "unit with control characters, which XML does not allow (left out; remove them)"
COLUMNS = ("source", "target")  # codes for the languages of a table, which names none
_log = logging.getLogger(__name__)


def read_units(path: Path, languages: Sequence[str] = ()) -> Iterator[tuple[str | None, Unit]]:
    """Yield the units of a file, each with the file's source language, or None if a translation memory names none.

    Args:
        languages: the languages of a table's two columns; without languages, they are ``COLUMNS``.

    Raises: CorpusError naming file and line.
    """
    name = path.with_suffix("") if is_compressed(path) else path
    match name.suffix.lower():
        case ".tsv":
            return _units_of_table(path, languages or COLUMNS)
        case ".jsonl":
            return _units_of_json(path)
        case ".zip":
            return _units_of_archive(path)
    return read_tmx(path)


def _units_of_table(path: Path, languages: Sequence[str]) -> Iterator[tuple[str, Unit]]:
    """Yield a unit for each line of a table, from its first two columns; an empty or missing column gives no text."""
    for number, line in enumerate(read_lines(path, open_bytes), 1):
        columns = (column.strip() for column in line.split("\t"))
        yield languages[0], Unit(number, {code: text for code, text in zip(languages, columns, strict=False) if text})


def _units_of_json(path: Path) -> Iterator[tuple[str, Unit]]:
    """Yield a unit for each line of the form {"translation": {"en": "a house", "de": "ein Haus"}}."""
    for number, line in enumerate(read_lines(path, open_bytes), 1):
        try:
            texts = json.loads(line)["translation"]
            found = {str(code): " ".join(words_of_line(text)) for code, text in texts.items()}
            "".join((*found, *found.values())).encode()
        except UnicodeEncodeError as error:
            raise CorpusError(
                f"{path}, line {number}: has half of a surrogate pair, such as \\ud83d alone, which is no character:"
                " a text was cut there; repair the line, or remove it"
            ) from error
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise CorpusError(
                f'{path}, line {number}: expected {{"translation": {{"en": "a text", "de": "its translation"}}}}'
            ) from error
        yield next(iter(found), ""), Unit(number, {code: text for code, text in found.items() if text})


def _units_of_archive(path: Path) -> Iterator[tuple[str, Unit]]:
    """Yield a unit for each pair of lines of two files in an archive, such as Tatoeba.de-en.de and Tatoeba.de-en.en."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = _aligned_members(path, archive.namelist())
            lines = [read_lines(path / member, _opener(archive, member)) for member in members.values()]
            for number, texts in enumerate(itertools.zip_longest(*lines), 1):
                if None in texts:
                    raise CorpusError(f"{path}: {' and '.join(members.values())} differ in their numbers of lines")
                stripped = zip(members, map(str.strip, texts), strict=True)
                yield next(iter(members)), Unit(number, {code: text for code, text in stripped if text})
    except (zipfile.BadZipFile, RuntimeError, *READ_ERRORS) as error:  # RuntimeError: encryption, unknown compression
        raise CorpusError(f"{path}: cannot be read as an archive: {error}") from error


def _opener(archive: zipfile.ZipFile, member: str) -> Callable[[Path], io.BufferedReader]:
    return lambda _: io.BufferedReader(cast(io.RawIOBase, archive.open(member)))


def _aligned_members(path: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the name of each language's file in an archive; the first language in the files' names is the source's.

    Raises: CorpusError if the archive has no pair of such files, or several.
    """
    pairs = list[dict[str, str]]()
    for stem in dict.fromkeys(name.rpartition(".")[0] for name in names):
        codes = stem.rpartition(".")[2].split("-")
        members = {code: f"{stem}.{code}" for code in codes}
        if len(codes) == 2 and all(member in names for member in members.values()):
            pairs.append(members)
    if len(pairs) != 1:
        listed = ", ".join(names[:N_NAMED]) or "nothing"
        raise CorpusError(f"{path}: expected a pair of files such as text.de-en.de and text.de-en.en; got {listed}")
    return pairs[0]


def languages_of(path: Path) -> tuple[str, str]:
    """Return the source language of a file, and the only other language of its first complete unit.

    Raises: CorpusError if the file does not determine both languages, and as ``read_units`` does.
    """
    remedy = "set languages, for example en de (in training: set data.languages)"
    for source, unit in read_units(path):
        if len(unit.texts) < 2:
            continue
        here = f"{path}, line {unit.line}"
        code = None if source is None else unit.code(source)
        if source is None or code is None:
            raise CorpusError(
                f"{here}: a unit has {listing(unit.texts)}, but the file's source language is {source}; {remedy}"
            )
        others = [other for other in unit.texts if other != code]
        if len(others) > 1:
            raise CorpusError(f"{here}: a unit has more than two languages, {listing(unit.texts)}; {remedy}")
        return source, others[0]
    raise CorpusError(f"{path}: no unit has text in two languages; {remedy}")


def listing(codes: Iterable[str]) -> str:
    """Return the first N_NAMED codes as text for a message, with " …" if there are more."""
    first = list(itertools.islice(codes, N_NAMED + 1))
    return ", ".join(first[:N_NAMED]) + (" …" if len(first) > N_NAMED else "")


def read_pair_file(path: Path, languages: Sequence[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a file in the source and target of ``languages``, or of ``languages_of`` if it is empty.

    Raises: CorpusError as ``languages_of`` and ``read_units`` do.
    """
    source, target = languages or languages_of(path)
    for _, unit in read_units(path, (source, target)):
        source_code, target_code = unit.codes(source, target)
        if source_code is not None and target_code is not None:
            yield unit.texts[source_code], unit.texts[target_code]


def log_other_regions(path: Path, language: str, chosen: Mapping[str, int]) -> None:
    """Log the codes of other regions, such as "en-US", whose text is read as text in ``language``, such as "en-GB"."""
    others = {code: n for code, n in chosen.items() if not normalised(code).startswith(normalised(language))}
    if others:
        listed = listing(f"{code} ({n:,} units)" for code, n in others.items())
        _log.info(f"{path}: {listed} is read as {language}; to have one region alone, remove the other units")


def survey_pair_file(path: Path, languages: Sequence[str] = ()) -> Survey:
    """Read a file to its end; return the number of its pairs, and the lines of units that are left out.

    The log names the languages.

    Raises: CorpusError as ``read_pair_file`` does, and if there is no pair.
    """
    source, target = languages or languages_of(path)
    _log.info(f"{path}: {source} → {target}")
    n_pairs, incomplete, illegal, codes = 0, Found(), Found(), dict[str, None]()
    chosen = {source: Counter[str](), target: Counter[str]()}
    for _, unit in read_units(path, (source, target)):
        codes |= dict.fromkeys(unit.texts) if len(codes) <= N_NAMED else {}
        source_code, target_code = unit.codes(source, target)
        if unit.is_illegal:
            illegal.add(unit.line)
        elif source_code is None or target_code is None:
            incomplete.add(unit.line)
        else:
            n_pairs += 1
            chosen[source][source_code] += 1
            chosen[target][target_code] += 1
    for language, counts in chosen.items():
        log_other_regions(path, language, counts)
    if not n_pairs:
        raise CorpusError(
            f"{path}: no unit has text in both {source} and {target}; its languages are {listing(codes) or 'missing'};"
            " to choose two of them, set data.languages"
        )
    left_out = {INCOMPLETE: incomplete, ILLEGAL: illegal}
    return Survey(n_pairs, {name: found for name, found in left_out.items() if found.count}, (source, target))


def require_one_direction(languages: Mapping[Path, Sequence[str]]) -> None:
    """Raise CorpusError if two files have different source languages, or different target languages.

    ``languages`` are the source and the target of each file.  Regions do not matter, except if the source and the
    target of a file are regions of one language.
    """
    first, ours = next(iter(languages.items()))
    for path, theirs in languages.items():
        if _direction(ours) != _direction(theirs):
            raise CorpusError(
                f"{path}: is read as {' → '.join(theirs)}, but {first} as {' → '.join(ours)}; to read both in one"
                " direction, set data.languages"
            )


def require_targets(languages: Mapping[Path, Sequence[str]], tags: Iterable[tuple[Path, str]]) -> None:
    """Raise CorpusError if the target language of a file that names its languages is another one than its tag."""
    for path, tag in tags:
        target = languages[path][1] if path in languages else tag
        if is_language(target) and without_region(target) != without_region(tag):
            raise CorpusError(
                f"{path}: is read as {' → '.join(languages[path])}, but its tag is {tag}: give the tag of its target"
            )


def _direction(languages: Sequence[str]) -> list[str]:
    """Return two languages without their regions; keep the regions if the languages differ only in them."""
    without = list(map(without_region, languages))
    return without if len(set(without)) == len(without) else list(map(normalised, languages))
