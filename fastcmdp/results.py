"""What a run leaves: its trace, its averages over outer steps, its policies, its file.

Averages over outer steps are what guarantees are about: the value of the *mixture* (draw k uniformly once, then
follow pi_k) is the mean of J(pi_k). Two measurements of it stand side by side:

- ``exact``: the policies at the trace points, theta_0 and theta_K among them, evaluated exactly and joined by the
  trapezoidal rule;
- ``estimate``: the mean over *all* outer steps of the H occupancy rollouts, which are unbiased estimates of
  J(pi_k) that the run draws anyway. It needs no model and is the only one where the model is too large.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import ModelError, SettingError
from fastcmdp.exact import Optimum, occupancy
from fastcmdp.npz import read_arrays, write_arrays
from fastcmdp.policies import Policy

Float = NDArray[np.float64]
Int = NDArray[np.int64]

FORMAT = 2  # of saved runs
LAST_QUARTER = 0.25


@dataclass
class Trace:
    """The record of a run at outer steps 0 = outer[0] < ... < outer[n] = K, of which ``done`` are written.

    Attributes
    ----------
    outer : int64[n+1]
    samples : int64[R, n+1]
        Transitions drawn so far, the pilot's included.
    reward, constraints, duals : float64[R, n+1], float64[R, n+1, m] twice
        Exact values of the policy at that step and its multipliers, in the user's units; NaN where the model
        is too large to evaluate, or the replicate has failed.
    kept : int64[R, n+1]
        Outer steps so far that belong to the output: all, but for methods whose guarantee is about some of them.
    sums : float64[R, n+1, 1+2m]
        Sums over those steps of the estimates of J_r and J_c and of the multipliers, kernel units.
    occupancy : float64[4, R, C]
        Occupancies by the trapezoidal rule over the output so far and over that of the last quarter, at the last
        point, and at the point that met the limits best.
    seconds : float
        Time spent in kernels.
    done : int
    exact : bool
    """

    outer: Int
    samples: Int
    reward: Float
    constraints: Float
    duals: Float
    kept: Int
    sums: Float
    occupancy: Float
    seconds: float = 0.0
    done: int = 0
    exact: bool = True

    def record(self, run: Any) -> None:
        """Write the next point from a run that stands there; an interrupt leaves it unwritten."""
        state, cmdp, i = run.state, run.problem.cmdp, self.done
        values = np.full((len(state.outer), 1 + cmdp.n_constraints), np.nan)
        nu = np.zeros(self.occupancy.shape[1:])
        policies = run.policies() if self.exact else ()
        for r in np.flatnonzero(state.failed < 0) if self.exact else ():
            nu[r] = occupancy(cmdp, policies[r])
            values[r] = cmdp.to_user_values(nu[r] @ cmdp.signals / (1.0 - cmdp.gamma))
        kept = run.kept()
        part = (kept - self.kept[:, max(i - 1, 0)])[:, None] / 2 * (self.occupancy[2] + nu)
        late = self.outer[max(i - 1, 0)] >= self.outer[-1] * (1 - LAST_QUARTER)
        slack = least_slack(cmdp, np.concatenate([self.reward[:, :i, None], self.constraints[:, :i]], axis=2))
        now = least_slack(cmdp, values[:, None])
        better = now[:, 0] > slack.max(axis=1, initial=-np.inf)
        closest = np.where(better[:, None], nu, self.occupancy[3])
        total = np.stack([self.occupancy[0] + part, self.occupancy[1] + late * part, nu, closest])
        lost = state.failed >= 0
        self.samples[:, i], self.kept[:, i] = state.samples, kept
        self.sums[:, i] = np.where(lost[:, None], np.nan, state.sums)
        self.duals[:, i] = np.where(lost[:, None], np.nan, cmdp.to_user_duals(state.dual))
        self.reward[:, i], self.constraints[:, i] = values[:, 0], values[:, 1:]
        self.occupancy, self.done = total, i + 1


def least_slack(cmdp: CMDP, values: Float) -> Float:
    """By how much the tightest limit is met, float64[R, n]; -inf where values are missing."""
    slack = cmdp.slack(values).min(axis=2, initial=np.inf)
    return np.where(np.isfinite(values[:, :, 0]), slack, -np.inf)


def new_trace(n_outer: int, windows: int, replicates: int, cmdp: Any, exact: bool) -> Trace:
    """An empty trace of up to ``windows`` windows of equal length."""
    outer = np.unique(np.round(np.linspace(0, n_outer, windows + 1)).astype(np.int64))
    n, m = len(outer), cmdp.n_constraints
    return Trace(
        outer=outer,
        samples=np.zeros((replicates, n), np.int64),
        reward=np.full((replicates, n), np.nan),
        constraints=np.full((replicates, n, m), np.nan),
        duals=np.full((replicates, n, m), np.nan),
        kept=np.zeros((replicates, n), np.int64),
        sums=np.full((replicates, n, 1 + 2 * m), np.nan),
        occupancy=np.zeros((4, replicates, cmdp.n_choices if exact else 0)),
        exact=exact,
    )


@dataclass(frozen=True)
class Averages:
    """Means over a stretch of outer steps, one row a replicate, in the user's units.

    Attributes
    ----------
    reward, constraints, duals : float64[R], float64[R, m] twice
        Means of J_r, of the constraint values, and of the multipliers.
    gap : float64[R]
        J_r* minus the mean of J_r; may be negative; NaN without an optimum.
    violation : float64[R, m]
        By how much the mean over outer steps misses the limit, or 0: the positive part is taken after that mean,
        replicate by replicate (so a mean over replicates errs on the side of caution).
    source : "exact" or "estimate"
    """

    reward: Float
    constraints: Float
    duals: Float
    gap: Float
    violation: Float
    source: str


def interval(values: Float) -> dict[str, float | None]:
    """Mean over replicates and its 95 % interval by Student's t; the ends equal the mean for one replicate."""
    x = values[np.isfinite(values)]
    if x.size == 0:
        return {"mean": None, "low": None, "high": None}
    from scipy.special import stdtrit  # here, since it is slow to import

    mean = float(x.mean())
    half = float(stdtrit(x.size - 1, 0.975) * x.std(ddof=1) / np.sqrt(x.size)) if x.size > 1 else 0.0
    return {"mean": mean, "low": mean - half, "high": mean + half}


