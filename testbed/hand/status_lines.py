"""What `status`, `logs` and `down` print of a standing testbed. Pure, but for reading logs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.events import VERIFIER
from testbed.hand.control import Answer, Standing
from testbed.run_state import loss_text
from training.errors import ConfigurationError

_LATE_MS = 20.0  # a link that is slower than this is shown by itself


def status_lines(answer: Answer) -> list[str]:
    """The whole picture."""
    at = f"step {answer['step']}, generation {answer['generation']}"
    lines = [
        f"{answer['run_id']}, up for {answer['up_s']:.0f} s",
        f"  {at}, {answer['members']} members, loss {loss_text(answer['loss'])}",
    ]
    for role, row in answer["roles"].items():
        step = f"step {row['step']}" if row["step"] else ""
        state = "up" if row["state"].startswith("held at") else row["state"]  # the pace, between two steps
        lines.append(f"  {role:12} launch {row['launch']}  {state:10} {step}".rstrip())
    lines += [f"  fault {name}: {state}" for name, state in answer["faults"].items()] or ["  no fault so far"]
    lines += _delays(answer["delays_ms"])
    violated = sorted(name for name, verdict in answer["verdicts"].items() if verdict == "violated")
    lines.append(f"  violated so far: {', '.join(violated) or 'nothing'}")
    if answer["waiting"]:
        lines.append(f"  {answer['waiting']}")
    return lines


def _delays(delays_ms: dict[str, float]) -> list[str]:
    """The links that are slow one by one, the others together. Those with the verifier are never disturbed."""
    shown = {link: delay for link, delay in delays_ms.items() if VERIFIER not in link}
    late = {link: delay for link, delay in shown.items() if delay > _LATE_MS}
    usual = [delay for link, delay in shown.items() if link not in late]
    lines = [f"  link {link}: {delay:g} ms" for link, delay in sorted(late.items())]
    if usual:
        lines.append(f"  {len(usual)} {'other ' if late else ''}links: {min(usual):g} to {max(usual):g} ms")
    return lines


def heal_line(answer: Answer) -> str:
    """What was taken off, and who was started again."""
    if not answer["healed"]:
        return f"not healed in time: {', '.join([*answer['active'], *answer['dead']])}"
    done = [*answer["were_active"], *(f"{role} started again" for role in answer["were_dead"])]
    return f"healed: {', '.join(done) or 'nothing was wrong'}"


def log_lines(folder: Path, role: str, count: int) -> Iterator[str]:
    """The end of each log, with its name before it. Raises ConfigurationError for a role that has none."""
    paths = sorted((folder / "logs").glob("*.log"))
    roles = sorted({path.name.partition(".")[0] for path in paths})
    if role and role not in roles:
        raise ConfigurationError(f"no log of {role!r}; there are those of {', '.join(roles)}")
    for path in paths:
        if role in ("", path.name.partition(".")[0]):
            yield f"== {path.name}"
            yield from path.read_text(encoding="utf-8", errors="replace").splitlines()[-count:]


def down_lines(standing: Standing, document: dict[str, Any]) -> list[str]:
    """What became of it."""
    invariants = document.get("invariants", {})
    violated = sorted(name for name, found in invariants.items() if found.get("verdict") == "violated")
    committed, checked = document.get("steps_committed", 0), document.get("steps_checked", 0)
    said = f"violated: {', '.join(violated)}" if violated else "nothing violated"
    return [f"{standing.run_id} is down: {committed} steps committed, {checked} checked, {said}; see {standing.folder}"]
