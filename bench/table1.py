"""The paper's Table 1, measured: `python bench/table1.py [--quick] [--dry-run] [--out DIR]`, two cores, within an hour.

1. Constants: `fastcmdp tune` on a model of its own, the same budget for all; kept in bench/table1-constants.toml.
2. Scales: the schedules have a constant before the outer steps (c_K or c_T) that no search at a fixed budget can find.
   The least of a few factors with which a method attains epsilon = 0.4 on two models of their own is taken.
3. The sweep of bench/table1.toml, and its report.
4. docs/table1.md and docs/table1.png (not with --quick).

Each step is resumed where it was if the command is given again.
"""

from __future__ import annotations

import argparse
import inspect
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastcmdp import sweep as sweeps
from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.sweep import Algorithms, Models, Store, Sweep
from fastcmdp.sweep.cells import cells
from fastcmdp.sweep.report import Report, report

HERE = Path(__file__).parent
TUNED_ON = "env:garnet?n_states=10&gamma=0.8&seed=100"
SCALES = (1 / 256, 1 / 64, 1 / 16, 1 / 4, 1.0, 4.0)
SCALED_AT = 0.4


LEGEND = """
*Measured p*: samples after which the error stays at or below epsilon, in a run whose schedule is for that epsilon,
fitted by epsilon^-p with an intercept for each model. *Of ends*: all samples of a run against the error at its end,
which says how the schedule does whether or not it attains its epsilon. A run follows a schedule made from the claim,
so where most targets are reached *measured p* cannot be far below the claim; where *of ends* is smaller, the error
falls faster than the schedule supposes. *Reached*: pairs of model and epsilon in the fit, of all. *Capped*:
configurations whose schedule takes more than the cap and was cut to it; still smaller epsilon were left out. *Scale*:
factor on the default constant before the outer steps, the least of 1/256, 1/64 .. 4 with which a method attains
epsilon = 0.4 on two other models; where none does (marked none), the largest that was run. Intervals: bootstrap over
models and replicates. The error is the larger of gap and violation of the mixture, means over seeds.
"""


def tuned(quick: bool, out: Path) -> Path:
    """The file of constants, made if it is not there; with ``quick`` one of its own in ``out``."""
    path = out / "constants.toml" if quick else HERE / "table1-constants.toml"
    if not path.exists():
        trials, samples = ("4", "2e5") if quick else ("24", "1e6")
        print(f"tuning on {TUNED_ON}", flush=True)
        program = "import sys; from fastcmdp.cli import main; sys.exit(main())"
        verb = [sys.executable, "-c", program, "tune", TUNED_ON, "--samples", samples, "--trials", trials]
        subprocess.run([*verb, "--out", str(path)], check=True)
    return path.resolve()


def scale_of(name: str) -> tuple[str, float]:
    """The constant before the outer steps of a schedule, and its default."""
    parameters = inspect.signature(ALGORITHMS[name].for_epsilon).parameters
    constant = next(key for key in ("c_K", "c_T") if key in parameters)
    default = parameters[constant].default
    return constant, float(default)


def scales(spec: Sweep, out: Path, workers: int | None) -> dict[str, tuple[float, bool]]:
    """The least scale with which each algorithm attains the target, or the largest that was run; whether one does."""
    models = [Models(generator="garnet", settings={"n_states": 10, "gamma": 0.8, "seed": [50, 51]})]
    entries = []
    for entry in spec.entries:
        constant, default = scale_of(entry.variant().algorithm.name)
        entries += [
            replace(
                entry, label=f"{entry.name} {k}", settings=dict(entry.settings) | {constant: default * factor}
            )
            for k, factor in enumerate(SCALES)
        ]
    cap = None if spec.cap is None else spec.cap / 4
    trial = Sweep(
        models, entries, epsilon=[SCALED_AT], replicates=4, seed=spec.seed + 1, points=10, cap=cap, folder=spec.folder
    )  # fmt: skip
    status = sweeps.run(trial, out, workers=workers, extend=True, progress=tell)
    if status.stopped:
        raise SystemExit("stopped: the same command goes on")
    if not status.finished:
        print(f"scales: {status.failed} tasks failed, {status.tasks - status.done} have no result")
    errors: dict[str, list[float]] = {}
    cut: set[str] = set()
    for cell in cells(Store(out)):
        errors.setdefault(cell.algorithm, []).append(
            float(cell.error()[-1]) if len(cell.gap) else float("inf")
        )
        cut |= {cell.algorithm} if cell.capped else set()
    found = {}
    for entry in spec.entries:
        run = [k for k in range(len(SCALES)) if f"{entry.name} {k}" in errors]
        good = [k for k in run if max(errors[f"{entry.name} {k}"]) <= SCALED_AT]
        whole = [k for k in run if f"{entry.name} {k}" not in cut]
        scale = SCALES[good[0] if good else max(whole, default=0)]
        found[entry.name] = scale, bool(good)
        print(f"{entry.name:16} scale {scale:g}{'' if good else ' (none attains the target)'}", flush=True)
    return found


def parts(folder: Path) -> list[dict[str, Any]]:
    """What the parts of a store tell of themselves."""
    store = Store(folder)
    store.scan()
    return list(store.metadata())


