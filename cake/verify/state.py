"""The abstract state of a consistent cut: what the future of the machine and of its order reading depends on.

Theorem 3 (docs/verification.md 1.3) lists what must be in it. Here it is taken from the machine and the reading
themselves, and made comparable by two quotients that both commute with everything they do later:

- **Numbers become knowledge.** Clocks hold event numbers of each agent, and are only ever joined (maximum) and compared
  with the number of some remembered access, arrival or wait. So a state is its *structure*, which mentions remembered
  events, and its *knowledge*: for each clock and each mentioned event whether the one knows the other. Asynchronous
  operations are named by the order in which the structure mentions them; those that nothing remembers are dropped.
- **Rings turn.** Slots and phases are counted from a position that moves with the ring's cursors (``rings``).

Knowledge is monotone: joins keep more knowledge, and every condition D1-D10 asks that something *is* known. So a state with
the structure of another and at least its knowledge has no finding in any future that the other has none in (``covers``).

What is left out, and why: sites and the clocks S, X and "seen", which only choose the code of a finding that exists anyway;
values of registers and memory (F-a: nothing depends on them); global memory, which the skeleton does not touch.
The state is refused (None) where the reading has a suspicion that only the future decides.
"""

from __future__ import annotations

import marshal
from collections.abc import Collection, Iterable
from hashlib import blake2b
from typing import Any

import numpy as np

from cake.machine import events as ev
from cake.machine.agents import Runner
from cake.machine.executor import Executor
from cake.machine.instance import Instance
from cake.machine.order.clocks import DONE, PUB, READ, READS, SEEN, C, Clock, R, V
from cake.machine.order.phases import Letter, PhaseLog
from cake.machine.order.reader import Order
from cake.machine.order.shadow import Access, Cell
from cake.verify.gates import Gate
from cake.verify.rings import Rings

ROWS = (C, R, V, 5, 5 + READS)
SETS = (READ, DONE, SEEN, PUB)
FAR = -2
"""Phases that lie further back are all alike: a wait asks whether the phase before the last completed one is known, and
nothing asks about older ones."""


class Cut:
    """A state: what its structure hashes to, and its knowledge as numbers that only grow."""

    __slots__ = ("knowledge", "structure")

    def __init__(self, structure: bytes, knowledge: np.ndarray) -> None:
        self.structure = structure
        self.knowledge = knowledge

    def covers(self, other: Cut) -> bool:
        """Whatever is right from here on is right from ``other`` on."""
        return self.structure == other.structure and bool(np.all(self.knowledge <= other.knowledge))


