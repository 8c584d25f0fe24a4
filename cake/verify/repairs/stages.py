"""Stages of pipelines: released not at all, twice, too early, by another number; waited for twice; used after the release."""

from __future__ import annotations

from collections.abc import Iterator

from cake.ir import surface as s
from cake.verify.repairs.finding import Finding, cures
from cake.verify.repairs.text import Repair, Statement, Text, names


@cures("P109", "P110", "P101", "P103", "P107", "D202", "D208", "D212", "D213")
def held(text: Text, found: Finding) -> Iterator[Repair]:
    """Another number of stages given back, at another place."""
    for pipeline in found.pipelines(text):
        releases = found.near(t for t in text.statements if t.is_method(pipeline.name, "release"))
        for release in releases:
            if release.index and text.of(release, release.index - 1).node == release.node:
                yield text.drop(release, f"release the stage of `{pipeline.name}` once")
        if found.code in ("D202", "D212"):
            for release in releases:
                yield from _later(text, release)
        for release in releases:
            yield from _kept(text, release)
        if found.code == "P109":
            for release in releases:
                yield text.drop(release, f"release the stage of `{pipeline.name}` once")
        if found.code in ("P109", "P110", "P101"):
            yield from _missing(text, found, pipeline.name)


def _keep(there: Statement) -> int:
    """``keep=`` of a release or of a wait for groups."""
    assert there.call is not None
    for word in there.call.kwargs:
        if word.name == "keep" and isinstance(word.value, s.Number):
            return int(word.value.value)
    return 0


def _kept(text: Text, release: Statement) -> Iterator[Repair]:
    """The oldest stages but for one more, or one less."""
    assert release.call is not None
    keep, function = _keep(release), release.function
    for new in (keep - 1, keep + 1):
        if new >= 0:
            words = f"{function}(keep={new})" if new else f"{function}()"
            yield text.put(release.call, words, f"keep {new or 'none'} of the stages, not {keep or 'none'}")


def _later(text: Text, release: Statement) -> Iterator[Repair]:
    """The release behind the wait that ends the reads, or behind the last use."""
    following = [text.of(release, i) for i in range(release.index + 1, min(len(release.block), release.index + 5))]
    for other in following:
        yield text.move(release, other.index + 1, "release the stage after it has been used")


def _missing(text: Text, found: Finding, pipeline: str) -> Iterator[Repair]:
    """A release that nothing makes: behind the last use of each stage, or after the loop that keeps some."""
    message = f"release the stage of `{pipeline}` after its last use"
    waits = [t for t in text.statements if t.is_method(pipeline, "wait")]
    released = {t.block for t in text.statements if t.is_method(pipeline, "release")}
    for wait in sorted(waits, key=lambda t: t.block in released):
        handle = wait.node.targets[0] if isinstance(wait.node, s.Assign) else ""
        last = _last_use(text, wait, handle)
        behind = text.of(last, last.index + 1) if last.index + 1 < len(last.block) else None
        words = f"{pipeline}.release()"
        if behind is not None and behind.function == "wgmma.wait":
            if _keep(behind):
                yield text.after(behind, f"{pipeline}.release(keep={_keep(behind)})", message)
            yield text.after(behind, words, message)
        yield text.after(last, words, message)
        for loop in wait.outward():
            if isinstance(loop.node, s.For):
                for end in (*_waits_behind(text, loop), loop):
                    yield text.after(end, words, f"release what the loop kept of `{pipeline}`")
                break
        if behind is not None and behind.function != "wgmma.wait":
            yield text.after(behind, words, message)
    yield from _behind_groups(text, found, pipeline, message)


def _behind_groups(text: Text, found: Finding, pipeline: str, message: str) -> Iterator[Repair]:
    """Behind waits for groups, as many stages as groups stay."""
    for wait in found.near(t for t in text.statements if t.function == "wgmma.wait"):
        following = text.of(wait, wait.index + 1) if wait.index + 1 < len(wait.block) else None
        if following is None or not following.is_method(pipeline, "release"):
            keep = _keep(wait)
            yield text.after(wait, f"{pipeline}.release(keep={keep})" if keep else f"{pipeline}.release()", message)


def _last_use(text: Text, wait: Statement, handle: str) -> Statement:
    """The last statement that uses a stage, within the loop in which it is waited for."""
    last = wait
    for level in (wait, *wait.outward()):
        if isinstance(level.node, s.For):
            break
        users = [i for i, node in enumerate(level.block) if i > level.index and handle in _reach(wait, handle, node)]
        if users:
            last = text.of(level, users[-1])
    return last


def _waits_behind(text: Text, loop: Statement) -> Iterator[Statement]:
    if loop.index + 1 < len(loop.block):
        following = text.of(loop, loop.index + 1)
        if following.function == "wgmma.wait":
            yield following


def _reach(wait: Statement, handle: str, node: s.Stmt) -> set[str]:
    """The names that a statement mentions, with the stage for those that stand for a part of it."""
    mentioned = names(node)
    views = {
        t for other in wait.block if isinstance(other, s.Assign) and handle in names(other.value) for t in other.targets
    }
    return mentioned | ({handle} if mentioned & views else set())


@cures("P111", "P106", "P110", "P109", "P101", "D208", "T001")
def waited(text: Text, found: Finding) -> Iterator[Repair]:
    """A wait that is made twice, or after what needs it."""
    for wait in found.near(t for t in text.statements if t.is_method("", "wait")):
        earlier = [text.of(wait, i) for i in range(wait.index)]
        if any(t.node == wait.node for t in earlier):
            yield text.drop(wait, "wait for each stage once")


@cures("T001", "T010")
def defined_late(text: Text, found: Finding) -> Iterator[Repair]:
    """A name that is set only after its use."""
    for name in found.words:
        for user in found.statements(text):
            for other in (user, *user.outward()):
                for i in range(other.index + 1, len(other.block)):
                    node = other.block[i]
                    if isinstance(node, s.Assign) and name in node.targets:
                        setter = text.of(other, i)
                        yield text.move(setter, other.index, f"set `{name}` before it is used")
