"""minitransformer-convert: read a model of another program, or write one for it."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cli.command import run_command, say
from cli.options import Positional, parse_options
from minitransformer.extras.convert.certificate import (
    CERTIFICATE_FILE,
    SIDES,
    OtherModel,
    certify,
    other_side,
    read_sentences,
    require_side,
    write_certificate,
)
from minitransformer.extras.convert.formats import (
    FORMATS,
    READABLE,
    WRITABLE,
    output_directory,
    read_parts,
    recognise,
    require_writable,
)
from minitransformer.extras.convert.hub import download, is_hub_name
from minitransformer.extras.convert.parts import ConversionError, Parts
from minitransformer.model.storage import Storage

DESCRIPTION = "Convert a model from another program's format to ours, or from ours to another program's."


@dataclass(frozen=True)
class ConvertOptions:
    """The options of minitransformer-convert."""

    source: Positional[Path]
    """Directory or file of the model to convert, or its name on the Hugging Face Hub."""
    output: Path
    """Directory to write, which must not exist or be empty."""
    to: Literal[WRITABLE] = "minitransformer"  # type: ignore[valid-type]
    """Format to write."""
    from_: Literal[READABLE] | None = None  # type: ignore[valid-type]
    """Format of the source; if not given, it is recognised by the files there."""
    revision: str | None = None
    """Branch, tag or commit of a model on the Hugging Face Hub.  Without it, the newest commit is taken."""
    storage: Storage = "float32"
    """Number format in which weights are stored."""
    certify: Path | None = None
    """File of source sentences, one a line.  Both programs translate them, and certificate.json in the output says how
    much they differ.  The other program must be installed."""
    source_spm: Path | None = None
    """sentencepiece model of the source, for a model without a tokenizer (CTranslate2, fairseq, JoeyNMT). It is also
    that of the target if --target-spm is not given and the directory has no target.spm."""
    target_spm: Path | None = None
    """sentencepiece model of the target alone, for a model without a tokenizer."""
    licence: str | None = None
    """Licence of the model, such as "CC-BY-4.0", which a bundle or a package of Argos Translate records."""


def main() -> int:
    """Run the command."""
    return run_command(lambda: convert(sys.argv[1:]))


def convert(arguments: Sequence[str]) -> int:
    """Read the source and write the output; certify the conversion if sentences are given."""
    options = parse_options(ConvertOptions, DESCRIPTION, arguments)
    if options.licence and options.to not in ("bundle", "argos"):
        raise ConversionError(
            f"--licence: {options.to} records no licence; use --to bundle or argos, or leave the option out"
        )
    require_writable(options.output, options.to, options.storage)  # before a large model is read
    origin = download(str(options.source), options.revision) if is_hub_name(options.source) else None
    if origin:
        options = dataclasses.replace(options, source=origin.directory)
    elif options.revision:
        raise ConversionError(f"--revision: {options.source} is no name of a model on the Hugging Face Hub")
    if options.certify:
        sentences, (name, directory) = read_sentences(options.certify), _other_directory(options)
        require_side(name)
    parts = read_parts(options.source, options.from_, source_spm=options.source_spm, target_spm=options.target_spm)
    parts = dataclasses.replace(parts, licence=options.licence or parts.licence)
    with output_directory(parts, options.output, options.to, options.storage) as temporary:
        if origin:
            origin.write_origin(temporary)
        if options.certify:
            theirs = temporary if directory == options.output else directory
            certificate = certify(parts, other_side(name, _other_model(options, parts, name, theirs)), sentences)
            write_certificate(certificate, temporary)
    if origin:
        say(f"read {origin.name} at commit {origin.commit}")
    say(f"wrote {options.output} ({options.to}: {FORMATS[options.to].files})")
    if options.certify:
        say(f"{options.output / CERTIFICATE_FILE}: {certificate.description}")
    return 0


def _other_model(options: ConvertOptions, parts: Parts, name: str, directory: Path) -> OtherModel:
    """Return the other program's model, with which our model is compared."""
    if directory == options.source:
        return OtherModel(directory, parts, options.source_spm, options.target_spm)
    return OtherModel(directory, read_parts(directory, name) if name in READABLE else parts)


def _other_directory(options: ConvertOptions) -> tuple[str, Path]:
    """Return format and directory of the other program's model: the output if it is in that format, else the source."""
    if options.to in SIDES:
        return options.to, options.output
    return options.from_ or recognise(options.source), options.source
