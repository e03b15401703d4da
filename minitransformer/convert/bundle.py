"""A bundle: a directory with all that translation needs, its provenance, and the SHA-256 of every file."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from minitransformer.config.run import RESULTS_FILE, RUN_FILE
from minitransformer.convert.parts import Parts, require_empty
from minitransformer.data.prepare import CHECKSUMS, MANIFEST
from minitransformer.model.files import BUNDLE_FILE, write_model_files
from minitransformer.model.storage import Storage, stored
from minitransformer.system.checksums import checksums_of, write_list
from minitransformer.system.files import atomic_write, read_json
from minitransformer.system.provenance import code_version

NOT_STATED = "not stated"
_PROVENANCE = (RUN_FILE, RESULTS_FILE)  # copied as they are, where the run has them
_OF_DATA = ("train_pairs", "validation_pairs", "config", "files", CHECKSUMS)  # fields of the prepared data's manifest


def write_bundle(parts: Parts, directory: Path, *, storage: Storage = "float32") -> None:
    """Write a bundle, from which ``Translator.load`` and all commands read as from a run.

    The directory must be empty or absent.  ``bundle.json``, written last, has the licence, the storage of the weights,
    the version of the code, the fingerprints of the training data, and size and SHA-256 of all other files.
    Raises: ConversionError if the directory is not empty, or if a choice of the configuration is unknown; StorageError
    if a weight cannot be stored so; CheckpointError if the directory cannot be written.
    """
    require_empty(directory)
    parts.require_known_choices()
    arrays = stored(parts.weights, storage)
    parts.tokenizer.save(directory)
    for name in _PROVENANCE:
        if parts.run is not None and (parts.run / name).exists():
            with atomic_write(directory / name) as temporary:
                shutil.copyfile(parts.run / name, temporary)
    write_model_files(directory, parts.config, arrays)
    about = {
        "licence": parts.licence or NOT_STATED,
        "storage": storage,
        "code": code_version(),
        "data": _data_of(parts.run),
    }
    names = [path.name for path in directory.iterdir()]
    write_list(directory / BUNDLE_FILE, checksums_of(directory, names), about)


def _data_of(run: Path | None) -> dict[str, Any] | None:
    """Return the fingerprints of the data with which a model was trained; None if its directory does not have them.

    They are in the manifest of the run's prepared data, or in the bundle from which the model was read.
    """
    if run is None:
        return None
    manifest, bundle = run / "data" / MANIFEST, run / BUNDLE_FILE
    if manifest.exists():
        fields = read_json(manifest)
        return {name: fields[name] for name in _OF_DATA if name in fields} if isinstance(fields, dict) else None
    known: dict[str, Any] | None = read_json(bundle).get("data") if bundle.exists() else None
    return known
