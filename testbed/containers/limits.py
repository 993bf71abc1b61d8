"""How much of the machine each role's container may take: from the environment, no limit where nothing is said.

GRADSTORM_ROLE_MEMORY=512m    a role that needs more is killed by the kernel, and the run says so
GRADSTORM_ROLE_CPUS=0.5       cores
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from docker.errors import DockerException
from docker.utils import parse_bytes

from training.errors import ConfigurationError

MEMORY_VARIABLE, CPUS_VARIABLE = "GRADSTORM_ROLE_MEMORY", "GRADSTORM_ROLE_CPUS"
_MEMORY_MIN_BYTES = 6 << 20  # Docker takes no less


@dataclass(frozen=True, slots=True)
class Limits:
    """0: none."""

    memory_bytes: int = 0
    cpus: float = 0.0


def read_limits(environment: Mapping[str, str]) -> Limits:
    """Raises ConfigurationError for what is no amount."""
    return Limits(_memory(environment.get(MEMORY_VARIABLE, "")), _cpus(environment.get(CPUS_VARIABLE, "")))


def _memory(text: str) -> int:
    if not text:
        return 0
    try:
        found = int(parse_bytes(text))
    except (DockerException, ValueError) as error:
        raise ConfigurationError(f"{MEMORY_VARIABLE}={text} is no amount of memory, such as 512m or 1g") from error
    if found < _MEMORY_MIN_BYTES:
        raise ConfigurationError(f"{MEMORY_VARIABLE}={text} is less than Docker takes (6m)")
    return found


def _cpus(text: str) -> float:
    if not text:
        return 0.0
    try:
        found = float(text)
    except ValueError as error:
        raise ConfigurationError(f"{CPUS_VARIABLE}={text} is no number of cores, such as 0.5") from error
    if not 0 < found < 1024:
        raise ConfigurationError(f"{CPUS_VARIABLE}={text} is no number of cores above 0")
    return found
