"""A small model that has learned to translate number words: something to convert whose outputs are words."""

import random
from functools import cache
from typing import Any

from threadpoolctl import threadpool_limits

from autograd import backward
from autograd.optim import Adam
from minitransformer import Batch, ModelConfig, Transformer
from minitransformer.data.tokenizer import Tokenizer
from minitransformer.extras.convert.parts import Parts

NUMBERS = {"one": "eins", "two": "zwei", "three": "drei", "four": "vier", "five": "fünf", "six": "sechs"}
N_WORDS, N_UPDATES = 40, 300
SIZES = {"n_layers": 1, "d_model": 32, "d_ff": 64, "n_heads": 2, "d_k": 16, "d_v": 16}


def sentences(n: int, seed: int) -> list[str]:
    words = random.Random(seed)
    return [" ".join(words.choices(list(NUMBERS), k=words.randint(1, 5))) for _ in range(n)]


def translation(line: str) -> str:
    return " ".join(NUMBERS[word] for word in line.split())


@cache
def trained_parts(joint: bool = True, **changes: Any) -> Parts:
    """A model of one layer that is usually right."""
    lines = sentences(400, seed=1)
    pairs = [(line, translation(line)) for line in lines]
    tokenizer = Tokenizer.train(pairs, vocabulary_size=N_WORDS if joint else N_WORDS - 10, joint=joint)
    words = {"vocabulary_size": tokenizer.n_target_words, "source_vocabulary_size": tokenizer.n_source_words}
    config = ModelConfig.from_mapping(SIZES | words | {"tied": "all" if joint else "target"} | changes)
    model = Transformer(config, seed=1)
    adam = Adam(model.parameters)
    sources, targets = tokenizer.encode_source(lines), tokenizer.encode_target([german for _, german in pairs])
    with threadpool_limits(1, user_api="blas"):  # the arrays are too small to share out
        for step in range(1, N_UPDATES + 1):
            first = 40 * step % 400
            batch = Batch.from_token_ids(sources[first : first + 40], targets[first : first + 40])
            backward(model.loss(batch))
            adam.step(learning_rate=5e-3 * min(1, step / 20), step=step, n_tokens=batch.n_target_tokens, max_norm=1.0)
    return Parts(config, model.weights(), tokenizer)
