"""Mutation testing: one small change at a time to a module; a test must fail for each.

    make mutants, or python tests/mutants.py [MODULE …]

Works with cosmic-ray on clones of the last commit in ``build/mutants``, one for each core; a module is run again when
it or its tests have changed.  Prints how many mutants were killed, and the changes that nobody noticed.  A mutant that
hangs (threads that wait for each other) is killed, too: tests have ten times the time that they take without it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue

from cosmic_ray.work_db import WorkDB, use_db
from cosmic_ray.work_item import TestOutcome, WorkerOutcome

from minitransformer.system.threads import available_cores

ROOT = Path(__file__).parent.parent
BUILD = ROOT / "build" / "mutants"
FASTER = (  # modules in which much decides nothing but speed: sizes of runs, which of two equal ways is taken
    "autograd/kernels/",
    "minitransformer/inference/cache.py",
    "autograd/ops/top_k.py",
)

UNIT, MODEL, SEARCH = "tests/autograd", "tests/minitransformer/model", "tests/minitransformer/inference"
RUN, PARALLEL, CONFIG_TESTS = "tests/minitransformer/training", "tests/parallel", "tests/minitransformer/config"
LAYERS = " ".join(
    f"{MODEL}/test_{name}.py"
    for name in ("transformer", "dropout", "masking", "packing", "gradients", "replaced_layers")
)
DEVICE_SEARCH = f"{UNIT}/test_device_search.py {UNIT}/cuda/test_cuda_search.py"
KERNELS = f"{UNIT}/test_kernels.py"
OPS = f"{UNIT}/test_ops.py {KERNELS}"
FUSED = f"{UNIT}/test_fused_ops.py"
MPI = f"{PARALLEL}/test_mpi.py"
TWO_RANKS, FOUR_RANKS = (f"{MPI}::test_ranks_under_one_mpirun[{n}]" for n in (2, 4))
TRAINER, DIVERGENCE, LOOP, ACCOUNT = (f"{RUN}/test_{name}.py" for name in ("trainer", "divergence", "loop", "flops"))
DIFFERING = "tests/cli/test_differing_ranks.py"
OPTIMIZERS, PENALTY = (f"{RUN}/test_{name}.py" for name in ("optimizers", "penalty"))
TESTS = {  # the nearest first: it kills most
    "autograd/ops/__init__.py": f"{UNIT}/test_arithmetic.py",
    "autograd/ops/add_norm.py": f"{FUSED} {OPS} -k add_norm",
    "autograd/ops/arithmetic.py": (
        f"{UNIT}/test_arithmetic.py {OPS}"
        " -k 'arithmetic or add or subtract or multiply or divide or scale or relu or tanh'"
    ),
    "autograd/ops/attention.py": f"{UNIT}/test_attention.py {OPS} -k attention",
    "autograd/ops/cross_entropy.py": f"{UNIT}/test_cross_entropy.py {OPS} -k cross_entropy",
    "autograd/ops/dropout.py": f"{UNIT}/test_dropout.py {OPS} -k dropout",
    "autograd/ops/embedding.py": f"{FUSED} {OPS} -k embedding",
    "autograd/ops/layer_norm.py": f"{OPS} -k layer_norm",
    "autograd/ops/linear.py": f"{FUSED} {OPS} {UNIT}/test_packed_weight.py -k 'matmul or linear or 255'",
    "autograd/ops/linear_maps.py": f"{FUSED} {OPS} -k linear_maps",
    "autograd/ops/shape.py": f"{UNIT}/test_arithmetic.py {OPS} -k 'shape or transpose or getitem or gathered or sum'",
    "autograd/ops/softmax.py": f"{UNIT}/test_softmax.py {OPS} -k softmax",
    "autograd/ops/beam.py": f"{SEARCH}/test_beam.py {SEARCH}/test_invariance.py {DEVICE_SEARCH}",
    "autograd/ops/top_k.py": f"{UNIT}/test_top_k.py {SEARCH}/test_beam.py",
    "autograd/op.py": f"{UNIT}/test_op.py {OPS} {UNIT}/test_random.py {UNIT}/test_precision.py",
    "autograd/kernel_registry.py": f"{UNIT}/test_kernel_registry.py {UNIT}/test_op.py",
    "autograd/blas.py": f"{UNIT}/test_blas.py",
    "autograd/tensor.py": f"{UNIT}/test_tensor.py {UNIT}/test_op.py {UNIT}/test_parameters.py {OPS}",
    "autograd/masks.py": f"{UNIT}/test_masks.py {MODEL}/test_masking.py {MODEL}/test_packing.py",
    "autograd/random.py": f"{UNIT}/test_random.py {UNIT}/test_dropout.py",
    "autograd/precision.py": f"{UNIT}/test_precision.py",
    "autograd/packed_weight.py": f"{UNIT}/test_packed_weight.py",
    "autograd/optim.py": f"{UNIT}/test_adam.py {UNIT}/test_clip.py {TRAINER} {OPTIMIZERS}",
    "autograd/kernels/cpu/adam.py": f"{UNIT}/test_adam.py",
    "autograd/kernels/cpu/attention.py": (
        f"{UNIT}/test_attention.py {KERNELS} {MODEL}/test_masking.py -k 'attention or lone or alone'"
    ),
    "autograd/kernels/cpu/cross_entropy.py": f"{UNIT}/test_cross_entropy.py {KERNELS} -k cross_entropy",
    "autograd/kernels/cpu/dropout.py": f"{KERNELS} -k dropout",
    "autograd/kernels/cpu/embedding.py": f"{FUSED} {KERNELS} -k embedding",
    "autograd/kernels/cpu/layer_norm.py": f"{KERNELS} -k layer_norm",
    "autograd/kernels/cpu/linear.py": f"{FUSED} {KERNELS} -k linear",
    "autograd/kernels/cpu/top_k.py": f"{UNIT}/test_top_k.py",
    "minitransformer/model/masks.py": f"{MODEL}/test_masking.py {MODEL}/test_packing.py",
    "minitransformer/model/layers.py": LAYERS,
    "minitransformer/model/stacks.py": LAYERS,
    "minitransformer/model/positions.py": f"{MODEL}/test_positions.py {MODEL}/test_masking.py",
    "minitransformer/model/batch.py": f"{MODEL}/test_packing.py {LAYERS} {MODEL}/test_fixed_batch.py",
    "minitransformer/model/transformer.py": f"{MODEL}/test_transformer.py {MODEL}/test_storage.py {LAYERS}",
    "minitransformer/config/checks.py": f"{CONFIG_TESTS}/test_settings.py {CONFIG_TESTS}/test_presets.py",
    "minitransformer/training/update.py": (
        f"{RUN}/test_schedule.py {PARALLEL}/test_tree.py {TRAINER} {DIVERGENCE} {PENALTY} {TWO_RANKS} {FOUR_RANKS}"
    ),
    "minitransformer/data/batching.py": "tests/minitransformer/data/test_batching.py",
    "minitransformer/training/state.py": (
        f"{RUN}/test_checkpoint.py {RUN}/test_metrics.py {ACCOUNT} {DIVERGENCE} {TRAINER}"
    ),
    "minitransformer/training/loop.py": f"{TRAINER} {DIVERGENCE} {LOOP} {ACCOUNT} {TWO_RANKS} {FOUR_RANKS}",
    "minitransformer/training/open_run.py": f"{RUN}/test_run.py {RUN}/test_run_directory.py {DIFFERING}",
    "minitransformer/training/run_data.py": f"{RUN}/test_run.py {RUN}/test_run_directory.py {DIFFERING}",
    "minitransformer/training/automatic_settings.py": f"{RUN}/test_run.py {UNIT}/cuda/test_automatic_on_gpu.py",
    "minitransformer/training/new_trainer.py": f"{RUN}/test_run.py {RUN}/test_run_directory.py {DIFFERING}",
    "minitransformer/training/start_log.py": (
        f"{RUN}/test_run.py {MPI}::test_training_says_where_its_processes_are_and_how_gradients_travel"
    ),
    "minitransformer/training/run.py": f"{RUN}/test_run.py {RUN}/test_run_directory.py",
    "minitransformer/training/divergence.py": f"{DIVERGENCE} {TRAINER} {FOUR_RANKS}",
    "minitransformer/training/checkpoint.py": (
        f"{LOOP} {TRAINER} {MPI}::test_a_rank_whose_parameters_are_others_is_found_before_they_are_saved"
    ),
    "minitransformer/training/validation.py": f"{LOOP} {TRAINER} {RUN}/test_run_directory.py",
    "minitransformer/training/interrupt.py": f"{TRAINER} {LOOP}",
    "minitransformer/inference/beam.py": f"{SEARCH}/test_beam.py {DEVICE_SEARCH}",
    "minitransformer/inference/beam_steps.py": (
        f"{SEARCH}/test_beam.py {SEARCH}/test_invariance.py {SEARCH}/test_prefix.py {DEVICE_SEARCH}"
    ),
    "minitransformer/inference/search.py": f"{SEARCH}/test_beam.py",
    "minitransformer/inference/predictor.py": f"{SEARCH}/test_beam.py {SEARCH}/test_invariance.py {DEVICE_SEARCH}",
    "minitransformer/inference/prefix.py": f"{SEARCH}/test_prefix.py",
    "minitransformer/inference/length_penalty.py": f"{SEARCH}/test_length_penalty.py",
    "minitransformer/inference/scoring.py": f"{SEARCH}/test_invariance.py",
    "minitransformer/inference/cache.py": f"{SEARCH}/test_invariance.py {SEARCH}/test_beam.py {MODEL}/test_packing.py",
    "parallel/communicator.py": f"{PARALLEL}/test_tree.py {TRAINER}",
    "parallel/host_reducer.py": (
        f"{MPI} {PARALLEL}/test_machines.py {PARALLEL}/test_hosts.py -k 'one_mpirun or two_hosts or subtrees'"
    ),
    "parallel/reducer.py": f"{PARALLEL}/test_reducer.py {TWO_RANKS} {FOUR_RANKS}",
    "parallel/device_reducer.py": f"{PARALLEL}/test_reducer.py {TWO_RANKS} {FOUR_RANKS}",
    "parallel/exact_sum.py": f"{PARALLEL}/test_machines.py {TWO_RANKS} {FOUR_RANKS}",
    "cli/options.py": "tests/cli/test_options.py tests/cli/test_refusals.py",
    "cli/run_options.py": "tests/cli/test_options.py",
}
PYTEST = "-m pytest -x -q -p no:cacheprovider --hypothesis-profile=mutants"

# One replacement for each operator, the likeliest mistake; none for |, which stands in annotations, too.
CONFIG = """
[cosmic-ray]
module-path = "{module}"
timeout = {timeout}
excluded-modules = []
test-command = {command!r}

