"""Neural networks, with the convolutions of XLA."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.npbench.in_jax.form import form


@form
def mlp(x, w1, b1, w2, b2, w3, b3):
    x = jax.nn.relu(x @ w1 + b1)
    x = jax.nn.relu(x @ w2 + b2)
    return -jnp.sum(jax.nn.log_softmax(x @ w3 + b3)[:, 0])


def _convolution(x, weights):
    return lax.conv_general_dilated(
        x, weights, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


@form
def conv2d(x, weights, bias):
    out = (
        lax.conv_general_dilated(
            x, weights, (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        )
        + bias
    )
    return jnp.sum(jnp.sin(out))


def _max_pool(x):
    n, h, w, c = x.shape
    x = x[:, : h // 2 * 2, : w // 2 * 2]
    return jnp.max(x.reshape(n, h // 2, 2, w // 2, 2, c), axis=(2, 4))


@form
def lenet(x, conv1, bias1, conv2, bias2, dense1, offset1, dense2, offset2):
    x = _max_pool(jax.nn.relu(_convolution(x, conv1) + bias1))
    x = _max_pool(jax.nn.relu(_convolution(x, conv2) + bias2))
    x = jax.nn.relu(x.reshape(x.shape[0], -1) @ dense1 + offset1)
    return -jnp.sum(jax.nn.log_softmax(x @ dense2 + offset2)[:, 0])


@form
def resnet(x, conv1, conv2, conv3):
    def norm(x):
        away = x - jnp.mean(x, axis=0)
        return away / jnp.sqrt(jnp.mean(away * away, axis=0) + 1e-5)

    padded = jnp.pad(_convolution(x, conv1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    x1 = jax.nn.relu(norm(padded))
    x2 = jax.nn.relu(norm(_convolution(x1, conv2)))
    x3 = norm(_convolution(x2, conv3))
    return jnp.sum(jnp.sin(jax.nn.relu(x3 + x)))
