"""Random small faults in expanded kernels: a statement dropped, doubled, swapped with its neighbour, or a bit wrong."""

from __future__ import annotations

import random
from collections.abc import Iterator

from cake.ir import expanded as x

Path = tuple[int | str, ...]
"""Where a statement is: indices, with the name of the block between two of them."""

Body = tuple[x.Stmt, ...]


def paths(body: Body, before: Path = ()) -> Iterator[Path]:
    """The places of all statements."""
    for i, node in enumerate(body):
        here: Path = (*before, i)
        yield here
        if isinstance(node, x.For):
            yield from paths(node.body, (*here, "body"))
        elif isinstance(node, x.If):
            yield from paths(node.then, (*here, "then"))


def at(body: Body, path: Path) -> x.Stmt:
    """The statement at a place."""
    node = body[int(path[0])]
    return node if len(path) == 1 else at(getattr(node, str(path[1])), path[2:])


def put(body: Body, path: Path, new: list[x.Stmt]) -> Body:
    """``body`` with other statements at a place."""
    result = list(body)
    i = int(path[0])
    if len(path) == 1:
        result[i : i + 1] = new
    else:
        inner = put(getattr(result[i], str(path[1])), path[2:], new)
        result[i] = result[i].model_copy(update={str(path[1]): inner})
    return tuple(result)


def _wrong(node: x.Stmt, rnd: random.Random) -> x.Stmt | None:
    by = rnd.choice((-1, 1))
    if isinstance(node, x.Arrive):
        if rnd.random() < 0.5:
            return node.model_copy(update={"executor": rnd.choice(("one", "warp"))})
        return node.model_copy(update={"slot": x.Slot(cursor=node.slot.cursor, back=node.slot.back + by)})
    if isinstance(node, x.Wait):
        return node.model_copy(update={"ahead": node.ahead + by})
    if isinstance(node, x.GroupWait):
        return node.model_copy(update={"keep": max(0, node.keep + by)})
    return None


def mutate(kernel: x.Kernel, rnd: random.Random) -> tuple[x.Kernel, str]:
    """A kernel with one fault, and a few words on it. Control and scalars stay as they are."""
    while True:
        if kernel.barriers and rnd.random() < 0.1:
            chosen = rnd.choice(kernel.barriers)
            count = max(1, chosen.count + rnd.choice((-1, 1)))
            changed = tuple(b.model_copy(update={"count": count}) if b is chosen else b for b in kernel.barriers)
            return kernel.model_copy(update={"barriers": changed}), f"count of {chosen.name} {count}"
        number = rnd.randrange(len(kernel.roles))
        role = kernel.roles[number]
        body = role.body[:-1]
        places = [p for p in paths(body) if not isinstance(at(body, p), x.Let)]
        if not places:
            continue
        path = rnd.choice(places)
        node, last = at(body, path), int(path[-1])
        how = rnd.choice(("drop", "double", "swap", "wrong"))
        if how == "drop":
            body = put(body, path, [])
        elif how == "double":
            body = put(body, path, [node, node])
        elif how == "swap" and last and not isinstance(at(body, (*path[:-1], last - 1)), x.Let):
            before: Path = (*path[:-1], last - 1)
            other = at(body, before)
            body = put(put(body, path, [other]), before, [node])
        else:
            wrong = _wrong(node, rnd)
            if how != "wrong" or wrong is None:
                continue
            body = put(body, path, [wrong])
        roles = list(kernel.roles)
        roles[number] = role.model_copy(update={"body": body + role.body[-1:]})
        return kernel.model_copy(update={"roles": tuple(roles)}), f"{how} {role.name} {path} {node.kind}"