[cosmic-ray.distributor]
name = "local"

[cosmic-ray.filters.operators-filter]
exclude-operators = [
    "core/ReplaceBinaryOperator_(?!Add_Sub|Sub_Add|Mul_Add|Div_Mul|Mod_Mul|FloorDiv_Mul|Pow_Mul|BitAnd_BitOr|BitXor_BitAnd|RShift_LShift|LShift_RShift)",
    "core/ReplaceComparisonOperator_(?!Eq_NotEq|NotEq_Eq|Lt_LtE$|Lt_GtE|LtE_Lt$|LtE_Gt$|Gt_GtE|Gt_LtE|GtE_Gt$|GtE_Lt$|Is_IsNot|IsNot_Is)",
    "core/ReplaceUnaryOperator_(USub_Invert|USub_Not|UAdd_.*|Invert_UAdd|Invert_USub)",
    "core/Variable.*",
]
"""


def mutate(module: str, clone: Path, session: Path) -> None:
    """Run all mutants of a module in ``clone``; the results are in ``session``."""
    command = [sys.executable, *PYTEST.split(), "-m", "not slow and not gpu", *shlex.split(TESTS[module])]
    config, unfiltered = session.with_suffix(".toml"), session.with_suffix(".new")
    programs = Path(sys.executable).parent
    environment = os.environ | {"PYTHONPATH": str(clone), "OPENBLAS_NUM_THREADS": "1"}

    def run(*words: str | Path) -> None:
        subprocess.run(words, cwd=clone, env=environment, check=True, stdout=subprocess.DEVNULL)

    if not session.exists():
        start = time.perf_counter()
        run(*command)  # without a mutation
        timeout = max(30, 10 * (time.perf_counter() - start))
        config.write_text(CONFIG.format(module=module, command=shlex.join(command), timeout=timeout), encoding="utf-8")
        unfiltered.unlink(missing_ok=True)
        run(programs / "cosmic-ray", "init", config, unfiltered)
        run(programs / "cr-filter-operators", unfiltered, config)
        unfiltered.rename(session)
    run(programs / "cosmic-ray", "exec", config, session)


def outcomes(session: Path) -> tuple[int, list[str]]:
    """How many mutants were killed, and the changes that survived.  Raises: RuntimeError if one could not be run."""
    with use_db(str(session), WorkDB.Mode.open) as database:
        done = [result for _, result in database.results if result.worker_outcome != WorkerOutcome.SKIPPED]
    odd = [result for result in done if result.worker_outcome != WorkerOutcome.NORMAL]
    if odd:
        raise RuntimeError(f"{session}: {len(odd)} mutants were not tested: {odd[0].output}")
    results = [result for result in done if "SyntaxError" not in result.output]  # what is no Python is no mutant
    survivors = [result.diff for result in results if result.test_outcome == TestOutcome.SURVIVED]
    return len(results) - len(survivors), survivors


def git(*words: str | Path) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def session_of(module: str) -> Path:
    """Where the results are for this state of a module, its tests, and what is done with them."""
    tests = [word.split("::")[0] for word in TESTS[module].split() if word.startswith("tests/")]
    state = git("rev-parse", *(f"HEAD:{path}" for path in (module, "tests/support", "tests/conftest.py", *tests)))
    key = hashlib.blake2b(f"{state}{CONFIG}{TESTS[module]}".encode(), digest_size=4).hexdigest()
    return BUILD / f"{module.replace('/', '.')}.{key}.sqlite"


def main(modules: list[str]) -> int:
    unknown = set(modules) - set(TESTS)
    if unknown:
        print(f"no mutants of {', '.join(sorted(unknown))}; known: {', '.join(TESTS)}", file=sys.stderr)
        return 2
    n_clones, clones = available_cores(), SimpleQueue[Path]()
    for clone in (BUILD / f"clone{i}" for i in range(n_clones)):
        shutil.rmtree(clone, ignore_errors=True)
        git("clone", "-q", ".", clone)
        clones.put(clone)

    def run(module: str) -> tuple[int, list[str]]:
        clone, session = clones.get(), session_of(module)
        try:
            mutate(module, clone, session)
        finally:
            clones.put(clone)
        killed, survivors = outcomes(session)
        print("".join(survivors), f"{module}: {killed} of {killed + len(survivors)} killed", sep="\n", flush=True)
        return killed, survivors

    with ThreadPoolExecutor(n_clones) as pool:
        results = dict(zip(modules or TESTS, pool.map(run, modules or TESTS), strict=True))
    too_few = 0
    for name, is_faster, required in (("kernels, and what search keeps", True, 80), ("others", False, 95)):
        group = [counts for module, counts in results.items() if module.startswith(FASTER) == is_faster]
        killed, survived = sum(k for k, _ in group), sum(len(s) for _, s in group)
        percent = 100 * killed / max(1, killed + survived)
        print(f"{name}: {killed} of {killed + survived} mutants killed, {percent:.1f} % (required: {required} %)")
        too_few += bool(group) and percent < required
    return min(1, too_few)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
