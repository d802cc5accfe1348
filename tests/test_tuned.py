"""Files of tuned constants: what is written is read, what is wrong is refused with its place."""

from __future__ import annotations

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fastcmdp as fc
from fastcmdp.algorithms.variants import variant
from fastcmdp.tuned import check_constants, constants_for, read_constants, read_meta, write_constants

NAMES = sorted(fc.PDANPG.constants)


@settings(deadline=None, max_examples=50)
@given(
    st.dictionaries(
        st.sampled_from(["pd-anpg", "pd-anpg?method=sgd", "pd-anpg?margin=0.1,0.2&pilot=0"]),
        st.dictionaries(st.sampled_from(NAMES), st.floats(5e-324, 1.7e308)),
    ),
    st.dictionaries(
        st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
        st.one_of(
            st.integers(-(2**63), 2**63 - 1), st.booleans(), st.text(st.characters(exclude_categories=["Cs"])),
            st.floats(allow_nan=False), st.dictionaries(st.text("ab. \"\\\n"), st.floats(allow_nan=False)),
        ),
    ),
)  # fmt: skip
def test_what_is_written_is_read(tmp_path_factory, constants, meta):
    path = tmp_path_factory.mktemp("tuned") / "c.toml"
    write_constants(path, constants, meta)
    assert read_constants(path) == constants
    assert read_meta(path) == meta
    assert os.listdir(path.parent) == ["c.toml"]


def test_integers_are_numbers_and_other_tables_are_not_needed(tmp_path):
    path = tmp_path / "c.toml"
    path.write_text("[pd-anpg]\nc_eta = 2\n")
    assert read_constants(path) == {"pd-anpg": {"c_eta": 2.0}}
    assert read_meta(path) == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[pd-anpgg]\n", "[pd-anpgg]: unknown algorithm: 'pd-anpgg'; did you mean 'pd-anpg'?"),
        ("[pd-anpg]\nc_etaa = 1\n", "[pd-anpg]: unknown constant of pd-anpg: 'c_etaa'; did you mean 'c_eta'?"),
        ("[pd-anpg]\nouter = 10\n", "unknown constant of pd-anpg: 'outer'"),
        ("[pd-anpg]\nc_eta = -1\n", "[pd-anpg] c_eta = -1: a finite positive number"),
        ("[pd-anpg]\nc_eta = 0\n", "c_eta = 0: a finite positive number"),
        ("[pd-anpg]\nc_eta = nan\n", "c_eta = nan: a finite positive number"),
        ("[pd-anpg]\nc_eta = inf\n", "c_eta = inf: a finite positive number"),
        (f"[pd-anpg]\nc_eta = 1{'0' * 400}\n", "a finite positive number"),
        ("[pd-anpg]\nc_eta = true\n", "c_eta = True: a finite positive number"),
        ("[pd-anpg]\nc_eta = '1'\n", "c_eta = '1': a finite positive number"),
        ("[pd-anpg]\nc_eta = [1.0]\n", "a finite positive number"),
        ("[pd-anpg]\nc_eta = 2026-01-01\n", "a finite positive number"),
        ("pd-anpg = 1\n", "[pd-anpg]: a table of constants"),
        ("['pd-anpg?metod=sgd']\n", "did you mean 'method'?"),
        ("['pd-anpg?method=sdg']\n", "'asgd' or 'sgd' is expected"),
        ("[pd-anpg]\nc_eta = \n", "not a file of constants"),
        ("[pd-anpg]\n[pd-anpg]\n", "not a file of constants"),
        (f"[pd-anpg]\nc_eta = 1{'0' * 5000}\n", "not a file of constants"),
        ("a = " + "[" * 100_000, "not a file of constants"),
        ("#" * (1 << 21), "not a file of constants"),
        ("\x00", "not a file of constants"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_with_its_place(tmp_path, text, words):
    path = tmp_path / "c.toml"
    path.write_text(text)
    with pytest.raises((fc.ModelError, fc.SettingError)) as caught:
        read_constants(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)


@settings(deadline=None, max_examples=50)
@given(st.binary(max_size=60))
def test_any_bytes_give_an_answer_or_one_of_our_errors(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("fuzz") / "c.toml"
    path.write_bytes(b"[pd-anpg]\nc_eta = 1\n" + data)
    refused = ""
    try:
        assert "pd-anpg" in read_constants(path)
    except (fc.ModelError, fc.SettingError) as error:
        refused = str(error)
    assert not refused or str(path) in refused


def test_folders_and_missing_files(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_constants(tmp_path / "none.toml")
    with pytest.raises(fc.ModelError, match="folder"):
        read_constants(tmp_path)


def test_a_refused_write_leaves_the_file(tmp_path):
    path = tmp_path / "c.toml"
    write_constants(path, {"pd-anpg": {"c_eta": 1.0}})
    with pytest.raises(fc.SettingError, match=r"constants: \[pd-anpg\] c_eta = 0"):
        write_constants(path, {"pd-anpg": {"c_eta": 0.0}})
    assert read_constants(path) == {"pd-anpg": {"c_eta": 1.0}}


def test_a_variant_takes_its_own_table_or_its_algorithms():
    constants = check_constants({"pd-anpg": {"c_eta": 1, "c_H": 2}, "pd-anpg?method=sgd": {"c_eta": 3}})
    assert constants_for(variant("pd-anpg"), constants) == {"c_eta": 1.0, "c_H": 2.0}
    assert constants_for(variant("pd-anpg?method=sgd"), constants) == {"c_eta": 3.0}
    assert constants_for(variant("pd-anpg?c_H=5"), constants) == {"c_eta": 1.0}
    assert constants_for(variant("pd-anpg"), {}) is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("pd-anpg?", "key=value is expected"), ("pd-anpg?inner", "key=value is expected"),
        ("pd-anpg?=1", "key=value is expected"),
        ("pd-anpg?outer=5", "outer follows from the budget"), ("pd-anpg?inner=5&inner=6", "given twice"),
        ("pd-anpg?inner=0.5", "inner = 0.5"), ("pd-anpg?inne=5", "did you mean 'inner'"), ("", "unknown"),
        ("pd-anpgs?inner=3", "did you mean 'pd-anpg'"),
    ],
)  # fmt: skip
def test_variants_that_are_refused(text, words):
    with pytest.raises(fc.SettingError, match=words):
        variant(text)
