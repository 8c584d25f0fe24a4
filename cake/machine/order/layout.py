"""Which column of the clocks stands for what: warp agents first, then the barriers of each CTA and the cluster
barriers.

Completions of a barrier's phases are events of a pseudo-agent: knowing phase p means a number of p + 2 (phase -1, the
published initialisation, is 1).
"""

from __future__ import annotations

from cake.machine import events as ev

NAMED_IDS = 16


class Columns:
    """Column numbers for one batch."""

    def __init__(self, setup: ev.Setup) -> None:
        self.agents = setup.agents
        ctas = sorted({a.cta for a in setup.agents})
        clusters = sorted({a.cluster for a in setup.agents})
        self.offset = min((a.index for a in setup.agents), default=0)
        at = len(setup.agents)
        self.barriers: dict[ev.BarrierKey, int] = {}
        self.named: dict[ev.NamedKey, int] = {}
        self.clusters: dict[int, int] = {}
        for cta in ctas:
            for barrier in setup.kernel.barriers:
                for slot in range(barrier.slots):
                    self.barriers[cta, barrier.name, slot] = at
                    at += 1
            for number in range(NAMED_IDS):
                self.named[cta, number] = at
                at += 1
        for cluster in clusters:
            self.clusters[cluster] = at
            at += 1
        self.count = at
        self.of_cta = {cta: [self.agent(a) for a in setup.agents if a.cta == cta] for cta in ctas}

    def agent(self, agent: ev.Agent) -> int:
        """The column of a warp agent."""
        return agent.index - self.offset


def name(key: ev.BarrierKey, slots: int) -> str:
    """``full[2]`` (``full`` where there is one slot)."""
    return f"{key[1]}[{key[2]}]" if slots > 1 else key[1]