def tell(state: sweeps.Progress) -> None:
    """A line every half minute."""
    now = time.monotonic()
    if state.tasks and now - SAID[0] > 30:
        SAID[0] = now
        left = "" if state.left is None else f", {state.left / 60:.1f} min left"
        print(f"{state.done} of {state.tasks} tasks{left}", flush=True)


SAID = [0.0]


def page(made: Report, found: dict[str, tuple[float, bool]], spec: Sweep, minutes: float) -> str:
    """docs/table1.md."""
    lines = [
        "# Table 1, measured",
        "",
        f"`python bench/table1.py`: {made.status.done:,} runs, {len(spec.expand())} models, {spec.replicates} seeds, "
        f"epsilon from {max(spec.epsilon):g} to {min(spec.epsilon):g} in kernel units, at most {spec.cap:.0e} "
        "transitions a run; "
        f"{minutes:.0f} minutes of one core, finding the scales included.",
        "",
        "![Samples needed against 1/epsilon](table1.png)",
        "",
        "| algorithm | claimed | measured p (95 %) | of ends (95 %) | reached | capped | scale |",
        "|---|---|---|---|---|---|---|",
    ]
    for e in made.analysis.exponents:
        spread, ends = (
            "-" if value != value else f"{value:.2f}" + ("" if low != low else f" ({low:.2f} to {high:.2f})")
            for value, low, high in ((e.exponent, e.low, e.high), (e.ends, e.ends_low, e.ends_high))
        )
        scale, attained = found[e.name]
        claim = "-" if e.claimed is None else f"{e.claimed:g}"
        lines.append(
            f"| {e.algorithm} | {claim} | {spread} | {ends} | {e.points} of {e.asked} | {e.capped} | "
            f"{scale:g}{'' if attained else ' (none)'} |"
        )
    lines += [
        "",
        *LEGEND.strip().splitlines(),
        "",
        "## Reading it",
        "",
    ]
    for e in made.analysis.exponents:
        if e.claimed is None:
            said = "no rate is claimed"
        elif e.low != e.low:
            said = "too few targets were reached within the cap: neither supported nor refuted"
        elif 2 * e.points < e.asked:
            said = "fewer than half of the targets were reached, so this is a fit over the easy ones"
        elif e.low <= e.claimed <= e.high:
            said = "the claim lies within the interval"
        elif e.high < e.claimed:
            said = "faster than the claim, which is an upper bound"
        else:
            said = "slower than the claim over this range of epsilon"
        lines.append(
            f"- **{e.algorithm}**: {said} ({e.points} of {e.asked} targets reached, {e.capped} capped)."
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Parse the command line and go."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two models, four targets, within three minutes")
    parser.add_argument("--dry-run", action="store_true", help="tell what the sweep would take")
    parser.add_argument(
        "--out", type=Path, default=None, help="folder for the sweeps; default: table1 or table1-quick"
    )
    parser.add_argument("--workers", type=int, default=None)
    given = parser.parse_args()
    out = given.out or Path("table1-quick" if given.quick else "table1")
    out.mkdir(parents=True, exist_ok=True)
    constants = tuned(given.quick, out)
    text = (HERE / "table1.toml").read_text().replace('"table1-constants.toml"', f"'{constants}'")
    spec = sweeps.loads(text, HERE, str(HERE / "table1.toml"))
    if given.quick:
        spec = replace(
            spec, models=spec.models[:1], epsilon=(0.8, 0.56, 0.4, 0.28), replicates=4, cap=1e7, points=20
        )  # fmt: skip
    if given.dry_run:
        told = sweeps.estimate(spec, given.workers)
        print(
            f"{told.tasks:,} runs, {told.transitions:.3g} transitions, {told.seconds / 60:.1f} min at the scale 1"
        )
        return
    found = scales(spec, out / "scales", given.workers)
    entries = []
    for entry in spec.entries:
        constant, default = scale_of(entry.variant().algorithm.name)
        scaled = default * found[entry.name][0]
        entries.append(
            Algorithms(
                **{**vars(entry), "settings": dict(entry.settings) | {constant: scaled}, "label": entry.name}
            )
        )
    spec = replace(spec, algorithms=entries)
    (out / "spec.toml").write_text(spec.to_toml())
    told = sweeps.estimate(spec, given.workers)
    print(
        f"{told.tasks:,} runs, {told.transitions:.3g} transitions, about {told.seconds / 60:.1f} min",
        flush=True,
    )
    status = sweeps.run(spec, out / "sweep", workers=given.workers, extend=True, progress=tell)
    if status.stopped:
        raise SystemExit("stopped: the same command goes on")
    made = report(out / "sweep", out / "report")
    minutes = sum(part["seconds"] for name in ("scales", "sweep") for part in parts(out / name)) / 60
    print(made.text())
    print(f"{minutes:.1f} minutes of one core; report in {made.files['html']}")
    if not given.quick:
        docs = HERE.parent / "docs"
        (docs / "table1.md").write_text(page(made, found, spec, minutes))
        shutil.copy(made.files["exponents_png"], docs / "table1.png")


if __name__ == "__main__":
    main()
