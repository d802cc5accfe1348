"""What the tests of files share: where real models lie, a small model with all that a file can tell."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fastcmdp.io import Constraint, Description, Problem, Reward

SHARED = Path(__file__).resolve().parents[2] / "shared" / "models"
needs_models = pytest.mark.skipif(not SHARED.is_dir(), reason=f"the real models are not there: {SHARED}")

FORMATS = ("npz", "umb", "umb.gz", "umb.xz", "drn", "tra", "mat", "toolbox")
ENDINGS = {"umb.gz": "umb", "umb.xz": "umb", "toolbox": "npz"}


def file_of(folder: Path, kind: str, stem: str = "model") -> Path:
    """A path with the ending of a format."""
    return folder / f"{stem}-{kind.replace('.', '-')}.{ENDINGS.get(kind, kind)}"


def small(**changes) -> Description:
    """Three states, four choices, seven branches; rewards on everything; labels; names that need care."""
    parts = {
        "state_to_choice": np.array([0, 2, 3, 4]),
        "choice_to_branch": np.array([0, 2, 3, 6, 7]),
        "branch_target": np.array([0, 1, 2, 0, 1, 2, 2]),
        "branch_prob": np.array([0.25, 0.75, 1.0, 1 / 3, 1 / 3, 1 - 2 / 3, 1.0]),
        "rewards": {
            "time": Reward(states=np.array([1.0, 1.0, 0.0])),
            "energy used": Reward(choices=np.array([0.1, 2.0, 0.5, 0.0])),
            "toll": Reward(states=np.array([0.0, 0.25, 0.0]), choices=np.array([1.0, 0.0, 0.0, 0.0])),
        },
        "labels": {"goal": np.array([2]), "on the way": np.array([0, 1])},
        "start": np.array([1.0, 0.0, 0.0]),
        "actions": np.array([0, 1, 0, 2], dtype=np.int32),
        "action_names": ("go", "turn left", "stay"),
        "problem": Problem(
            0.9, "-time", (Constraint("toll", "<=", 1.5), Constraint("label:goal", ">=", 0.3))
        ),
    }
    return Description(**(parts | changes))


def told(description: Description) -> dict:
    """All that a description says, to be compared."""
    owners = np.repeat(np.arange(description.n_choices), np.diff(description.choice_to_branch))
    names = description.action_names
    actions = description.actions.tolist() if description.actions is not None else None
    return {
        "rows": [
            description.state_to_choice.tolist(),
            sorted(
                zip(
                    owners.tolist(),
                    description.branch_target.tolist(),
                    description.branch_prob.tolist(),
                    strict=True,
                )
            ),
        ],
        "rewards": {name: description.on_choices(name).tolist() for name in description.rewards},
        "labels": {name: states.tolist() for name, states in description.labels.items()},
        "start": None if description.start is None else description.start.tolist(),
        "actions": [names[a] for a in actions] if names else actions,
    }
