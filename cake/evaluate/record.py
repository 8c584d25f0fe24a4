"""Results as JSON, with what they must be read with."""

from __future__ import annotations

import json
import math
import platform
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

import cake
from cake.evaluate.clocks import bus_id


def environment(torch: Any, device: int = 0) -> dict[str, Any]:
    """Device, driver, versions, command, and the commit of the directory that the command runs in (None where it has none)."""
    out: dict[str, Any] = {
        "command": [Path(sys.executable).name, *sys.argv],
        "cake": cake.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name(device),
        "sms": torch.cuda.get_device_properties(device).multi_processor_count,
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }
    which = bus_id(device) or str(device)
    query = "--query-gpu=driver_version,power.limit,clocks.max.sm"
    for key, command in {
        "driver": ["nvidia-smi", f"--id={which}", query, "--format=csv,noheader"],
        "commit": ["git", "rev-parse", "--verify", "HEAD"],
    }.items():
        out[key] = None
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
            if done.returncode == 0:
                out[key] = done.stdout.strip().splitlines()[0]
        except (OSError, subprocess.TimeoutExpired, IndexError):
            continue
    return out


def plain(value: Any) -> Any:
    """A value that JSON has: dataclasses become objects, tuples lists, infinities and NaN strings."""
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def write_json(path: Path, value: Any) -> None:
    """Write a result. OSError where that cannot be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain(value), indent=1, allow_nan=False) + "\n", encoding="utf-8")
