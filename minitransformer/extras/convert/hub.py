"""Downloads of models from the Hugging Face Hub to the cache of the package ``huggingface_hub``.

The package obeys the environment variables ``HF_ENDPOINT``, ``HF_HOME``, ``HF_HUB_OFFLINE`` and ``HF_TOKEN``.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from minitransformer.extras.convert.foreign_files import INDEX, SOURCE_FILE, TARGET_FILE, WEIGHTS, shard_names
from minitransformer.extras.convert.marian_directory import (
    CONFIG,
    GENERATION_CONFIG,
    TARGET_VOCABULARY,
    TOKENIZER_CONFIG,
    VOCABULARY,
)
from minitransformer.extras.convert.parts import ConversionError, looked_up
from minitransformer.extras.packages import MissingExtraError, import_extra
from minitransformer.system.files import write_text
from minitransformer.system.records import read_object

ORIGIN_FILE = "origin.json"
_REQUIRED, _OPTIONAL = (VOCABULARY, SOURCE_FILE, TARGET_FILE), (TARGET_VOCABULARY, TOKENIZER_CONFIG, GENERATION_CONFIG)


@dataclass(frozen=True)
class HubModel:
    """A downloaded model: its directory in the cache, its name on the hub, and its commit."""

    directory: Path
    name: str
    commit: str

    def write_origin(self, directory: Path) -> None:
        """Write name and commit to ``origin.json`` in the directory of a converted model.  Raises: CheckpointError."""
        content = {"name": self.name, "revision": self.commit}
        write_text(directory / ORIGIN_FILE, json.dumps(content, indent=2) + "\n")


def is_hub_name(source: Path) -> bool:
    """Return whether ``source`` is no existing path, but has the form of a name such as Helsinki-NLP/opus-mt-en-de."""
    return not source.exists() and re.fullmatch(r"[\w-][\w.-]*/[\w-][\w.-]*", str(source)) is not None


def download(name: str, revision: str | None = None) -> HubModel:
    """Download the files of a MarianMT model, all from one commit; skip files that are in the cache.

    Args:
        revision: a branch, a tag or a commit; None for the newest commit of the default branch.

    Raises: MissingExtraError if ``huggingface_hub`` is missing; ConversionError if the model or the revision does not
    exist, if the model is no MarianMT model, or if a file is not in the cache and cannot be downloaded;
    CorruptFileError if ``config.json`` is not JSON.
    """
    try:
        hub = import_extra("hub", "huggingface_hub")
    except MissingExtraError as error:
        raise MissingExtraError(f"{name}: not found here; to download it from the Hugging Face Hub: {error}") from error
    try:
        config = Path(hub.hf_hub_download(name, CONFIG, revision=revision))
        commit = config.parent.name
        looked_up(f"{name}: {CONFIG}", "model_type", read_object(config).get("model_type"), {"marian": None})
        for file in _REQUIRED:
            hub.hf_hub_download(name, file, revision=commit)
        for file in _OPTIONAL:
            _download_if_there(hub, name, file, commit)
        _download_weights(hub, name, commit)
    except hub.errors.RevisionNotFoundError as error:
        raise ConversionError(f"{name}: has no revision {revision}; give a branch, a tag or a commit") from error
    except (hub.errors.RepositoryNotFoundError, hub.errors.HFValidationError) as error:
        raise ConversionError(
            f"{name}: neither a directory here nor a model on the Hugging Face Hub; check the spelling (a private model"
            " needs HF_TOKEN)"
        ) from error
    except (hub.errors.LocalEntryNotFoundError, hub.errors.OfflineModeIsEnabled) as error:
        raise ConversionError(
            f"{name}: is no directory here, and is not complete in the cache of the Hugging Face Hub, which cannot be"
            " reached; connect to the network, and unset HF_HUB_OFFLINE"
        ) from error
    except (hub.errors.HfHubHTTPError, OSError) as error:
        cause = " ".join(str(error).split())
        raise ConversionError(f"{name}: cannot be downloaded ({cause:.300}); give the same command again") from error
    return HubModel(config.parent, name, commit)


def _download_weights(hub: Any, name: str, commit: str) -> None:
    """Download the first of the files ``WEIGHTS`` that the model has; if it is an index, also the files that it names.

    Raises: ConversionError if the model has none of the files.
    """
    for file in WEIGHTS:
        path = _download_if_there(hub, name, file, commit)
        if path is not None:
            for part in shard_names(path) if file.endswith(INDEX) else ():
                hub.hf_hub_download(name, part, revision=commit)
            return
    raise ConversionError(f"{name}: has none of {', '.join(WEIGHTS)}; only such weights are read")


def _download_if_there(hub: Any, name: str, file: str, commit: str) -> Path | None:
    """Download a file, and return its path; None if the commit has no such file.

    The cache also records which files are missing.  If the Hub cannot be reached, and the cache does not know whether
    the file exists, the error of ``huggingface_hub`` is raised again.
    """
    try:
        return Path(hub.hf_hub_download(name, file, revision=commit))
    except hub.errors.LocalEntryNotFoundError:
        if isinstance(hub.try_to_load_from_cache(name, file, revision=commit), str | None):
            raise
        return None
    except hub.errors.EntryNotFoundError:
        return None
