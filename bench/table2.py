"""Last iterates, measured: `python bench/table2.py [--quick] [--out DIR]`, two cores, within an hour.

Runs the sweep of bench/table2.toml, every method at its schedule for each budget, and fits the error at the ends of the
runs. Writes docs/table2.md and docs/table2.png. Started again, it goes on.
"""

from __future__ import annotations

import argparse
import shutil
from dataclasses import replace
from pathlib import Path

from table1 import parts, tell  # bench/table1.py: the same machinery

from fastcmdp import sweep as sweeps
from fastcmdp.algorithms import ALGORITHMS
from fastcmdp.sweep import Sweep
from fastcmdp.sweep.report import Report, report

HERE = Path(__file__).parent
CLAIMED = {  # exponent p of samples in 1/epsilon, where the source has one for samples
    "pdr-anpg": (4.0, "last iterate, complete classes"),
    "lb-sgd": (6.0, "last iterate, limits met throughout"),
    "npg-pd-softmax": (2.0, "mixture, Table 1 of the paper"),
    "pmd-pd": (3.0, "mixture, Table 1 of the paper"),
}
LEGEND = """
p is that of log e = a - (1/p) log n over the ends of the runs, an intercept for each model; smaller is faster, and 2
is the order of averages under noise. e is the larger of gap and violation of the output, positive parts of means over
seeds, in kernel units. Intervals: bootstrap over models and replicates. The mean behind the error of a last iterate may
have either sign: a single end near zero makes a fit over few budgets wide.
"""


def reading(claim: float | None, low: float, high: float) -> str:
    """What an interval says of a claim."""
    if low != low:
        return "no interval: too few ends with a positive error"
    if claim is None:
        return "no claim for samples was at hand"
    if high < claim:
        return "faster than the claim, an upper bound"
    return "slower than the claim over these budgets" if low > claim else "the claim lies within the interval"


def page(made: Report, spec: Sweep, minutes: float, quick: bool) -> str:
    """docs/table2.md."""
    budgets = ", ".join(f"{n:.0e}" for n in spec.samples)
    command = "python bench/table2.py" + (" --quick" if quick else "")
    lines = [
        "# Table 2: last iterates, measured",
        "",
        f"`{command}`: {made.status.done:,} runs, {len(spec.expand())} models, {spec.replicates} seeds, untuned, "
        f"budgets of {budgets} transitions; {minutes:.1f} minutes of one core.",
        "",
        "![Error against samples](table2.png)",
        "",
        "| algorithm | output | claimed p | measured p of ends (95 %) | reading |",
        "|---|---|---|---|---|",
    ]
    for e in made.analysis.exponents:
        claim, about = CLAIMED.get(e.algorithm, (None, ""))
        spread = "-" if e.ends != e.ends else f"{e.ends:.2f} ({e.ends_low:.2f} to {e.ends_high:.2f})"
        output = "last iterate" if ALGORITHMS[e.algorithm].output.last == 0.0 else "mixture"
        claimed = "-" if claim is None else f"{claim:g} ({about})"
        lines.append(
            f"| {e.name} | {output} | {claimed} | {spread} | {reading(claim, e.ends_low, e.ends_high)} |"
        )
    return "\n".join([*lines, LEGEND])


def main() -> None:
    """Parse the command line and go."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--quick", action="store_true", help="three budgets, four seeds, within three minutes"
    )
    parser.add_argument("--out", type=Path, default=None, help="folder; default: table2 or table2-quick")
    parser.add_argument("--workers", type=int, default=None)
    given = parser.parse_args()
    out = given.out or Path("table2-quick" if given.quick else "table2")
    spec = sweeps.loads((HERE / "table2.toml").read_text(), HERE, str(HERE / "table2.toml"))
    if given.quick:
        spec = replace(spec, samples=(1e5, 4e5, 1.6e6), replicates=4, points=5)
    status = sweeps.run(spec, out / "sweep", workers=given.workers, extend=True, progress=tell)
    if status.stopped:
        raise SystemExit("stopped: the same command goes on")
    made = report(out / "sweep", out / "report")
    minutes = sum(part["seconds"] for part in parts(out / "sweep")) / 60
    print(made.text())
    docs = HERE.parent / "docs"
    (docs / "table2.md").write_text(page(made, spec, minutes, given.quick))
    shutil.copy(made.files["curves_png"], docs / "table2.png")


if __name__ == "__main__":
    main()
