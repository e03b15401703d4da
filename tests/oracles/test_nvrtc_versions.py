"""Every CUDA kernel compiles with the oldest and the newest NVRTC of CUDA 12 and 13, for all common GPUs."""

from __future__ import annotations

import sys

import pytest
from nvrtc_versions import compiled_by, install

from autograd.kernels.cuda import nvrtc

VERSIONS = {  # the oldest that there is, and the newest: installed anew when build is removed
    "nvidia-cuda-nvrtc-cu12==12.0.*": "12.0",
    "nvidia-cuda-nvrtc-cu12>=12.9,<13": "12.",
    "nvidia-cuda-nvrtc==13.0.*": "13.0",
    "nvidia-cuda-nvrtc>=13.5,<14": "13.",
}
NO_ATTENTION = {"sm_70", "sm_75"}  # they do not multiply bfloat16
ARCHITECTURES = (*sorted(NO_ATTENTION), "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
UNKNOWN_TO = {
    "12.": set[str](),
    "12.0": {"sm_100", "sm_120"},
    "13.": {"sm_70"},
    "13.0": {"sm_70"},
}  # too new, or too old
MOST_SPILLED = 16  # bytes of a kernel; the newest versions spill nothing
ALL_SOURCES = {path.name for path in nvrtc.SOURCES.glob("*.cu")}
pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="NVRTC's wheels are for Linux")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("requirement", VERSIONS)
def test_every_kernel_compiles(requirement: str, architecture: str) -> None:
    found = compiled_by(install(requirement), architecture)
    assert found["version"].startswith(VERSIONS[requirement])
    assert found["is known"] == (architecture not in UNKNOWN_TO[VERSIONS[requirement]])
    assert found["errors"] == {}
    if found["is known"]:
        assert found["spilled"].keys() == ALL_SOURCES
        without_kernel = {name for name, spilled in found["spilled"].items() if spilled is None}
        assert without_kernel == ({"attention.cu"} if architecture in NO_ATTENTION else set())
        assert max(filter(None, found["spilled"].values()), default=0) <= MOST_SPILLED
