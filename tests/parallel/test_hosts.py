"""Several machines: network namespaces that have names of their own and speak to each other by TCP alone."""

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
import pytest
from mpirun import IS_OPEN_MPI, PROGRAM, command_line, environment, needs_mpi, run
from training_ranks import corpus_in, parameters_of, train
from waiting import wait_until

from parallel.communicator import SerialCommunicator

COUNTER = itertools.count()
IN_NAMESPACE = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift; done
host=$1; shift
exec ip netns exec "$host" unshare --uts sh -c "hostname $host; $*"
"""  # what mpirun calls in the place of ssh


def options_of_mpich(launcher: Path, network: str) -> list[str]:
    """Messages must not take the way through shared memory, which the namespaces do have in common."""
    of_launcher = {"-launcher": "ssh", "-launcher-exec": str(launcher), "-localhost": f"{network}.1"}
    return [*itertools.chain(*of_launcher.items()), "-genv", "UCX_TLS", "tcp,self"]


def options_of_open_mpi(launcher: Path, network: str) -> list[str]:
    of_launcher = {"plm_ssh_agent": str(launcher), "plm_ssh_no_tree_spawn": "1", "prte_if_include": f"{network}.0/24"}
    of_messages = {"pml": "ob1", "btl": "tcp,self", "btl_tcp_if_include": f"{network}.0/24"}
    return [
        *(word for name, value in of_launcher.items() for word in ("--prtemca", name, value)),
        *(word for name, value in of_messages.items() for word in ("--mca", name, value)),
    ]


@dataclass(frozen=True)
class Hosts:
    """Two of them, and mpirun's options."""

    names: list[str]
    links: list[str]
    options: list[str]

    def where(self, n_on_each: int) -> list[str]:
        """Options that start so many ranks on each host."""
        if IS_OPEN_MPI:
            hosts = ",".join(f"{name}:{n_on_each}" for name in self.names)
            return [*self.options, "--host", hosts, "--map-by", f"ppr:{n_on_each}:node:oversubscribe"]
        return [*self.options, "-hosts", ",".join(f"{name}:{n_on_each}" for name in self.names)]


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    """Behind a bridge, at which mpirun listens."""
    if os.geteuid() or not shutil.which("ip") or not shutil.which("unshare"):
        pytest.skip("network namespaces need root, ip and unshare")
    number = (os.getpid() + next(COUNTER) * 7_919) % 50_000  # names of links live on a while
    bridge, network = f"mtb{number}", f"10.{200 + number // 250 % 50}.{number % 250}"
    names, links = [f"mth{number}a", f"mth{number}b"], [f"mtv{number}a", f"mtv{number}b"]
    try:
        try:
            ip("link", "add", bridge, "type", "bridge")
            ip("addr", "add", f"{network}.1/24", "dev", bridge)
            ip("link", "set", bridge, "up")
            for i, (name, link) in enumerate(zip(names, links, strict=True)):
                ip("netns", "add", name)
                ip("link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", name)
                ip("link", "set", link, "master", bridge, "up")
                ip("-n", name, "addr", "add", f"{network}.{i + 2}/24", "dev", "eth0")
                for device in ("eth0", "lo"):
                    ip("-n", name, "link", "set", device, "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"network namespaces cannot be made here: {error.stderr.strip()}")
        launcher = tmp_path / "in-namespace"
        launcher.write_text(IN_NAMESPACE, encoding="utf-8")
        launcher.chmod(0o755)
        yield Hosts(names, links, (options_of_open_mpi if IS_OPEN_MPI else options_of_mpich)(launcher, network))
    finally:
        for words in (
            *(["netns", "del", name] for name in names),
            *(["link", "del", link] for link in (*links, bridge)),
        ):
            subprocess.run(["ip", *words], check=False, capture_output=True)


@pytest.mark.slow
@needs_mpi
@pytest.mark.parametrize("n_on_each", [1, 2])
def test_two_hosts_end_with_the_bits_of_one_process(n_on_each: int, hosts: Hosts, tmp_path: Path) -> None:
    alone, together = corpus_in(tmp_path / "alone"), corpus_in(tmp_path / "together")
    train(SerialCommunicator(), alone, "6", "1")
    done = run(command_line(2 * n_on_each, "train", together, 6, 1, options=hosts.where(n_on_each)))
    assert done.returncode == 0, done.stderr
    way = json.loads((together / "0.json").read_text(encoding="utf-8"))["way"]
    shared = "through shared memory on a machine and " if n_on_each > 1 else ""
    assert re.fullmatch(rf"gradients travel {shared}by messages of .* between machines; added in one fixed .*", way)
    for rank in range(2 * n_on_each):
        assert np.array_equal(parameters_of(together, rank), parameters_of(alone)), f"rank {rank}"


@pytest.mark.slow
@needs_mpi
def test_the_ranks_of_a_host_that_is_cut_off_end_after_a_set_time(hosts: Hosts, tmp_path: Path) -> None:
    """Those on the other side, too.  mpirun itself may wait for the lost host: it has a connection of its own to it."""
    command = command_line(2, "add_up_for_ever", tmp_path, options=hosts.where(1))
    with (tmp_path / "errors").open("w+") as errors:
        process = subprocess.Popen(command, env=environment(), stdout=errors, stderr=errors)
        try:
            wait_until((tmp_path / "rank 1 adds up").exists)
            assert len(ranks_in(tmp_path)) == 2
            ip("link", "set", hosts.links[1], "down")
            message = re.compile("has waited 5 s for the other ranks, in MPI_(Barrier|Sendrecv)")
            wait_until(lambda: bool(message.search((tmp_path / "errors").read_text(encoding="utf-8"))))
            wait_until(lambda: not ranks_in(tmp_path))
        finally:
            process.kill()
            process.wait()


def ranks_in(directory: Path) -> list[str]:
    """The ranks that work in a directory, by their command lines."""
    lines = [" ".join(process.info["cmdline"] or []) for process in psutil.process_iter(["cmdline"])]
    return [line for line in lines if line.startswith(f"{sys.executable} {PROGRAM}") and str(directory) in line]
