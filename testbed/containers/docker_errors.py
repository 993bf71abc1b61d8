"""What can go wrong between us and Docker, as `EngineError`s that say which daemon, what was asked, and what to do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import requests
from docker import errors

from testbed.engines.base import EngineError


class DockerError(EngineError):
    """Base of all of them."""


class DockerUnavailable(DockerError):
    """No daemon answers: none runs, it has stopped, or we may not talk to it."""


class DockerHung(DockerError):
    """The daemon took the request and did not answer in time. Whether it was carried out is unknown."""


class NotThere(DockerError):
    """No such container or network."""


class NotRunning(DockerError):
    """The container is there but its process is not: a kill or a pause of it does nothing."""


class NameTaken(DockerError):
    """Something else has this name."""


class ImageMissing(DockerError):
    """The image is neither here nor can it be pulled."""


class DockerRefused(DockerError):
    """The daemon said no for another reason (a port that is taken, a limit, a network still in use, …)."""


@contextmanager
def translated(what: str, target: str) -> Iterator[None]:
    """Turn whatever the SDK raises into one of ours. `what` was asked of the daemon at `target`."""
    try:
        yield
    except errors.ImageNotFound as error:
        raise ImageMissing(f"{what}: {error.explanation or error}") from error
    except errors.NotFound as error:
        raise NotThere(f"{what}: {error.explanation or error}") from error
    except errors.APIError as error:
        raise _refusal(what, str(error.explanation or error)) from error
    except requests.Timeout as error:
        raise DockerHung(f"{what}: the Docker daemon at {target} did not answer in time") from error
    except (requests.ConnectionError, errors.DockerException) as error:
        if "Read timed out" in str(error):
            raise DockerHung(f"{what}: the Docker daemon at {target} did not answer in time") from error
        raise DockerUnavailable(f"{what}: no Docker daemon answers at {target} ({root_cause(error)})") from error


def _refusal(what: str, explanation: str) -> DockerError:
    text = explanation.lower()
    if "is not running" in text or "is not paused" in text:
        return NotRunning(f"{what}: {explanation}")
    if "already in use by container" in text or "already exists" in text:
        return NameTaken(f"{what}: {explanation}")
    return DockerRefused(f"{what}: {explanation}")


def root_cause(error: BaseException) -> str:
    """What it came from, in the system's words."""
    cause = error
    while (deeper := cause.__cause__ or cause.__context__) is not None:
        cause = deeper
    return str(cause) or type(cause).__name__
