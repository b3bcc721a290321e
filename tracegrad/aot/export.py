"""Write a program as a folder of C source: function, header, example, Makefile, manifest.

The folder is written beside its place and renamed, so it is there as a whole or not at all; the
same program gives the same bytes.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from tracegrad.aot.names import check_name
from tracegrad.aot.view import ArrayView, ExportView, Signature, make_view
from tracegrad.codegen.unit import render
from tracegrad.errors import ExportError
from tracegrad.loops.program import Program, first_growth

ABI = 1  # of the C function and of the manifest
_MANIFEST = "manifest.json"
_WRITER = "tracegrad"


def export_program(
    program: Program,
    signature: Signature,
    path: str | os.PathLike[str],
    name: str,
    sample_inputs: Sequence[np.ndarray],
    sample_outputs: Sequence[np.ndarray],
    *,
    version: str,
    overwrite: bool = False,
) -> Path:
    """Write `program` as the C function `name` into the folder `path`; returns the folder.

    `sample_inputs` (as they are before a call) and `sample_outputs` become the test of the
    example program.  `overwrite` replaces a folder that an earlier export wrote, no other.

    Raises:
        ExportError: a program that asks for memory, a name that C cannot have, a folder that is
            in use or cannot be written, samples that do not fit.
    """
    check_name(name)
    check_memory(program)
    folder = Path(path).absolute()
    _check_free(folder, overwrite)
    program = replace(program, name=name)
    unit = render(program, shim=False, embed_all=True)
    if unit.entry != name:
        raise ExportError(f"name {name!r} is used inside the C text", remedy="Choose another name.")
    view = make_view(program, signature, unit, version, sample_inputs, sample_outputs)
    files = _render_files(view, unit.text)
    try:
        _write_folder(folder, files)
    except OSError as error:
        raise ExportError(f"cannot write {folder}: {error.strerror or error}") from error
    return folder


def check_memory(program: Program) -> None:
    """Raise ExportError for a program that asks for memory while it runs."""
    grows = first_growth(program)
    if grows is not None:
        raise ExportError(
            "exported functions ask for no memory, and the gradient of this loop keeps as much as "
            "there are iterations",
            loc=grows.loc,
            remedy="Give tg.while_loop or tg.fori_loop max_trips=n: the workspace then holds n "
            "iterations.",
        )


def _check_free(folder: Path, overwrite: bool) -> None:
    if not os.path.lexists(folder):
        return
    if folder.is_symlink() or not folder.is_dir():
        raise ExportError(f"{folder} is not a folder", remedy="Name a folder that is new or empty.")
    try:
        names = {entry.name for entry in folder.iterdir()}
    except OSError as error:
        raise ExportError(f"cannot read {folder}: {error.strerror}") from error
    if not names:
        return
    if not overwrite:
        raise ExportError(
            f"{folder} is not empty", remedy="Name another folder, or pass overwrite=True."
        )
    if _manifest_of(folder).get("writer") != _WRITER:
        raise ExportError(
            f"{folder} was not written by an export: it is not overwritten",
            remedy="Name another folder.",
        )


def _manifest_of(folder: Path) -> dict[str, Any]:
    """The manifest in `folder`; empty when there is none."""
    try:
        manifest = json.loads((folder / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return manifest if isinstance(manifest, dict) else {}


def _render_files(view: ExportView, unit_text: str) -> dict[str, str]:
    files = {
        f"{view.name}.c": f'#include "{view.name}.h"\n\n{unit_text.strip()}\n',
        f"{view.name}.h": _render("header.h.j2", view),
        "example_main.c": _render("example_main.c.j2", view),
        "Makefile": _render("Makefile.j2", view),
        "README.md": _render("README.md.j2", view),
    }
    manifest = json.dumps(_manifest(view, files), indent=2)
    return files | {_MANIFEST: manifest + "\n"}


@lru_cache(maxsize=1)
def _templates() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).with_name("templates")),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _render(template: str, view: ExportView) -> str:
    names = {name: getattr(view, name) for name in (*view.__slots__, "arrays")}
    return _templates().get_template(template).render(names)


def _manifest(view: ExportView, files: dict[str, str]) -> dict[str, object]:
    """Facts for programs; no time and no path, so that equal programs give equal folders."""
    return {
        "writer": _WRITER,
        "abi": ABI,
        "version": view.version,
        "name": view.name,
        "title": view.title,
        "licence": "0BSD",
        "prototype": " ".join(view.prototype.split()),
        "inputs": [_array_facts(a) for a in view.inputs],
        "outputs": [_array_facts(a) for a in view.outputs],
        "aliasing": "outputs and written inputs overlap no other array",
        "workspace": {"nbytes": view.workspace, "alignment": 64},
        "statuses": [{"code": s.code, "message": s.text} for s in view.statuses],
        "sha256": {
            name: hashlib.sha256(text.encode()).hexdigest() for name, text in sorted(files.items())
        },
    }


def _array_facts(array: ArrayView) -> dict[str, object]:
    return {
        "name": array.name,
        "c_name": array.c_name,
        "c_type": array.c_type,
        "type": array.type,
        "shape": list(array.shape),
        "layout": "C",
        "written": array.const == "",
    }


def _write_folder(folder: Path, files: dict[str, str]) -> None:
    """Write `files` as `folder`; files of an earlier export go, other people's files stay."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    old, new = work / "old", work / "new"
    try:
        new.mkdir()
        for name, text in files.items():
            (new / name).write_text(text, encoding="utf-8", newline="\n")
        if folder.exists():
            _carry_over(folder, new)
            os.rename(folder, old)
        try:
            os.rename(new, folder)
        except OSError:
            if old.exists():
                os.rename(old, folder)
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _carry_over(folder: Path, new: Path) -> None:
    """Copy what the export did not write."""
    written = _manifest_of(folder).get("sha256", {})
    for entry in folder.iterdir():
        target = new / entry.name
        if entry.name in written or target.exists():
            continue
        if entry.is_dir() and not entry.is_symlink():
            shutil.copytree(entry, target, symlinks=True)
        else:
            shutil.copy2(entry, target, follow_symlinks=False)
