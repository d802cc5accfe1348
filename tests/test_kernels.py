"""Single kernels against their plain twins, how often they compile, and what is cached on disk."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
import scipy.sparse as sp
from from_python import from_python
from numba import config, njit

import fastcmdp
from fastcmdp.algorithms import CNPGPDA, NPGPD, PDANPG
from fastcmdp.cmdp import CMDP
from fastcmdp.kernels import sources, streams
from fastcmdp.kernels.algorithm import pd_anpg
from fastcmdp.kernels.learning import asgd
from fastcmdp.kernels.policy import softmax
from fastcmdp.kernels.policy.scores import DenseScores, SparseScores, natural_norm
from fastcmdp.kernels.sampling import rollouts, tables
from fastcmdp.policies import LogLinear, NeuralSoftmax, TabularSoftmax
from fastcmdp.streams import streams as make_streams
from fastcmdp.tables import build_actions, build_tables, entry_type
from fastcmdp.worlds import TableWorld

HALF_WORDS = [0, 1, 2**31, 2**32 - 1]
WORDS = [0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1]
compiled = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="about compiled code")


# Random numbers.


def test_words_equal_numpy() -> None:
    rng, twins = make_streams(seed=3, replicates=2)[1], naive.streams(3, 1, streams.LANES)
    for lane, twin in enumerate(twins):
        words = [streams.next_word(rng, lane) for _ in range(50)]
        assert words == [naive.next_word(twin) for _ in range(50)]
    assert rng.tolist() == naive.state_words(twins)


@pytest.mark.parametrize("gamma", [0.1, 0.9, 0.99, 1 - 1e-9])
def test_geometric_horizon(gamma: float) -> None:
    words = WORDS + np.random.default_rng(0).integers(0, 2**64, 1000, np.uint64).tolist()
    inverse = 1.0 / np.log(gamma)
    got = [rollouts.geometric_horizon(np.uint64(word), inverse) for word in words]
    assert got == [naive.geometric_horizon(word, gamma) for word in words]
    assert min(got) == got[0] == 0
    assert max(got) == got[len(WORDS) - 1] == pytest.approx(np.log(2.0**-53) / np.log(gamma), abs=1)


# Alias rows.

SHORT = [0.0, 0.3, 0.3]  # has no law, and must not draw its first label all the same


@njit
def draw_label(entry: np.ndarray, first: np.uint64, n: np.uint64, bits: np.uint64) -> np.uint64:
    return tables.draw_label(entry, first, n, bits)


def alias_cases() -> list[list[float]]:
    """Weights that sum to 1 to rounding, zeros and hardly possible labels among them."""
    rng = np.random.default_rng(1)
    cases = [SHORT, [1.0], [0.0, 1.0, 0.0], [1 / 3] * 3, [0.1] * 10, [1e-300, 1.0], [0.0] * 7 + [0.5, 0.5]]
    cases += [[2.0**-33, 1 - 2.0**-33], [1 - 2.0**-53, 2.0**-53], [0.7, 0.1, 0.1, 0.1]]
    for n in (2, 3, 4, 5, 8, 17, 33):
        weights = rng.dirichlet(np.full(n, 0.2)) * (rng.random(n) < 0.7)
        weights[rng.integers(n)] += 1e-3
        cases.append((weights / weights.sum()).tolist())
    return cases


@pytest.mark.parametrize("draws", ["fast", "exact"])
@pytest.mark.parametrize("surplus", [0, 1, 5])
def test_alias_rows(surplus: int, draws: str) -> None:
    exact = draws == "exact"
    for weights in alias_cases():
        n = len(weights)
        size = n + surplus
        entry, space = np.zeros((size, 3), entry_type(draws)), tables.new_row_space(size)
        label = np.arange(n, dtype=np.uint32)
        tables.fill_alias_row(
            np.array(weights), 0, n, label, entry.reshape(-1), 0, size, space.below, space.scaled
        )
        row = naive.fill_alias_row(weights, label.tolist(), size, exact)
        assert [tuple(e) for e in entry.tolist()] == row
        for bits in WORDS if exact else HALF_WORDS:
            drawn = draw_label(entry.ravel(), np.uint64(0), np.uint64(size), np.uint64(bits))
            assert drawn == naive.draw_label(row, bits, exact)
        # Nothing impossible, over all 2^32 half words; and everything else as often as it should be.
        law = [naive.law(row, exact).get(i, 0) for i in range(n)]
        assert all(p == 0 for p, weight in zip(law, weights, strict=True) if weight == 0.0)
        if weights != SHORT:
            off = sum(abs(p - Fraction(weight)) for p, weight in zip(law, weights, strict=True)) / 2
            assert off <= Fraction(size + 1, 2**53 if exact else 2**32)


@pytest.mark.parametrize("draws", ["fast", "exact"])
@pytest.mark.parametrize("name", naive.MODELS)
def test_tables_of_a_model(name: str, draws: str) -> None:
    cmdp, exact = CMDP(**naive.MODELS[name]), draws == "exact"
    model, got = naive.plain(cmdp, exact), build_tables(cmdp, draws)
    codes, n_entries = naive.build_state_rows(model)
    assert got.state_row.tolist() == codes

    def coded(rows: list[naive.Row]) -> list[list[float]]:
        return [[threshold, codes[yes], codes[no]] for row in rows for threshold, yes, no in row]

    assert got.branch_entry.reshape(-1, 3).tolist() == coded(naive.build_branches(model))
    assert got.start_entry.reshape(-1, 3).tolist() == coded([naive.build_start(model)])
    assert {s for _, *labels in naive.build_start(model) for s in labels} <= set(np.flatnonzero(cmdp.start))
    assert got.choice_signal[:, 1 : 1 + got.n_signals].tolist() == model.signals

    prob = np.random.default_rng(0).random(cmdp.n_choices)
    prob /= np.add.reduceat(prob, cmdp.state_to_choice[:-1])[cmdp.choice_state]
    entry, rows = build_actions(got, prob).entry.reshape(-1, 3), naive.fill_actions(model, prob.tolist())
    assert len(entry) == n_entries
    assert sorted(map(tuple, entry.tolist())) == sorted(e for row in rows for e in row)
    for code, row in zip(codes, rows, strict=True):
        for bits in WORDS if exact else HALF_WORDS:
            drawn = tables.draw_action(entry.ravel(), np.uint64(code), np.uint64(bits))
            assert drawn == naive.draw_label(row, bits, exact)


# The inner loop.

MOMENTA = [
    PDANPG().momentum(2.0),
    PDANPG(mu_f=1e-3).momentum(2.0),
    PDANPG(mu_f=1e-3, kappa_tilde=9.0).momentum(2.0),
    PDANPG(method="sgd").momentum(2.0),
    asgd.Momentum(alpha=0.3, beta=0.6, xi=0.25, delta=0.05),
    asgd.Momentum(alpha=0.9, beta=0.01, xi=0.0, delta=0.1),
]


inner_loop, norm_of = from_python(asgd.asgd), from_python(natural_norm)


class Inner:
    """Random scores with two to four nonzeros and targets for H steps, and what the kernels make of them."""

    def __init__(self, momentum: asgd.Momentum, n_steps: int, average: str, d: int = 9) -> None:
        rng = np.random.default_rng(n_steps)
        self.momentum, self.n_steps, self.d = momentum, n_steps, d
        self.average = average
        self.target = rng.standard_normal(n_steps)
        dense = np.zeros((n_steps, d))
        for row in dense:
            row[rng.permutation(d)[: rng.integers(2, 5)]] = rng.uniform(-0.5, 0.5)
        filled = sp.csr_array(dense)
        self.rows = DenseScores(dense, np.arange(d, dtype=np.int32))
        self.lists = SparseScores(
            first=filled.indptr.astype(np.int64),
            slot=filled.indices.astype(np.int32),
            value=filled.data,
            coordinate=np.arange(d, dtype=np.int32),
            position=np.zeros(d, np.int64),
            mark=np.full(d, -1, np.int32),
        )
        self.weights = self._weights(n_steps)

    def _weights(self, n_steps: int) -> asgd.Weights:
        weights = asgd.Weights(np.full(n_steps + 1, np.nan), np.full(n_steps, np.nan))
        asgd.fill_weights(self.momentum, self.n_skipped(n_steps), weights)
        return weights

    def n_skipped(self, n_steps: int) -> int:
        return PDANPG(inner=n_steps, average=self.average).n_skipped()

    def lazy(self) -> np.ndarray:
        inner, omega = self._space()
        inner_loop(self.lists, self.momentum, self.weights, self.target, self.n_steps, self.d, inner, omega)
        return omega

    def dense(self, n_steps: int) -> tuple[np.ndarray, np.ndarray]:
        """The tail average of so many steps, and the last iterate."""
        inner, omega = self._space()
        weights = self._weights(n_steps)
        inner_loop(self.rows, self.momentum, weights, self.target, n_steps, self.d, inner, omega)
        return omega, naive.iterate(self.momentum, inner.u, inner.w)

    def _space(self) -> tuple[asgd.InnerState, np.ndarray]:
        garbage = np.full((3, self.d), np.nan)
        return asgd.InnerState(garbage[0], garbage[1], np.full(self.d, 10**9)), garbage[2]


@pytest.mark.parametrize("n_steps", [1, 2, 3, 8, 101])
@pytest.mark.parametrize("average", ["tail", "uniform"])
@pytest.mark.parametrize("momentum", MOMENTA)
def test_asgd(momentum: asgd.Momentum, average: str, n_steps: int) -> None:
    case = Inner(momentum, n_steps, average)
    skipped = case.n_skipped(n_steps)
    assert skipped == (n_steps // 2 if average == "tail" else 0)
    rows, target = case.rows.dense.tolist(), case.target.tolist()
    pairs = [[(i, g) for i, g in enumerate(row) if g != 0.0] for row in rows]
    power, push = naive.fill_weights(momentum, skipped, n_steps)
    np.testing.assert_allclose(case.weights.decay_power, power, rtol=1e-13)  # another pow
    np.testing.assert_allclose(case.weights.push, push, rtol=1e-11, atol=1e-15)  # a formula against a sum

    lazy, (dense, last) = case.lazy(), case.dense(n_steps)
    assert np.abs(dense).max() > 1e-3
    np.testing.assert_allclose(
        lazy, naive.asgd_lazy(momentum, pairs, target, case.d, skipped), rtol=0, atol=1e-12
    )
    np.testing.assert_allclose(dense, naive.asgd_dense(momentum, rows, target, skipped), rtol=0, atol=1e-12)
    np.testing.assert_allclose(lazy, dense, rtol=0, atol=1e-12)
    # The average by its definition, from runs of 1, 2, .. H steps; H = 1 gives x_1.
    tail = [case.dense(h)[1] for h in range(skipped + 1, n_steps + 1)]
    np.testing.assert_allclose(dense, np.mean(tail, axis=0), rtol=0, atol=1e-12)
    if n_steps == 1:
        first = momentum.delta * target[0] * case.rows.dense[0]
        np.testing.assert_allclose(dense, first, rtol=1e-12)
        np.testing.assert_allclose(last, first, rtol=1e-12)
    if momentum.xi == momentum.delta:  # then it is plain stochastic gradient descent
        w, iterates = np.zeros(case.d), []
        for g, a in zip(case.rows.dense, case.target, strict=True):
            w = w - momentum.delta * (g @ w - a) * g
            iterates.append(w)
        np.testing.assert_allclose(lazy, np.mean(iterates[skipped:], axis=0), rtol=0, atol=1e-12)
    for scores in (case.rows, case.lists):
        norm = norm_of(scores, dense, n_steps)
        assert norm == pytest.approx(naive.natural_norm(rows, dense.tolist()), rel=1e-12)


# Compilation and its cache.


def python(code: str, *path: Path, **env: str) -> str:
    """What code prints in a process of its own that imports from path first."""
    root = Path(fastcmdp.__file__).parents[1]
    env = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, [*path, root]))} | env
    ended = subprocess.run([sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stdout[-3000:] + ended.stderr[-3000:]
    return ended.stdout


def run_many_models() -> None:
    """Run models of many sizes, and input and settings of many spellings; print the number of signatures."""
    transition = np.random.default_rng(0).dirichlet(np.ones(4), (4, 2))
    signal = np.array([[0, 1], [1, 0], [1, 1], [0, 0]])
    casts: list[Any] = [
        np.float32,
        np.asfortranarray,
        np.ndarray.tolist,
        lambda x: np.repeat(x, 2, 1)[:, ::2],
    ]
    arrays = [
        CMDP.from_arrays(cast(transition), cast(signal), cast(signal), gamma=0.9, limits=5) for cast in casts
    ]
    spelled = PDANPG(
        outer=np.int32(2), inner=np.int8(3), pilot=np.uint8(1), eta=np.float32(0.1), zeta=1, lambda_max=2,
        g_squared=np.float32(4), mu_f=1, alpha=np.float32(0.5), xi=1, delta=np.float16(0.25), margin=1,
    )  # fmt: skip
    # Where a model has many states, rows of log-linear policies are made on demand: two kinds more, left out.
    models = [CMDP(**rows) for name, rows in naive.MODELS.items() if name != "many states"]
    for cmdp in models + arrays:
        phi = np.ones((cmdp.n_choices, 3), np.float32, order="F")
        spellings = [phi, phi.tolist(), phi[:, ::2], sp.coo_matrix(phi), sp.csc_array(phi.astype(int))]
        networks = [
            NeuralSoftmax(np.ones((cmdp.n_states, 3), np.float32, order="F")),
            NeuralSoftmax(hidden=[np.int8(3), 2], activation="relu", choice_features=sp.coo_matrix(phi)),
        ]
        for policy in [TabularSoftmax(), *map(LogLinear, spellings), *networks]:
            projected = NPGPD(outer=np.int32(2), inner=3, pilot=1, radius=1, step=np.float32(0.5))
            others = [projected, CNPGPDA(outer=2, pilot=1)]
            for settings in (
                PDANPG(outer=2, inner=3, pilot=1),
                spelled,
                *(() if policy in networks else others),  # a solver more takes seconds to compile
            ):
                run = settings.run(TableWorld.of(cmdp, policy), 0, 2)
                run.advance(1, 3, run.work())
        build_actions(run.world.tables, run.policies()[0])
    kernels = [tables.fill_tables, tables.fill_actions, softmax.refresh_all, pd_anpg.advance]
    count = {kernel.__name__: len({*kernel.signatures, *kernel.callee().signatures}) for kernel in kernels}
    print(json.dumps(count))


@compiled
def test_kernels_compile_once_a_policy_kind() -> None:
    """In a process of its own, for other tests may call kernels as no user does."""
    count = json.loads(python("import test_kernels; test_kernels.run_many_models()", Path(__file__).parent))
    assert count.pop("refresh_all") == 4
    assert count.pop("advance") == 7  # three kinds of policies with two inner solvers, networks with one
    assert set(count.values()) == {1}


@compiled
@pytest.mark.slow
def test_replay_under_bounds_checking(tmp_path: Path) -> None:
    code = f"import pytest; raise SystemExit(pytest.main(['-q', '-x', '-p', 'no:cacheprovider', {str(REPLAY)!r}]))"
    python(code, NUMBA_BOUNDSCHECK="1", NUMBA_CACHE_DIR=str(tmp_path))


REPLAY = Path(__file__).with_name("test_replay.py")


@compiled
def test_a_changed_callee_is_never_stale(tmp_path: Path) -> None:
    """Numba stamps a cached kernel with its own file alone; geometric_horizon calls to_unit of streams.py."""
    kernels, cache = copied(tmp_path), str(tmp_path / "cache")
    code = (
        "import numpy, fastcmdp; from fastcmdp.kernels.sampling.rollouts import geometric_horizon as f\n"
        "print(f(numpy.uint64(2**63), -10.0), len(f.stats.cache_hits), fastcmdp.__file__)"
    )
    there = str(kernels.parent / "__init__.py")
    assert python(code, tmp_path, NUMBA_CACHE_DIR=cache).split() == ["6", "0", there]
    assert python(code, tmp_path, NUMBA_CACHE_DIR=cache).split() == ["6", "1", there]
    with (kernels / "streams.py").open("a") as file:
        file.write("\n\n@kernel\ndef to_unit(word):\n    return 0.75\n")
    assert python(code, tmp_path, NUMBA_CACHE_DIR=cache).split() == ["13", "0", there]


UNSIGNED = "import numpy; from fastcmdp.kernels.streams import to_unit; print(to_unit(numpy.uint64(2**63)));"
SIGNED = "import numpy; from fastcmdp.kernels.streams import to_unit; print(to_unit(numpy.int64(2**62)));"


def cached(cache: Path, name: str) -> set[Path]:
    return set(cache.rglob(f"*.{name}-*[0-9a-f].nbc"))


@compiled
def test_a_file_with_other_code_is_not_believed(tmp_path: Path) -> None:
    """To_unit(2**63) with signed code would be -0.5."""
    python(UNSIGNED + SIGNED, NUMBA_CACHE_DIR=str(tmp_path))
    unsigned, signed = sorted(cached(tmp_path, "to_unit"), key=lambda path: path.stat().st_mtime_ns)
    shutil.copy(signed, unsigned)
    signed.write_bytes(b"damaged")
    assert python(UNSIGNED + SIGNED, NUMBA_CACHE_DIR=str(tmp_path)).split() == ["0.5", "0.25"]


def copied(tmp_path: Path) -> Path:
    """The kernels of a copy of the package, which ``python(code, tmp_path)`` imports."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(fastcmdp.__file__).parent, tmp_path / "fastcmdp", ignore=ignored)
    return tmp_path / "fastcmdp" / "kernels"


