"""How a run's document reads on a terminal: a pass in a few lines, a failure with everything needed to look into it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from services.invariants.base import UNKNOWN, VIOLATED
from testbed.exit_codes import ExitCode
from testbed.results import RunResult
from testbed.run_state import loss_text


def summary_lines(result: RunResult) -> list[str]:
    """The numbers, and of a run that did not pass why; no invariant, fault or observation by itself."""
    failure = [] if result.passed else ["", *_failure(result.document)]
    return [*_head(result.document), *failure, "", _summary(result)]


def report_lines(result: RunResult) -> list[str]:
    """The whole report, the sentence of summary last."""
    document = result.document
    lines = [*_head(document), *_invariants(document), *_faults(document), *_observations(document)]
    if not result.passed:
        lines += ["", *_failure(document)]
    return [*lines, "", _summary(result)]


def _head(document: Mapping[str, Any]) -> list[str]:
    samples = document["samples"]
    lines = [
        f"{document['scenario']} on {document['engine']}, {document['strategy']}, seed {document['seed']}",
        f"  steps       {document['steps_committed']} committed, {document['steps_checked']} checked",
        *([f"  samples     {_words(samples)}"] if samples else []),
        *([f"  batch       {document['batch_note']}"] if document.get("batch_note") else []),
        f"  membership  {document['kills']} kills, generation {document['generations']}",
        *_boundaries(document),
    ]
    if document["worst_gradient_error"] is not None:
        keys = ("worst_gradient_error", "noise_floor", "tolerance", "smallest_detectable_bug")
        error, floor, tolerance, smallest = (_number(document[key]) for key in keys)
        lines.append(
            f"  gradient    worst error {error}, noise floor {floor}, tolerance {tolerance},"
            f" smallest detectable bug {smallest}"
        )
    if document["params_sha256"]:
        lines.append(f"  parameters  sha256 {document['params_sha256']} after step {document['final_step']}")
        lines.append(_final(document))
    return lines


def _final(document: Mapping[str, Any]) -> str:
    if "final_eval_loss" in document:
        loss = document["final_eval_loss"]
        told = "loss not finite" if loss is None else f"loss {loss!r}"
        return f"  evaluation  {told} after step {document['final_step']}"
    loss = loss_text(document["final_loss"], 6, "not finite")
    return f"  held out    loss {loss}, accuracy {document['final_accuracy']:.4f}"


def _boundaries(document: Mapping[str, Any]) -> list[str]:
    """Of layer-sharded training."""
    if not document.get("boundaries"):
        return []
    ages = ", ".join(f"{count} of age {age}" for age, count in document["ages"].items())
    size = f"{document['payload_bytes']} bytes each (dense {document['dense_bytes']})"
    lines = [
        f"  boundaries  {document['boundaries']} used: {ages}{_how_aged(document)}",
        f"  payload     {size}, {document['payload_bytes_total']} in all",
    ]
    if document["density"] is not None:
        lines.append(
            f"  codec       density {document['density']:.4f}, ratio {document['ratio']:.3f},"
            f" error rms {_number(document['rms_error'])}, max {_number(document['max_error'])}"
        )
    return lines


def _how_aged(document: Mapping[str, Any]) -> str:
    """Nobody but who used it can know a measured age: proved is that it is the whole ticks of the time told."""
    return " (measured, not drawn from the seed)" if document.get("ages_are") == "measured" else ""


def _invariants(document: Mapping[str, Any]) -> list[str]:
    found = document["invariants"]
    return [
        f"  {_mark(entry['verdict'])} {name:24} {entry['verdict']:9} checked {entry.get('checked', 0)} times"
        for name, entry in sorted(found.items())
    ]


def _faults(document: Mapping[str, Any]) -> list[str]:
    return [f"  fault       {_fault(fault)}" for fault in document["faults"]]


def _observations(document: Mapping[str, Any]) -> list[str]:
    return [
        f"  observed    {seen['kind']}, {seen['count']} times, first at step {seen['first_step']} ({seen['role']}):"
        f" {seen['what']}"
        for seen in document["observations"]
    ]


def _failure(document: Mapping[str, Any]) -> list[str]:
    """Invariant, first bad step and role, active faults, the run's folder, the replay command."""
    lines = [f"because: {reason}" for reason in document["reasons"]]
    for name, entry in sorted(document["invariants"].items()):
        if entry["verdict"] == VIOLATED:
            lines += [f"VIOLATED: {name}: {first_trouble(entry)}", *_active(document, entry)]
        elif entry["verdict"] == UNKNOWN and document["verdict"] == VIOLATED:
            lines.append(f"UNKNOWN: {name}: {first_trouble(entry)}")  # else it stands among the reasons
    if document["stop_condition"] not in ("", "finished"):
        lines.append(f"STOPPED: {document['stop_condition']} {document['stop_reason']}".rstrip())
    if document["aborted"]:
        lines.append(f"GIVEN UP: {document['aborted']}")
    lines += [f"UNEXPECTED EXIT: {one['role']}: {one['exit_code']}" for one in document["exits"] if not one["expected"]]
    return [*lines, f"run folder: {document['run_dir']}", f"replay:     {document['replay']}"]


