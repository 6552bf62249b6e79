"""The report of a run: one HTML file with a timeline, counts per invariant, recovery times and histories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import groupby
from pathlib import Path

from parcelpost.chaos.faults import FAULTS
from parcelpost.chaos.judge import INVARIANTS, KINDS
from parcelpost.chaos.runner import Done, Outcome, by_fault, slowest

_WIDTH, _LEFT, _RIGHT = 1060, 130, 14
_ROW, _CHART = 18, 130
_MOST_BARS = 300

_STYLE = """
:root { color-scheme: light dark; --ink: #1c2330; --dim: #667085; --line: #d7dce3; --paper: #fff; --soft: #f4f6f9;
  --saved: #2563a8; --sent: #e0912f; --mark: #b42318; --good: #1d7a46; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --dim: #98a2b3; --line: #384152; --paper: #141820;
  --soft: #1d232e; --saved: #6aa9ec; --sent: #f0b35e; --mark: #f97066; --good: #5bc68a; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1060px;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; margin: 0 0 .2rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
p { margin: .3rem 0; } .dim { color: var(--dim); }
.verdict { font-size: 1.2rem; font-weight: 600; color: var(--good); margin: .8rem 0; }
.verdict.broken { color: var(--mark); }
.figures { display: flex; flex-wrap: wrap; gap: .6rem; margin: 1rem 0; }
.figures div { background: var(--soft); border-radius: 6px; padding: .5rem .9rem; min-width: 6.5rem; }
.figures b { display: block; font-size: 1.25rem; }
table { border-collapse: collapse; width: 100%; } th { text-align: left; font-weight: 600; color: var(--dim); }
a { color: inherit; } td:first-child, .attacks { white-space: nowrap; }
th, td { padding: .25rem .8rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
tr.broken td { color: var(--mark); font-weight: 600; }
svg { display: block; width: 100%; height: auto; } svg text { fill: var(--dim); font: 11px system-ui, sans-serif; }
pre { background: var(--soft); padding: .8rem; border-radius: 6px; overflow: auto; font-size: 12.5px; }
"""


def write_report(outcome: Outcome, file: Path) -> None:
    file.write_text(render(outcome), "utf-8")


def render(outcome: Outcome) -> str:
    verdict = f"Broken: {outcome.violation}" if outcome.violation else "Nothing was lost."
    parts = [
        f"<h1>Chaos run: {escape(outcome.profile)}, seed {outcome.seed}</h1>",
        f'<p class="dim">{_duration(outcome.seconds)}; gateways on {escape(outcome.gateways or "nothing")}; '
        f"clocks jump by {escape(outcome.clocks or 'nothing')}. "
        "Real gateways, workers and a simulated county ran on one machine and were hurt on a schedule. What they were "
        "told was compared with what the stores and the gateways hold.</p>",
        f'<p class="verdict{" broken" if outcome.violation else ""}">{escape(verdict)}</p>',
        _figures(outcome),
        _history(outcome),
        "<h2>Timeline</h2>",
        _timeline(outcome),
        "<h2>Invariants</h2>",
        _parts(outcome, "Invariant", INVARIANTS),
        "<h2>Kinds of violation</h2>",
        _parts(outcome, "Kind", KINDS),
        "<h2>What was done</h2>",
        _faults(outcome),
        _phases(outcome),
        "<h2>Slowest recoveries</h2>",
        _recoveries(outcome),
        "<h2>Histories</h2>",
        _histories(outcome),
        f"<h2>Again</h2><pre>{escape(outcome.again)}</pre>",
    ]
    body = "\n".join(parts)
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Chaos run</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body>{body}</body></html>\n'
    )


def _figures(outcome: Outcome) -> str:
    figures = (
        ("kills", outcome.kills),
        ("power cuts", outcome.power_cuts),
        ("full disks", outcome.full_disks),
        ("network faults", outcome.network_faults),
        ("tasks", outcome.tasks),
        ("results saved", outcome.saved),
        ("acknowledged", outcome.delivered),
        ("rejected with a reason", outcome.rejected),
        ("comparisons", sum(outcome.checked.values())),
    )
    return f'<div class="figures">{"".join(f"<div><b>{number:,}</b>{name}</div>" for name, number in figures)}</div>'


def _history(outcome: Outcome) -> str:
    if outcome.violation is None:
        return ""
    task = outcome.violation.task
    lines = escape("\n".join(outcome.histories.get(task, ())) or "It concerns no single task.")
    return f"<h2>What shows it</h2><p>{escape(str(outcome.violation))}</p><pre>{lines}</pre>"


def _timeline(outcome: Outcome) -> str:
    """Throughput above, and below it one row per fault."""
    seconds = max(len(outcome.per_second), 1)
    names = sorted({done.step.fault for done in outcome.steps if not done.skipped}, key=list(FAULTS).index)
    height = _CHART + 24 + _ROW * len(names) + 8
    per_px = (_WIDTH - _LEFT - _RIGHT) / seconds
    shapes = [*_chart(outcome.per_second, per_px), *_axis(seconds, per_px, height)]
    for row, name in enumerate(names):
        y = _CHART + 24 + row * _ROW
        shapes.append(f'<text x="{_LEFT - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>')
        shapes += [_mark(done, y, per_px) for done in outcome.steps if done.step.fault == name and not done.skipped]
    return (
        f'<p class="dim"><span style="color:var(--saved)">&#9632;</span> results saved and '
        f'<span style="color:var(--sent)">&#9632;</span> results acknowledged per second; faults below</p>'
        f'<svg viewBox="0 0 {_WIDTH} {height}" role="img" aria-label="timeline">{"".join(shapes)}</svg>'
    )


def _chart(per_second: Sequence[tuple[int, int]], per_px: float) -> Iterable[str]:
    step = max(1, len(per_second) // _MOST_BARS)
    points = [
        (start, [sum(part[i] for part in per_second[start : start + step]) / step for i in (0, 1)])
        for start in range(0, len(per_second), step)
    ]
    most = max((max(values) for _, values in points), default=1) or 1
    for index, color in ((0, "saved"), (1, "sent")):
        line = " ".join(
            f"{_LEFT + start * per_px:.1f},{_CHART - (_CHART - 14) * values[index] / most:.1f}"
            for start, values in points
        )
        yield f'<polyline points="{line}" fill="none" stroke="var(--{color})" stroke-width="1.3"/>'
    yield f'<text x="{_LEFT - 8}" y="18" text-anchor="end">{most:.0f} per s</text>'
    yield f'<text x="{_LEFT - 8}" y="{_CHART}" text-anchor="end">0</text>'


def _axis(seconds: int, per_px: float, height: int) -> Iterable[str]:
    every = next((one for one in (5, 10, 30, 60, 120, 300, 600, 1800) if seconds / one <= 12), 3600)
    for at in range(0, seconds + 1, every):
        x = _LEFT + at * per_px
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="8" y2="{height}" stroke="var(--line)" stroke-width="0.6"/>'
        yield f'<text x="{x:.1f}" y="{_CHART + 15}" text-anchor="middle">{at // 60}:{at % 60:02}</text>'


def _mark(done: Done, y: int, per_px: float) -> str:
    width = max(done.step.seconds * per_px, 2.0)
    about = escape(str(done.step))
    return (
        f'<rect x="{_LEFT + done.began * per_px:.1f}" y="{y + 3}" width="{width:.1f}" height="{_ROW - 6}" rx="1" '
        f'fill="var(--mark)" fill-opacity="0.65"><title>{about}</title></rect>'
    )


def _parts(outcome: Outcome, title: str, parts: Mapping[str, str]) -> str:
    rows = []
    for name, text in parts.items():
        state = outcome.state(name)
        numbers = f"<td class=n>{outcome.compared(name):,}</td><td class=n>{outcome.attacked(name):,}</td>"
        row = (
            f"<td>{name}</td><td>{escape(text)}</td>{numbers}<td class=n>{int(state == 'broken')}</td><td>{state}</td>"
        )
        rows.append(f"<tr{' class=broken' if state == 'broken' else ''}>{row}</tr>")
    head = "<th class=n>Compared</th><th class=n>Attacks</th><th class=n>Found</th><th></th>"
    return f"<table><tr><th>{title}</th><th></th>{head}</tr>{''.join(rows)}</table>"


def _histories(outcome: Outcome) -> str:
    """A link to the text of one opens it."""
    parts = [
        f"<details><summary>{escape(name)}</summary>"
        f'<pre id="{escape(_anchor(name))}">{escape(chr(10).join(lines))}</pre></details>'
        for name, lines in outcome.histories.items()
    ]
    return (
        f"{''.join(parts)}<p>Everything that happened is in <code>journal.jsonl</code> of "
        f"<code>{escape(outcome.folder)}</code>, with the logs of all processes.</p>"
    )


def _anchor(name: str) -> str:
    return f"history-{name.replace(' ', '-')}"


def _faults(outcome: Outcome) -> str:
    counts = by_fault(outcome.steps)
    rows = [
        f"<td>{escape(name)}</td><td>{escape(FAULTS[name].summary)}{_details(outcome.steps, name)}</td>"
        f"<td class=attacks>{FAULTS[name].attacks}</td><td class=n>{counts[name]:,}</td>"
        for name in FAULTS
        if counts[name]
    ]
    rows += [
        f"<td>{escape(name)}</td><td>did not strike: {escape(reason)}</td><td></td><td class=n>0</td>"
        for name, reason in sorted(outcome.skipped.items())
    ]
    body = "".join(f"<tr>{row}</tr>" for row in rows)
    return f"<table><tr><th>Fault</th><th></th><th>Attacks</th><th class=n>Times</th></tr>{body}</table>"


def _phases(outcome: Outcome) -> str:
    struck = ", ".join(f"{name} {count}" for name, count in outcome.struck.items())
    return f"<p>Processes were hit in these phases: {escape(struck or 'none')}.</p>"


def _details(steps: Sequence[Done], name: str) -> str:
    """How often each kind of it was taken."""
    taken = [done.step for done in steps if done.step.fault == name and not done.skipped]
    details = sorted(step.detail for step in taken if step.detail)
    counts = ", ".join(f"{detail} {len(list(same))}" for detail, same in groupby(details))
    return f'<br><span class="dim">{escape(counts)}</span>' if counts else ""


def _recoveries(outcome: Outcome) -> str:
    times = sorted(one.seconds for one in outcome.recoveries)
    if not times:
        return "<p>No worker was restarted.</p>"
    rows = "".join(
        f'<tr><td class=n><a href="#{_anchor(one.history)}">{_clock(one.at)}</a></td><td>{escape(one.worker)}</td>'
        f"<td>{escape(one.why)}</td><td class=n>{one.seconds:.2f} s</td><td class=n>{one.from_end:.2f} s</td>"
        f"<td>{escape(_meanwhile(outcome.steps, one.at, one.seconds))}</td></tr>"
        for one in slowest(outcome.recoveries)
    )
    return (
        f"<p>From the start of the new process to its first saved result: {times[len(times) // 2]:.2f} s (median of "
        f"{len(times):,}). The slowest, with what else went on:</p><table><tr><th class=n>At</th><th>Worker</th>"
        f"<th>After</th><th class=n>From the start</th><th class=n>From the end of the last</th><th>Meanwhile</th></tr>"
        f"{rows}</table>"
    )


def _meanwhile(steps: Sequence[Done], at: float, seconds: float) -> str:
    names = [
        done.step.fault
        for done in steps
        if not done.skipped and done.began < at + seconds and done.began + done.step.seconds + 3.0 > at
    ]
    return ", ".join(dict.fromkeys(names))


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _duration(seconds: float) -> str:
    return f"{seconds / 60:.0f} minutes" if seconds >= 120 else f"{seconds:.0f} seconds"
