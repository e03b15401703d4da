"""Marian's .npz models with random weights, as Marian names and shapes them."""

from pathlib import Path
from typing import Any

import numpy as np

SETTINGS: dict[str, Any] = {
    "type": "transformer", "dim-emb": 8, "enc-depth": 2, "dec-depth": 1, "transformer-heads": 2,
    "transformer-dim-ffn": 12, "transformer-ffn-activation": "swish", "transformer-ffn-depth": 2,
    "transformer-preprocess": "", "transformer-postprocess": "dan", "transformer-postprocess-emb": "d",
    "transformer-decoder-autoreg": "self-attention", "transformer-no-projection": False, "right-left": False,
    "tied-embeddings-all": True, "tied-embeddings": False, "tied-embeddings-src": False,
    "transformer-guided-alignment-layer": "last", "transformer-tied-layers": [],
}  # fmt: skip
SOURCE = ["</s>", "<unk>", "the", "dog", "house", "sees", "a", '"', "\\", "na\u00efve", ":"]
TARGET = ["</s>", "<unk>", "der", "Hund", "sieht", "ein", "Haus"]


def in_yaml(value: Any) -> str:
    if isinstance(value, list):
        return "".join(f"\n  - {item}" for item in value) or "[]"
    return f'"{value}"' if value == "" else str(value).lower() if isinstance(value, bool) else str(value)


def vocabulary_in_yaml(words: list[str]) -> str:
    """As yaml-cpp writes keys: with quotes where needed, non-ASCII characters as they are."""
    quoted = ['"' + word.replace("\\", "\\\\").replace('"', '\\"') + '"' for word in words]
    return "".join(f"{word}: {number}\n" for number, word in enumerate(quoted))


def parameters(
    settings: dict[str, Any], n_source: int, n_target: int, seed: int = 1
) -> dict[str, np.ndarray[Any, Any]]:
    """Random parameters: gains away from 1, biases away from 0."""
    draw, d, d_ff = np.random.default_rng(seed), settings["dim-emb"], settings["transformer-dim-ffn"]
    shapes: dict[str, tuple[int, int]] = {"decoder_ff_logit_out_b": (1, n_target)}
    if settings["tied-embeddings-all"]:
        shapes["Wemb"] = (n_target, d)
    else:
        shapes |= {"encoder_Wemb": (n_source, d), "decoder_Wemb": (n_target, d)}
        shapes |= {} if settings["tied-embeddings"] else {"decoder_ff_logit_out_W": (d, n_target)}
    for stack in ("encoder", "decoder"):
        for layer in range(1, settings["enc-depth" if stack == "encoder" else "dec-depth"] + 1):
            prefix, norms = f"{stack}_l{layer}", ["ffn_ffn"]
            for kind in ["self"] + ["context"] * (stack == "decoder"):
                norms.append(f"{kind}_Wo")
                for letter in "qkvo":
                    shapes |= {f"{prefix}_{kind}_W{letter}": (d, d), f"{prefix}_{kind}_b{letter}": (1, d)}
            shapes |= {f"{prefix}_ffn_W1": (d, d_ff), f"{prefix}_ffn_b1": (1, d_ff)}
            shapes |= {f"{prefix}_ffn_W2": (d_ff, d), f"{prefix}_ffn_b2": (1, d)}
            for norm in norms:
                shapes |= {f"{prefix}_{norm}_ln_{part}": (1, d) for part in ("scale", "bias")}
    arrays = {name: draw.standard_normal(shape) / max(1, shape[0]) ** 0.5 for name, shape in shapes.items()}
    return {
        n: (1 + 0.3 * a if "ln_scale" in n else 0.3 * a if a.shape[0] == 1 else a).astype("f")
        for n, a in arrays.items()
    }


def write_npz(path: Path, settings: dict[str, Any], arrays: dict[str, np.ndarray[Any, Any]]) -> None:
    text = "".join(f"{name}: {in_yaml(value)}\n" for name, value in settings.items())
    np.savez(path, **arrays, **{"special:model.yml": np.frombuffer(text.encode() + b"\0", np.int8)})


def write_marian(folder: Path, **changes: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Write a model whose words are separated by blanks, and return its parameters."""
    settings = {**SETTINGS, **changes}
    source = TARGET if settings["tied-embeddings-all"] else SOURCE
    arrays = parameters(settings, len(source), len(TARGET))
    folder.mkdir(parents=True, exist_ok=True)
    write_npz(folder / "model.npz", settings, arrays)
    (folder / "model.src.vocab.yml").write_text(vocabulary_in_yaml(source), encoding="utf-8")
    (folder / "model.trg.vocab.yml").write_text(vocabulary_in_yaml(TARGET), encoding="utf-8")
    return arrays
