"""report.html from what a run's folder holds: verdict.json, manifest.json and the history. Judges nothing.

One file, no script, nothing fetched: it opens offline and can be mailed. Every text goes through an element tree, so
that a name with markup in it stays a name.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from testbed.report_page.charts import MOST_POINTS, batch_chart, lanes_chart, loss_chart
from testbed.report_page.story import Story, read_story
from testbed.results import RunResult, saved_result
from testbed.run_folder import RunFolder, RunFolderError
from testbed.run_lines import first_trouble, pairs, summary_lines

_MOST_EVENTS = 500
_LOSS_CAPTION = "Training loss of each committed step. A dashed line: a fault acted while that step was open."
_BATCH_CAPTION = "Samples of each step: the batch drops where a worker is lost, and where an epoch ends on a short one."
_LANES_CAPTION = (
    "Blue: took part in the step. Orange: was dealt samples but left out. Empty: no member."
    " Last lane: steps that took more than one attempt, or were skipped."
)


def write_page(folder: RunFolder) -> Path:
    """Write report.html of a run that has its verdict; returns the path. Raises RunFolderError."""
    result = saved_result(folder)
    story = read_story(folder.history_path, result.document["strategy"] == "shards")
    content = page(result, folder.manifest(), story)
    temporary = folder.report_path.with_name(f".{folder.report_path.name}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, folder.report_path)
    except OSError as error:
        raise RunFolderError(f"cannot write {folder.report_path}: {error.strerror or error}") from error
    return folder.report_path


def page(result: RunResult, manifest: Mapping[str, Any], story: Story) -> bytes:
    """The page as HTML in UTF-8."""
    document = result.document
    root = Element("html", {"lang": "en"})
    head, body = SubElement(root, "head"), SubElement(root, "body")
    SubElement(head, "meta", {"charset": "utf-8"})
    SubElement(head, "meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"})
    SubElement(head, "title").text = f"{document['scenario']}: {document['verdict']}"
    SubElement(head, "style").text = files(__package__).joinpath("style.css").read_text()
    _top(body, result, manifest)
    _pictures(body, story)
    _faults(body, document)
    _invariants(body, document)
    _observations(body, document)
    _events(body, story)
    _again(body, document, manifest)
    markup: bytes = tostring(root, encoding="utf-8", method="html")
    return b"<!DOCTYPE html>\n" + markup + b"\n"


def _top(body: Element, result: RunResult, manifest: Mapping[str, Any]) -> None:
    document = result.document
    SubElement(body, "h1").text = str(document["scenario"])
    described = manifest.get("scenario_document", {}).get("description", "")
    if described:
        SubElement(body, "p").text = str(described)
    line = SubElement(body, "p")
    SubElement(line, "span", {"class": f"verdict {document['verdict']}"}).text = str(document["verdict"])
    rest = f" {document['engine']}, {document['strategy']}, seed {document['seed']}, run {document['run_id']}"
    SubElement(line, "span", {"class": "soft"}).text = rest
    SubElement(body, "pre").text = "\n".join(summary_lines(result))


def _pictures(body: Element, story: Story) -> None:
    if not story.steps:
        SubElement(body, "p").text = "The history names no committed step."
        return
    SubElement(body, "h2").text = "Steps"
    thin = f" Thinned to {MOST_POINTS} points." if len(story.steps) > MOST_POINTS else ""
    pictures = [(loss_chart(story), _LOSS_CAPTION + thin), (lanes_chart(story), _LANES_CAPTION)]
    if any(row.samples is not None for row in story.rows()):
        pictures.insert(1, (batch_chart(story), _BATCH_CAPTION))
    for chart, caption in pictures:
        figure = SubElement(body, "figure")
        figure.append(chart)
        SubElement(figure, "figcaption").text = caption


def _faults(body: Element, document: Mapping[str, Any]) -> None:
    rows = [
        (
            (fault["fault"], ""),
            (fault["kind"], ""),
            (pairs(fault.get("trigger", {})), ""),
            (fault["state"], "unknown" if fault["state"] != "undone" else ""),
            (pairs(fault["witness"]) or str(fault.get("reason", "")), ""),
            (pairs(fault.get("undo", {})), ""),
        )
        for fault in document["faults"]
    ]
    _table(body, "Faults", ("fault", "kind", "trigger", "state", "witness", "undone"), rows)


def _invariants(body: Element, document: Mapping[str, Any]) -> None:
    rows = []
    for name, entry in sorted(document["invariants"].items()):
        verdict = entry["verdict"]
        rows.append(
            (
                (name, ""),
                (verdict, verdict),
                (str(entry["checked"]), ""),
                (first_trouble(entry) or entry["holds_when"], ""),
            )
        )
    _table(body, "Invariants", ("invariant", "verdict", "checked", "holds when, or what broke it first"), rows)


def _observations(body: Element, document: Mapping[str, Any]) -> None:
    rows = [
        (
            (seen["kind"], ""),
            (str(seen["count"]), ""),
            (f"step {seen['first_step']}, {seen['role']}: {seen['what']}", ""),
        )
        for seen in document["observations"]
    ]
    _table(body, "Observed, and no violation", ("what", "times", "first"), rows)


def _events(body: Element, story: Story) -> None:
    rows = [
        (
            (f"{event.at_ms / 1000:.3f}", ""),
            (str(event.after_step), ""),
            (event.what, "violated" if event.faulty else ""),
        )
        for event in story.events[:_MOST_EVENTS]
    ]
    _table(body, "What happened", ("at, s", "after step", "event"), rows)
    if len(story.events) > _MOST_EVENTS:
        SubElement(body, "p", {"class": "soft"}).text = f"{len(story.events) - _MOST_EVENTS} more are in history.jsonl."


def _again(body: Element, document: Mapping[str, Any], manifest: Mapping[str, Any]) -> None:
    SubElement(body, "h2").text = "Again"
    commands = (str(document["replay"]), f"gradstorm verify {document['run_dir']}")
    SubElement(body, "pre").text = "\n".join(commands)
    versions = {**manifest.get("versions", {}), "commit": manifest.get("commit") or "unknown"}
    SubElement(body, "p", {"class": "soft"}).text = f"started {manifest.get('started_at', '?')}; {pairs(versions)}"


def _table(
    body: Element, title: str, heads: Sequence[str], rows: Iterable[Sequence[tuple[str, str]]]
) -> None:  # each cell: its text and its class
    rows = list(rows)
    if not rows:
        return
    SubElement(body, "h2").text = title
    table = SubElement(body, "table")
    first = SubElement(table, "tr")
    for head in heads:
        SubElement(first, "th").text = head
    for row in rows:
        line = SubElement(table, "tr")
        for words, style in row:
            SubElement(line, "td", {"class": style} if style else {}).text = words
