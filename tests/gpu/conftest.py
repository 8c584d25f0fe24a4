"""GPU tests are skipped where there is no device; artifacts are built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from cake.codegen.build import build, write
from cake.diagnostics import CakeError
from cake.runtime import driver as driver_module
from tests.gpu import kernels


def _no_device() -> str | None:
    try:
        driver = driver_module.driver()
        capability = driver.attribute(0, "major"), driver.attribute(0, "minor")
    except CakeError as e:
        return e.diagnostics[0].message
    return None if capability == (9, 0) else f"device 0 is sm_{capability[0]}{capability[1]}, not sm_90"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [i for i in items if Path(str(i.path)).parent == Path(__file__).parent]
    reason = _no_device() if here else None
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if reason:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def scale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a built `scale`."""
    return write(build(kernels.scale(), source=kernels.SCALE_SOURCE), tmp_path_factory.mktemp("scale"))


@pytest.fixture(scope="session", params=[0, 128])
def tile(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a built `tile`, unswizzled and swizzled."""
    artifact = build(kernels.tile(request.param), source=kernels.tile_source(request.param))
    return write(artifact, tmp_path_factory.mktemp("tile"))
