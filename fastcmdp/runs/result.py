"""What can be said of a run, from its record.

Averages over the output's outer steps are what guarantees are about: the value of the *mixture* (draw one of its
policies uniformly once, then follow it) is the mean of J(pi_k). Two measurements of it stand side by side:

- ``exact``: policies at the recorded points, evaluated exactly and joined by the rule of `fastcmdp.runs.record`, which
  comes with a bound on what lies between;
- ``estimate``: the mean over *all* outer steps of the output of the estimates that the run draws anyway. It needs no
  model and is the only one where the model is too large.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.exact import Optimum
from fastcmdp.policies import Policy
from fastcmdp.runs.frames import dataset, frame
from fastcmdp.runs.notes import notes
from fastcmdp.runs.record import LAST_QUARTER, NOW, Record, excess
from fastcmdp.runs.saved import write_run

Float = NDArray[np.float64]
Int = NDArray[np.int64]


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
    within : float64[R, 1+m]
        How far off exact means of J_r and of the constraint values are at most, for what lies between the recorded
        points, if J moves one way from each to the next; 0 where every policy of the output is recorded, NaN for
        estimates.
    """

    reward: Float
    constraints: Float
    duals: Float
    gap: Float
    violation: Float
    source: str
    within: Float


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
    trace : Record
    """

    algorithm: Any
    policy_class: Policy
    seed: int
    run: Any
    trace: Record

    def __repr__(self) -> str:
        done = int(self.trace.outer[max(self.trace.done - 1, 0)])
        return (
            f"Result({self.algorithm.name}, {self.samples.size} replicates, outer step {done} of "
            f"{self.algorithm.outer}; summary() says more)"
        )

    @property
    def cmdp(self) -> CMDP:
        """The model."""
        model: CMDP = self.run.world.model
        return model

    @property
    def optimum(self) -> Optimum | None:
        """The exact optimum, or None where it was not computed."""
        best: Optimum | None = self.run.world.optimum
        return best

    @property
    def finished(self) -> bool:
        """Whether all outer steps are done, by one replicate at least: where all have failed, the run is over."""
        return not self.interrupted and bool((self.failed < 0).any())

    @property
    def interrupted(self) -> bool:
        """Whether there is more to do, which ``resume`` does."""
        return self.trace.done < len(self.trace.outer)

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
        """J_r* minus J_r of the mixture over the output, float64[R]."""
        return self.mixture.gap

    @property
    def violation(self) -> Float:
        """Constraint violation of the mixture over the output, float64[R, m]."""
        return self.mixture.violation

    @property
    def mixture(self) -> Averages:
        """Averages over the output: what the guarantee is about."""
        return self._averages(self.algorithm.output.last)

    @property
    def last_quarter(self) -> Averages:
        """Averages over the last quarter of the outer steps made, of those that count for the output."""
        return self.averages(LAST_QUARTER)

    def averages(self, last: float = 1.0, source: Literal["exact", "estimate"] | None = None) -> Averages:
        """Averages over the last fraction ``last`` of the outer steps made, of those that count for the output.

        ``source``: exact values at the trace points, or estimates from all outer steps; default: exact where
        the trace is.
        """
        if not isinstance(last, int | float | np.floating) or not 0.0 < last <= 1.0:
            raise SettingError(f"last = {last!r}: a fraction above 0 and up to 1 is expected")
        if source not in (None, "exact", "estimate"):
            raise SettingError(f"source = {source!r}: 'exact' or 'estimate' is expected")
        return self._averages(float(last), source)

    def _averages(self, last: float, source: str | None = None) -> Averages:
        trace, cmdp, m = self.trace, self.cmdp, self.cmdp.n_constraints
        source = source or ("exact" if trace.exact else "estimate")
        if trace.done < 2:
            nothing = np.full((trace.samples.shape[0], 1 + 2 * m), np.nan)
            return self._made(nothing[:, : 1 + m], nothing[:, 1 + m :], source, nothing[:, : 1 + m])
        means = trace.estimates(last)[:, -1]
        values, within = cmdp.to_user_values(means[:, : 1 + m]), np.full((len(means), 1 + m), np.nan)
        if source == "exact":
            values, within = trace.mean(last)
        return self._made(values, cmdp.to_user_duals(means[:, 1 + m :]), source, within)

    def _made(self, values: Float, duals: Float, source: str, within: Float | None = None) -> Averages:
        best = np.nan if self.optimum is None else self.optimum.reward
        violation = excess(self.cmdp, values)
        within = np.zeros_like(values) if within is None else within
        return Averages(values[:, 0], values[:, 1:], duals, best - values[:, 0], violation, source, within)

    @property
    def empty(self) -> NDArray[np.bool_]:
        """Replicates of which no outer step, or none of those recorded, belongs to the output, bool[R].

        Its place takes the point that met the limits best, or NaN where the trace is not exact (simulators). Only
        methods that keep some outer steps and drop others (CRPO) can come to this.
        """
        if self.trace.exact:
            return self.trace.empty
        kept = self.trace.kept[:, max(self.trace.done - 1, 0)]
        return np.asarray((kept == 0) & (self.failed < 0) & (self.trace.done > 1))

    @property
    def first(self) -> Averages:
        """The policy that the run began with, exactly evaluated: the uniform one, unless its class says otherwise."""
        return self._at(np.zeros(self.samples.shape, np.int64))

    @property
    def last(self) -> Averages:
        """The last iterate alone, exactly evaluated."""
        return self._at(np.full(self.samples.shape, max(self.trace.done - 1, 0)))

    @property
    def best_feasible(self) -> Averages:
        """Of the policies at the trace points that meet the limits, the one with the largest J_r; NaN if none."""
        feasible = (self.cmdp.slack(self.trace.values) >= 0).all(axis=2) & np.isfinite(self.trace.reward)
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
        return self._made(self.trace.values[rows, points], self.trace.duals[rows, points], "exact")

    def policy(
        self, kind: Literal["mixture", "last_quarter", "last"] = "mixture", replicate: int = 0
    ) -> Float:
        """Action probabilities of the choices, float64[C].

        "mixture": the stationary policy with the occupancy of the mixture over the output, hence its
        value; "last_quarter": the same over the last quarter; "last": the last iterate. States never visited
        keep the last iterate's probabilities.
        """
        if kind not in ("mixture", "last_quarter", "last"):
            raise SettingError(f"kind = {kind!r}: 'mixture', 'last_quarter' or 'last'")
        if not isinstance(replicate, int | np.integer) or not 0 <= replicate < self.samples.size:
            raise SettingError(f"replicate = {replicate!r}: 0 to {self.samples.size - 1}")
        last: Float = np.array(self.run.policies()[replicate])
        alone = kind == "mixture" and self.algorithm.output.last == 0.0
        if kind == "last" or (alone and not (self.interrupted and self.trace.exact)):
            return last
        if not self.trace.exact:
            raise SettingError(
                f"kind = {kind!r} needs exact evaluation, which this run did without: ask for 'last'"
            )
        if self.trace.done == 0:
            return last
        nu = self.trace.policy_occupancy(late=kind == "last_quarter")[replicate]
        if alone:  # the policy at the last point, whose values are shown, and not where the run stands
            nu = self.trace.occupancies[NOW, replicate]
        total = np.add.reduceat(nu, self.cmdp.state_to_choice[:-1])[self.cmdp.choice_state]
        return np.where(total > 0, nu / np.where(total > 0, total, 1.0), last)

    def notes(self) -> list[str]:
        """What must not be overlooked: limits that are missed, multipliers that are not there yet, and the like.

        A sentence or two each, with what helps; none where all is well.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> result = fc.solve(fc.envs.river_swim(), fc.PDANPG(outer=50, inner=5))
        >>> any("uniform policy" in note for note in result.notes())
        True
        """
        return notes(self)

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
            "outer": int(self.run.state.outer.clip(min=0).min()),
            "recorded": int(self.trace.outer[max(self.trace.done - 1, 0)]),
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
            "within": {
                "gap": interval(all_steps.within[:, 0])["mean"],
                "violation": interval(all_steps.within[:, 1:].max(axis=1, initial=0.0))["mean"],
            },
            "notes": self.notes(),
            "seconds": seconds,
            "evaluating": self.trace.evaluating,
            "transitions_per_second": total / seconds if seconds > 0 else None,
        }

    def to_pandas(self) -> Any:
        """The record as a pandas frame, a row for each replicate and recorded outer step.

        Indexed by ``replicate`` and ``outer``, with ``samples`` (transitions so far), for each signal its J of the
        policy at that step and, as ``mixture NAME``, of the output so far, ``multiplier NAME`` for each constraint, and
        ``gap`` and the worst ``violation`` of the output; all in the user's units.

        Raises
        ------
        SettingError
            Pandas is not installed.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> result = fc.solve(fc.envs.river_swim(), fc.PDANPG(outer=4, inner=5), replicates=2, trace=2)
        >>> result.to_pandas().loc[1].index.tolist()
        [0, 1, 2, 4]
        """
        return frame(self)

    def to_xarray(self) -> Any:
        """The record as an xarray dataset over ``replicate``, ``outer``, ``signal`` and ``constraint``.

        ``value`` and ``mixture`` are J of the policy at a step and of the output so far, ``multiplier``, ``samples``,
        ``kept`` (outer steps in the output) and ``failed`` go with them; limits and the exact optimum are coordinates,
        units stand in the attributes of each, settings and seed in those of the whole. Values are in the user's units.

        Raises
        ------
        SettingError
            Xarray is not installed.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> result = fc.solve(fc.envs.river_swim(), fc.PDANPG(outer=4, inner=5), replicates=2, trace=2)
        >>> dict(result.to_xarray().value.sizes)
        {'replicate': 2, 'outer': 4, 'signal': 2}
        """
        return dataset(self)

    def summary(self) -> str:
        """The run in a few lines, beside the exact optimum."""
        cmdp, best, late = self.cmdp, self.optimum, self.last_quarter
        total, seconds = int(self.samples.sum()), self.trace.seconds
        lines = [
            f"{self.algorithm.name} on {cmdp!r}",
            f"{self.samples.size} replicates {self._stands()}, {total:.3g} transitions in {seconds:.1f} s"
            + (f", {self.trace.evaluating:.1f} s of evaluations for the trace" if self.trace.exact else ""),
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
        lines += self._within(mixture)
        return "\n".join(lines + self.notes())

    def _stands(self) -> str:
        """How far the run is, and up to where its averages go if that is less."""
        if not self.interrupted:
            return "finished" if self.finished else "failed"
        made, recorded = self.run.state.outer.clip(min=0), int(self.trace.outer[max(self.trace.done - 1, 0)])
        least, most = int(made.min()), int(made.max())
        told = f"{least}" if least == most else f"{least} to {most}"
        till = (
            "" if least == most == recorded else f" (averages up to step {recorded}, the last one recorded)"
        )
        return f"at outer step {told} of {self.algorithm.outer}{till}"

    def _within(self, mixture: Averages) -> list[str]:
        """How far off the figures of the mixture are at most, where not every policy of it is recorded."""
        gap, violation = mixture.within[:, 0], mixture.within[:, 1:].max(axis=1, initial=0.0)
        if not np.nanmax(np.append(gap, 0.0)) > 0.0:
            return []
        known = f"gap within {interval(gap)['mean']:.2g}"
        if self.cmdp.n_constraints:
            known += f", violation within {interval(violation)['mean']:.2g}"
        n = int((self.trace.member[:, : self.trace.done] == 1).sum(axis=1).max())
        estimate = self._averages(self.algorithm.output.last, "estimate")
        columns = [estimate.reward, *estimate.constraints.T]
        own = ", ".join(
            f"{name} {interval(column)['mean']:.6g}"
            for name, column in zip(self.cmdp.names, columns, strict=True)
            if np.isfinite(column).any()
        )
        return [
            f"(the mixture from {n} of its policies, evaluated exactly: {known}, if J moves one way between them; "
            f"the run's own estimates of all of them: {own}; trace=N evaluates more)"
        ]

    def save(self, path: str | Path) -> None:
        """Write the run to a .npz file, through a temporary name, so that no file is ever torn.

        ``load_run`` reads it. The model and features are not in it, only their fingerprints.
        """
        write_run(self, path)
