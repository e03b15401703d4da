"""The peers of the translation benchmark: our weights as CTranslate2 reads them, and beam search in PyTorch."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.nn import functional
from torch_peer import PADDING, TorchTransformer, padded

from minitransformer.config import ModelConfig
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.convert.ctranslate2_writer import write_ctranslate2
from minitransformer.extras.convert.parts import Parts
from minitransformer.extras.convert.vocabulary import word_model
from minitransformer.model.files import load_model_files
from minitransformer.model.positions import sinusoids
from minitransformer.model.symbols import END, START, UNKNOWN

SYMBOLS = {UNKNOWN: "<unk>", START: "<s>", END: "</s>"}

Weights = dict[str, np.ndarray]

FUSED = {  # our matrices that both peers fuse into one, by its name in torch_peer
    "self_attention.query": ["self_attention.query", "self_attention.key", "self_attention.value"],
    "self_attention.output": ["self_attention.output"],
    "source_attention.query": ["source_attention.query"],
    "source_attention.key_value": ["source_attention.key", "source_attention.value"],
    "source_attention.output": ["source_attention.output"],
    "hidden": ["feed_forward.hidden"],
    "output": ["feed_forward.output"],
}
NORMS = ["self_attention_residual.norm", "source_attention_residual.norm", "feed_forward_residual.norm"]


def read_fused(directory: Path) -> tuple[ModelConfig, Weights]:
    """Read a model that ``Transformer.save`` wrote; return its configuration and the weights of ``TorchTransformer``.

    Shapes: our matrices (in, out) become (out, in); matrices that are fused are stacked along the outputs.
    """
    config, ours = load_model_files(directory)
    return config, {"positions": sinusoids(256, config.d_model).astype(np.float32), **fused(ours, config.n_layers)}


def fused(ours: Weights, n_layers: int) -> Weights:
    """Return our parameters, or their gradients, with the names and shapes of ``TorchTransformer``."""
    of_layers = {
        f"{stack}.{i}.{name}": array
        for stack in ("encoder", "decoder")
        for i in range(n_layers)
        for name, array in _layer(ours, f"{stack}.layers.{i}").items()
    }
    return {"embedding.weight": ours["source_embedding.weight"], **of_layers}


def _layer(ours: Weights, layer: str) -> Weights:
    found = {}
    for name, parts in FUSED.items():
        if f"{layer}.{parts[0]}.weight" in ours:  # encoders have no attention to the source
            matrix = np.concatenate([ours[f"{layer}.{part}.weight"] for part in parts], axis=1)
            found[f"{name}.weight"] = np.ascontiguousarray(matrix.T)
        if f"{layer}.{parts[0]}.bias" in ours:
            found[f"{name}.bias"] = np.concatenate([ours[f"{layer}.{part}.bias"] for part in parts])
    for index, norm in enumerate(norm for norm in NORMS if f"{layer}.{norm}.gain" in ours):
        found[f"norms.{index}.weight"] = ours[f"{layer}.{norm}.gain"]
        found[f"norms.{index}.bias"] = ours[f"{layer}.{norm}.bias"]
    return found


def convert_to_ctranslate2(ours: Path, theirs: Path) -> None:
    """Read our model and write it for CTranslate2, whose words are our ids, written as text."""
    config, weights = load_model_files(ours)
    tokenizer = Tokenizer(word_model([SYMBOLS.get(i, str(i)) for i in range(config.vocabulary_size)]))
    theirs.mkdir()
    write_ctranslate2(Parts(config, weights, tokenizer), theirs)


class Cache:
    """One decoder layer's keys and values of generated tokens; ``select`` copies between two arrays.

    Shapes: rows are hypotheses; the arrays (rows, steps, 2, H, K).
    """

    def __init__(self, n_rows: int, n_steps: int, config: ModelConfig) -> None:
        shape = n_rows, n_steps, 2, config.n_heads, config.d_k
        self.length, self.current, self.other = 0, torch.empty(shape), torch.empty(shape)

    def extend(self, newest: Any) -> Any:
        """Append the newest tokens' (rows, 2, H, K); return all keys and all values, (rows, H, steps, K) each."""
        self.current[: len(newest), self.length] = newest
        self.length += 1
        return self.current[: len(newest), : self.length].permute(2, 0, 3, 1, 4)

    def select(self, rows: Any) -> None:
        """Keep these rows of hypotheses, in this order."""
        filled, buffer = self.current[:, : self.length], self.other[: len(rows), : self.length]
        torch.index_select(filled, 0, rows, out=buffer)
        self.current, self.other = self.other, self.current


