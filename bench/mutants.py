"""Puts faults of one line into a copy of the tree, one at a time, and asks whether the test that must notice does.

    python bench/mutants.py                  # all of bench/mutants.toml; exit code 1 if one survives
    python bench/mutants.py 'CV*' --list     # names that match, and their tests
    python bench/mutants.py 'PMD*' --again   # anew, also those that were noticed before

The copy stands in build/mutants, with the kernels that the checkout has compiled; the checkout is only read. The tests
must pass there first, without a fault: that compiles what they need, so that a fault costs what depends on it. What
was found is kept beside the copy, and counts until the fault, its file or its test's file changes: after an
interruption the same command goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "bench" / "mutants.toml"
NOTICED, NOT_NOTICED = 1, 0  # pytest's exit codes: tests failed, all passed
LONGEST = 600.0  # seconds of a test: a fault that hangs is noticed


class Mutant(NamedTuple):
    """``old`` in ``file`` becomes ``new``; ``test`` must fail then."""

    name: str
    file: str
    old: str
    new: str
    test: str

    @property
    def digest(self) -> str:
        """Of all that decides whether it is noticed, as far as it is told without running it."""
        texts = [*self, (ROOT / self.file).read_text(), (ROOT / self.test.split("::")[0]).read_text()]
        return hashlib.sha256("\0".join(texts).encode()).hexdigest()


def mutants() -> list[Mutant]:
    """Those of the list."""
    return [Mutant(**entry) for entry in tomllib.loads(LIST.read_text())["mutant"]]


def copy_tree(tree: Path) -> None:
    """The checkout as it stands, and what its kernels were compiled to."""
    told = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, check=True, capture_output=True, text=True,
    )  # fmt: skip
    for file in [*tree.rglob("*.py"), *tree.rglob("*.toml")]:
        file.unlink()
    compiled = [path.relative_to(ROOT) for path in (ROOT / "kernels").rglob("*.nbc")]
    for name in [*told.stdout.splitlines(), *map(str, compiled)]:
        source, target = ROOT / name, tree / name
        if source.is_symlink() or source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            target.unlink(missing_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    (tree / "tests" / "slow.txt").write_text("")  # what only repeats quicker tests may be what notices


def run_tests(tree: Path, tests: list[str], timeout: float | None = None) -> tuple[int, str]:
    """Pytest's exit code, and what it said; a test that takes too long has failed."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n0", "-p", "no:cacheprovider", *tests]
    # Byte code is told from text by its second and its size: two faults of one second would be one.
    environment = os.environ | {"PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=tree, env=environment, timeout=timeout, capture_output=True, text=True
        )
    except subprocess.TimeoutExpired:
        return NOTICED, "took too long"
    # A process that a signal ended has noticed too.
    return (NOTICED if done.returncode < 0 else done.returncode), done.stdout + done.stderr


def noticed(mutant: Mutant, tree: Path) -> bool:
    """Put the fault in, run its test, take it out again, with what was compiled of it."""
    path = tree / mutant.file
    text, compiled = path.read_text(), set((tree / "kernels").rglob("fastcmdp-*"))
    stamp = path.stat()
    if text.count(mutant.old) != 1:
        raise SystemExit(
            f"{mutant.name}: {mutant.old!r} stands {text.count(mutant.old)} times in {mutant.file}"
        )
    try:
        path.write_text(text.replace(mutant.old, mutant.new))
        code, said = run_tests(tree, [mutant.test], LONGEST)
    finally:
        path.write_text(text)
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        for folder in set((tree / "kernels").rglob("fastcmdp-*")) - compiled:
            shutil.rmtree(folder)
    if code not in (NOTICED, NOT_NOTICED):
        raise SystemExit(f"{mutant.name}: {mutant.test} did not run\n{said}")
    return code == NOTICED


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=["*"], help="of mutants, with * and ?")
    parser.add_argument("--list", action="store_true", help="print names, files and tests")
    parser.add_argument("--again", action="store_true", help="run those too whose outcome is known")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "mutants", help="folder of the copy")
    given = parser.parse_args()
    chosen = [one for one in mutants() if any(fnmatch(one.name, name) for name in given.names)]
    if not chosen:
        parser.error(f"no mutant is called {' or '.join(given.names)}: see --list")
    if given.list:
        for one in chosen:
            print(f"{one.name}\n    {one.file}\n    {one.test}")
        return 0
    outcomes = given.work / "outcomes.json"
    known = json.loads(outcomes.read_text()) if outcomes.exists() and not given.again else {}
    digests = {one: one.digest for one in chosen}  # of the files as they are copied
    left = [one for one in chosen if digests[one] not in known]
    print(f"{len(chosen)} mutants, of which {len(chosen) - len(left)} are known", flush=True)
    tree, began = given.work / "tree", time.perf_counter()
    if left:
        copy_tree(tree)
        code, said = run_tests(tree, sorted({one.test for one in left}))
        if code != NOT_NOTICED:
            print(f"the tests do not pass without a fault:\n{said}")
            return 2
        print(f"their tests pass without a fault ({time.perf_counter() - began:.0f} s)", flush=True)
    for one in left:
        start = time.perf_counter()
        known[digests[one]] = noticed(one, tree)
        outcomes.write_text(json.dumps(known))
        said = "noticed" if known[digests[one]] else "SURVIVED"
        print(f"{said:8} {time.perf_counter() - start:5.0f} s  {one.name}", flush=True)
    survivors = [one for one in chosen if not known[digests[one]]]
    for one in survivors:
        print(f"survivor: {one.name}\n    {one.file}: {one.old!r}\n    {one.test}")
    print(f"{len(chosen) - len(survivors)} of {len(chosen)} noticed, {time.perf_counter() - began:.0f} s")
    return int(bool(survivors))


if __name__ == "__main__":
    sys.exit(main())
