"""What a launch must satisfy beyond shapes, dtypes and ``where`` (which are ``cake.ir.binding``'s): strides,
alignment, devices, overlap, permission, sizes. Every refusal names the argument and a way out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cake.diagnostics import Diagnostic
from cake.ir import expanded as x
from cake.ir.dtypes import DTYPES
from cake.runtime import errors
from cake.runtime.tensors import HOST, UNKNOWN_DEVICE, View

VECTOR = 16
"""Bytes of the widest access, and the alignment that TMA asks of a tensor."""

INDEX_LIMIT = 2**31 - 2**16
"""Dims stay below 2**31 by more than any tile, because coordinates past the end of a tensor are computed in 32 bits,
too."""


@dataclass(frozen=True)
class Access:
    """How a kernel reaches one tensor: the alignment in bytes that it relies on, and whether by TMA alone (then no
    offset over the whole tensor is computed)."""

    alignment: int
    mapped_only: bool


def _operations(body: Sequence[Any]) -> Iterator[x.Op]:
    for s in body:
        if isinstance(s, x.Op):
            yield s
        elif isinstance(s, x.For):
            yield from _operations(s.body)
        elif isinstance(s, x.If):
            yield from _operations(s.then)
            yield from _operations(s.orelse)


def accesses(kernel: x.Kernel) -> dict[str, Access]:
    """How the kernel reaches each of its tensors."""
    item = {t.name: DTYPES[t.dtype].bytes for t in kernel.tensors}
    alignment = dict(item)
    direct: set[str] = set()
    for m in kernel.maps:
        alignment[m.tensor] = VECTOR
    for body in (kernel.entry, *(role.body for role in kernel.roles)):
        for op in _operations(body):
            for value in op.operands.values():
                if not isinstance(value, x.Ref) or value.base not in item:
                    continue
                if "map" in op.attrs:
                    alignment[value.base] = VECTOR
                    continue
                direct.add(value.base)
                width = _width(op) * item[value.base]
                alignment[value.base] = max(alignment[value.base], min(width, VECTOR))
    return {t.name: Access(alignment[t.name], t.name not in direct) for t in kernel.tensors}


def _width(op: x.Op) -> int:
    """Elements of a tensor that the widest instruction of the operation moves."""
    if op.op == "cp_async":
        return VECTOR
    vector = op.attrs.get("vector")
    if isinstance(vector, int) and not isinstance(vector, bool):
        return vector
    if op.type is None or op.type.cols == 1:
        return 1
    return {"frag": 2, "spread": max(op.type.layout.vector, 1)}.get(op.type.layout.kind, 1)


def check(kernel: x.Kernel, how: Mapping[str, Access], views: Mapping[str, View]) -> list[Diagnostic]:
    """Every violation; the views' shapes and dtypes have been checked before."""
    out: list[Diagnostic] = []
    for t in kernel.tensors:
        out += _check_tensor(t, how[t.name], views[t.name])
    out += _check_devices(kernel, views)
    if not out:
        out += _check_overlap(kernel, views)
    return out


