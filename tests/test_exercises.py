"""Tests of the program that checks students' functions."""

import inspect
import runpy
from pathlib import Path

import pytest

EXERCISES = Path(__file__).parents[1] / "docs/learn/exercises"
SOLUTIONS = (EXERCISES / "solutions.py").read_text("utf-8")
CHECK = runpy.run_path(str(EXERCISES / "check.py"))
FAULTS = {  # a mistake in each function, and what is said of it
    "softmax": ("x - x.max(axis=-1, keepdims=True)", "x", "number [0, 0] is nan, expected 0.731059"),
    "causal_mask": ("np.tril(", "np.triu(", "number [0, 1] is 1, expected 0"),
    "attention": ("attention_weights(q, k, mask) @ v", "attention_weights(q, k, True) @ v", "number [0, 0] is "),
    "multi_head_attention": ("return np.concatenate([attention", "return -np.concatenate([attention", "number [0, 0] "),
    "layer_norm": ("gain * normalised(x)[0] + bias", "gain * normalised(x)[0]", "number [0, 0] is "),
    "feed_forward": ("np.maximum(0, x @ w_1 + b_1)", "(x @ w_1 + b_1)", "number [0, 0] is "),
    "positions": ("np.sin(angles), np.cos(angles)", "np.cos(angles), np.sin(angles)", "number [0, 0] is 1, expected 0"),
    "smoothed_target": ("smoothing / (n_words - 1)", "smoothing / n_words", "number [0] is 0.02, expected 0.025"),
    "cross_entropy": ("return -(target", "return (target", "the number is "),
    "softmax_gradient": ("(dy - (dy * y).sum(axis=-1, keepdims=True))", "dy", "number [0, 0] is "),
    "linear_gradients": ("x.T @ dy, dy.sum(axis=0)", "x.T @ dy, dy", "result 3: expected shape (2,)"),
    "cross_entropy_gradient": ("softmax(logits) - target", "softmax(logits)", "number [0] is "),
    "layer_norm_gradient": (" - through_variance", "", "number [0, 0] is "),
    "attention_gradients": ("dscores @ k, dscores.T @ q", "dscores @ k, dscores @ q", "result 2: number [0, 0] is "),
    "learning_rate": ("step * warmup_steps**-1.5", "step / warmup_steps", "is 0.0003125, expected 1.5625e-05"),
    "adam": ("m / (1 - 0.9**step)", "m", "result 1: number [0] is "),
    "length_penalty": ("((5 + length) / 6)", "(5 + length / 6)", "the number is "),
    "greedy": ("tokens.append(token)", "tokens.apend(token)", "AttributeError: 'list' object has no attribute 'apend'"),
}  # fmt: skip


def _outcomes(path: Path, printed: pytest.CaptureFixture[str]) -> dict[str, str]:
    CHECK["check"](str(path))
    return dict(line.split(maxsplit=1) for line in printed.readouterr().out.splitlines()[:-1])


def test_the_solutions_are_right_and_the_functions_to_write_are_not_yet_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert _outcomes(EXERCISES / "solutions.py", capsys) == dict.fromkeys(FAULTS, "right")
    assert _outcomes(EXERCISES / "functions.py", capsys) == dict.fromkeys(FAULTS, "not yet written")


def test_functions_and_solutions_take_the_same_arguments() -> None:
    to_write, solved = (runpy.run_path(str(EXERCISES / name)) for name in ("functions.py", "solutions.py"))
    assert [inspect.signature(to_write[name]) for name in FAULTS] == [
        inspect.signature(solved[name]) for name in FAULTS
    ]


@pytest.mark.parametrize("name", FAULTS)
def test_a_mistake_is_named_by_the_first_wrong_number(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    right, wrong, said = FAULTS[name]
    before, after = SOLUTIONS.split(f"def {name}(")
    assert right in after
    (tmp_path / "mine.py").write_text(f"{before}def {name}({after.replace(right, wrong, 1)}", "utf-8")
    assert said in _outcomes(tmp_path / "mine.py", capsys)[name]


def test_a_missing_function_and_a_wrong_result_are_said_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text("def softmax(x):\n    x += 1\n\ndef adam(*all):\n    return 1\n", "utf-8")
    outcomes = _outcomes(tmp_path / "mine.py", capsys)
    assert outcomes["softmax"] == "wrong: returns nothing"
    assert outcomes["adam"] == "wrong: expected 3 arrays, got int"
    assert outcomes["greedy"] == "wrong: there is no function of this name"
    assert not CHECK["check"](str(tmp_path / "mine.py"))
