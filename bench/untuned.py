"""The table "Untuned" of docs/algorithms.md: `python bench/untuned.py [--samples N ..] [--model NAME ..]`.

Every method with its defaults at each budget on three models: error of the mixture, the larger of gap and violation
relative to what policies can attain, mean over replicates, in per cent. One cell a line is printed as it is done, and
the table at the end; some 1.3e10 transitions in all, of which 90 % are of the largest budget.
"""

from __future__ import annotations

import argparse

import fastcmdp as fc

MODELS = {
    "garnet, S = 20": lambda: fc.envs.garnet(n_states=20),
    "resource gathering": fc.envs.resource_gathering,
    "river-swim": fc.envs.river_swim,
}
METHODS = (
    "pd-anpg", "pd-anpg-cv", "npg-pd", "npg-pd-softmax", "c-npg-pda", "crpo", "crpo-softmax",
    "crpo-softmax?carry_over=false&c_step=10", "pmd-pd", "pmd-pd?c_alpha=0.3&c_dual=3", "pd-nac",
)  # fmt: skip


def main() -> None:
    """Run all and print the rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=float, nargs="+", default=[1e5, 1e6, 1e7, 1e8])
    parser.add_argument("--model", choices=list(MODELS), nargs="+", default=list(MODELS))
    parser.add_argument("--replicates", type=int, default=4)
    given = parser.parse_args()
    rows: dict[str, list[str]] = {name: [] for name in METHODS}
    for model in given.model:
        cmdp = MODELS[model]()
        for name in METHODS:
            found = fc.compare(cmdp, name, samples=given.samples, replicates=given.replicates)
            errors = [entry["error"]["mean"] for entry in found.to_dict()]
            cell = ", ".join("-" if error is None else f"{100 * error:.2g}" for error in errors)
            rows[name].append(cell)
            print(f"{model:20} {name:40} {cell}", flush=True)
    print(f"\n| | {' | '.join(given.model)} |\n|---|{'---|' * len(given.model)}")
    for name, cells in rows.items():
        print(f"| `{name}` | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
