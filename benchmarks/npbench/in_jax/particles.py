"""Bodies, distances on a sphere, and electrons that scatter."""

from __future__ import annotations

import jax.numpy as jnp
from jax import lax

from benchmarks.npbench.in_jax.form import form
from benchmarks.npbench.particles import SOFTENING


@form
def arc_distance(theta1, phi1, theta2, phi2):
    between = (
        jnp.sin((theta2 - theta1) / 2) ** 2
        + jnp.cos(theta1) * jnp.cos(theta2) * jnp.sin((phi2 - phi1) / 2) ** 2
    )
    return jnp.sum(2 * jnp.arctan2(jnp.sqrt(between), jnp.sqrt(1 - between)))


@form
def nbody(mass, pos, vel, steps):
    dt = 0.01

    def apart(pos):
        d = pos[None] - pos[:, None]
        return d, jnp.sum(d * d, axis=-1) + SOFTENING**2

    def acceleration(pos):
        d, square = apart(pos)
        return jnp.einsum("ijc,ij,j->ic", d, square**-1.5, mass[:, 0])

    def energy(pos, vel):
        _, square = apart(pos)
        return (
            0.5 * jnp.sum(mass * vel**2),
            jnp.sum(jnp.triu(-(mass * mass.T) / jnp.sqrt(square), 1)),
        )

    def step(s, _):
        pos, vel, acc = s
        vel = vel + acc * dt / 2.0
        pos = pos + vel * dt
        acc = acceleration(pos)
        vel = vel + acc * dt / 2.0
        return (pos, vel, acc), energy(pos, vel)

    vel = vel - jnp.mean(mass * vel, axis=0) / jnp.mean(mass)
    k0, p0 = energy(pos, vel)
    (pos, vel, _), (k, p) = lax.scan(step, (pos, vel, acceleration(pos)), None, length=steps)
    return k0**2 + p0**2 + jnp.sum(k**2) + jnp.sum(p**2) + jnp.sum(pos)


@form
def scattering_self_energies(neighbours, coupling, green, phonon):
    ne, nw = green.shape[1], phonon.shape[1]
    scaled = jnp.einsum("abjxy,qwabij->qwabixy", coupling, phonon)
    sigma = jnp.zeros_like(green)
    for w in range(min(nw, ne)):
        near = green[:, : ne - w, neighbours]  # kz, e, atom, neighbour, orbitals
        g = jnp.einsum("keabxy,abiyz->keabixz", near, coupling)
        add = jnp.einsum("keabixy,qabiyz->keaxz", g, scaled[:, w])
        sigma = sigma.at[:, w:].add(add)
    return jnp.sum(jnp.abs(sigma) ** 2)