@dataclass(repr=False)
class Result:
    """A run, finished or not, and all that can be said of it; in the user's units throughout.

    Attributes
    ----------
    algorithm, policy_class, seed
        As given to ``solve``.
    run
        The state and what moves it on; for ``resume``.
    trace : Trace
    """

    algorithm: Any
    policy_class: Policy
    seed: int
    run: Any
    trace: Trace

    def __repr__(self) -> str:
        done = int(self.trace.outer[max(self.trace.done - 1, 0)])
        return (
            f"Result({self.algorithm.name}, {self.samples.size} replicates, outer step {done} of "
            f"{self.algorithm.outer}; summary() says more)"
        )

    @property
    def cmdp(self) -> CMDP:
        """The model."""
        model: CMDP = self.run.problem.cmdp
        return model

    @property
    def optimum(self) -> Optimum | None:
        """The exact optimum, or None where it was not computed."""
        best: Optimum | None = self.run.problem.optimum
        return best

    @property
    def finished(self) -> bool:
        """Whether all outer steps are done (or every replicate has failed)."""
        return self.trace.done == len(self.trace.outer)

    @property
    def failed(self) -> Int:
        """Outer step at which a number of the replicate ceased to be finite, or -1."""
        return np.array(self.run.state.failed)

    @property
    def samples(self) -> Int:
        """Transitions drawn, int64[R], the pilot's included."""
        return np.array(self.run.state.samples)

    @property
    def theta(self) -> Float:
        """Parameters of the last iterate, float64[R, d]."""
        return np.array(self.run.state.theta)

    @property
    def duals(self) -> Float:
        """Means of the multipliers over the last quarter of the outer steps, float64[R, m]."""
        return self.last_quarter.duals

    @property
    def gap(self) -> Float:
        """J_r* minus J_r of the mixture over all outer steps, float64[R]."""
        return self.mixture.gap

    @property
    def violation(self) -> Float:
        """Constraint violation of the mixture over all outer steps, float64[R, m]."""
        return self.mixture.violation

    @property
    def mixture(self) -> Averages:
        """Averages over all outer steps: what the guarantee is about."""
        return self.averages()

    @property
    def last_quarter(self) -> Averages:
        """Averages over the last quarter of the outer steps made."""
        return self.averages(LAST_QUARTER)

    def averages(self, last: float = 1.0, source: Literal["exact", "estimate"] | None = None) -> Averages:
        """Averages over the last fraction ``last`` of the outer steps made.

        ``source``: exact values at the trace points, or estimates from all outer steps; default: exact where
        the trace is.
        """
        trace, cmdp, m = self.trace, self.cmdp, self.cmdp.n_constraints
        if not isinstance(last, int | float | np.floating) or not 0.0 < last <= 1.0:
            raise SettingError(f"last = {last!r}: a fraction above 0 and up to 1 is expected")
        if source not in (None, "exact", "estimate"):
            raise SettingError(f"source = {source!r}: 'exact' or 'estimate' is expected")
        source = source or ("exact" if trace.exact else "estimate")
        outer = trace.outer[: trace.done]
        made = int(outer[-1]) if trace.done else 0
        begin = int(np.searchsorted(outer, made * (1.0 - last)))
        begin = max(min(begin, trace.done - 2), 0)
        part = slice(begin, trace.done)
        if trace.done < 2:
            nothing = np.full((trace.samples.shape[0], 1 + 2 * m), np.nan)
            return self._averages(nothing[:, : 1 + m], nothing[:, 1 + m :], source)
        width = np.diff(trace.kept[:, part], axis=1)
        total = width.sum(axis=1)
        steps = np.where(total > 0, total, np.nan)[:, None]
        sums = (trace.sums[:, trace.done - 1] - trace.sums[:, begin]) / steps
        if source == "exact":
            values = self._values(part)
            between = (values[:, 1:] + values[:, :-1]) / 2
            # A window without steps of the output weighs nothing; a replicate without any has its best point.
            values = np.nansum(between * width[:, :, None], axis=1) / steps
            values[~np.isfinite(between).all(axis=(1, 2))] = np.nan
            for r in np.flatnonzero((total == 0) & (self.failed < 0)):
                values[r] = self._values(part)[r, least_slack(cmdp, self._values(part))[r].argmax()]
        else:
            values = cmdp.to_user_values(sums[:, : 1 + m])
        return self._averages(values, cmdp.to_user_duals(sums[:, 1 + m :]), source)

    def _values(self, part: slice) -> Float:
        """Exact values at the trace points, float64[R, n, 1+m]."""
        trace = self.trace
        return np.concatenate([trace.reward[:, part, None], trace.constraints[:, part]], axis=2)

    @property
    def empty(self) -> NDArray[np.bool_]:
        """Replicates without an outer step in the output, bool[R].

        Its place takes the point that met the limits best, or NaN where the trace is not exact (simulators). Only
        methods that keep some outer steps and drop others (CRPO) can come to this.
        """
        kept = self.trace.kept[:, max(self.trace.done - 1, 0)]
        return np.asarray((kept == 0) & (self.failed < 0) & (self.trace.done > 1))

    def _averages(self, values: Float, duals: Float, source: str) -> Averages:
        best = np.nan if self.optimum is None else self.optimum.reward
        violation = np.maximum(-self.cmdp.slack(values), 0.0)
        return Averages(values[:, 0], values[:, 1:], duals, best - values[:, 0], violation, source)

    @property
    def last(self) -> Averages:
        """The last iterate alone, exactly evaluated."""
        return self._at(np.full(self.samples.shape, max(self.trace.done - 1, 0)))

    @property
    def best_feasible(self) -> Averages:
        """Of the policies at the trace points that meet the limits, the one with the largest J_r; NaN if none."""
        values = self._values(slice(None))
        feasible = (self.cmdp.slack(values) >= 0).all(axis=2) & np.isfinite(self.trace.reward)
        averages = self._at(np.where(feasible, self.trace.reward, -np.inf).argmax(axis=1))
        for field in (
            averages.reward,
            averages.constraints,
            averages.duals,
            averages.gap,
            averages.violation,
        ):
            field[~feasible.any(axis=1)] = np.nan
        return averages

    def _at(self, points: Int) -> Averages:
        rows = np.arange(len(points))
        values = np.concatenate(
            [self.trace.reward[rows, points, None], self.trace.constraints[rows, points]], axis=1
        )
        return self._averages(values, self.trace.duals[rows, points], "exact")

    def policy(
        self, kind: Literal["mixture", "last_quarter", "last"] = "mixture", replicate: int = 0
    ) -> Float:
        """Action probabilities of the choices, float64[C].

        "mixture": the stationary policy with the occupancy of the mixture over all trace points, hence its
        value; "last_quarter": the same over the last quarter; "last": the last iterate. States never visited
        keep the last iterate's probabilities.
        """
        if kind not in ("mixture", "last_quarter", "last"):
            raise SettingError(f"kind = {kind!r}: 'mixture', 'last_quarter' or 'last'")
        if not isinstance(replicate, int | np.integer) or not 0 <= replicate < self.samples.size:
            raise SettingError(f"replicate = {replicate!r}: 0 to {self.samples.size - 1}")
        last: Float = np.array(self.run.policies()[replicate])
        if kind == "last":
            return last
        if not self.trace.exact:
            raise SettingError(
                f"kind = {kind!r} needs exact evaluation, which this run did without: ask for 'last'"
            )
        if kind == "last_quarter" and not self.finished:
            raise SettingError("kind = 'last_quarter' needs a finished run; ask for 'mixture' or 'last'")
        late = int(kind == "last_quarter")
        nu = self.trace.occupancy[3 if self.empty[replicate] else late, replicate]
        total = np.add.reduceat(nu, self.cmdp.state_to_choice[:-1])[self.cmdp.choice_state]
        return np.where(total > 0, nu / np.where(total > 0, total, 1.0), last)

    def to_dict(self) -> dict[str, Any]:
        """The run as one entry of ``algorithms`` in the command line's JSON."""
        all_steps, late = self.mixture, self.last_quarter
        seconds = self.trace.seconds
        total = int(self.samples.sum())

        def worst(averages: Averages) -> dict[str, float | None]:
            return interval(averages.violation.max(axis=1, initial=0.0))

        def means(rows: Float) -> list[float | None]:
            return [interval(column)["mean"] for column in rows.T]

        return {
            "name": self.algorithm.name,
            "samples": total,
            "replicates": int(self.samples.size),
            "finished": self.finished,
            "failed": int((self.failed >= 0).sum()),
            "empty": int(self.empty.sum()),
            "reward": interval(all_steps.reward),
            "constraints": means(all_steps.constraints),
            "gap": interval(all_steps.gap),
            "violation": worst(all_steps),
            "last_quarter": {
                "reward": interval(late.reward),
                "constraints": means(late.constraints),
                "gap": interval(late.gap),
                "violation": worst(late),
            },
            "duals": means(late.duals),
            "source": all_steps.source,
            "seconds": seconds,
            "transitions_per_second": total / seconds if seconds > 0 else None,
        }

    def summary(self) -> str:
        """The run in a few lines, beside the exact optimum."""
        cmdp, best, late = self.cmdp, self.optimum, self.last_quarter
        state = (
            "finished"
            if self.finished
            else f"at outer step {int(self.trace.outer[max(self.trace.done - 1, 0)])}"
        )
        total, seconds = int(self.samples.sum()), self.trace.seconds
        lines = [
            f"{self.algorithm.name} on {cmdp!r}",
            f"{self.samples.size} replicates {state}, {total:.3g} transitions in {seconds:.1f} s",
            f"{'':24}{'learned (last quarter)':>24}{'mixture of all':>18}{'optimum':>14}{'limit':>14}",
        ]
        mixture = self.mixture

        def row(name: str, learned: Float, mixed: Float, exact: float | None, limit: str) -> str:
            shown = [f"{interval(x)['mean']:.6g}" if np.isfinite(x).any() else "-" for x in (learned, mixed)]
            known = "-" if exact is None else f"{exact:.6g}"
            return f"{name:24}{shown[0]:>24}{shown[1]:>18}{known:>14}{limit:>14}"

        lines.append(
            row(cmdp.names[0], late.reward, mixture.reward, None if best is None else best.reward, "")
        )
        for i, name in enumerate(cmdp.names[1:]):
            known = None if best is None else float(best.constraints[i])
            limit = f"{cmdp.sense[i]} {cmdp.limits[i]:.6g}"
            lines.append(row(name, late.constraints[:, i], mixture.constraints[:, i], known, limit))
        for i, name in enumerate(cmdp.names[1:]):
            known = None if best is None else float(best.duals[i])
            lines.append(row(f"multiplier of {name}", late.duals[:, i], mixture.duals[:, i], known, ""))
        if best is not None:
            lines.append(row("gap", late.gap, mixture.gap, None, ""))
        if cmdp.n_constraints:
            worst = [a.violation.max(axis=1) for a in (late, mixture)]
            lines.append(row("violation", worst[0], worst[1], None, ""))
            lines.append(
                "(means over replicates; violation is the excess of each, so it can exceed that of the mean)"
            )
        if (
            best is not None
            and self.finished
            and (share := np.nanmean(late.gap) / max(abs(best.reward), 1e-300)) > 0.1
        ):
            lines.append(
                f"The gap is {share:.0%} of the optimum: it falls like one over the root of the outer steps, and needs "
                "inner steps of the order of the number of states."
            )
        if self.empty.any():
            output = "their output is the policy that met the limits best"
            if not self.trace.exact:
                output = "they have no output; raise tol or inner, or check that a policy can meet the limits"
            lines.append(
                f"no outer step met its tolerance in replicates {np.flatnonzero(self.empty).tolist()}: {output}"
            )
        if (self.failed >= 0).any():
            lines.append(f"failed replicates: {np.flatnonzero(self.failed >= 0).tolist()}")
        return "\n".join(lines)

    def save(self, path: str | Path) -> None:
        """Write the run to a .npz file, through a temporary name, so that no file is ever torn.

        ``load_run`` reads it. The model and features are not in it, only their fingerprints.
        """
        head = {
            "format": FORMAT,
            "algorithm": self.algorithm.name,
            "settings": asdict(self.algorithm),
            "seed": self.seed,
            "policy": self.policy_class.fingerprint(),
            "model": self.cmdp.fingerprint(),
            "seconds": self.trace.seconds,
            "done": self.trace.done,
            "exact": self.trace.exact,
            "draws": self.run.problem.draws,
        }
        arrays = {f"state_{k}": v for k, v in self.run.state._asdict().items()}
        arrays |= {f"trace_{k}": getattr(self.trace, k) for k in _TRACE_ARRAYS}
        header = np.frombuffer(json.dumps(head, default=_plain).encode(), np.uint8)
        write_arrays(path, {"header": header} | arrays)


