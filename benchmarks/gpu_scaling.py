"""How long would an update take on many GPUs?  A prediction, from updates measured on one H200.

    python benchmarks/gpu_scaling.py

Backward completes gradients in the order of the buffer.  It takes two thirds of an update's time without Adam and the
norm, divided in proportion to multiplications: the product with the vocabulary, then the decoder's layers, then the
encoder's.  The decoder's gradients become final together, because those of the source's keys and values in all layers
wait for its last layer; the embedding's become final at the end.  Buckets are summed one after the other, each when its
gradients are final:

    a sum takes latency · calls + the longer of (1 − 1/G) · bytes / NVLink and (1 − 1/M) · bytes / (G · network)

for M machines with G GPUs each.  This assumes that NCCL overlaps the sum within machines with the sum between them.  In
the exact order they follow one another, with a call for each other GPU of the machine and for each other machine.
Then come the norm, Adam of 1/N of the parameters, and the copy of the low-precision weights, in half of the bytes.  In
the last column this copy overlaps the next forward pass, which waits only for the embedding.

Not included are the wait for the slowest GPU, and the slowdown of products while NCCL uses the same multiprocessors.
Bandwidths are 80 % of the nominal ones: NVLink 450 GB/s a GPU, InfiniBand 50 GB/s a GPU.  No sum between GPUs was
measured.
"""

from __future__ import annotations

from dataclasses import dataclass

from minitransformer import presets
from minitransformer.config import ModelConfig
from parallel.nccl_reducer import BUCKET

VOCABULARY = 37_000
NVLINK, NETWORK = 0.8 * 450e9, 0.8 * 50e9  # bytes a second that a GPU sends
LATENCY = 20e-6  # seconds of a call of NCCL, assumed


@dataclass(frozen=True)
class Measured:
    """Milliseconds of an update on one H200: all of it, Adam, and the norm."""

    update: float
    adam: float
    norm: float


MEASURED = {
    ("base", 25_000): Measured(27.4, 0.447, 0.067),
    ("base", 3_168): Measured(5.6, 0.447, 0.067),
    ("big", 25_000): Measured(65.2, 1.520, 0.206),
    ("big", 3_168): Measured(12.2, 1.517, 0.205),
}


@dataclass(frozen=True)
class Cluster:
    """Machines with GPUs, and the order of sums."""

    n_machines: int
    n_gpus: int
    order: str

    @property
    def size(self) -> int:
        return self.n_machines * self.n_gpus

    def seconds(self, n_bytes: float, *, exact: bool = False) -> float:
        """Return the time of a reduce-scatter, or of an all-gather, of so many bytes."""
        m, g = self.n_machines, self.n_gpus
        within, between = (1 - 1 / g) * n_bytes / NVLINK, (1 - 1 / m) * n_bytes / g / NETWORK
        return LATENCY * (g - 1 + m - 1) + within + between if exact else LATENCY + max(within, between)


def final_gradients(config: ModelConfig) -> list[tuple[int, float]]:
    """Return the end of each part of the buffer, in elements, and the share of backward after which it is final."""
    d, attention = config.d_model, 4 * config.d_model**2
    encoder, decoder = attention + 2 * d * config.d_ff, 2 * attention + 2 * d * config.d_ff
    n, embedding = config.n_layers, VOCABULARY * d
    total = embedding + n * (encoder + decoder)
    parts = [(n * decoder, (embedding + n * decoder) / total)]
    parts += [(n * decoder + i * encoder, (embedding + n * decoder + i * encoder) / total) for i in range(1, n)]
    return [*parts, (total, 1.0)]


def predict(name: str, tokens: int, cluster: Cluster) -> tuple[float, float]:
    """Return the milliseconds of an update, and those if the copy of weights overlapped the next forward pass."""
    measured, config = MEASURED[name, tokens], presets.PRESETS[name](VOCABULARY)
    computing = measured.update - measured.adam - measured.norm
    forward, backward = computing / 3, 2 * computing / 3
    parts = final_gradients(config)
    size, is_exact, n = parts[-1][0], cluster.order == "exact", cluster.size
    end = 0.0
    for start in range(0, size, BUCKET):
        stop = min(size, start + BUCKET)
        final = forward + backward * next(share for part_end, share in parts if part_end >= stop)
        end = max(end, final) + 1e3 * cluster.seconds(4.0 * (stop - start), exact=is_exact)
    end += (measured.adam + measured.norm) / n + 2e3 * LATENCY
    embedding = VOCABULARY * config.d_model
    exposed = LATENCY * (embedding // BUCKET) + cluster.seconds(2.0 * embedding)
    return end + 1e3 * cluster.seconds(2.0 * size), end + 1e3 * exposed


def main() -> None:
    """Print the predictions as a table."""
    print("| model | GPUs | tokens a side: each, in all | order | ms | times as fast as one GPU | ms, copy hidden |")
    print("|-|-|-|-|-|-|-|")
    for name, tokens, n_machines, order in [
        (name, tokens, n_machines, order)
        for name in ("base", "big")
        for tokens, n_machines in ((3_168, 1), (25_000, 1), (25_000, 8))
        for order in ("fast", "exact")
    ]:
        cluster = Cluster(n_machines, 8, order)
        now, overlapping = predict(name, tokens, cluster)
        one_gpu = MEASURED[name, 25_000].update * cluster.size * tokens / 25_000
        n_all = f"{tokens:,}, {tokens * cluster.size:,}"
        print(f"| {name} | {cluster.size} | {n_all} | {order} | {now:.1f} | {one_gpu / now:.1f} | {overlapping:.1f} |")


if __name__ == "__main__":
    main()