FIRST_WEIGHT = """
import numpy as np
from fastcmdp.kernels.learning.asgd import Momentum, Weights, fill_weights as f
weights = Weights(np.empty(3), np.empty(2))
f(Momentum(alpha=0.5, beta=0.25, xi=1.0, delta=0.125), 0, weights)
print(weights.push[0], len(f.stats.cache_hits))
"""


@compiled
def test_only_what_depends_on_a_change_compiles_again(tmp_path: Path) -> None:
    kernels, cache = copied(tmp_path), str(tmp_path / "cache")
    words = UNSIGNED + "print(len(to_unit.stats.cache_hits))"
    python(words + FIRST_WEIGHT, tmp_path, NUMBA_CACHE_DIR=cache)
    with (kernels / "learning" / "asgd.py").open("a") as file:
        file.write("\n")
    got = python(words + FIRST_WEIGHT, tmp_path, NUMBA_CACHE_DIR=cache).split()
    assert [got[1], got[3]] == ["1", "0"]


@compiled
def test_a_tuple_whose_fields_changed_places_compiles_again(tmp_path: Path) -> None:
    """Numba tells NamedTuples apart by their class, and a kernel need not import the class of its arguments."""
    kernels, cache = copied(tmp_path), str(tmp_path / "cache")
    (kernels / "pair.py").write_text(
        "from typing import NamedTuple\nclass Pair(NamedTuple):\n    first: float\n    second: float\n"
    )
    (kernels / "reader.py").write_text(
        "from fastcmdp.kernels.jit import kernel\n@kernel\ndef read(pair):\n    return pair.first\n"
    )
    code = (
        "from fastcmdp.kernels.pair import Pair; from fastcmdp.kernels.reader import read; "
        "print(read(Pair(first=1.0, second=2.0)), len(read.stats.cache_hits))"
    )
    assert python(code, tmp_path, NUMBA_CACHE_DIR=cache).split() == ["1.0", "0"]
    assert python(code, tmp_path, NUMBA_CACHE_DIR=cache).split() == ["1.0", "1"]
    text = (kernels / "pair.py").read_text()
    text = text.replace("first", "x").replace("second", "first").replace("x", "second")
    (kernels / "pair.py").write_text(text)
    assert python(code, tmp_path, NUMBA_CACHE_DIR=cache).split() == ["1.0", "0"]


