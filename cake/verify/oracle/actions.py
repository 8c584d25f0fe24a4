"""What a thread does at each step, and how an operation finishes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cake.verify.oracle.barriers import Mbarrier, Named
from cake.verify.oracle.memory import Seen
from cake.verify.oracle.run import Flight
from cake.verify.oracle.views import K, V, View
from cake.verify.search.steps import ELECTED, Step, Touch

if TYPE_CHECKING:
    from cake.verify.oracle.run import Run, Thread

ATOMIC = "a"


def advance(run: Run, t: Thread) -> bool:
    """``t`` tries its next step."""
    step = t.step
    assert step is not None
    if not _act(run, t, step):
        return False
    t.at += 1
    t.came, t.free = None, False
    return True


def _act(run: Run, t: Thread, step: Step) -> bool:
    match step.kind:
        case "wait":
            return _wait(run, t, step)
        case "arrive":
            _arrive(run, t, step)
        case "access":
            return _access(run, t, step)
        case "issue":
            return _issue(run, t, step)
        case "named":
            return _named(run, t, step)
        case "cluster":
            return _cluster(run, t, step)
        case "syncwarp":
            if step.executor == "lanes" and not step.alone:
                return _meet(run, t, step, run.peers[id(t.agent.instance), t.agent.warps], full=True)
        case "commit":
            t.groups[step.queue].append(t.open[step.queue])
            t.open[step.queue] = []
        case "gwait":
            return _gwait(t, step)
        case "fence":
            if step.what.startswith("async"):
                run.fence(t, shared=step.what == "async_shared")
            elif step.what == "mbarrier_init":
                run.publish(t)
        case "init":
            for slot in step.barriers:
                if slot in run.bars:
                    raise Seen("lifetime", f"{step.text()} is initialised twice")
                count = run.launch.counts[slot[1]][0]
                run.bars[slot] = Mbarrier(count, t, run.memory.reader(), pending=count)
                t.view.reads |= 1 << run.bars[slot].made
        case "setmaxnreg":
            return _registers(run, t, step)
        case "signal" | "wait_until":
            return _flag(run, t, step)
    return True


def _name(t: Thread, step: Step) -> str:
    return f"{t.agent.name} {step.text()}"


# ---- barriers -------------------------------------------------------------------------------------------------------


def _wait(run: Run, t: Thread, step: Step) -> bool:
    bar = run.bar(step.barriers[0], step)
    bar.require(t, step.barriers[0][0], _name(t, step))
    if not bar.passed(step.phase):
        return False
    if step.meant is not None and bar.phase - 1 != step.meant:
        run.lapses.append(f"{_name(t, step)} meant phase {step.meant} and found {bar.phase - 1}")
    if bar.phase:
        bar.deliver(t, step.sem, step.scope)
    return True


def _arrive(run: Run, t: Thread, step: Step) -> None:
    threads = t.agent.threads(step)
    for slot in step.barriers:
        if not run.living[slot[0]]:
            raise Seen("leak", f"{_name(t, step)} arrives at a CTA that has ended")
        bar = run.bar(slot, step)
        bar.require(t, slot[0], _name(t, step))
        if step.form != "arrive":
            bar.contribute(0, step.bytes * threads, _name(t, step))
        if step.form == "expect":
            continue
        relaxed = step.sem == "relaxed" or (slot[0] != t.agent.cta and step.scope == "cta")
        view = t.view.permission(t.mine) if relaxed else t.view
        left = threads
        while (
            left
        ):  # each thread arrives for itself: where a phase completes in between, the others are in the next one
            some = max(1, min(left, bar.pending // step.weight))
            bar.tell((t.agent.cta, step.sem, step.scope), view)
            bar.contribute(some * step.weight, 0, _name(t, step))
            left -= some


def _named(run: Run, t: Thread, step: Step) -> bool:
    """barrier.cta: the count goes up by the warp size, whoever of the warp executes it; with all lanes they go together."""
    if t.free:
        return True
    if t.came is not None:
        return False
    me = t.agent
    barrier = run.named.setdefault((me.cta, step.ident), Named())
    team = [t]
    if step.executor == "lanes" and not step.alone:
        team = run.peers[id(me.instance), me.warps]
        here = run.joins.setdefault((id(step), id(team)), [])
        here.append(t)
        t.came = here
        if len(here) < len(team):
            return False
        del run.joins[id(step), id(team)]
    threads = 32 * (1 if step.executor == "one" or step.alone else len(me.warps))
    going = barrier.come(team, threads, step.count, _name(t, step), blocks=step.form == "sync")
    for other in going:
        other.free = other is not t
    t.came = barrier
    return t in going


def _cluster(run: Run, t: Thread, step: Step) -> bool:
    meeting = run.clusters[t.agent.cluster]
    waits = t in meeting.came or t in meeting.free
    if step.form == "wait" or (step.form == "sync" and waits):
        if not waits:
            raise Seen("cluster", f"{_name(t, step)} waits without having arrived")
        if t not in meeting.free:
            return False
        meeting.go(t, step.sem)
        return True
    if waits:
        raise Seen("cluster", f"{_name(t, step)} arrives twice")
    meeting.arrive(t, step.sem)
    run.cluster_check(t.agent.cluster)
    if step.form == "sync" and t in meeting.free:
        meeting.go(t, step.sem)
        return True
    return step.form == "arrive"


def _meet(run: Run, t: Thread, step: Step, members: list[Thread], *, full: bool) -> bool:
    """A collective: all members come; then views join (syncwarp), or only order in time (other instructions)."""
    if t.free:
        return True
    key = id(step), id(members)
    here = run.joins.setdefault(key, [])
    if t not in here:
        here.append(t)
    if len(here) < len(members):
        return False
    del run.joins[key]
    if len(members) > 1:
        both = View.fresh(t.view.bounds.shape[1])
        for m in members:
            both.join(m.view)
        for m in members:
            if full:
                m.view.join(both)
            else:
                m.view.join_control(both)
            m.free = m is not t
    return True


def _registers(run: Run, t: Thread, step: Step) -> bool:
    if t.registers is None or t.agent.half not in ELECTED:
        return True
    change = 32 * len(t.agent.warps) * (step.count - t.registers)
    if run.pool[t.agent.cta] < change:
        return False
    run.pool[t.agent.cta] -= change
    t.registers = step.count
    return True


def _flag(run: Run, t: Thread, step: Step) -> bool:
    assert step.flag is not None
    if step.kind == "signal":
        run.flags[step.flag] = step.value
        run.messages[step.flag] = t.view.copy()
        return True
    if run.flags.get(step.flag, 0) != step.value:
        return False
    message = run.messages.get(step.flag)
    if message is not None:
        plain = message.copy()
        plain.bounds[1:3] = 0  # what was published to the async proxy needs a fence on this side too
        plain.fenced = 0
        t.view.join(plain)
        if t.held is None:
            t.held = message.copy()
        else:
            t.held.join(message)
    return True


# ---- memory ---------------------------------------------------------------------------------------------------------


def _atoms(run: Run, t: Thread) -> list[tuple[Touch, list[int]]]:
    return [(touch, run.lists[region]) for touch, region in t.agent.touched[t.at]]


def _access(run: Run, t: Thread, step: Step) -> bool:
    if step.width and step.executor == "lanes" and not step.alone:
        members = run.peers[id(t.agent.instance), t.agent.warps]
        if len(members) > 1 and not t.free and not _meet(run, t, step, members, full=False):
            return False
    text = _name(t, step)
    memory = run.memory
    for touch, atoms in _atoms(run, t):
        if touch.mode == "r":
            number = memory.reader()
            memory.read(atoms, touch.tag, t.view, text, number)
            t.mine |= 1 << number
        else:
            memory.check_write(atoms, t.view, text, atomic=touch.mode == ATOMIC)
            versions = memory.write(atoms, touch.tag, text, asynchronous=False, atomic=touch.mode == ATOMIC)
            run.wrote(t, atoms, versions)
    return True


def _issue(run: Run, t: Thread, step: Step) -> bool:
    if step.width == 4:
        members = run.teams[id(t.agent.instance)]
        if t.free:
            return True
        if not _meet(run, t, step, members, full=False):
            return False
    else:
        members = [t]
    flight = Flight(step, members, t.view.copy(), t.mine, priority=run.rnd.random())
    text = _name(t, step)
    for touch, atoms in _atoms(run, t):
        _touch(run, t, flight, touch, atoms, text)
    if step.triggered:
        flight.weight = t.agent.threads(step)
        flight.after = [f for f in run.flights if f.issuers == [t] and not f.asynchronous]
    if step.width == 4:
        last = run.last_wgmma.get(id(t.agent.instance))
        flight.after = [last] if last is not None and not last.done else []
        run.last_wgmma[id(t.agent.instance)] = flight
    for m in members:
        if not step.barriers:
            m.open[step.queue or "bulk"].append(flight)
    run.flights.append(flight)
    run.all_flights.append(flight)
    return True


def _touch(run: Run, t: Thread, flight: Flight, touch: Touch, atoms: list[int], text: str) -> None:
    memory = run.memory
    flight.asynchronous = touch.asynchronous
    if touch.space == "shared":
        flight.targets.setdefault(touch.cta, []).extend(atoms)
    if touch.mode == "r":
        if flight.reader is None:
            flight.reader = memory.reader()
        memory.async_read(atoms, touch.tag, [m.view for m in flight.issuers], text, flight.reader)
        flight.reads += atoms
        return
    atomic = touch.mode == ATOMIC
    if touch.asynchronous:
        memory.async_write(atoms, t.view, text, atomic=atomic)
    else:
        memory.check_write(atoms, t.view, text, atomic=False)
        for at in atoms:
            memory.atoms[at].busy = text
    flight.writes += atoms
    flight.tag, flight.atomic = touch.tag, atomic


def land(run: Run, flight: Flight) -> bool:
    """An operation does its next part: reads done, then writes done and what it signals."""
    if any(not f.done for f in flight.after):
        return False
    if not flight.reads_done:
        flight.reads_done = True
        _alive(run, flight, reads=True)
        if flight.writes or flight.step.barriers:
            flight.priority = run.rnd.random()
            return True
    flight.done = True
    run.flights.remove(flight)
    step = flight.step
    name = f"{flight.issuers[0].agent.name} {step.text()}"
    tag = flight.tag
    flight.versions = run.memory.write(
        flight.writes,
        tag,  # type: ignore[arg-type]
        name,
        asynchronous=flight.asynchronous,
        atomic=flight.atomic,
    )
    _alive(run, flight, reads=False)
    if step.barriers:
        _signal(run, flight, name)
    return True


def _alive(run: Run, flight: Flight, *, reads: bool) -> None:
    """Shared memory is read or written while its CTA lives."""
    mine = flight.reads if reads else flight.writes
    for cta, atoms in flight.targets.items():
        if not run.living[cta] and any(a in atoms for a in mine):
            raise Seen("leak", f"{flight.step.text()} touches the memory of a CTA that has ended")


def _signal(run: Run, flight: Flight, name: str) -> None:
    step = flight.step
    view = flight.order.permission(flight.mine)
    if flight.reader is not None:
        view.operations |= 1 << flight.reader
    flights = [flight]
    if step.triggered:  # the thread's earlier copies too (PTX ISA 9.7.13.15.14)
        flights += [f for f in run.all_flights if f.issuers == flight.issuers and not f.asynchronous and f.done]
    for f in flights:
        for at, version in zip(f.writes, f.versions, strict=True):
            view.bounds[V, at] = max(view.bounds[V, at], version)
            view.bounds[K, at] = max(view.bounds[K, at], version)
    for slot in step.barriers:
        bar = run.bar(slot, step)
        bar.tell((slot[0], "tx", "cta"), view)
        bar.contribute(flight.weight, -step.bytes, name)


def _gwait(t: Thread, step: Step) -> bool:
    groups = t.groups[step.queue]
    ended = groups[: max(0, len(groups) - step.keep)]
    for group in ended:
        for flight in group:
            if not (flight.reads_done if step.read else flight.done):
                return False
    for group in ended:
        for flight in group:
            if flight.reader is not None:
                t.view.operations |= 1 << flight.reader
            if not step.read:
                for at, version in zip(flight.writes, flight.versions, strict=True):
                    t.view.bounds[V, at] = max(t.view.bounds[V, at], version)
                    t.view.bounds[K, at] = max(t.view.bounds[K, at], version)
                    if not flight.asynchronous:
                        t.dirty[at] = version
        group[:] = [f for f in group if step.read and f.writes]
    return True
