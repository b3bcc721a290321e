"""Bodies that attract one another, distances on a sphere, and electrons that scatter."""

from __future__ import annotations

import numpy as np

from benchmarks.npbench.kernel import kernel

GRAVITY = 1.0
SOFTENING = 0.1


def acceleration(pos, mass):
    """The pull on each of n bodies; pos is (n, 3), mass (n, 1)."""
    x, y, z = pos[:, 0:1], pos[:, 1:2], pos[:, 2:3]
    dx, dy, dz = x.T - x, y.T - y, z.T - z
    inverse = dx**2 + dy**2 + dz**2 + SOFTENING**2
    apart = inverse > 0.0
    inverse[apart] = inverse[apart] ** -1.5
    ax, ay, az = (GRAVITY * (d * inverse) @ mass for d in (dx, dy, dz))
    return np.hstack((ax, ay, az))


def energy(pos, vel, mass):
    """Kinetic and potential energy."""
    kinetic = 0.5 * np.sum(mass * vel**2)
    x, y, z = pos[:, 0:1], pos[:, 1:2], pos[:, 2:3]
    dx, dy, dz = x.T - x, y.T - y, z.T - z
    distance = np.sqrt(dx**2 + dy**2 + dz**2 + SOFTENING**2)
    pairs = -(mass * mass.T) / distance
    return kinetic, GRAVITY * np.sum(np.triu(pairs, 1))


def _bodies(rng, n, steps):
    return rng.uniform(0.5, 1.5, (n, 1)), rng.normal(size=(n, 3)), rng.normal(size=(n, 3)), steps


@kernel(_bodies, small={"n": 5, "steps": 9}, large={"n": 60, "steps": 40})
def nbody(mass, pos, vel, steps):
    """Leapfrog steps; the sum of squared energies along the way."""
    dt = 0.01
    vel -= np.mean(mass * vel, axis=0) / np.mean(mass)
    acc = acceleration(pos, mass)
    kinetic, potential = np.zeros(steps + 1), np.zeros(steps + 1)
    kinetic[0], potential[0] = energy(pos, vel, mass)
    for i in range(steps):
        vel += acc * dt / 2.0
        pos += vel * dt
        acc = acceleration(pos, mass)
        vel += acc * dt / 2.0
        kinetic[i + 1], potential[i + 1] = energy(pos, vel, mass)
    return np.sum(kinetic**2) + np.sum(potential**2) + np.sum(pos)


@kernel(
    lambda rng, n: tuple(rng.uniform(0.1, 1.4, n) for _ in range(4)),
    small={"n": 12},
    large={"n": 100_000},
)
def arc_distance(theta1, phi1, theta2, phi2):
    """Great-circle distances between pairs of points."""
    between = (
        np.sin((theta2 - theta1) / 2) ** 2
        + np.cos(theta1) * np.cos(theta2) * np.sin((phi2 - phi1) / 2) ** 2
    )
    return np.sum(2 * np.arctan2(np.sqrt(between), np.sqrt(1 - between)))


def _electrons(rng, kz, e, qz, w, atoms, orbitals):
    def waves(*shape):
        return rng.normal(size=shape) + 1j * rng.normal(size=shape)

    neighbours = rng.integers(0, atoms, (atoms, 2))
    coupling = waves(atoms, 2, 3, orbitals, orbitals)
    green = waves(kz, e, atoms, orbitals, orbitals)
    phonon = waves(qz, w, atoms, 2, 3, 3)
    return neighbours, coupling, green, phonon


@kernel(
    _electrons,
    small={"kz": 1, "e": 2, "qz": 1, "w": 2, "atoms": 2, "orbitals": 2},
    large={"kz": 2, "e": 5, "qz": 2, "w": 2, "atoms": 4, "orbitals": 3},
)
def scattering_self_energies(neighbours, coupling, green, phonon):
    """Electron self-energies from phonons: products of small blocks, gathered by neighbour."""
    nkz, ne, na = green.shape[:3]
    nqz, nw, _, nb, n3d, _ = phonon.shape
    sigma = np.zeros_like(green)
    for k in range(nkz):
        for e in range(ne):
            for q in range(nqz):
                for w in range(nw):
                    for i in range(n3d):
                        for j in range(n3d):
                            for a in range(na):
                                for b in range(nb):
                                    if e - w >= 0:
                                        g = green[k, e - w, neighbours[a, b]] @ coupling[a, b, i]
                                        h = coupling[a, b, j] * phonon[q, w, a, b, i, j]
                                        sigma[k, e, a] += g @ h
    return np.sum(np.abs(sigma) ** 2)