def first_trouble(entry: Mapping[str, Any]) -> str:
    """What first broke an invariant, else why it is not known to hold; empty when it holds."""
    first = entry.get("first_violation")
    if first:
        return f"step {first['step']}, {first['role']}: {first['what']}"
    return "; ".join(entry.get("reasons", []))


def _active(document: Mapping[str, Any], entry: Mapping[str, Any]) -> list[str]:
    """The faults in force at the history line that shows the violation."""
    first = entry.get("first_violation")
    if not first or not first["seq"]:
        return []
    active = [
        fault["fault"]
        for fault in document["faults"]
        if fault.get("acted_seq", first["seq"]) < first["seq"] <= fault.get("undone_seq", first["seq"])
    ]
    return [f"  active faults then: {', '.join(active) or 'none'}; history line {first['seq']}"]


def _summary(result: RunResult) -> str:
    """One sentence, and what to open."""
    document = result.document
    steps = f"{document['steps_checked']} of {document['steps_committed']} steps"
    opening = f"open {result.folder}/report.html"
    match result.exit_code:
        case ExitCode.PASS:
            return f"PASS: {steps} proved, every invariant holds; {opening}."
        case ExitCode.VIOLATED:
            return f"VIOLATED: {', '.join(_which(document, VIOLATED))}; {opening}."
        case ExitCode.STOPPED:
            return (
                f"STOPPED by {document['stop_condition']}, verdict {document['verdict']}, {steps} checked; {opening}."
            )
        case _:
            which = _which(document, UNKNOWN)
            what = f"it is not known whether {' and '.join(which)} held" if which else "the evidence does not suffice"
            return f"UNKNOWN: {what}, {steps} checked; {opening}."


def _which(document: Mapping[str, Any], verdict: str) -> list[str]:
    return sorted(name for name, entry in document["invariants"].items() if entry["verdict"] == verdict)


def _mark(verdict: str) -> str:
    return {"pass": "ok ", "violated": "BAD", "unknown": "?  "}.get(verdict, "?  ")


def _fault(fault: Mapping[str, Any]) -> str:
    parts = [f"{fault['fault']} {fault['state']}"]
    if fault["witness"]:
        parts.append(f"witness: {pairs(fault['witness'])}")
    if fault.get("undo"):
        parts.append(f"undone: {pairs(fault['undo'])}")
    if fault.get("reason"):
        parts.append(str(fault["reason"]))
    return "; ".join(parts)


def pairs(values: Mapping[str, Any]) -> str:
    """A witness or the like in one line."""
    return ", ".join(f"{key} {value}" for key, value in values.items() if value != "")


def _words(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{value} {key}" for key, value in values.items())


def _number(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
