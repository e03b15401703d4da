"""Write the functions of a Transformer, then check them: python docs/learn/exercises/check.py

All arrays are NumPy's, in float64.  One sentence at a time: T queries, S keys, D = d_model.  Use NumPy only.
"""

import numpy as np  # noqa: F401  your functions need it

# The model


def softmax(x):
    """Return exp(x) / Σ exp(x) over the last axis; no number may overflow, not even that of x = 1,000."""
    raise NotImplementedError


def causal_mask(n):
    """Return booleans (n, n), true if token i may attend to token j: to itself and to all tokens before it."""
    raise NotImplementedError


def attention(q, k, v, mask):
    """Return softmax(q kᵀ / √K) v, where a query gives no weight to a key outside the mask: equation 1.

    Shapes: q (T, K), k (S, K), v (S, V), mask (T, S) of booleans.  Returns (T, V).
    """
    raise NotImplementedError


def multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads, mask):
    """Return Concat(head_1 … head_H) w_o, with head_i = attention of the i-th K columns of x w_q, x w_k and x w_v.

    Shapes: x (T, D), all w (D, D), K = D / n_heads, mask (T, T).  Returns (T, D).  Section 3.2.2.
    """
    raise NotImplementedError


def layer_norm(x, gain, bias):
    """Return gain · (x − mean) / √(variance + 1e−6) + bias, with mean and variance of each row.

    Shapes: x (T, D), gain and bias (D,).  The variance divides by D.
    """
    raise NotImplementedError


def feed_forward(x, w_1, b_1, w_2, b_2):
    """Return max(0, x w_1 + b_1) w_2 + b_2: equation 2.  Shapes: x (T, D), w_1 (D, F), w_2 (F, D)."""
    raise NotImplementedError


def positions(n, d_model):
    """Return the encodings (n, d_model) of positions 0 … n − 1: sines in even columns, cosines in odd: section 3.5."""
    raise NotImplementedError


# The loss


def smoothed_target(word, n_words, smoothing):
    """Return probabilities (n_words,): 1 − ε for the id ``word``; the other ids share ε = ``smoothing`` equally.

    Section 5.4.
    """
    raise NotImplementedError


def cross_entropy(logits, target):
    """Return −Σ target · log softmax(logits), in nats.  Shapes: both (V,).  Logits of 1,000 must not overflow."""
    raise NotImplementedError


# Gradients: dy is the loss's gradient by the result y, and has y's shape


def softmax_gradient(dy, y):
    """Return the gradient by x of y = softmax(x).  Shapes: all (T, S)."""
    raise NotImplementedError


def linear_gradients(dy, x, w):
    """Return the gradients by x, w and b of y = x w + b.  Shapes: x (T, D), w (D, F), b (F,)."""
    raise NotImplementedError


def cross_entropy_gradient(logits, target):
    """Return the gradient by the logits of cross_entropy(logits, target).  Shapes: all (V,)."""
    raise NotImplementedError


def layer_norm_gradient(dy, x, gain):
    """Return the gradient by x of layer_norm(x, gain, bias).  The mean and the variance depend on x, too."""
    raise NotImplementedError


def attention_gradients(dy, q, k, v, mask):
    """Return the gradients by q, k and v of attention(q, k, v, mask)."""
    raise NotImplementedError


# Training


def learning_rate(step, d_model, warmup_steps):
    """Return D^−½ · min(step^−½, step · warmup_steps^−3/2): equation 3.  Steps count from 1."""
    raise NotImplementedError


def adam(weight, gradient, m, v, step, rate):
    """Return the new weight, m and v after a step of Adam, with β₁ = 0.9, β₂ = 0.98 and ε = 1e−9.

    Source: Kingma & Ba 2015, algorithm 1.  Steps count from 1.
    """
    raise NotImplementedError


# The search


def length_penalty(length, alpha):
    """Return ((5 + length) / 6)^α, by which the log-probability of a hypothesis is divided: Wu et al. 2016."""
    raise NotImplementedError


def greedy(log_probabilities, end, longest):
    """Return a list of tokens, each the most probable one after the tokens before it, without ``end``.

    ``log_probabilities(tokens)`` returns the log-probabilities (V,) of the token that follows the list ``tokens``.
    The list is complete when ``end`` is the most probable token, or when it has ``longest`` tokens.
    """
    raise NotImplementedError
