"""The disk cache: content keys, safety checks, broken files, eviction, fallback folders."""

import os
import stat
from pathlib import Path

import pytest

from tracegrad.runtime.cache import DiskCache, content_key, disk_cache, unsafe_reason


def put(cache: DiskCache, key: str, data: bytes = b"data"):
    return cache.get_or_build(key, lambda path: path.write_bytes(data))


def refuse(path):
    raise AssertionError("the entry should have been found")


def test_keys_depend_on_every_part_and_on_their_borders():
    keys = {content_key(*parts) for parts in [("ab", "c"), ("a", "bc"), ("abc",), ("ab", "c", "")]}
    assert len(keys) == 4 and all(len(key) == 64 for key in keys)
    assert content_key("x", "y") == content_key("x", "y")


def test_is_built_once_and_found_again(tmp_path):
    key = content_key("one")
    cache = DiskCache(tmp_path / "c")
    path = put(cache, key)
    assert path == tmp_path / "c" / key[:2] / f"{key}.so"
    assert path.read_bytes() == b"data"
    assert DiskCache(tmp_path / "c").get_or_build(key, refuse) == path


def test_modes_are_private(tmp_path):
    path = put(DiskCache(tmp_path / "c"), content_key("one"))
    modes = [stat.S_IMODE(os.lstat(p).st_mode) for p in (path, path.parent, path.parent.parent)]
    assert modes == [0o500, 0o700, 0o700]
    assert sorted(p.suffix for p in path.parent.iterdir()) == [".so", ".sum"]


@pytest.mark.parametrize("spoil", ["truncate", "change", "no_sum", "writable", "link"])
def test_a_broken_or_planted_file_is_built_anew(tmp_path, spoil):
    key = content_key("one")
    cache = DiskCache(tmp_path / "c")
    path = put(cache, key, b"good")
    os.chmod(path, 0o700)
    if spoil == "truncate":
        path.write_bytes(b"go")
    elif spoil == "change":
        path.write_bytes(b"evil")
    elif spoil == "no_sum":
        path.with_suffix(".sum").unlink()
    elif spoil == "writable":
        os.chmod(path, 0o666)
    else:
        other = tmp_path / "other"
        other.write_bytes(b"good")
        path.unlink()
        path.symlink_to(other)
    assert cache.find(key) is None
    again = put(cache, key, b"good")
    assert again.read_bytes() == b"good" and cache.find(key) == again
    assert not again.is_symlink()


def test_a_file_of_another_user_is_refused(tmp_path, monkeypatch):
    path = put(DiskCache(tmp_path / "c"), content_key("one"))
    owner = path.lstat().st_uid
    if owner == 0:
        os.chown(path, 12345, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert "belongs to another user" in unsafe_reason(path, is_dir=False)
    assert DiskCache(tmp_path / "c").find(content_key("one")) is None


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_a_folder_that_others_may_write_is_not_used(tmp_path, mode):
    root = tmp_path / "c"
    root.mkdir()
    os.chmod(root, mode)
    cache = DiskCache(root)
    assert "others may write" in cache.fallback_reason
    path = put(cache, content_key("one"))
    assert root not in path.parents and path.read_bytes() == b"data"
    assert stat.S_IMODE(os.lstat(cache.root).st_mode) == 0o700


def test_a_root_that_is_a_link_or_a_file_is_not_used(tmp_path):
    real = tmp_path / "real"
    real.mkdir(mode=0o700)
    (tmp_path / "link").symlink_to(real)
    assert "is a link" in DiskCache(tmp_path / "link").fallback_reason
    (tmp_path / "file").write_text("")
    assert DiskCache(tmp_path / "file").fallback_reason is not None
    assert DiskCache(tmp_path / "file" / "below").fallback_reason is not None


def test_a_root_below_a_folder_open_to_all_is_not_used(tmp_path):
    tmp_path.chmod(0o777)
    assert "anyone may replace" in DiskCache(tmp_path / "c").fallback_reason
    tmp_path.chmod(0o1777)  # sticky, as /tmp
    assert DiskCache(tmp_path / "d").fallback_reason is None


def test_an_unsafe_inner_folder_leads_to_the_private_one(tmp_path):
    key = content_key("one")
    cache = DiskCache(tmp_path / "c")
    (tmp_path / "c" / key[:2]).mkdir()
    (tmp_path / "c" / key[:2]).chmod(0o777)
    path = put(cache, key)
    assert tmp_path not in path.parents and "others may write" in cache.fallback_reason


def test_least_recently_used_goes_first(tmp_path):
    cache = DiskCache(tmp_path / "c", limit=4000)
    keys = [content_key(str(n)) for n in range(4)]
    for age, key in enumerate(keys[:3]):
        path = put(cache, key, bytes(1200))
        os.utime(path, (1000 + age, 1000 + age))
    assert cache.find(keys[0]) is not None  # used: no longer the oldest
    put(cache, keys[3], bytes(1200))
    assert [cache.find(key) is not None for key in keys] == [True, False, False, True]
    assert cache.nbytes() <= 4000


def test_clear_removes_all(tmp_path):
    cache = DiskCache(tmp_path / "c")
    put(cache, content_key("one"))
    assert cache.clear() == 2 and cache.entries() == []


def test_a_failing_build_leaves_its_folder_and_no_entry(tmp_path):
    class Failure(Exception):
        source = ""

    def fail(path: Path):
        text = path.with_name("unit.c")
        text.write_text("int x")
        error = Failure()
        error.source = str(text)
        raise error

    cache = DiskCache(tmp_path / "c")
    key = content_key("bad")
    with pytest.raises(Failure) as caught:
        cache.get_or_build(key, fail)
    assert Path(caught.value.source).read_text() == "int x"
    assert cache.find(key) is None
    assert list((tmp_path / "c" / key[:2]).iterdir()) == []


def test_facts_are_kept_and_not_trusted_when_others_may_write(tmp_path):
    cache = DiskCache(tmp_path / "c")
    cache.write_facts("k", {"version": "1"})
    assert DiskCache(tmp_path / "c").read_facts("k") == {"version": "1"}
    (tmp_path / "c" / "facts" / "k.json").chmod(0o666)
    assert cache.read_facts("k") == {}
    assert cache.read_facts("missing") == {}


def test_the_environment_says_where(tmp_path, monkeypatch):
    monkeypatch.setenv("TRACEGRAD_CACHE_DIR", str(tmp_path / "here"))
    monkeypatch.setenv("TRACEGRAD_CACHE_SIZE", "1000")
    assert disk_cache().root == tmp_path / "here" and disk_cache().limit == 1000
    assert disk_cache() is disk_cache()