class TorchSearch:
    """A beam search for sentences that never end by themselves; finished hypotheses are not handled.

    A source's keys and values are computed once and shared by its hypotheses.  The first step has one hypothesis.
    """

    def __init__(self, directory: Path, *, beam: int, device: str = "cpu") -> None:
        self.config, weights = read_fused(directory)
        self.model, self.beam, self.device = TorchTransformer(self.config).eval(), beam, device
        self.model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()}, assign=True)
        self.model.to(device)

    @torch.inference_mode()
    def __call__(self, sources: list[list[int]], n_words: int) -> list[list[list[int]]]:
        """Return the ``beam`` best translations of each source, of ``n_words`` words, best first."""
        with torch.device(self.device):
            return self._search(sources, n_words)

    def _search(self, sources: list[list[int]], n_words: int) -> list[list[list[int]]]:
        source, n = padded([[*ids, END] for ids in sources]), len(sources)
        mask = (source != PADDING)[:, None, None, :]
        encoded = self.model.encode(source)
        memories = [self._heads(layer.source_attention.key_value(encoded), 2) for layer in self.model.decoder]
        memories = [memory.permute(2, 0, 3, 1, 4) for memory in memories]
        caches = [Cache(n * self.beam, n_words, self.config) for _ in memories]
        ids, log_p = torch.full((n, 1), START), torch.zeros(n, 1)
        for _ in range(n_words):
            of_token = functional.log_softmax(self._next_logits(ids, caches, memories, mask), -1)
            of_token[:, list(SYMBOLS)] = -math.inf
            of_token, token = of_token.topk(self.beam)
            log_p, choice = (log_p.view(-1, 1) + of_token).view(n, -1).topk(self.beam)
            rows = (choice // self.beam + torch.arange(n)[:, None] * (len(ids) // n)).flatten()
            ids = torch.cat([ids[rows], token.view(n, -1).gather(1, choice).view(-1, 1)], 1)
            for cache in caches:
                cache.select(rows)
        return ids[:, 1:].view(n, self.beam, n_words).tolist()

    def _next_logits(self, ids: Any, caches: list[Cache], memories: list[Any], mask: Any) -> Any:
        """Return the logits of the next token of each row.

        Shapes: ids (rows, steps), rows a multiple of the sentences; memories (2, sentences, H, source, K).
        """
        step = ids.shape[1] - 1
        x = self.model.embedding(ids[:, -1]) * math.sqrt(self.config.d_model) + self.model.positions[step]
        for layer, cache, memory in zip(self.model.decoder, caches, memories, strict=True):
            projected = self._heads(layer.self_attention.query(x), 3)
            heads = functional.scaled_dot_product_attention(projected[:, 0, :, None], *cache.extend(projected[:, 1:]))
            x = layer.norms[0](x + layer.self_attention.output(heads.reshape(len(x), -1)))
            queries = self._heads(layer.source_attention.query(x), 1).view(len(mask), -1, *heads.shape[1::2])
            heads = functional.scaled_dot_product_attention(queries.transpose(1, 2), *memory, attn_mask=mask)
            x = layer.norms[1](x + layer.source_attention.output(heads.transpose(1, 2).reshape(len(x), -1)))
            x = layer.norms[2](x + layer.output(functional.relu(layer.hidden(x))))
        return functional.linear(x, self.model.embedding.weight)

    def _heads(self, x: Any, n: int) -> Any:
        """Split the last axis.  Shapes: (…, n·H·K) → (…, n, H, K)."""
        return x.unflatten(-1, (n, self.config.n_heads, self.config.d_k))
