"""Marian's own models: CTranslate2 and transformers compute the same from the same parameters."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from against_torch import torch
from ctranslate2_models import model_of
from marian_models import LINES, TARGETS, log_probabilities, subwords, transformers, write_directory
from marian_npz_files import SETTINGS, SOURCE, TARGET, vocabulary_in_yaml, write_marian, write_npz

from minitransformer import Batch
from minitransformer.extras.convert.formats import read_parts, recognise
from minitransformer.extras.convert.vocabulary import words_of

SHAPES: dict[str, dict[str, Any]] = {
    "one embedding": {},
    "pre-norm": {"transformer-preprocess": "n", "transformer-postprocess": "da", "transformer-postprocess-top": "n"},
    "gelu, own vocabularies": {
        "transformer-ffn-activation": "gelu",
        "tied-embeddings-all": False,
        "tied-embeddings": True,
    },
    "relu, untied": {"transformer-ffn-activation": "relu", "tied-embeddings-all": False, "dec-depth": 3},
}


def marians_positions(n: int, d: int) -> Any:
    """Marian's sinusoids, of which CTranslate2 has others: from sinusoidalPositionEmbeddings of marian-dev."""
    angles = np.arange(n)[:, None] * np.exp(-np.arange(d // 2) * np.log(10_000) / (d / 2 - 1))
    return np.concatenate([np.sin(angles), np.cos(angles)], axis=1).astype("f")


@pytest.mark.parametrize("name", SHAPES)
def test_ctranslate2_reads_the_same_numbers(name: str, tmp_path: Path) -> None:
    """Its layer norm adds 1e-5 to the variance, and Marian's 1e-6."""
    ctranslate2 = pytest.importorskip("ctranslate2")
    changes = SHAPES[name]
    top = {"transformer-postprocess-top": ""} | changes
    arrays = write_marian(tmp_path / "marian", **top)
    write_npz(tmp_path / "theirs.npz", {**SETTINGS, **top}, arrays | {"Wpos": marians_positions(50, 8)})
    vocabularies = [str(path) for path in sorted((tmp_path / "marian").glob("*.yml"))]
    converter = ctranslate2.converters.MarianConverter(str(tmp_path / "theirs.npz"), vocabularies)
    translator = ctranslate2.Translator(converter.convert(str(tmp_path / "converted")))
    assert recognise(tmp_path / "marian") == "marian-npz"
    parts = read_parts(tmp_path / "marian")
    ours = model_of(parts)
    source_words = TARGET if "one" in name or "pre" in name else SOURCE
    for source, target in ((source_words[2:], TARGET[:1:-1]), (source_words[3:4], TARGET[2:4])):
        ids = parts.tokenizer.encode_source([" ".join(source)]), parts.tokenizer.encode_target([" ".join(target)])
        assert [len(side[0]) for side in ids] == [len(source), len(target)]
        table = ours.log_probabilities(Batch.from_token_ids(*ids))
        expected = translator.score_batch([source], [target])[0].log_probs
        np.testing.assert_allclose(table[range(len(table)), [*ids[1][0], 2]], expected, atol=3e-4)
        np.testing.assert_allclose(np.exp(table).sum(axis=1), 1, atol=1e-6)
        assert (table[:, 1] < -1000).all()


NAMES = {
    "self_attn.q_proj": "self_?q", "self_attn.k_proj": "self_?k", "self_attn.v_proj": "self_?v",
    "self_attn.out_proj": "self_?o", "encoder_attn.q_proj": "context_?q", "encoder_attn.k_proj": "context_?k",
    "encoder_attn.v_proj": "context_?v", "encoder_attn.out_proj": "context_?o", "fc1": "ffn_?1", "fc2": "ffn_?2",
}  # fmt: skip
NORMS = {"self_attn_layer_norm": "self_Wo", "encoder_attn_layer_norm": "context_Wo", "final_layer_norm": "ffn_ffn"}


def marians_parameters(model: Any) -> dict[str, Any]:
    """The parameters of a model of transformers under Marian's names, the padding symbol left out."""
    arrays = {"Wemb": model.model.shared.weight[:-1], "decoder_ff_logit_out_b": model.final_logits_bias[:, :-1]}
    for stack in ("encoder", "decoder"):
        for number, layer in enumerate(getattr(model.model, stack).layers, 1):
            for path, module in layer.named_modules():
                prefix = f"{stack}_l{number}_"
                if path in NORMS:
                    arrays[f"{prefix}{NORMS[path]}_ln_scale"] = module.weight[None]
                    arrays[f"{prefix}{NORMS[path]}_ln_bias"] = module.bias[None]
                elif path in NAMES:
                    arrays[prefix + NAMES[path].replace("?", "W")] = module.weight.T
                    arrays[prefix + NAMES[path].replace("?", "b")] = module.bias[None]
    return {name: array.detach().numpy() for name, array in arrays.items()}


def test_transformers_computes_the_same_from_the_parameters_of_an_opus_directory(tmp_path: Path) -> None:
    model = write_directory(tmp_path / "transformers")
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-6
    for stack in (model.model.encoder, model.model.decoder):
        stack.embed_positions.weight.data[:] = torch.from_numpy(marians_positions(80, 16))
    model.final_logits_bias[0, -1] = -torch.inf
    tokenizer = transformers.MarianTokenizer.from_pretrained(tmp_path / "transformers")
    opus = tmp_path / "opus"
    opus.mkdir()
    sizes = {"dim-emb": 16, "transformer-dim-ffn": 24, "enc-depth": 2, "dec-depth": 2}
    write_npz(opus / "opus.npz", {**SETTINGS, **sizes}, marians_parameters(model))
    words = [word for word, _ in sorted(tokenizer.encoder.items(), key=lambda item: item[1])][:-1]
    (opus / "opus.vocab.yml").write_text(vocabulary_in_yaml(words), encoding="utf-8")
    (opus / "decoder.yml").write_text(
        "models:\n  - opus.npz\nvocabs:\n  - opus.vocab.yml\n  - opus.vocab.yml\nnormalize: 1\n"
    )
    for side in ("source", "target"):
        (opus / f"{side}.spm").write_bytes(subwords(side))
    parts = read_parts(opus)
    assert (parts.config.alpha, parts.config.normalisation, parts.config.positions) == (1, "length", "halves")
    ours, known = model_of(parts), words_of(parts.tokenizer.models[-1])
    columns = [known.index(word) for word in words]
    for line, target in zip(LINES, TARGETS, strict=True):
        ids = parts.tokenizer.encode_source([line]), parts.tokenizer.encode_target([target])
        source, labels = (tokenizer(line)["input_ids"][:-1], tokenizer(text_target=target)["input_ids"][:-1])
        table = ours.log_probabilities(Batch.from_token_ids(*ids))
        np.testing.assert_allclose(table[:, columns], log_probabilities(model, source, labels)[:, :-1], atol=1e-5)
