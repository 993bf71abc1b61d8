"""Whether an image was built from the source that runs here: else its roles would run other code than their driver.

`scripts/docker-images` writes a hash over everything that goes into the image as a label on it; this is the same hash.
Where there is no checkout (Gradstorm was installed as a package) nothing can be said.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

from testbed.containers.docker_adapter import Docker
from testbed.containers.docker_errors import ImageMissing

SOURCE_LABEL = "gradstorm.source"
_ROOT = Path(__file__).resolve().parents[2]


def why_stale(docker: Docker, image: str, base: str, root: Path = _ROOT) -> str:
    """Why the image is not that of this source; empty when it is, or when it cannot be told. Raises ImageMissing."""
    label = docker.image_labels(image).get(SOURCE_LABEL, "")
    if not (root / ".dockerignore").is_file():
        return ""
    try:
        expected = source_hash(docker.image_id(base), root)
    except ImageMissing:
        return ""
    if label == expected:
        return ""
    return f"image {image} was not built from this source; `make image` builds it anew"


def source_hash(base_id: str, root: Path = _ROOT) -> str:
    """As `scripts/docker-images source-hash` prints it."""
    whole = hashlib.sha256(f"{base_id}\n".encode())
    for name in sorted(set(_files(root)), key=lambda name: name.encode()):
        whole.update(f"{hashlib.sha256((root / name).read_bytes()).hexdigest()}  {name}\n".encode())
    return whole.hexdigest()


def _files(root: Path) -> Iterator[str]:
    """What .dockerignore lets through, and the Dockerfile."""
    lines = (root / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for top in [*(line[1:] for line in lines if line.startswith("!")), "Dockerfile"]:
        path = root / top
        found = path.rglob("*") if path.is_dir() else [path]
        yield from (str(one.relative_to(root)) for one in found if one.is_file() and "__pycache__" not in one.parts)
