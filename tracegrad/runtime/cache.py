"""The disk cache of built libraries: named by content, safe against planted and broken files.

A library is loaded into the process, so a file is trusted only when it and its folder belong to
this user (or root), nobody else may write them, they are no links, and the recorded digest fits.
``TRACEGRAD_CACHE_DIR`` says where, ``TRACEGRAD_CACHE_SIZE`` how many bytes (default 512 MB).
"""

from __future__ import annotations

import atexit
import hashlib
import json
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path

import platformdirs

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FORMAT = "1"  # of keys and of the layout on disk
_DEFAULT_NBYTES = 512 * 1024 * 1024


def content_key(*parts: str) -> str:
    """SHA-256 in hex over `parts` and the format version; no two lists of parts collide."""
    digest = hashlib.sha256(FORMAT.encode())
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def disk_cache() -> DiskCache:
    """The cache of this environment; one object per process and setting."""
    limit = os.environ.get("TRACEGRAD_CACHE_SIZE", "")
    return _open(
        os.environ.get("TRACEGRAD_CACHE_DIR") or platformdirs.user_cache_dir("tracegrad"),
        int(limit) if limit.isdecimal() else _DEFAULT_NBYTES,
    )


@lru_cache(maxsize=8)
def _open(root: str, limit: int) -> DiskCache:
    return DiskCache(Path(root), limit)


def unsafe_reason(path: Path, *, is_dir: bool) -> str | None:
    """Why `path` must not be trusted; None when it may be."""
    try:
        info = os.lstat(path)
    except OSError as error:
        return f"{path}: {error.strerror}"
    if stat.S_ISLNK(info.st_mode):
        return f"{path} is a link"
    if not (stat.S_ISDIR if is_dir else stat.S_ISREG)(info.st_mode):
        return f"{path} is not a {'folder' if is_dir else 'plain file'}"
    if os.name == "nt":  # permissions there are not in the mode
        return None
    if info.st_uid not in (os.geteuid(), 0):
        return f"{path} belongs to another user ({info.st_uid})"
    if info.st_mode & 0o022:
        return f"others may write {path}"
    return None


