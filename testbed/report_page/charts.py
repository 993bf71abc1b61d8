"""The pictures of a run's page, as SVG elements: the loss, the samples and who took part, each by step.

All share one horizontal scale, so that a fault's line stands at the same place in each. Colours come from the page's
style sheet by class name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from xml.etree.ElementTree import Element, SubElement

from testbed.report_page.story import Step, Story

WIDTH, _LEFT, _RIGHT = 960, 84, 16
_LOSS_HEIGHT, _BATCH_HEIGHT, _LANE_HEIGHT, _TOP, _FOOT = 220, 80, 18, 22, 26
MOST_POINTS = 2000


def loss_chart(story: Story) -> Element:
    """Training loss of each committed step, thinned to at most `MOST_POINTS` points; a loss that is not finite: gap."""
    points = [(row.step, row.loss) for row in thinned(story.rows(), MOST_POINTS) if math.isfinite(row.loss)]
    return _curve(story, points, "Loss by step", _LOSS_HEIGHT)


def batch_chart(story: Story) -> Element:
    """Samples of each committed step, the effective batch: it drops where somebody died, and at an epoch's end."""
    points = [(row.step, float(row.samples or 0)) for row in thinned(story.rows(), MOST_POINTS)]
    return _curve(story, points, "Samples by step", _BATCH_HEIGHT, low=0.0)


def lanes_chart(story: Story) -> Element:
    """One lane for each member: filled where it took part, hatched where it was left out, empty where it was none."""
    rows, names = story.rows(), story.names()
    bottom = _TOP + _LANE_HEIGHT * (len(names) + 1)
    svg, scale = _canvas(bottom + _FOOT, rows, "Who took part in which step")
    for lane, name in enumerate(names):
        y = _TOP + _LANE_HEIGHT * lane
        _text(svg, _LEFT - 6, y + 13, name, "label end")
        for first, last, state in runs_of((row.step, row.members.get(name, "")) for row in rows):
            _block(svg, scale, (first, last), y, state.replace(" ", "-") if state else "absent", f"{name}, {state}")
    y = _TOP + _LANE_HEIGHT * len(names)
    _text(svg, _LEFT - 6, y + 13, "attempts", "label end")
    for first, last, state in runs_of((row.step, _trouble(row)) for row in rows):
        if state:
            _block(svg, scale, (first, last), y, "trouble", state)
    _fault_lines(svg, story, scale, _TOP, bottom)
    _steps_axis(svg, scale, bottom + 16)
    return svg


def thinned(rows: Sequence[Step], most: int) -> list[Step]:
    """At most about `most` of the rows, evenly taken, the last one always among them."""
    stride = -(-len(rows) // most) or 1
    kept = list(rows[::stride])
    return kept if not rows or kept[-1] is rows[-1] else [*kept, rows[-1]]


def runs_of(cells: Iterable[tuple[int, str]]) -> list[tuple[int, int, str]]:
    """Neighbouring steps of the same state as one (first step, last step, state)."""
    found = []
    for state, group in groupby(cells, key=lambda cell: cell[1]):
        steps = [step for step, _ in group]
        found.append((steps[0], steps[-1], state))
    return found


class _Scale:
    """From steps to pixels."""

    def __init__(self, rows: Sequence[Step]) -> None:
        self.first, self.last = (rows[0].step, rows[-1].step) if rows else (1, 1)

    def x(self, step: float) -> float:
        return _LEFT + (WIDTH - _LEFT - _RIGHT) * (step - self.first + 0.5) / (self.last - self.first + 1)


def _curve(
    story: Story, points: Sequence[tuple[int, float]], title: str, tall: float, low: float | None = None
) -> Element:
    lowest, high = _bounds([value for _, value in points])
    bottom = lowest if low is None else low
    svg, scale = _canvas(_TOP + tall + _FOOT, story.rows(), title)
    _fault_lines(svg, story, scale, _TOP, _TOP + tall)

    def height(value: float) -> float:
        return _TOP + tall * (high - value) / (high - bottom)

    for fraction in (0.0, 0.5, 1.0):
        value = bottom + fraction * (high - bottom)
        _line(svg, _LEFT, height(value), WIDTH - _RIGHT, height(value), "grid")
        _text(svg, _LEFT - 6, height(value) + 4, f"{value:.3g}", "label end")
    places = " ".join(f"{scale.x(step):.1f},{height(value):.1f}" for step, value in points)
    SubElement(svg, "polyline", {"points": places, "class": "curve"})
    _steps_axis(svg, scale, _TOP + tall + 16)
    return svg


def _trouble(row: Step) -> str:
    words = [f"{row.attempts} attempts"] if row.attempts > 1 else []
    return ", ".join([*words, *(["skipped: not finite"] if row.skipped else [])])


def _bounds(values: Sequence[float]) -> tuple[float, float]:
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _canvas(height: float, rows: Sequence[Step], title: str) -> tuple[Element, _Scale]:
    box = {"viewBox": f"0 0 {WIDTH} {height:g}", "role": "img", "xmlns": "http://www.w3.org/2000/svg"}
    svg = Element("svg", box)
    SubElement(svg, "title").text = title
    return svg, _Scale(rows)


def _fault_lines(svg: Element, story: Story, scale: _Scale, top: float, bottom: float) -> None:
    """A line at the step that was open when a fault acted; its words are the line's tooltip."""
    for event in story.events:
        if event.faulty:
            x = scale.x(min(max(event.after_step + 1, scale.first), scale.last))
            line = _line(svg, x, top, x, bottom, "fault")
            SubElement(line, "title").text = event.what


def _steps_axis(svg: Element, scale: _Scale, y: float) -> None:
    for fraction in (0.0, 0.25, 0.5, 0.75, 1.0):
        step = round(scale.first + fraction * (scale.last - scale.first))
        _text(svg, scale.x(step), y, f"step {step}" if fraction == 0 else str(step), "label middle")


def _block(svg: Element, scale: _Scale, steps: tuple[int, int], y: float, style: str, words: str) -> None:
    left, right = scale.x(steps[0] - 0.5), scale.x(steps[1] + 0.5)
    place = {"x": f"{left:.2f}", "y": f"{y + 2:g}", "width": f"{right - left:.2f}", "height": f"{_LANE_HEIGHT - 4}"}
    block = SubElement(svg, "rect", {**place, "class": style})
    where = f"step {steps[0]}" if steps[0] == steps[1] else f"steps {steps[0]} to {steps[1]}"
    SubElement(block, "title").text = f"{where}: {words or 'no member'}"


def _line(svg: Element, x1: float, y1: float, x2: float, y2: float, style: str) -> Element:
    ends = {"x1": f"{x1:.1f}", "y1": f"{y1:.1f}", "x2": f"{x2:.1f}", "y2": f"{y2:.1f}"}
    return SubElement(svg, "line", {**ends, "class": style})


def _text(svg: Element, x: float, y: float, words: str, style: str) -> None:
    SubElement(svg, "text", {"x": f"{x:.1f}", "y": f"{y:.1f}", "class": style}).text = words
