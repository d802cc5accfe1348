"""What can be said of a run, from its record.

Averages over the output's outer steps are what guarantees are about: the value of the *mixture* (draw one of its
policies uniformly once, then follow it) is the mean of J(pi_k). Two measurements of it stand side by side:

- ``exact``: policies at the recorded points, evaluated exactly and joined by the rule of `fastcmdp.runs.record`, which
  comes with a bound on what lies between;
- ``estimate``: the mean over *all* outer steps of the output of the estimates that the run draws anyway. It needs no
  model and is the only one where the model is too large.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from fastcmdp.cmdp import CMDP
from fastcmdp.errors import SettingError
from fastcmdp.exact import Optimum
from fastcmdp.policies import Policy
from fastcmdp.runs.accuracy import Accuracy, accuracy, windows
from fastcmdp.runs.agent import Agent, agent_of
from fastcmdp.runs.best import BestPolicy, best
from fastcmdp.runs.frames import dataset, frame
from fastcmdp.runs.notes import notes
from fastcmdp.runs.outputs import GUARANTEES, Averages, interval, suffix_fraction, weighted
from fastcmdp.runs.record import LAST_QUARTER, NOW, Record, excess
from fastcmdp.runs.saved import write_run
from fastcmdp.runs.summary import summary

Float = NDArray[np.float64]
Int = NDArray[np.int64]


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
    replanned : list of str
        Where the run went on beyond its first K under other rates.
    reached : str
        What became of the target that was asked for; "" if none was.
    """

    algorithm: Any
    policy_class: Policy
    seed: int
    run: Any
    trace: Record
    replanned: list[str] = field(default_factory=list)
    reached: str = ""

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
        return self._averages(None)

    @property
    def own_estimates(self) -> Averages:
        """Averages over the output from the run's own estimates of all outer steps."""
        return self._averages(None, "estimate")

    @property
    def last_quarter(self) -> Averages:
        """Averages over the last quarter of the outer steps made, of those that count for the output."""
        return self.averages(LAST_QUARTER)

    @property
    def suffix(self) -> Averages:
        """Averages over the longest of the last 3/4, 1/2, 1/4, 1/8 over which J has settled, by the record."""
        fraction = suffix_fraction(self.trace) if self.trace.done > 1 else LAST_QUARTER
        return replace(self._averages(fraction), guarantee=GUARANTEES["suffix"])

    @property
    def weighted(self) -> Averages:
        """Averages over the points of the record, with weights that grow linearly with the outer step."""
        trace, n = self.trace, self.trace.done
        whole = self._averages(1.0)
        if n < 2:
            return replace(whole, guarantee=GUARANTEES["weighted"])
        steps = trace.outer[:n].astype(np.float64)
        series = np.concatenate([windows(trace, trace.exact), self._window_duals()], axis=2)
        means = np.stack([weighted(steps, rows) for rows in series])
        split = 1 + self.cmdp.n_constraints
        return self._made(
            means[:, :split], means[:, split:], whole.source, np.full((len(means), split), np.nan), "weighted"
        )

    def _window_duals(self) -> Float:
        """Mean multipliers of the windows between points, float64[R, n, m]; of the first point, the first window's."""
        own = self.trace.estimates(0.0)[:, :, 1 + self.cmdp.n_constraints :]
        return np.asarray(self.cmdp.to_user_duals(np.concatenate([own[:, 1:2], own[:, 1:]], axis=1)))

    @property
    def best(self) -> BestPolicy:
        """One stationary policy to deploy: of all that is recorded, the best that meets the limits.

        On tables of up to 20,000 choices it is a mixture of recorded occupancies made stationary, with its exact
        value; else the best last iterate, exactly evaluated or, on simulators, by one batch of 10,000 rollouts and
        measured by another, with 95 % intervals. ``feasible`` says whether the limits are met.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> found = fc.solve(fc.envs.river_swim(), samples=1e5).best
        >>> found.feasible, found.policy.shape
        (True, (16,))
        """
        return best(self)

    @property
    def accuracy(self) -> Accuracy:
        """How far the last quarter is from the optimum, relative, with a 95 % interval."""
        return accuracy(self)

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

    def _averages(self, last: float | None, source: str | None = None) -> Averages:
        """Over the last part of the outer steps, or (None) over the method's output."""
        name = "mixture" if last is None or last == 1.0 else "last_quarter"
        trace, cmdp, m = self.trace, self.cmdp, self.cmdp.n_constraints
        source = source or ("exact" if trace.exact else "estimate")
        if trace.done < 2:
            nothing = np.full((trace.samples.shape[0], 1 + 2 * m), np.nan)
            return self._made(nothing[:, : 1 + m], nothing[:, 1 + m :], source, nothing[:, : 1 + m], name)
        means = trace.estimates(last)[:, -1]
        values, within = cmdp.to_user_values(means[:, : 1 + m]), np.full((len(means), 1 + m), np.nan)
        if source == "exact":
            values, within = trace.mean(last)
        return self._made(values, cmdp.to_user_duals(means[:, 1 + m :]), source, within, name)

    def _made(
        self, values: Float, duals: Float, source: str, within: Float | None = None, name: str = "last"
    ) -> Averages:
        known = np.nan if self.optimum is None else self.optimum.reward
        violation = excess(self.cmdp, values)
        within = np.zeros_like(values) if within is None else within
        gap = known - values[:, 0]
        return Averages(values[:, 0], values[:, 1:], duals, gap, violation, source, within, GUARANTEES[name])

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
        for part in (
            averages.reward,
            averages.constraints,
            averages.duals,
            averages.gap,
            averages.violation,
        ):
            part[~feasible.any(axis=1)] = np.nan
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
        alone = kind == "mixture" and self.trace.last_alone
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

    def policy_table(
        self, kind: Literal["mixture", "last_quarter", "last"] = "last_quarter", replicate: int = 0
    ) -> Float:
        """Action probabilities, float64[S, A]: of action number a in state s, 0 where s does not have it.

        Examples
        --------
        >>> import fastcmdp as fc
        >>> fc.solve(fc.envs.river_swim(), samples=1e4).policy_table().shape
        (8, 2)
        """
        cmdp = self.cmdp
        table = np.zeros((cmdp.n_states, int(cmdp.action_of_choice.max()) + 1))
        table[cmdp.choice_state, cmdp.action_of_choice] = self.policy(kind, replicate)
        return table

    def agent(
        self,
        kind: Literal["best", "mixture", "last_quarter", "last"] = "best",
        replicate: int = 0,
        seed: int | None = None,
    ) -> Agent:
        """A policy that acts: called with an observation, it draws an action from a stream of its own.

        On simulators "best" and "last" alone are stationary policies. ``replicate`` is left out for "best".

        Examples
        --------
        >>> import fastcmdp as fc
        >>> cmdp = fc.envs.river_swim()
        >>> agent = fc.solve(cmdp, samples=1e4).agent(seed=0)
        >>> agent(3) in (0, 1)
        True
        """
        return agent_of(self, kind, replicate, seed)

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
            "error": self.accuracy.to_dict(),
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
        return summary(self)

    def save(self, path: str | Path) -> None:
        """Write the run to a .npz file, through a temporary name, so that no file is ever torn.

        ``load_run`` reads it. The model and features are not in it, only their fingerprints.
        """
        write_run(self, path)