def referenced(function: Any) -> set[str]:
    """Modules of kernels/ that a compiled function takes functions, generic ones and classes from."""
    code, names, modules = [function.py_func.__code__], set(), set()
    while code:
        one = code.pop()
        names |= set(one.co_names)
        code += [constant for constant in one.co_consts if hasattr(constant, "co_names")]
    for name in names:
        value = function.py_func.__globals__.get(name)
        module = value.__name__ if inspect.ismodule(value) else getattr(value, "__module__", None)
        modules |= {module} if str(module).startswith("fastcmdp.kernels.") else set()
    return {module.removeprefix("fastcmdp.kernels.") for module in modules}


def test_the_sources_of_a_kernel_are_all_that_it_refers_to() -> None:
    seen = 0
    for module in sources.read():
        names = vars(importlib.import_module(f"fastcmdp.kernels.{module}".rstrip(".")))
        for value in list(names.values()):
            if hasattr(value, "callee") and value.py_func.__module__.endswith("." + module):
                seen += 1
                assert referenced(value) <= sources.depends_on(module), (module, value)
    assert seen > 100


def test_who_registers_with_a_generic_function_is_a_source_of_its_callers() -> None:
    """Whatever calls a generic function depends on each implementation, and on what that calls."""
    for path in KERNELS.rglob("*.py"):
        module = ".".join(path.relative_to(KERNELS).with_suffix("").parts)
        for name in re.findall(r"^@(\w+)\.(?:on|otherwise)\b", path.read_text(), re.MULTILINE):
            generic = getattr(importlib.import_module(f"fastcmdp.kernels.{module}"), name)
            for caller in sources.read():
                origin = generic.__module__.removeprefix("fastcmdp.kernels.")
                if origin in sources.depends_on(caller):
                    assert sources.depends_on(module) <= sources.depends_on(caller), (name, module, caller)


KERNELS = Path(fastcmdp.__file__).parent / "kernels"


OPEN = "[value._cache.cache_path for value in vars(fastcmdp.kernels.streams).values() if hasattr(value, 'callee')]; "


@compiled
@pytest.mark.parametrize("begin", ["", OPEN], ids=["before it is opened", "once it is open"])
def test_a_cache_that_went_away_stops_nothing(begin: str, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    gone = f"shutil.rmtree({cache!r}, ignore_errors={not begin}); open({cache!r}, 'w').close(); "
    code = f"import shutil, fastcmdp.kernels.streams; {begin}{gone}"
    assert python(code + UNSIGNED, NUMBA_CACHE_DIR=cache).split() == ["0.5"]
