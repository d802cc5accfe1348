"""Error of every method against samples on three models, tuned alike: `python bench/methods.py [--out DIR]`.

On each model all methods are searched at 1e6 transitions, on seeds of the search's own, then run with what was found at
every budget. Error of each method's own output: the larger of gap and violation relative to what policies can attain,
mean over replicates. Writes DIR/MODEL.json, from which it goes on where it stopped, docs/methods.png, and prints the
rows of the table of docs/algorithms.md. `--samples`, `--trials`, `--replicates` make it shorter.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt

import fastcmdp as fc
from fastcmdp.algorithms import ALGORITHMS

MODELS = {
    "garnet, S = 20": lambda: fc.envs.garnet(n_states=20),
    "resource gathering": fc.envs.resource_gathering,
    "river-swim": fc.envs.river_swim,
}
DOCS = Path(__file__).parent.parent / "docs"
MARKERS = "osv^<>DPX*hd"


def measure(cmdp: fc.CMDP, given: Any, place: Path) -> dict[str, dict[str, float | None]]:
    """{method: {budget: error}}: read, or found and written method by method."""
    found: dict[str, dict[str, float | None]] = json.loads(place.read_text()) if place.exists() else {}
    for name in ALGORITHMS:
        if name in found:
            continue
        tuned = fc.tune(cmdp, name, given.tuned_at, trials=given.trials, replicates=2)
        compared = fc.compare(cmdp, name, given.samples, constants=tuned, replicates=given.replicates)
        found[name] = {f"{each['budget']:.0e}": each["error"]["mean"] for each in compared.to_dict()}
        place.write_text(json.dumps(found, indent=1))
        print(place.stem, name, found[name], flush=True)
    return found


def draw(found: dict[str, dict[str, dict[str, float | None]]], path: Path) -> None:
    """A panel a model; averages dashed, last iterates solid, the largest errors at the top."""
    figure, panels = plt.subplots(1, len(found), figsize=(5 * len(found), 5.6), sharey=True)
    colours = plt.get_cmap("tab20").colors
    for axes, (model, errors) in zip(panels, found.items(), strict=True):
        for i, name in enumerate(ALGORITHMS):
            points = [(float(n), 100 * e) for n, e in errors.get(name, {}).items() if e]
            last = ALGORITHMS[name].output.last == 0.0
            axes.plot(
                *zip(*points, strict=True), color=colours[i % 20], marker=MARKERS[i % len(MARKERS)], markersize=4,
                linewidth=1.3, linestyle="-" if last else "--", label=name,
            )  # fmt: skip
        axes.set(xscale="log", yscale="log", title=model, xlabel="transitions")
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("error of the output, per cent")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=6, fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0.13, 1, 1))
    figure.savefig(path, dpi=110)


def main() -> None:
    """Parse the command line and go."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=float, nargs="+", default=[1e5, 1e6, 1e7, 1e8])
    parser.add_argument("--tuned-at", type=float, default=1e6)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--replicates", type=int, default=4)
    parser.add_argument("--out", type=Path, default=Path("methods"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, make in MODELS.items():
        found[name] = measure(
            make(), given, given.out / f"{name.replace(', S = ', '-').replace(' ', '-')}.json"
        )
    draw(found, DOCS / "methods.png")
    print(f"| per cent | {' | '.join(found)} |\n|---|{'---|' * len(found)}")
    for name in ALGORITHMS:
        cells = [
            ", ".join("-" if e is None else f"{100 * e:.2g}" for e in errors[name].values())
            for errors in found.values()
        ]
        print(f"| `{name}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
