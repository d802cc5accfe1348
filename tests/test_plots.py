"""Pictures of runs: the right numbers in the right panels, for any number of constraints and replicates."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import fastcmdp as fc

pytest.importorskip("matplotlib")

from fastcmdp import plots
from fastcmdp.plots import curves, plot_run


def run(m=1, replicates=3, seed=0, **options):
    cmdp = fc.envs.garnet(n_states=6, n_actions=3, gamma=0.8, seed=1, n_constraints=m)
    settings = fc.PDANPG(**{"outer": 60, "inner": 10, "pilot": 5} | options.pop("settings", {}))
    return fc.solve(cmdp, settings, replicates=replicates, seed=seed, trace=20, **options)


def horizontal(axes):
    """The lines across a panel: height to colour."""
    lines = [line for line in axes.lines if line.get_xdata()[0] == 0.0 and len(line.get_xdata()) == 2]
    return {float(line.get_ydata()[0]): line.get_color() for line in lines}


def legend(figure):
    return [text.get_text() for text in figure.legends[0].get_texts()]


def shade(axes):
    """Lowest and highest point of the shaded side, or None."""
    patches = [p for p in axes.patches if p.get_facecolor()[:3] == pytest.approx((0, 158 / 255, 115 / 255))]
    return (patches[0].get_extents().transformed(axes.transData.inverted()).intervaly) if patches else None


@pytest.mark.parametrize("exact", [True, False])
def test_curves_end_at_the_averages_of_the_result(exact):
    result = run(m=2, optimum=None if exact else False)
    samples, iterates, mixture = curves(result)
    mean = result.mixture
    assert mean.source == ("exact" if exact else "estimate")
    np.testing.assert_allclose(mixture[:, -1, 0], mean.reward, rtol=1e-12)
    np.testing.assert_allclose(mixture[:, -1, 1:], mean.constraints, rtol=1e-12)
    assert samples.tolist() == result.trace.samples.mean(axis=0).tolist()
    if exact:
        np.testing.assert_array_equal(iterates[:, :, 0], result.trace.reward)
    else:  # means over windows: weighted by their lengths, they make up the whole
        weights = np.diff(result.trace.outer) / result.trace.outer[-1]
        np.testing.assert_allclose((iterates[:, 1:, 0] * weights).sum(axis=1), mean.reward, rtol=1e-12)
        assert np.isnan(iterates[:, 0]).all()


def test_the_mixture_is_the_running_mean_at_every_point():
    result = run()
    _, iterates, mixture = curves(result)
    outer = result.trace.outer
    for i in (1, 7):
        for r, k in np.ndindex(3, 2):  # the policies before steps 0 .. outer[i] - 1
            mean = np.interp(np.arange(outer[i]), outer[:i], iterates[r, :i, k]).mean()
            assert mixture[r, i, k] == pytest.approx(mean, rel=1e-12)


@pytest.mark.parametrize("m", [0, 1, 2])
def test_one_panel_for_the_reward_and_for_each_constraint(m):
    result = run(m=m)
    figure = plot_run(result)
    assert len(figure.axes) == 1 + m
    best, cmdp = result.optimum, result.cmdp
    assert horizontal(figure.axes[0]) == {best.reward: plots.OPTIMUM}
    assert shade(figure.axes[0]) is None
    for i, axes in enumerate(figure.axes[1:]):
        assert horizontal(axes)[cmdp.limits[i]] == plots.LIMIT
        assert shade(axes)[1] == pytest.approx(cmdp.limits[i])
        low, high = axes.get_ylim()
        assert low < cmdp.limits[i] < high
        assert cmdp.names[1 + i] in axes.get_ylabel()
        assert any("limit" in text.get_text() for text in axes.texts)
    assert ("limit met" in legend(figure)) == (m > 0)


def test_a_run_on_a_simulator_has_a_plot():
    queue = fc.simulators.tandem_queue()
    figure = plot_run(fc.solve(queue, fc.PDANPG(outer=4, inner=4, pilot=2)))
    assert len(figure.axes) == 1 + queue.n_constraints
    texts = [figure.get_suptitle(), *(axes.get_title(loc="left") for axes in figure.axes)]
    assert any(f"{queue.n_actions} actions, gamma 0.95" in text for text in texts)


def test_thick_is_the_mixture_and_light_the_policies():
    result = run()
    _, iterates, mixture = curves(result)
    for i, axes in enumerate(plot_run(result).axes):
        light, thick = (line for line in axes.lines if len(line.get_xdata()) > 2)
        np.testing.assert_allclose(light.get_ydata(), iterates[:, :, i].mean(axis=0))
        np.testing.assert_allclose(thick.get_ydata(), mixture[:, :, i].mean(axis=0))
        assert thick.get_linewidth() > 2 * light.get_linewidth()
        bands = [band.get_paths()[0].vertices[:, 1] for band in axes.collections]
        assert [band.max() for band in bands] == [iterates[:, :, i].max(), mixture[:, :, i].max()]
        assert [band.min() for band in bands] == [iterates[:, :, i].min(), mixture[:, :, i].min()]


def test_the_legend_says_what_the_bands_are():
    assert any("3 replicates, least to greatest" in text for text in legend(plot_run(run())))
    single = plot_run(run(replicates=1))
    assert not any("replicates" in text for text in legend(single))
    assert not single.axes[0].collections


def test_an_inactive_limit_stands_beside_the_optimum():
    cmdp = fc.envs.garnet(n_states=6, n_actions=3, gamma=0.8, seed=1)
    loose = cmdp.with_limits([6.0])
    result = fc.solve(loose, fc.PDANPG(outer=20, inner=5), trace=5)
    axes = plot_run(result).axes[1]
    assert horizontal(axes) == {6.0: plots.LIMIT, result.optimum.constraints[0]: plots.OPTIMUM}
    assert sorted(text.get_text().split()[0] for text in axes.texts) == ["limit", "optimum"]


def test_the_side_above_a_lower_limit_is_shaded():
    cmdp = fc.envs.garnet(n_states=6, n_actions=3, gamma=0.8, seed=1)
    turned = fc.CMDP(
        cmdp.state_to_choice, cmdp.choice_to_branch, cmdp.branch_target, cmdp.branch_prob, cmdp.reward,
        [cmdp.costs[:, 0]], gamma=0.8, limits=[2.0], sense=">=", names=["profit", "price in $ or $US"],
    )  # fmt: skip
    figure = plot_run(fc.solve(turned, fc.PDANPG(outer=20, inner=5), trace=5))
    low, high = shade(figure.axes[1])
    assert low == pytest.approx(2.0)
    assert high == pytest.approx(figure.axes[1].get_ylim()[1])
    assert r"in \$ or \$US" in figure.axes[1].get_ylabel()  # which is no mathematics


def test_an_unfinished_run_is_drawn_as_far_as_it_goes(tmp_path):
    def callback(state):
        if state.outer >= 30:
            raise KeyboardInterrupt

    result = run(progress=callback, piece=3)
    assert not result.finished
    samples, iterates, mixture = curves(result)
    n = result.trace.done
    assert 1 < n < 20
    assert (samples.shape, iterates.shape, mixture.shape) == ((n,), (3, n, 2), (3, n, 2))
    assert np.isfinite(mixture).all()
    plot_run(result, tmp_path / "run.png")


def test_a_run_that_failed_at_once_is_drawn(tmp_path):
    for exact in (None, False):
        with pytest.warns(RuntimeWarning, match="ceased to be finite"):
            failed = run(settings={"xi": 1e300}, optimum=exact)
        _, iterates, mixture = curves(failed)
        assert np.isnan(iterates[:, 1:]).all()
        assert np.isnan(mixture[:, 1:]).all()
        plot_run(failed, tmp_path / "run.png")  # without a warning, which pytest would make an error


def test_a_failed_replicate_ends_where_it_failed():
    result = run(optimum=False)
    result.run.state.failed[1] = 30
    result.trace.samples[1, result.trace.outer > 30] = 0
    samples, iterates, mixture = curves(result)
    late = result.trace.outer > 30
    for values in (iterates[:, 1:], mixture[:, 1:]):
        assert np.isnan(values[1, late[1:]]).all()
        assert np.isfinite(values[1, ~late[1:]]).all()
        assert np.isfinite(values[[0, 2]]).all()
    assert samples.tolist() == result.trace.samples[[0, 2]].mean(axis=0).tolist()


def test_files(tmp_path):
    result = run()
    for ending, magic in (("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")):
        path = tmp_path / f"run.{ending}"
        plot_run(result, path, title="a title & more")
        assert path.read_bytes().startswith(magic)
    text = (tmp_path / "run.svg").read_text()
    assert "<text" in text  # not outlines of letters
    assert "a title &amp; more" in text
    assert f"optimum {result.optimum.reward:.4g}" in text
    for ending in ("docx", "jpg", "PNGG"):  # the same as on the command line
        with pytest.raises(fc.SettingError, match=rf"run\.{ending}: a plot is a file .png, .svg or .pdf"):
            plot_run(result, tmp_path / f"run.{ending}")
    plot_run(result, tmp_path / "run.PNG")


def test_without_matplotlib_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(fc.SettingError, match=r"fastcmdp\[plot\]"):
        plot_run(run())


def test_pyplot_and_its_global_state_stay_out(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    plot_run(run())


@pytest.mark.parametrize("known", [True, False], ids=["exact", "estimates"])
def test_the_mixture_is_of_the_outer_steps_that_are_kept(known):
    """Where only some outer steps belong to the output, the line ends at the figure that is reported."""
    result = fc.solve(
        fc.envs.river_swim(), fc.PDANPG(outer=30, inner=10), replicates=2, optimum=known, trace=6
    )
    record = result.trace
    assert record.outer.tolist() == [0, 1, 2, 4, 5, 10, 15, 20, 25, 30]
    record.kept[:] = [[0, 0, 0, 1, 2, 3, 3, 7, 8, 12], [0, 1, 1, 1, 1, 1, 2, 2, 2, 9]]
    record.member[:, :-1] = [[0, 0, 1, 1, 0, 0, 1, 0, 1], [1, 0, 0, 0, 0, 1, 0, 0, 1]]
    _, _, mixture = curves(result)
    expected = result.mixture
    np.testing.assert_allclose(mixture[:, -1, 0], expected.reward, rtol=1e-12)
    np.testing.assert_allclose(mixture[:, -1, 1:], expected.constraints, rtol=1e-12)
    assert np.isnan(mixture[0, 1, 0])
    assert np.isfinite(mixture[1, 1, 0])
