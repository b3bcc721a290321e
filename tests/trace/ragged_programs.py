"""Programs over a square matrix whose loops and slices depend on the indices of loops."""

# ruff: noqa: N803, N806, E701, E741

import numpy as np


def lu(A):
    A = A.copy()
    n = A.shape[0]
    for i in range(n):
        for j in range(i):
            A[i, j] -= A[i, :j] @ A[:j, j]
            A[i, j] /= A[j, j]
        for j in range(i, n):
            A[i, j] -= A[i, :i] @ A[:i, j]
    return A


def trisolv(A):
    b = A[0] * 2.0
    x = np.zeros(len(b))
    n = len(b)
    for i in range(n):
        x[i] = (b[i] - A[i, :i] @ x[:i]) / A[i, i]
    return x


def trmm(A):
    B = A.T.copy() * 0.5
    n, m = B.shape
    for i in range(n):
        for j in range(m):
            B[i, j] += np.dot(A[i + 1 :, i], B[i + 1 :, j])
    return B * 1.5


def syrk(A):
    C = A * 0.3
    for i in range(C.shape[0]):
        C[i, : i + 1] *= 1.2
        for k in range(C.shape[1]):
            C[i, : i + 1] += 0.7 * A[i, k] * A[: i + 1, k]
    return C


def syr2k(A):
    B = A.T * 0.5
    C = A * 0.3
    for i in range(C.shape[0]):
        C[i, : i + 1] *= 1.2
        for k in range(C.shape[1]):
            C[i, : i + 1] += A[: i + 1, k] * 0.7 * B[i, k] + B[: i + 1, k] * 0.7 * A[i, k]
    return C


def symm(A):
    B = A.T * 0.5
    C = A * 0.3
    temp2 = np.empty((C.shape[1],))
    C *= 1.2
    for i in range(C.shape[0]):
        for j in range(C.shape[1]):
            C[:i, j] += 0.5 * B[i, j] * A[i, :i]
            temp2[j] = B[:i, j] @ A[i, :i]
        C[i, :] += 0.5 * B[i, :] * A[i, i] + 0.5 * temp2
    return C


def durbin(A):
    r = A[0] * 0.05
    y = np.empty_like(r)
    alpha = -r[0]
    beta = 1.0
    y[0] = -r[0]
    for k in range(1, r.shape[0]):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return y


def covariance(A):
    data = A - np.mean(A, axis=0)
    M = A.shape[1]
    cov = np.zeros((M, M))
    for i in range(M):
        cov[i:M, i] = cov[i, i:M] = data[:, i] @ data[:, i:M] / (A.shape[0] - 1.0)
    return cov


def correlation(A):
    mean = np.mean(A, axis=0)
    std = np.std(A, axis=0)
    data = (A - mean) / std
    M = A.shape[1]
    corr = np.eye(M)
    for i in range(M - 1):
        corr[i + 1 : M, i] = corr[i, i + 1 : M] = data[:, i] @ data[:, i + 1 : M]
    return corr


def gramschmidt(A):
    A = A.copy()
    Q = np.zeros_like(A)
    R = np.zeros((A.shape[1], A.shape[1]))
    for k in range(A.shape[1]):
        nrm = np.dot(A[:, k], A[:, k])
        R[k, k] = np.sqrt(nrm)
        Q[:, k] = A[:, k] / R[k, k]
        for j in range(k + 1, A.shape[1]):
            R[k, j] = np.dot(Q[:, k], A[:, j])
            A[:, j] -= Q[:, k] * R[k, j]
    return R


def ludcmp(A):
    b = A[0] * 2.0
    A = A.copy()
    n = A.shape[0]
    x = np.zeros_like(b)
    y = np.zeros_like(b)
    for i in range(n):
        for j in range(i):
            A[i, j] -= A[i, :j] @ A[:j, j]
            A[i, j] /= A[j, j]
        for j in range(i, n):
            A[i, j] -= A[i, :i] @ A[:i, j]
    for i in range(n):
        y[i] = b[i] - A[i, :i] @ y[:i]
    for i in range(n - 1, -1, -1):
        x[i] = (y[i] - A[i, i + 1 :] @ x[i + 1 :]) / A[i, i]
    return x


def growing(A):
    x = A[0]
    s = 0.0
    for i in range(len(x)):
        s = s + np.sum(x[: i + 1])
    return s