_TRACE_ARRAYS = ("outer", "samples", "reward", "constraints", "duals", "kept", "sums", "occupancy")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")


def read_run(path: str | Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Header and arrays of a saved run.

    Raises
    ------
    ModelError
        Not a file of ``Result.save``, or damaged.
    """
    arrays = read_arrays(path)
    try:
        head = json.loads(arrays.pop("header").tobytes())
        if head["format"] != FORMAT:
            raise ValueError(f"format {head['format']}, and {FORMAT} is expected")
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path}: not a saved run, or damaged ({error})") from error
    return head, arrays


def restore(result: Result, path: str | Path, head: dict[str, Any], arrays: dict[str, NDArray[Any]]) -> None:
    """Put the saved arrays into a fresh result of the same settings, model and policy class.

    Raises
    ------
    ModelError
        The file belongs to another model or policy class, or arrays are missing or of another shape.
    """
    checks: tuple[tuple[str, Callable[[], str]], ...] = (
        ("model", result.cmdp.fingerprint),
        ("policy", result.policy_class.fingerprint),
    )
    for what, fingerprint in checks:
        if head.get(what) != fingerprint():
            raise ModelError(
                f"{path}: the run belongs to another {what}; give the {what} it was started with"
            )
    targets = {f"state_{k}": v for k, v in result.run.state._asdict().items()}
    targets |= {f"trace_{k}": getattr(result.trace, k) for k in _TRACE_ARRAYS}
    for name, target in targets.items():
        found = arrays.get(name)
        if found is None or found.shape != target.shape or found.dtype != target.dtype:
            what = "missing" if found is None else f"{found.dtype}{found.shape}"
            raise ModelError(f"{path}: array {name} is {what}, {target.dtype}{target.shape} is expected")
    outer, n_outer = arrays["state_outer"], int(result.trace.outer[-1])
    try:
        seconds, done = float(head["seconds"]), int(head["done"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelError(f"{path}: the header of the saved run is damaged ({error})") from error
    whole = (
        (arrays["trace_outer"] == result.trace.outer).all()
        and 0 <= done <= len(result.trace.outer)
        and ((outer >= result.run.state.outer) & (outer <= n_outer)).all()
        and np.isfinite(arrays["state_theta"]).all()
    )
    if not whole:
        raise ModelError(f"{path}: the saved run is damaged: its steps or parameters are out of range")
    for name, target in targets.items():
        target[...] = arrays[name]
    result.trace.seconds, result.trace.done = seconds, done
    result.run.refresh()
