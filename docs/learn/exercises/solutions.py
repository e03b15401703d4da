"""One way to write each of the functions."""

import numpy as np


def softmax(x):
    """See functions.py."""
    exponentials = np.exp(x - x.max(axis=-1, keepdims=True))
    return exponentials / exponentials.sum(axis=-1, keepdims=True)


def causal_mask(n):
    """See functions.py."""
    return np.tril(np.ones((n, n), dtype=bool))


def attention_weights(q, k, mask):
    """Return the weight (T, S) that each query gives to each key."""
    return softmax(np.where(mask, q @ k.T / np.sqrt(q.shape[1]), -np.inf))


def attention(q, k, v, mask):
    """See functions.py."""
    return attention_weights(q, k, mask) @ v


def multi_head_attention(x, w_q, w_k, w_v, w_o, n_heads, mask):
    """See functions.py."""
    q, k, v = (np.split(x @ w, n_heads, axis=1) for w in (w_q, w_k, w_v))
    return np.concatenate([attention(*head, mask) for head in zip(q, k, v, strict=True)], axis=1) @ w_o


def normalised(x):
    """Return the rows of x with mean 0 and variance 1, and their standard deviations before."""
    centred = x - x.mean(axis=1, keepdims=True)
    deviation = np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-6)
    return centred / deviation, deviation


def layer_norm(x, gain, bias):
    """See functions.py."""
    return gain * normalised(x)[0] + bias


def feed_forward(x, w_1, b_1, w_2, b_2):
    """See functions.py."""
    return np.maximum(0, x @ w_1 + b_1) @ w_2 + b_2


def positions(n, d_model):
    """See functions.py."""
    angles = np.arange(n)[:, None] / 10_000 ** (np.arange(0, d_model, 2) / d_model)
    encodings = np.empty((n, d_model))
    encodings[:, 0::2], encodings[:, 1::2] = np.sin(angles), np.cos(angles)
    return encodings


def smoothed_target(word, n_words, smoothing):
    """See functions.py."""
    target = np.full(n_words, smoothing / (n_words - 1))
    target[word] = 1 - smoothing
    return target


def cross_entropy(logits, target):
    """See functions.py."""
    shifted = logits - logits.max()
    return -(target * (shifted - np.log(np.exp(shifted).sum()))).sum()


def softmax_gradient(dy, y):
    """See functions.py."""
    return y * (dy - (dy * y).sum(axis=-1, keepdims=True))


def linear_gradients(dy, x, w):
    """See functions.py."""
    return dy @ w.T, x.T @ dy, dy.sum(axis=0)


def cross_entropy_gradient(logits, target):
    """See functions.py."""
    return softmax(logits) - target  # the target's probabilities sum to 1


def layer_norm_gradient(dy, x, gain):
    """See functions.py."""
    x_hat, deviation = normalised(x)
    dx_hat = dy * gain
    through_mean = dx_hat.mean(axis=1, keepdims=True)
    through_variance = x_hat * (dx_hat * x_hat).mean(axis=1, keepdims=True)
    return (dx_hat - through_mean - through_variance) / deviation


def attention_gradients(dy, q, k, v, mask):
    """See functions.py."""
    weights = attention_weights(q, k, mask)
    dscores = softmax_gradient(dy @ v.T, weights) / np.sqrt(q.shape[1])
    return dscores @ k, dscores.T @ q, weights.T @ dy


def learning_rate(step, d_model, warmup_steps):
    """See functions.py."""
    return d_model**-0.5 * min(step**-0.5, step * warmup_steps**-1.5)


def adam(weight, gradient, m, v, step, rate):
    """See functions.py."""
    m, v = 0.9 * m + 0.1 * gradient, 0.98 * v + 0.02 * gradient**2
    m_hat, v_hat = m / (1 - 0.9**step), v / (1 - 0.98**step)
    return weight - rate * m_hat / (np.sqrt(v_hat) + 1e-9), m, v


def length_penalty(length, alpha):
    """See functions.py."""
    return ((5 + length) / 6) ** alpha


def greedy(log_probabilities, end, longest):
    """See functions.py."""
    tokens = []
    while len(tokens) < longest and (token := int(log_probabilities(tokens).argmax())) != end:
        tokens.append(token)
    return tokens