class State:
    """Builds the state of the cut that ``m`` and ``order`` are at. ``reach``: how many iterations from either end of a
    loop its guards can tell apart; ``moduli``: residues of loop indices that they test."""

    def __init__(
        self,
        m: Executor,
        order: Order,
        rings: Rings,
        reach: int,
        moduli: Iterable[int],
        ahead: Collection[tuple[str, int, str]] = (),
    ) -> None:
        """``ahead``: cursors that say nothing yet (``shifts``)."""
        self.m, self.order, self.rings = m, order, rings
        self.reach, self.moduli = reach, tuple(sorted(moduli))
        self.ahead = ahead
        self.bases = rings.bases(m, ahead)
        self.columns = order.columns
        self.agents = len(order.agents)
        self.items: dict[tuple[int, int], int] = {}
        self.kept: dict[int, list[tuple[str, Access]]] = {}
        self.outlived: dict[tuple[int, int], bool] = {}
        self.ops: dict[int, int] = {}
        self.clocks: list[Clock] = []
        self.extra: list[np.ndarray] = []

    def cut(self) -> Cut | None:
        """The state; None if it cannot be compared with others."""
        order = self.order
        if order.protocol.suspects or order.protocol.mixed or order.protocol.findings:
            return None
        if order.races.pairs or order.races.stale or order.races.unwritten or order.registers.findings:
            return None
        if order.lanes.findings:
            return None
        cells = self._cells()
        self._note_clocks()
        self._note(cells)
        parts: list[Any] = [
            self._control(),
            self._memory(cells),
            [self._log(log) for log in self._logs()],
            self._named(),
            self._registers(),
            self._lanes(),
            self._left(),
        ]
        parts.append(self._partly_set())
        knowledge = np.concatenate((self._clock_rows(), self._clock_sets(), self._set()))
        return Cut(blake2b(marshal.dumps(parts, 2)).digest(), knowledge)

    # -- gathering ----------------------------------------------------------------------------------------------------

    def _cells(self) -> list[tuple[tuple[str, int, int], np.ndarray, list[Cell]]]:
        """Bytes of each buffer's slots, in turned order: the cell of each byte."""
        found = []
        space = next((s for key, s in self.order.memory.spaces.items() if isinstance(key, int)), None)
        if space is None:
            return []
        for buffer in self.m.kernel.buffers:
            group = self.rings.of_buffer.get(buffer.name)
            layout = self.m.layouts[buffer.name]
            for instance in range(buffer.instances):
                base = self.rings.base(self.bases, group, instance)
                for i in range(buffer.slots):
                    slot = (base + i) % buffer.slots if group is not None else i
                    start = layout.start(instance, slot)
                    found.append(
                        ((buffer.name, instance, i), space.owner[start : start + buffer.slot_bytes], space.cells)
                    )
        return found

    def _logs(self) -> list[PhaseLog]:
        """mbarriers in turned order."""
        found = []
        for barrier in self.m.kernel.barriers:
            group = self.rings.of_barrier.get(barrier.name)
            base = self.rings.base(self.bases, group, 0)
            for i in range(barrier.slots):
                slot = (base + i) % barrier.slots if group is not None else i
                found.append(self.order.protocol.logs[0, barrier.name, slot])
        return found

    def _note(self, cells: list[tuple[tuple[str, int, int], np.ndarray, list[Cell]]]) -> None:
        """Which numbers and operations the state mentions."""
        done: set[int] = set()
        for _, owner, known in cells:
            for number in owner[np.concatenate(([True], owner[1:] != owner[:-1]))].tolist():
                if number in done:
                    continue
                done.add(number)
                for access in self._accesses(known[number]):
                    self._item(access.column, access.number)
                    if access.bit is not None:
                        self._op(access.bit)
        protocol = self.order.protocol
        for log in self._logs():
            for source in (*_sorted(log.sources), *(s for p in log.completed[-1:] for s in _sorted(p))):
                self._item(source.column, source.number)
                if source.bit is not None:
                    self._op(source.bit)
            for passes in log.passes.values():
                for p in _sorted(passes):
                    self._item(p.column, p.number)
            if log.init is not None:
                self._item(*log.init)
        for (_, number), members in protocol.last.items():
            if not self._settled(number):
                for column, event, _ in sorted(members, key=_place):
                    self._item(column, event)
        for generation in protocol.generations.values():
            for column, event, _ in sorted(generation.members, key=_place):
                self._item(column, event)
        for uses in self.order.registers.flying.values():
            for use in uses:
                self._op(use.bit)
        for _, access in self._open():
            self._item(access.column, access.number)
        live = [self.order.clocks[self.columns.agent(r.agent)] for r in self.m.runners if not r.done]
        self.touches = []
        for touch in self.order.leaving.touches:
            gone = self.order.leaving.done[touch.cta][touch.part] >> touch.bit & 1
            if not gone and not any(c.bits[touch.part] >> touch.bit & 1 for c in live):
                self.touches.append((self._op(touch.bit), touch.part))

    def _note_clocks(self) -> None:
        """Which clocks the state has, in turned order."""
        protocol = self.order.protocol
        for log in self._logs():
            for letter in (log.letter, log.latest):
                for part in (letter.narrow, letter.wide):
                    self.clocks += [clock for _, clock in sorted(part.items())]
                if letter.bytes is not None:
                    self.clocks.append(letter.bytes)
            self.extra += [s.past for s in _sorted(log.sources)]
        for number in sorted(self.m.clusters[0].ctas[0].named):
            generation = protocol.generations.get((0, number))
            if generation is not None:
                self.clocks.append(generation.message)
        for runner in self.m.runners:
            if not runner.done:
                self.clocks.append(self.order.clocks[self.columns.agent(runner.agent)])

    def _op(self, *bits: int) -> int:
        number = 0
        for bit in sorted(set(bits)):
            number = self.ops.setdefault(bit, len(self.ops))
        return number

    def _item(self, column: int, number: int) -> int:
        """The name of a remembered event of an agent."""
        return self.items.setdefault((column, number), len(self.items))

    def _accesses(self, cell: Cell) -> list[Access]:
        """The accesses that a cell remembers, in an order that does not depend on names of operations."""
        pending = [a for _, accesses in sorted(cell.pending.items()) for a in accesses]
        return [*cell.writes, *(a for _, a in self._reads(cell)), *pending]

    def _reads(self, cell: Cell) -> list[tuple[str, Access]]:
        """Reads that matter, by agent and event. An operation's read does not, beside that of a later operation of the
        same thread, if the thread knows that it has ended, and so does every clock that knows it of the later one:
        whoever comes to know of the later one then knows of both."""
        found = self.kept.get(id(cell))
        if found is not None:
            return found
        reads = sorted(cell.reads.items(), key=lambda item: (item[0][0], item[1].column, item[1].number))
        last: dict[int, int] = {}
        for _, access in reads:
            if access.bit is not None:
                last[access.column] = max(access.bit, last.get(access.column, -1))
        found = []
        for (kind, _), access in reads:
            bit = access.bit
            if (
                bit is not None
                and bit != last[access.column]
                and self._outlived(bit, last[access.column], access.column)
            ):
                continue
            found.append((kind, access))
        self.kept[id(cell)] = found
        return found

    def _outlived(self, bit: int, later: int, column: int) -> bool:
        key = bit, later
        known = self.outlived.get(key)
        if known is None:
            agent = self.order.agents[column]
            mine = [
                self.order.clocks[c]
                for c, a in enumerate(self.order.agents)
                if (a.cta, a.warp) == (agent.cta, agent.warp)
            ]
            known = all(c.bits[READ] >> bit & 1 for c in mine) and not any(
                c.bits[READ] >> later & 1 and not c.bits[READ] >> bit & 1 for c in self.clocks
            )
            self.outlived[key] = known
        return known

    # -- parts --------------------------------------------------------------------------------------------------------

    def _control(self) -> list[Any]:
        """Where every agent is; its queues; cursors against their base."""
        indices = [
            r.step.data[2]
            for r in self.m.runners
            if not r.done and r.step is not None and isinstance(r.step.code, Gate) and not r.step.code.tile
        ]
        low = min(indices, default=0)
        found: list[Any] = []
        for runner in self.m.runners:
            if runner.done or runner.step is None:
                found.append(None)
                continue
            step = runner.step
            place: Any = step.code.path
            if isinstance(step.code, Gate) and not step.code.tile:
                before, after, index = step.data
                residues = tuple(index % m for m in self.moduli)
                place = place, index - low, min(before, self.reach), min(after, self.reach), residues
            found.append((place, self._queues(runner), runner.cluster_arrived))
        seen: set[int] = set()
        for runner in self.m.runners:
            inst = runner.instance
            if runner.done or inst is None or inst.role is None or id(inst) in seen:
                continue
            seen.add(id(inst))
            for name, value in inst.cursors.items():
                if (inst.role.name, name) in self.rings.dead or (inst.role.name, inst.index, name) in self.ahead:
                    continue
                group = self.rings.of_cursor.get((inst.role.name, name))
                base = self.rings.base(self.bases, group, inst.index)
                found.append(value - base if group is not None else value)
        for runner in self.m.runners:
            pool = runner.instance.cta.pool if runner.instance is not None else None
            if pool is not None:
                found.append((pool.free, tuple(pool.held.values())))
                break
        return found

    def _queues(self, runner: Runner) -> tuple[Any, ...]:
        """Groups that a wait may still tell about, newest last; operations that nothing else remembers do not matter, and
        all have completed."""
        found = []
        for kind, queue in sorted(runner.queues.items()):
            start = min(queue.seen, queue.seen_read)
            groups = [[i for f in g for i in self._flight(f)] for g in queue.groups[start:]]
            while groups and not groups[0]:
                groups.pop(0)
            total = len(queue.groups)
            seen = min(total - queue.seen, len(groups)), min(total - queue.seen_read, len(groups))
            found.append((kind, *seen, groups, [i for f in queue.open for i in self._flight(f)], total > 0))
        return tuple(found)

    def _flight(self, flight: Any) -> tuple[int, ...]:
        bits = (bit for op in flight.ops for bit in self.order.ops[op.id][0].values())
        return tuple(self.ops[bit] for bit in bits if bit in self.ops)

    def _memory(self, cells: list[tuple[tuple[str, int, int], np.ndarray, list[Cell]]]) -> list[Any]:
        keys: dict[int, Any] = {}
        found = []
        for (name, instance, slot), owner, known in cells:
            edges = np.concatenate(([0], np.flatnonzero(np.diff(owner)) + 1))
            runs: list[Any] = []
            base = self.rings.base(self.bases, self.rings.of_buffer.get(name), instance)
            for edge, number in zip(edges.tolist(), owner[edges].tolist(), strict=True):
                key = keys.get(number)
                if key is None:
                    key = keys[number] = self._cell(known[number], base)
                if not runs or runs[-1][1] != key:
                    runs.append((edge, key))
            found.append((name, instance, slot, runs))
        return found

    def _cell(self, cell: Cell, base: int) -> tuple[Any, ...]:
        def tell(access: Access) -> tuple[Any, ...]:
            region = access.effect.region
            position = region.position if isinstance(region, ev.SharedRegion) else None
            return (
                access.column,
                self._item(access.column, access.number),
                -1 if access.bit is None else self.ops[access.bit],
                access.effect.mode,
                access.effect.proxy,
                access.lanes,
                access.atomic,
                access.unwritten,
                None if position is None else position - base,
            )

        reads = sorted((kind, tell(a)) for kind, a in self._reads(cell))
        pending = {half: sorted(map(tell, accesses)) for half, accesses in sorted(cell.pending.items())}
        return tuple(map(tell, cell.writes)), tuple(reads), tuple((h, tuple(a)) for h, a in pending.items() if a)

    def _log(self, log: PhaseLog) -> tuple[Any, ...]:
        _, name, slot = log.key
        barrier = self.m.clusters[0].ctas[0].barriers[name][slot]
        group = self.rings.of_barrier.get(name)
        base = self.rings.base(self.bases, group, 0)
        slots = barrier.declared.slots
        position = base + (slot - base) % slots if group is not None else slot
        phase = log.phase

        def place(s: Any) -> tuple[Any, ...]:
            return s.column, self._item(s.column, s.number), -1 if s.bit is None else self.ops[s.bit]

        sources = []
        for s in _sorted(log.sources):
            sources.append((*place(s), s.event.form, s.event.weight, s.event.bytes))
        passes = [
            (max(p - phase, FAR), [(q.column, self._item(q.column, q.number)) for q in _sorted(found)])
            for p, found in sorted(log.passes.items())
        ]
        letters = [self._letter(letter) for letter in (log.letter, log.latest)]
        return (
            barrier.pending,
            barrier.tx,
            barrier.live,
            phase - position // slots,
            sources,
            [[place(s) for s in _sorted(p)] for p in log.completed[-1:]],
            passes,
            letters,
            max(log.last_waited - phase, FAR),
            log.fenced is not None,
        )

    def _letter(self, letter: Letter) -> tuple[Any, ...]:
        found: list[Any] = []
        for part in (letter.narrow, letter.wide):
            found += [*sorted(part), "|"]
        if letter.bytes is not None:
            found.append("bytes")
        return tuple(found)

    def _settled(self, number: int) -> bool:
        """Everybody knows that the last generation of a named barrier is complete."""
        named, place = self.m.clusters[0].ctas[0].named[number], self.columns.named[0, number]
        live = (self.order.clocks[self.columns.agent(r.agent)] for r in self.m.runners if not r.done)
        return all(clock.rows[C][place] >= named.generation for clock in live)

    def _named(self) -> list[Any]:
        protocol = self.order.protocol
        found: list[Any] = []
        for number, named in sorted(self.m.clusters[0].ctas[0].named.items()):
            key = (0, number)
            generation = protocol.generations.get(key)
            members: list[Any] = []
            if generation is not None:
                members = [(c, self._item(c, n), e.form) for c, n, e in sorted(generation.members, key=_place)]
            came = [] if self._settled(number) or key not in protocol.past else protocol.past[key][-1]
            last = sorted((c, self._item(c, n)) for c, n, _ in came)
            synced = max(protocol.synced.get(key, FAR) - named.generation, FAR)
            found.append((number, named.threads, named.count, named.generation > 0, members, last, synced))
        return found

    def _registers(self) -> list[Any]:
        registers = self.order.registers
        found: list[Any] = []
        for home, uses in sorted(registers.flying.items()):
            if uses:
                found.append(
                    (home, [(u.region.lead, u.region.rows, u.region.cols, u.mode, self.ops[u.bit]) for u in uses])
                )
        for (home, column), number in sorted(registers.touched.items()):
            if registers.fenced.get(column, 0) <= number:
                found.append((home, column))
        return found

    def _instances(self) -> list[Instance]:
        """Instances of roles that still have agents."""
        live = {id(r.instance): r.instance for r in self.m.runners if not r.done and r.instance is not None}
        return [i for i in live.values() if i.role is not None]

    def _set(self) -> np.ndarray:
        """Which register tiles have been set: knowledge too, since what sets more only has fewer reads of what nothing set."""
        return np.array([name not in i.unset for i in self._instances() for name in i.tiles], dtype=np.int8)

    def _partly_set(self) -> list[Any]:
        return [
            (number, name, known.tobytes())
            for number, i in enumerate(self._instances())
            for name, known in i.unset.items()
            if known is not None
        ]

    def _open(self) -> list[tuple[tuple[Any, ...], Access]]:
        """What lanes of a warp that lives have touched and not all of them know of, each with its name."""
        found = []
        for runner in self.m.runners:
            column = self.columns.agent(runner.agent)
            mine = {} if runner.done else self.order.lanes.open.get(column, {})
            for key, access in mine.items():
                buffer, instance, slot, name = key.reach
                group = self.rings.of_buffer.get(buffer)
                if group is not None:
                    base = self.rings.base(self.bases, group, instance)
                    slot = (slot - base) % self.m.layouts[buffer].buffer.slots
                found.append(((column, buffer, instance, slot, name, key.mode, key.atomic), access))
        return sorted(found, key=lambda entry: (*entry[0], entry[1].number))

    def _lanes(self) -> list[Any]:
        return [(*name, self._item(a.column, a.number)) for name, a in self._open()]

    def _left(self) -> list[Any]:
        copies = [sorted(self.ops[b] for b in self.ops if mask >> b & 1) for mask in self.order.copies]
        generic = sorted(number for bit, number in self.ops.items() if self.order.generic >> bit & 1)
        return [sorted(self.touches), copies, generic]

    # -- clocks -------------------------------------------------------------------------------------------------------

    def _clock_rows(self) -> np.ndarray:
        """What each clock knows of the mentioned events, of phases (turned) and of generations."""
        count = self.columns.count
        stack = np.zeros((len(self.clocks) * len(ROWS) + len(self.extra), count), dtype=np.int64)
        if self.clocks:
            stack[: len(self.clocks) * len(ROWS)] = np.concatenate([c.rows[ROWS, :] for c in self.clocks])
        for i, past in enumerate(self.extra):
            stack[len(self.clocks) * len(ROWS) + i] = past
        events = np.array(list(self.items), dtype=np.int64).reshape(-1, 2)
        known = (stack[:, events[:, 0]] >= events[:, 1]).astype(np.int8)
        phases = []
        for log in self._logs():
            values = stack[:, log.column]
            for i, clock in enumerate(self.clocks):  # who knows all contributions to a phase may say it is complete
                if log.phase and values[i * len(ROWS)] <= log.phase and _all_known(log, clock):
                    values[i * len(ROWS)] = log.phase + 1
            phases.append(np.where(values == 0, -100, np.maximum(values - 1 - log.phase, FAR)))
        cta = self.m.clusters[0].ctas[0]
        for (_, number), column in self.columns.named.items():
            if number in cta.named:
                phases.append(np.maximum(stack[:, column] - cta.named[number].generation, FAR))
        return np.concatenate((known.ravel(), np.array(phases, dtype=np.int8).ravel()))

    def _clock_sets(self) -> np.ndarray:
        order = sorted(self.ops, key=self.ops.__getitem__)
        low = min(order, default=0)
        size = (max(order, default=0) - low) // 8 + 1
        window = (1 << 8 * size) - 1
        where = np.array(order, dtype=np.int64) - low
        masks = b"".join((c.bits[s] >> low & window).to_bytes(size, "little") for c in self.clocks for s in SETS)
        bits = np.unpackbits(np.frombuffer(masks, dtype=np.uint8).reshape(-1, size), axis=1, bitorder="little")
        found: np.ndarray = bits[:, where].astype(np.int8).ravel()
        return found


def _all_known(log: PhaseLog, clock: Clock) -> bool:
    """The clock knows all contributions to the last phase (as ``PhaseLog.knows``, which would note it down)."""
    row = clock.rows[C]
    return all(row[s.column] >= s.number if s.bit is None else clock.has(s.bit, DONE) for s in log.completed[-1])


def _sorted(things: list[Any]) -> list[Any]:
    """Contributions and waits by agent and event: the order in which they came is the schedule's."""
    return sorted(things, key=lambda s: (s.column, s.number))


def _place(member: tuple[int, int, Any]) -> tuple[int, int]:
    return member[:2]