def meanmax(A):
    x = A[0]
    y = np.zeros_like(x)
    for i in range(1, len(x)):
        y[i] = np.mean(x[:i]) + np.max(x[i:]) * np.min(x[: i + 1]) + np.std(x[: i + 1])
    return y


def temporaries(A):
    y = np.zeros(len(A))
    for i in range(len(A)):
        t = np.exp(A[i, : i + 1] * 0.1) * 2
        u = np.where(t > 2.1, t, t * t)
        y[i] = np.prod(u[:3]) + u[-1] + t[0]
    return y


def strided(A):
    x = A[0]
    y = x * 1.0
    for i in range(2, len(x)):
        y[i] += np.sum(y[:i:2]) * 0.1 + np.sum(y[i::-1]) * 0.05
    return y


def rank1(A):
    A = A.copy()
    n = len(A)
    for k in range(n - 1):
        A[k + 1 :, k] /= A[k, k]
        A[k + 1 :, k + 1 :] -= np.outer(A[k + 1 :, k], A[k, k + 1 :])
    return A


def rank1b(A):
    A = A.copy()
    n = len(A)
    for k in range(n - 1):
        A[k + 1 :, k] /= A[k, k]
        A[k + 1 :, k + 1 :] -= A[k + 1 :, k][:, None] * A[k, k + 1 :][None, :]
    return A


def matvec(A):
    y = np.zeros(len(A))
    for i in range(1, len(A)):
        y[i] = np.sum(A[:i, :i] @ A[i, :i]) + np.sum(A[i:, :i].T @ A[i:, 0])
    return y


def three_deep(A):
    s = 0.0
    n = len(A)
    for i in range(n):
        for j in range(i):
            for k in range(j + 1, i):
                s = s + A[i, k] * A[k, j]
            A2 = A[i, j]
            s = s + A2
    return s


def rowsloop(A):
    s = 0.0
    for i in range(2, len(A)):
        for r in A[:i]:
            s = s + r[i] * r[i - 1]
        for k, v in enumerate(A[i, :i]):
            s = s + v * k
        for a, b in zip(A[i, :i], A[:i, i], strict=True):
            s = s + a * b
        for v in reversed(A[i, :i]):
            s = s * 0.5 + v
    return s


def names_after_the_inner_loop(A):
    s = 0.0
    for i in range(len(A)):
        for j in range(i):
            t = A[i, j] * 2
            s = s + t
        if i > 0:
            s = s + t + j
    return s


def overwrite(A):
    y = A[0] * 1.0
    for i in range(1, len(y)):
        y[:i] = y[:i] * y[i] + np.sin(y[1 : i + 1])
    return y


def shapes(A):
    y = np.zeros(len(A))
    for i in range(1, len(A)):
        r = A[i, :i]
        y[i] = r.sum() / r.shape[0] + r.size * 0.5 + len(r)
    return y


def new_arrays(A):
    y = np.zeros(len(A))
    for i in range(1, len(A)):
        t = np.zeros(i)
        t += A[i, :i]
        t[0] = 2.0
        y[i] = np.sum(t * np.arange(i)) + np.sum(np.zeros_like(A[:i, 0]) + 1.5)
    return y


def running_and_joined(A):
    y = np.zeros(len(A))
    for i in range(1, len(A)):
        y[i] = np.cumsum(A[i, :i])[-1] + np.concatenate([A[i, :i], A[:i, i]]).sum()
    return y


def normrow(A):
    A = A.copy()
    for i in range(len(A)):
        A[i, : i + 1] /= np.linalg.norm(A[i, : i + 1])
    return A


def tri_swap(A):
    a = A[0] * 1.0
    b = A[1] * 1.0
    for i in range(1, len(a)):
        b[:i] = a[:i] * 0.5 + b[i]
        a, b = b, a
    return a - b


def back_substitution(A):
    x = A[0].copy()
    n = len(x)
    for i in reversed(range(n)):
        x[i] = x[i] / A[i, i]
        x[:i] -= A[:i, i] * x[i]
    return x


def branch_on_both(A):
    s = 0.0
    for i in range(len(A)):
        for j in range(i + 1):
            if j == i:
                s = s + A[i, j] ** 2
            else:
                s = s + A[i, j] * A[j, i]
    return s
