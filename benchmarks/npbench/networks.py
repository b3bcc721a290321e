"""Neural networks: dense layers and convolutions by loops over the output."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.kernel import kernel


def relu(x):
    return np.maximum(x, 0.0)


def log_softmax(x):
    shifted = x - np.max(x, axis=-1, keepdims=True)
    return shifted - np.log(np.sum(np.exp(shifted), axis=-1, keepdims=True))


def _layers(rng, n, c, h, out):
    def weights(*shape):
        return rng.normal(size=shape) / np.sqrt(shape[0])

    return (
        weights(n, c),
        weights(c, h),
        weights(h),
        weights(h, h),
        weights(h),
        weights(h, out),
        weights(out),
    )


@kernel(
    _layers, small={"n": 4, "c": 3, "h": 5, "out": 4}, large={"n": 64, "c": 64, "h": 200, "out": 40}
)
def mlp(x, w1, b1, w2, b2, w3, b3):
    """Three dense layers and a log-likelihood."""
    x = relu(x @ w1 + b1)
    x = relu(x @ w2 + b2)
    return -np.sum(log_softmax(x @ w3 + b3)[:, 0])


def convolution(x, weights):
    """Valid convolution of (n, h, w, c) with (k, k, c, d), one output pixel at a time."""
    k = weights.shape[0]
    n, h, w, _ = x.shape
    out = np.empty((n, h - k + 1, w - k + 1, weights.shape[3]))
    for i in range(h - k + 1):
        for j in range(w - k + 1):
            out[:, i, j, :] = np.sum(
                x[:, i : i + k, j : j + k, :, np.newaxis] * weights[np.newaxis, :, :, :],
                axis=(1, 2, 3),
            )
    return out


def max_pool(x):
    """The largest of each two by two pixels."""
    n, h, w, c = x.shape
    out = np.empty((n, h // 2, w // 2, c))
    for i in range(h // 2):
        for j in range(w // 2):
            out[:, i, j, :] = np.max(x[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2, :], axis=(1, 2))
    return out


def batch_norm(x, eps=1e-5):
    mean = np.mean(x, axis=0, keepdims=True)
    return (x - mean) / np.sqrt(np.std(x, axis=0, keepdims=True) ** 2 + eps)


@kernel(
    lambda rng, n, s, k, c, d: (
        rng.normal(size=(n, s, s, c)),
        rng.normal(size=(k, k, c, d)),
        rng.normal(size=d),
    ),
    small={"n": 2, "s": 10, "k": 3, "c": 2, "d": 2},
    large={"n": 4, "s": 24, "k": 5, "c": 3, "d": 8},
)
def conv2d(x, weights, bias):
    """One convolution with a bias."""
    out = convolution(x, weights) + bias
    return np.sum(np.sin(out))


def _lenet(rng, n, s):
    flat = (((s - 4) // 2 - 4) // 2) ** 2 * 4

    def weights(*shape):
        return rng.normal(size=shape) / np.sqrt(np.prod(shape[:-1]))

    return (
        rng.normal(size=(n, s, s, 1)),
        weights(5, 5, 1, 3),
        weights(3),
        weights(5, 5, 3, 4),
        weights(4),
        weights(flat, 8),
        weights(8),
        weights(8, 5),
        weights(5),
    )


@kernel(_lenet, small={"n": 2, "s": 16}, large={"n": 4, "s": 28})
def lenet(x, conv1, bias1, conv2, bias2, dense1, offset1, dense2, offset2):
    """Two convolutions with pooling, two dense layers, a log-likelihood."""
    x = max_pool(relu(convolution(x, conv1) + bias1))
    x = max_pool(relu(convolution(x, conv2) + bias2))
    x = np.reshape(x, (x.shape[0], -1))
    x = relu(x @ dense1 + offset1)
    return -np.sum(log_softmax(x @ dense2 + offset2)[:, 0])


def _block(rng, n, s, c, d):
    return (
        rng.normal(size=(n, s, s, c)),
        rng.normal(size=(1, 1, c, d)),
        rng.normal(size=(3, 3, d, d)),
        rng.normal(size=(1, 1, d, c)),
    )


@kernel(_block, small={"n": 3, "s": 8, "c": 2, "d": 2}, large={"n": 4, "s": 14, "c": 8, "d": 4})
def resnet(x, conv1, conv2, conv3):
    """A bottleneck block with its shortcut; the middle convolution is padded."""
    padded = np.zeros((x.shape[0], x.shape[1] + 2, x.shape[2] + 2, conv1.shape[3]))
    padded[:, 1:-1, 1:-1, :] = convolution(x, conv1)
    x1 = relu(batch_norm(padded))
    x2 = relu(batch_norm(convolution(x1, conv2)))
    x3 = batch_norm(convolution(x2, conv3))
    return np.sum(np.sin(relu(x3 + x)))
