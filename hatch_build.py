"""Two steps of a build: PyPI's page gets complete links, and a wheel has all packages inside ``minitransformer``."""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

MOVED = {"autograd": "autograd", "parallel": "parallel", "cli": "cli", "recipes": "cli/recipes"}
IMPORT = re.compile(r"^( *from )((?:autograd|parallel|cli)(?:\.\w+)* import )", re.MULTILINE)
PICTURE = re.compile(r"(!\[[^\]]*\]\()(?!https?:|#)([^)]+)\)")
LINK = re.compile(r"(\]\()(?!https?:|#)([^)]+)\)")


class CompleteLinks(MetadataHookInterface):
    """A hook that completes README.md's links: they lead to the repository's files of this version."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set ``readme`` and ``urls`` of the package's metadata, which pyproject.toml leaves to this hook."""
        address, version = self.config["repository"], metadata["version"]
        text = (Path(self.root) / "README.md").read_text("utf-8")
        for pattern, kind in (PICTURE, "raw"), (LINK, "blob"):  # a picture may be the text of a link
            text = pattern.sub(rf"\1{address}/{kind}/v{version}/\2)", text)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        pages = {"Documentation": "blob/main/docs", "Issues": "issues", "Changelog": "blob/main/CHANGELOG.md"}
        metadata["urls"] = {"Repository": address} | {name: f"{address}/{path}" for name, path in pages.items()}


def compile_kernels(folder: Path) -> None:
    """Compile the C files of a folder for users without a compiler, to ``builds/kernels-N.so`` in this folder.

    There is a library for each kind of processor in ``BUILDS`` of ``options.py``.
    Raises: CalledProcessError if the compiler fails, which the variable CC names.
    """
    options, system = runpy.run_path(str(folder / "options.py")), sysconfig.get_platform()
    compiler = shlex.split(os.environ.get("CC", "cc"))
    sources = sorted(map(str, folder.glob("*.c")))
    (folder / "builds").mkdir()
    for n, tuning in enumerate(options["BUILDS"]["amd64" in system or "x86_64" in system]):
        library = folder / "builds" / f"kernels-{n}.{'dll' if system.startswith('win') else 'so'}"
        command = [*compiler, *options["FLAGS"], "-DFOR_WHEEL", *tuning, *sources, "-lm", "-o", str(library)]
        subprocess.run(command, check=True)


class OnePackage(BuildHookInterface[Any]):
    """A hook that puts all packages of a wheel into ``minitransformer``, because PyPI has another ``autograd``."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Copy the packages, and rewrite their imports and the console scripts; an editable wheel stays as it is.

        If the variable MINITRANSFORMER_KERNELS is 1, also compile the kernels.
        """
        if version == "editable":
            return
        self.copy = TemporaryDirectory()
        package = Path(self.copy.name) / "minitransformer"
        ignored = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(Path(self.root) / "minitransformer", package, ignore=ignored)
        (package / "clone.py").unlink()
        for source, target in MOVED.items():
            shutil.copytree(Path(self.root) / source, package / target, ignore=ignored)
        for path in package.rglob("*.py"):
            path.write_bytes(IMPORT.sub(r"\1minitransformer.\2", path.read_bytes().decode()).encode())
        if os.environ.get("MINITRANSFORMER_KERNELS") == "1":
            compile_kernels(package / "autograd/kernels/cpu")
            platform_tag = re.sub(r"\W", "_", sysconfig.get_platform())
            build_data.update(pure_python=False, tag=f"py3-none-{platform_tag}")
        build_data["force_include"][str(package)] = "minitransformer"
        scripts = self.metadata.core.scripts
        scripts.update({name: f"minitransformer.{function}" for name, function in scripts.items()})

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove the copy of the packages."""
        if version != "editable":
            self.copy.cleanup()