def _check_tensor(t: x.Tensor, how: Access, v: View) -> list[Diagnostic]:
    out: list[Diagnostic] = []
    if t.strided:
        if v.shape and v.shape[-1] != 1 and v.strides[-1] != 1:
            out.append(
                errors.refusal(
                    errors.STRIDES,
                    f"`{t.name}` has stride {v.strides[-1]} along its last axis; it must be 1.",
                    "pass a tensor whose last axis is contiguous, or a copy",
                    f"strides {list(v.strides)}",
                    span=t.span,
                )
            )
        for axis, (n, s) in enumerate(zip(v.shape[:-1], v.strides[:-1], strict=True)):
            if n != 1 and (s < 0 or s * v.item % how.alignment):
                out.append(
                    errors.refusal(
                        errors.STRIDES,
                        f"`{t.name}` has stride {s} along axis {axis}; the kernel moves {how.alignment} bytes at once.",
                        f"pass a tensor whose strides are multiples of {how.alignment // v.item} elements, or a copy",
                        f"strides {list(v.strides)}",
                        span=t.span,
                    )
                )
    elif not v.row_major():
        out.append(
            errors.refusal(
                errors.STRIDES,
                f"`{t.name}` is not contiguous.",
                f"pass `{t.name}.contiguous()`, or declare the parameter `strided`",
                f"shape {list(v.shape)}, strides {list(v.strides)}",
                span=t.span,
            )
        )
    if t.direction != "in" and v.read_only:
        out.append(
            errors.refusal(
                errors.READ_ONLY,
                f"`{t.name}` is written, but its owner gave it out as read-only.",
                "pass a tensor that may be written",
                span=t.span,
            )
        )
    if t.direction != "in" and not v.distinct():
        out.append(
            errors.refusal(
                errors.OVERLAP,
                f"`{t.name}` is written, and several of its indices are the same element.",
                "pass a tensor that is not expanded and not a sliding window",
                f"shape {list(v.shape)}, strides {list(v.strides)}",
                span=t.span,
            )
        )
    if v.pointer % how.alignment:
        out.append(
            errors.refusal(
                errors.ALIGNMENT,
                f"`{t.name}` starts at an address that is no multiple of {how.alignment} bytes.",
                "pass a tensor that starts at an aligned element, or a copy",
                f"address {v.pointer:#x}",
                span=t.span,
            )
        )
    big = [n for n in v.shape if n > INDEX_LIMIT]
    if big or (v.elements >= 2**31 and not how.mapped_only):
        what = f"an extent of {big[0]}" if big else f"{v.elements} elements"
        out.append(
            errors.refusal(
                errors.TOO_LARGE,
                f"`{t.name}` has {what}; this kernel's indices have 32 bits.",
                "split the work into several calls",
                f"shape {list(v.shape)}",
                span=t.span,
            )
        )
    return out


def _check_devices(kernel: x.Kernel, views: Mapping[str, View]) -> list[Diagnostic]:
    first = kernel.tensors[0]
    out: list[Diagnostic] = []
    for t in kernel.tensors:
        device = views[t.name].device
        if device in (HOST, UNKNOWN_DEVICE):
            out.append(
                errors.refusal(
                    errors.DEVICE,
                    f"`{t.name}` is not in the memory of a CUDA device.",
                    "move it to the device before the call",
                    f"address {views[t.name].pointer:#x}",
                    span=t.span,
                )
            )
        elif device != views[first.name].device:
            out.append(
                errors.refusal(
                    errors.DEVICE,
                    f"`{t.name}` is on device {device}, but `{first.name}` is on device {views[first.name].device}.",
                    "pass tensors of one device",
                    span=t.span,
                )
            )
    return out


def _check_overlap(kernel: x.Kernel, views: Mapping[str, View]) -> list[Diagnostic]:
    """Outputs share no byte with any other argument: inputs count as constant during the launch."""
    out: list[Diagnostic] = []
    ranges = {t.name: views[t.name].byte_range() for t in kernel.tensors}
    for i, a in enumerate(kernel.tensors):
        for b in kernel.tensors[i + 1 :]:
            if a.direction == "in" and b.direction == "in":
                continue
            (alo, ahi), (blo, bhi) = ranges[a.name], ranges[b.name]
            if alo < bhi and blo < ahi:
                written = a if a.direction != "in" else b
                other = b if written is a else a
                out.append(
                    errors.refusal(
                        errors.OVERLAP,
                        f"`{written.name}` is written and shares memory with `{other.name}`.",
                        "give the output memory of its own",
                        f"`{a.name}` is [{alo:#x}, {ahi:#x})",
                        f"`{b.name}` is [{blo:#x}, {bhi:#x})",
                        span=written.span,
                    )
                )
    return out