class DiskCache:
    """A folder ``<root>/<2 hex>/<key><suffix>``, each file with its digest in ``<key>.sum``.

    When `root` cannot be used, a private temporary folder serves for the life of the process;
    `fallback_reason` then says why.
    """

    def __init__(self, root: Path, limit: int = _DEFAULT_NBYTES) -> None:
        self.limit = limit
        self.root = root.absolute()
        self.fallback_reason: str | None = None
        reason = _prepare(self.root)
        if reason is not None:
            self._fall_back(reason)

    def find(self, key: str, suffix: str = ".so") -> Path | None:
        """The file of `key` if it is there, safe and whole; marks it as used."""
        path = self._path(key, suffix)
        if not path.exists() or not _is_whole(path):
            return None
        with suppress(OSError):
            os.utime(path)
        return path

    def get_or_build(self, key: str, make: Callable[[Path], None], suffix: str = ".so") -> Path:
        """The file of `key`; `make(path)` writes it, in a folder of its own, when it is missing.

        An exception of `make` passes through; the folder it worked in is kept under
        ``failed/<key>`` and an attribute ``source`` of the exception is moved along.
        """
        found = self.find(key, suffix)
        if found is not None:
            return found
        try:
            return self._build(key, make, suffix)
        except OSError as error:
            if self.fallback_reason is not None:
                raise
            # Read-only, full or over quota: the process can still do with a folder of its own.
            self._fall_back(f"{self.root}: {error.strerror or error}")
            return self._build(key, make, suffix)

    def read_facts(self, key: str) -> dict[str, str]:
        """What `write_facts` stored under `key`; empty when missing or not trusted."""
        path = self.root / "facts" / f"{key}.json"
        if unsafe_reason(path.parent, is_dir=True) or unsafe_reason(path, is_dir=False):
            return {}
        try:
            facts = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        is_flat = isinstance(facts, dict) and all(isinstance(v, str) for v in facts.values())
        return facts if is_flat else {}

    def write_facts(self, key: str, facts: dict[str, str]) -> None:
        """Store a small dictionary; a cache that cannot be written is no error."""
        with suppress(OSError):
            folder = _make_dir(self.root / "facts")
            handle, name = tempfile.mkstemp(dir=folder)  # mode 0600
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(facts, file, sort_keys=True)
            os.replace(name, folder / f"{key}.json")

    def entries(self) -> list[Path]:
        """All files but locks, least recently used first."""
        found = []
        for folder, _, names in os.walk(self.root):
            for name in names:
                path = Path(folder, name)
                with suppress(OSError):
                    if not name.endswith(".lock"):
                        found.append((path.lstat().st_mtime_ns, str(path), path))
        return [path for _, _, path in sorted(found)]

    def nbytes(self) -> int:
        """Bytes that all entries take."""
        total = 0
        for path in self.entries():
            with suppress(OSError):
                total += path.lstat().st_size
        return total

    def clear(self) -> int:
        """Remove every entry; returns how many.  Libraries in use stay mapped."""
        entries = self.entries()
        for path in entries:
            with suppress(OSError):
                path.unlink()
        return len(entries)

    # ------------------------------------------------------------------------------ inside

    def _path(self, key: str, suffix: str) -> Path:
        return self.root / key[:2] / (key + suffix)

    def _build(self, key: str, make: Callable[[Path], None], suffix: str) -> Path:
        path = self._path(key, suffix)
        folder = _make_dir(path.parent)
        with _advisory_lock(path.with_suffix(".lock")):
            found = self.find(key, suffix)  # another process may have built it meanwhile
            if found is not None:
                return found
            work = Path(tempfile.mkdtemp(prefix="build-", dir=folder))  # mode 0700
            try:
                made = work / f"unit{suffix}"
                self._make(key, make, made)
                self._install(made, path)
            finally:
                shutil.rmtree(work, ignore_errors=True)
        self._evict(keep=path)
        return path

    def _make(self, key: str, make: Callable[[Path], None], made: Path) -> None:
        try:
            make(made)
        except Exception as error:
            kept = self.root / "failed" / key
            with suppress(OSError):
                _make_dir(kept.parent)
                shutil.rmtree(kept, ignore_errors=True)
                shutil.copytree(made.parent, kept)
                if getattr(error, "source", ""):
                    error.source = str(kept / Path(error.source).name)  # type: ignore[attr-defined]
            raise

    def _install(self, made: Path, path: Path) -> None:
        """Move a library to its name: by rename, since the old file may be mapped."""
        summary = made.with_suffix(".sum")
        summary.write_text(_summary(made), encoding="ascii")
        os.chmod(made, 0o500)
        os.chmod(summary, 0o400)
        os.replace(summary, path.with_suffix(".sum"))
        os.replace(made, path)

    def _evict(self, keep: Path) -> None:
        """Remove the least recently used entries once the limit is passed."""
        total = self.nbytes()
        if total <= self.limit:
            return
        for path in self.entries():
            if total <= self.limit * 3 // 4:
                break
            if path.stem == keep.stem or path.suffix == ".sum" or path.parent.name == "facts":
                continue
            with suppress(OSError):
                total -= path.lstat().st_size
                path.unlink()
                path.with_suffix(".sum").unlink()

    def _fall_back(self, reason: str) -> None:
        self.fallback_reason = reason
        self.root = Path(tempfile.mkdtemp(prefix="tracegrad-"))
        atexit.register(_remove_if_own, self.root, os.getpid())


def _remove_if_own(root: Path, pid: int) -> None:
    if os.getpid() == pid:  # a forked child must not take the folder from its parent
        shutil.rmtree(root, ignore_errors=True)


def _prepare(root: Path) -> str | None:
    """Make the cache's folder; why it cannot be used, or None."""
    try:
        root.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileExistsError):
            root.mkdir(mode=0o700)
        parent = os.stat(root.parent)
    except OSError as error:
        return f"{root}: {error.strerror}"
    if os.name != "nt" and parent.st_mode & stat.S_IWOTH and not parent.st_mode & stat.S_ISVTX:
        return f"anyone may replace {root}"
    reason = unsafe_reason(root, is_dir=True)
    if reason is None and not os.access(root, os.W_OK | os.X_OK):
        reason = f"{root} cannot be written"
    return reason


def _make_dir(path: Path) -> Path:
    """A folder of mode 0700 below the root; PermissionError when it is there and unsafe."""
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    reason = unsafe_reason(path, is_dir=True)
    if reason is not None:
        raise PermissionError(1, reason)
    return path


def _summary(path: Path) -> str:
    data = path.read_bytes()
    return f"{len(data)} {hashlib.sha256(data).hexdigest()}\n"


def _is_whole(path: Path) -> bool:
    """Whether the file, its folder and its digest can be trusted and agree."""
    sums = path.with_suffix(".sum")
    if unsafe_reason(path.parent, is_dir=True):
        return False
    if unsafe_reason(path, is_dir=False) or unsafe_reason(sums, is_dir=False):
        return False
    try:
        return sums.read_text(encoding="ascii") == _summary(path)
    except (OSError, ValueError):
        return False


@contextmanager
def _advisory_lock(path: Path) -> Iterator[None]:
    """Hold a lock if the file system has locks; it only spares building the same thing twice."""
    if fcntl is None:
        yield
        return
    with open(os.open(path, os.O_CREAT | os.O_RDWR, 0o600), "r+b") as file:
        with suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            with suppress(OSError):
                path.unlink()
