"""Files that people copy from the guide: the image, the unit, configurations and scripts."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

import pytest

from cli.options import parse_options
from cli.serve import ServeOptions
from minitransformer.training.callbacks import Callback, TrainingReport
from minitransformer.training.state import TrainingState

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("autograd", "parallel", "minitransformer", "cli")
CONTAINERFILE, UNIT = (
    (ROOT / "docs/guide/serve" / name).read_text("utf-8") for name in ("Containerfile", "minitransformer-serve.service")
)
ENTRY_POINTS = [json.loads(words) for words in re.findall(r"^ENTRYPOINT (.*)$", CONTAINERFILE, re.MULTILINE)]
STARTS = [shlex.split(command) for command in re.findall(r"^ExecStart=(.*)$", UNIT, re.MULTILINE)]
COPIES = [line.split() for line in re.findall(r"^COPY (.*)$", CONTAINERFILE, re.MULTILINE)]
CLUSTERS = (ROOT / "docs/guide/clusters.md").read_text("utf-8")
BLOCKS = [
    (path.name, language, block)
    for path in sorted((ROOT / "docs").rglob("*.md"))
    for language, block in re.findall(r"^```(bash|nginx)\n(.*?)^```", path.read_text("utf-8"), re.DOTALL | re.MULTILINE)
]


def blocks_in(language: str) -> list[object]:
    return [pytest.param(block, id=name) for name, its, block in BLOCKS if its == language]


def checked(*command: str | Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def needs(tool: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(tool) is None, reason=f"there is no {tool} here")


def test_the_image_copies_what_the_wheel_is_made_of() -> None:
    copied = {word for *words, _ in COPIES for word in words}
    license_files = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["license-files"]
    assert copied == {"pyproject.toml", "hatch_build.py", "README.md", *license_files, *PACKAGES, "recipes"}
    assert [name for name in copied if not (ROOT / name).exists()] == []


@pytest.mark.slow
def test_the_image_installs_the_server(tmp_path: Path) -> None:
    """By its lines COPY and RUN, without dependencies, in an environment of its own."""
    source = tmp_path / "source"
    source.mkdir()
    for *words, folder in COPIES:
        target = Path(folder.replace("/source", str(source)))
        for word in words:
            if (ROOT / word).is_dir():
                shutil.copytree(ROOT / word, target)
            else:
                shutil.copy(ROOT / word, target)
    (install,) = re.findall(r"^RUN pip (install [^&]*)&&", CONTAINERFILE, re.MULTILINE)
    venv.create(tmp_path / "image", with_pip=True)
    words = [word.replace("/source", str(source)) for word in shlex.split(install)]
    checked(tmp_path / "image/bin/pip", *words, "--quiet", "--no-deps")
    shutil.rmtree(source)
    assert (tmp_path / "image/bin" / ENTRY_POINTS[0][0]).exists()
    (recipes,) = (tmp_path / "image").glob("lib/python*/site-packages/minitransformer/cli/recipes")
    assert {path.name for path in recipes.iterdir()} == {path.name for path in (ROOT / "recipes").iterdir()}


@pytest.mark.parametrize("words", [*ENTRY_POINTS, *STARTS], ids=["image", "unit"])
def test_the_options_of_the_image_and_the_unit_exist(words: list[str]) -> None:
    assert Path(words[0]).name == "minitransformer-serve"
    parse_options(ServeOptions, "", words[1:]).check()


@needs("systemd-analyze")
def test_systemd_knows_every_line_of_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "minitransformer-serve.service"
    unit.write_text(UNIT.replace(STARTS[0][0], sys.executable), encoding="utf-8")  # the program is not in /opt here
    assert checked("systemd-analyze", "verify", unit).stderr == ""


@needs("bash")
@pytest.mark.parametrize("script", blocks_in("bash"))
def test_bash_reads_the_scripts(script: str, tmp_path: Path) -> None:
    path = tmp_path / "script.sh"
    path.write_text(script, encoding="utf-8")
    checked("bash", "-n", path)


@needs("nginx")
@pytest.mark.parametrize("locations", blocks_in("nginx"))
def test_nginx_reads_the_locations(locations: str, tmp_path: Path) -> None:
    path = tmp_path / "nginx.conf"
    server = f"server {{ listen 127.0.0.1:8080; {locations} }}"
    path.write_text(f"pid {tmp_path}/pid;\nevents {{}}\nhttp {{ access_log off;\n{server} }}\n", encoding="utf-8")
    checked("nginx", "-t", "-e", "stderr", "-p", tmp_path, "-c", path)


def program(path: Path, text: str) -> None:
    path.write_text(f"#!{shutil.which('bash')}\n{text}\n", encoding="utf-8")
    path.chmod(0o755)


@needs("bash")
@pytest.mark.parametrize(("status", "queued"), [(0, ""), (1, ""), (130, "requeue 17\n"), (143, "requeue 17\n")])
def test_the_script_for_slurm_queues_its_job_again_after_a_signal(status: int, queued: str, tmp_path: Path) -> None:
    (script,) = re.findall(r"^```bash\n(.*?)^```", CLUSTERS, re.DOTALL | re.MULTILINE)
    (tmp_path / "train.sh").write_text(script, encoding="utf-8")
    program(tmp_path / "srun", f'echo "$*" > {tmp_path}/started; exit {status}')
    program(tmp_path / "scontrol", 'echo "$*"')
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_JOB_ID": "17"}
    done = subprocess.run(
        ["bash", str(tmp_path / "train.sh")], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (status, queued, "")
    assert "minitransformer-train" in (tmp_path / "started").read_text()


@needs("bash")
def test_the_callback_with_rclone_copies_the_run_until_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (block,) = re.findall(r"^```python\n(.*?)^```", CLUSTERS, re.DOTALL | re.MULTILINE)
    namespace: dict[str, type[Callback]] = {}
    exec(block, namespace)
    program(tmp_path / "rclone", f'test ! -e {tmp_path}/full || exit 5; echo "$*" >> {tmp_path}/calls')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    callback = namespace["ToBucket"]()
    callback.begin(TrainingState(), 100)
    callback.copying.wait()  # type: ignore[attr-defined]
    callback.report(TrainingReport(10, 1, 1.0, 1e-3, 1.0, 1.0, 1.0, 1))
    callback.end()
    copied = "copy runs/mine bucket:my-runs/mine --exclude .* --exclude .*/**\n"
    assert (tmp_path / "calls").read_text() == 3 * copied
    (tmp_path / "full").touch()
    with pytest.raises(subprocess.CalledProcessError):
        callback.end()
