"""An untrained translator that the tests of the library share."""

import pytest
from small_sentences import small_tokenizer

from minitransformer import Transformer, Translator, presets


@pytest.fixture(scope="session")
def translator() -> Translator:
    return Translator(Transformer(presets.tiny(70)), small_tokenizer())
