"""What is known about a kernel on one device: its context, its loaded code, and the numbers its grid depends on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from cake.codegen.build import Artifact
from cake.runtime import errors
from cake.runtime.driver import PORTABLE_CLUSTER, Driver
from cake.runtime.maps import MapCache

DEFAULT_DYNAMIC_SHARED = 48 * 1024
_TARGET = re.compile(r"sm_(\d+)(\d)([af]?)$")


@dataclass(frozen=True)
class DeviceState:
    """A kernel loaded on a device. ``resident`` is the number of its CTAs that fit an SM together, ``clusters`` that of
    its clusters (CTAs where it has none) that fit the device."""

    ordinal: int
    context: int
    function: int
    sms: int
    resident: int
    clusters: int
    maps: MapCache


@contextmanager
def entered(driver: Driver, context: int) -> Iterator[None]:
    """Run with ``context`` current on this thread."""
    if driver.current_context() == context:
        yield
        return
    driver.push(context)
    try:
        yield
    finally:
        driver.pop()


def runs_on(target: str, capability: tuple[int, int]) -> bool:
    """Whether code for ``target`` runs on a device: same major and no newer minor; ``a`` needs the very same
    capability."""
    m = _TARGET.match(target)
    if m is None:
        return False
    major, minor = int(m[1]), int(m[2])
    if m[3] == "a":
        return (major, minor) == capability
    return major == capability[0] and minor <= capability[1]


def prepare(driver: Driver, artifact: Artifact, ordinal: int) -> DeviceState:
    """Load the artifact on a device. CakeError R014 if its target is another, R015 if it does not fit."""
    kernel = artifact.kernel
    capability = driver.attribute(ordinal, "major"), driver.attribute(ordinal, "minor")
    if not runs_on(kernel.target, capability):
        raise errors.error(
            errors.TARGET,
            f"{kernel.name} was built for {kernel.target}, but device {ordinal} is sm_{capability[0]}{capability[1]}.",
            "build it for this device, or pass tensors of another",
            driver.device_name(ordinal),
            span=kernel.span,
        )
    shared = kernel.shared_bytes
    room = driver.attribute(ordinal, "shared_block") - artifact.report.static_shared_bytes
    if shared > room:
        raise errors.error(
            errors.RESOURCES,
            f"{kernel.name} needs {shared} bytes of shared memory a CTA; device {ordinal} has {room}.",
            "use fewer stages or smaller tiles",
            span=kernel.span,
        )
    context = driver.primary_context(ordinal)
    with entered(driver, context):
        function = driver.function(driver.load(artifact.cubin), artifact.entry)
        if shared > DEFAULT_DYNAMIC_SHARED:
            driver.set_attribute(function, "dynamic_shared", shared)
        if kernel.cluster > PORTABLE_CLUSTER:
            driver.set_attribute(function, "large_cluster", 1)
        resident = driver.resident(function, kernel.threads, shared)
        sms = driver.attribute(ordinal, "sms")
        clusters = sms * resident
        if kernel.cluster > 1 and resident:
            clusters = driver.clusters(function, kernel.threads, shared, kernel.cluster)
    if clusters < 1:
        raise errors.error(
            errors.RESOURCES,
            f"No {'CTA' if resident < 1 else f'cluster of {kernel.cluster} CTAs'} of {kernel.name} fits "
            f"{'an SM of ' if resident < 1 else ''}device {ordinal}.",
            "use fewer registers, threads or stages",
            artifact.report.render(),
            span=kernel.span,
        )
    return DeviceState(
        ordinal=ordinal,
        context=context,
        function=function,
        sms=sms,
        resident=resident,
        clusters=clusters,
        maps=MapCache(driver),
    )
