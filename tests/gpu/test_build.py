"""Compiling kernels and keeping them (case C05). No GPU needed; the real nvcc, and a stub of it for its failures."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from fmha import Problem, Tiling, build_cache
from fmha.errors import BuildError
from fmha.folders import cache_folder
from fmha.gpu import build as build_module
from fmha.gpu import toolchain
from fmha.gpu.build import Binary, build
from fmha.gpu.toolchain import Compiler
from fmha.kernels import KERNELS, Kernel
from tests.tools import need

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """#include "size.cuh"
#ifndef BR
#define BR 1
#endif
extern "C" __global__ void fill(float* a) { a[threadIdx.x] = BR * SIZE; }
"""
posix = pytest.mark.skipif(sys.platform == "win32", reason="the stub is a shell script")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A kernel in a folder with a space in its name, whose header includes another."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / "fill.cu").write_text(SOURCE)
    (folder / "size.cuh").write_text('#include "deeper.cuh"\n#define SIZE DEEPER\n')
    (folder / "deeper.cuh").write_text("#define DEEPER 32.0f\n")
    return folder / "fill.cu"


@pytest.fixture(scope="session")
def compiler() -> Compiler:
    """A real compiler."""
    found = [c for c in toolchain.compilers() if not c.problem and c.knows("sm_90")]
    need("nvcc", found[0].path if found else None)
    return found[0]


@pytest.fixture(scope="session")
def nvrtc() -> Compiler:
    found = [c for c in toolchain.find_nvrtc() if not c.problem]
    need("nvrtc", found[0].path if found else None)
    return found[0]


class Counted:
    """A real nvcc behind a script that notes each of its calls; it knows sm_90."""

    def __init__(self, folder: Path, real: str, version: str) -> None:
        self.calls_file = folder / "calls"
        script = folder / "nvcc"
        script.write_text(f'#!/bin/sh\necho "$*" >> "{self.calls_file}"\nexec "{real}" "$@"\n')
        script.chmod(0o755)
        self.compiler = Compiler("nvcc", str(script), version, ("sm_90",))

    @property
    def calls(self) -> int:
        return len(self.calls_file.read_text().splitlines()) if self.calls_file.exists() else 0


@pytest.fixture
def counted(tmp_path: Path, compiler: Compiler) -> Counted:
    if compiler.kind != "nvcc" or sys.platform == "win32":
        need("nvcc", None)
    return Counted(tmp_path, compiler.path, compiler.version)


def stub(folder: Path, body: str, name: str = "nvcc", version: str = "12.4") -> Compiler:
    """A compiler that is a shell script: `body` runs with the arguments of a compilation."""
    script = folder / name
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    return Compiler("nvcc", str(script), version, ("sm_90",))


TARGET = 'while [ "$1" != -o ]; do shift; done; '


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    build_module._KEPT_HERE.clear()
    yield


def compile_(source: Path, cache: Path, compiler: Compiler, **defines: int | str) -> Binary:
    return build(source, defines=defines, arch="sm_90", cache=cache, compilers=[compiler])


def entries(cache: Path) -> list[Path]:
    return sorted(cache.glob(f"*{build_cache.SUFFIX}"))


def defines_of(chosen: Kernel) -> dict[str, int]:
    """What a run with the kernel's first tiles is compiled with."""
    return chosen.plan(chosen.fitting(Problem(N=256, d=64)), Tiling(*chosen.tiles[0])).defines


every_kernel = pytest.mark.parametrize("chosen", KERNELS.values(), ids=[k.file for k in KERNELS.values()])


@every_kernel
def test_every_shipped_kernel_compiles(chosen: Kernel, compiler: Compiler, tmp_path: Path) -> None:
    defines = defines_of(chosen)
    made = build(chosen.path, defines=defines, arch="sm_90", cache=tmp_path, compilers=[compiler])
    assert made.cubin[:4] == b"\x7fELF" and "registers" in made.log and not made.cached and not made.notes
    assert made.compiler == str(compiler) and all(
        f"-D{name}={value}" in made.options for name, value in defines.items()
    )
    assert "warning" not in made.log


@every_kernel
def test_every_shipped_kernel_compiles_without_nvcc(chosen: Kernel, nvrtc: Compiler, tmp_path: Path) -> None:
    made = build(chosen.path, defines=defines_of(chosen), arch="sm_90", cache=tmp_path, compilers=[nvrtc])
    assert made.cubin[:4] == b"\x7fELF" and "registers" in made.log and made.compiler.startswith("NVRTC ")
    assert "warning" not in made.log


def test_a_define_or_a_header_that_changes_is_seen(source: Path, counted: Counted, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = compile_(source, cache, counted.compiler, BR=2)
    other = compile_(source, cache, counted.compiler, BR=3)
    assert first.cubin != other.cubin and counted.calls == 2
    deeper = source.with_name("deeper.cuh")
    before = deeper.read_text()
    deeper.write_text("#define DEEPER 64.0f\n")
    edited = compile_(source, cache, counted.compiler, BR=2)
    assert edited.cubin not in (first.cubin, other.cubin) and not edited.cached and counted.calls == 3
    deeper.write_text(before)
    again = compile_(source, cache, counted.compiler, BR=2)
    assert (again.cubin, again.log, again.options) == (first.cubin, first.log, first.options)
    assert again.cached and counted.calls == 3


def test_ten_variants_come_back_without_the_compiler(source: Path, counted: Counted, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    made = {br: compile_(source, cache, counted.compiler, BR=br).cubin for br in range(1, 11)}
    assert len(set(made.values())) == 10 and counted.calls == 10 == len(entries(cache))
    for br in range(1, 11):
        back = compile_(source, cache, counted.compiler, BR=br)
        assert back.cached and back.cubin == made[br]
    assert counted.calls == 10


def test_options_arch_and_compiler_version_are_part_of_the_key(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    echo = f'printf "%s " "$@" > "{tmp_path}/said"; {TARGET} cp "{tmp_path}/said" "$2"'
    compiler = stub(tmp_path, echo)
    newer = Compiler("nvcc", compiler.path, "12.5", ("sm_90", "sm_80"))
    cache = tmp_path / "cache"

    def made(compiler: Compiler = newer, arch: str = "sm_90", options: tuple[str, ...] = ()) -> bool:
        return build(source, defines={}, arch=arch, options=options, cache=cache, compilers=[compiler]).cached

    variants = [{}, {"compiler": compiler}, {"arch": "sm_80"}, {"arch": "sm_90a"}, {"options": ("-G",)}]
    assert [made(**v) for v in variants] == [False] * 5  # type: ignore[arg-type]
    assert [made(**v) for v in variants] == [True] * 5  # type: ignore[arg-type]
    monkeypatch.setenv("NVCC_APPEND_FLAGS", "--maxrregcount=32")
    assert not made()


def test_a_header_in_an_include_folder_is_seen(source: Path, tmp_path: Path) -> None:
    compiler = stub(tmp_path, f'{TARGET} echo made > "$2"')
    other = tmp_path / "other"
    other.mkdir()
    source.write_text("#include <extra.cuh>\n")

    def made() -> bool:
        options, cache = [f"-I{other}"], tmp_path / "cache"
        return build(source, defines={}, arch="sm_90", options=options, cache=cache, compilers=[compiler]).cached

    (other / "extra.cuh").write_text('#include "extra.cuh"\n// one\n')  # and a header that includes itself ends
    assert (made(), made()) == (False, True)
    (other / "extra.cuh").write_text("// two\n")
    assert (made(), made()) == (False, True)


@posix
@pytest.mark.parametrize("harm", ["truncated", "a byte changed", "empty", "of another format", "of another key"])
def test_a_damaged_entry_is_built_anew_in_silence(source: Path, tmp_path: Path, harm: str) -> None:
    compiler, cache = stub(tmp_path, f'{TARGET} echo "code of a kernel" > "$2"'), tmp_path / "cache"
    first = compile_(source, cache, compiler)
    [entry] = entries(cache)
    data = entry.read_bytes()
    match harm:
        case "truncated":
            entry.write_bytes(data[:-5])
        case "a byte changed":
            entry.write_bytes(data[:-3] + bytes([data[-3] ^ 1]) + data[-2:])
        case "empty":
            entry.write_bytes(b"")
        case "of another format":
            entry.write_bytes(b"\x7fELF" + data)
        case "of another key":
            compile_(source, cache, compiler, BR=9)
            [other] = [path for path in entries(cache) if path != entry]
            shutil.copy(other, entry)
    again = compile_(source, cache, compiler)
    assert not again.cached and again.cubin == first.cubin == b"code of a kernel\n" and not again.notes
    assert compile_(source, cache, compiler).cached


PARALLEL = """
import sys
from pathlib import Path
from fmha.gpu.build import build
from fmha.gpu.toolchain import Compiler
compiler = Compiler("nvcc", sys.argv[1], "12.4", ("sm_90",))
for br in range(8):
    for _ in range(3):
        made = build(Path(sys.argv[2]), defines={"BR": br}, arch="sm_90", cache=Path(sys.argv[3]), compilers=[compiler])
        assert made.cubin == b"%d" % br * 30_000, br
        assert not made.notes, made.notes
"""


@posix
def test_two_processes_build_the_same_variants_at_once(source: Path, tmp_path: Path) -> None:
    body = 'for a; do case "$a" in -DBR=*) br=${a#-DBR=};; esac; done\n'
    body += f'{TARGET} head -c 30000 /dev/zero | tr "\\0" "$br" > "$2"'
    compiler, cache = stub(tmp_path, body), tmp_path / "cache"
    command = [sys.executable, "-c", PARALLEL, compiler.path, str(source), str(cache)]
    runs = [subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE) for _ in range(3)]
    for run in runs:
        assert run.communicate(timeout=30)[1] == b"" and run.returncode == 0
    assert len(entries(cache)) == 8 == len(list(cache.iterdir()))


@posix
def test_threads_build_at_once(source: Path, tmp_path: Path) -> None:
    compiler, made = stub(tmp_path, f'{TARGET} echo made > "$2"'), []
    job = lambda: made.append(compile_(source, tmp_path / "cache", compiler).cubin)  # noqa: E731
    threads = [threading.Thread(target=job) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert made == [b"made\n"] * 6 and len(entries(tmp_path / "cache")) == 1


@posix
@pytest.mark.parametrize("where", ["below a file", "no right to write"])
def test_a_folder_that_cannot_be_written_works_with_a_note(source: Path, tmp_path: Path, where: str) -> None:
    calls = tmp_path / "calls"
    compiler = stub(tmp_path, f'echo call >> "{calls}"; {TARGET} echo made > "$2"')
    if where == "below a file":
        (tmp_path / "file").touch()
        cache = tmp_path / "file" / "cache"
    elif os.geteuid() == 0:  # whom rights do not stop; this file system does
        cache = Path("/proc/self/fmha-cache")
        if not cache.parent.is_dir():
            pytest.skip("running as root, and this system has no /proc")
    else:
        cache = tmp_path / "cache"
        cache.mkdir(mode=0o500)
    made = compile_(source, cache, compiler)
    assert made.cubin == b"made\n" and len(made.notes) == 1
    assert made.notes[0].startswith(f"The folder {cache} cannot be written (")
    again = compile_(source, cache, compiler)  # kept in this process
    assert again.cached and again.notes == made.notes and calls.read_text() == "call\n"
    assert build_cache.complaint(cache)
    assert build_cache.complaint(tmp_path / "new") is None and not list((tmp_path / "new").iterdir())


def test_an_old_cache_that_cannot_be_written_is_still_read(source: Path, tmp_path: Path) -> None:
    compiler, cache = stub(tmp_path, f'{TARGET} echo made > "$2"'), tmp_path / "cache"
    compile_(source, cache, compiler)
    for path in (*entries(cache), cache):
        path.chmod(0o500)
    try:
        assert compile_(source, cache, compiler).cached
    finally:
        cache.chmod(0o700)


def test_the_cache_keeps_what_was_used_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build_cache, "MAX_ENTRIES", 4)
    for number in range(4):
        assert build_cache.write(tmp_path, f"k{number}", b"x", {}) is None
        os.utime(tmp_path / f"k{number}{build_cache.SUFFIX}", (number + 1.0, number + 1.0))
    (tmp_path / f"left{build_cache.UNFINISHED}").touch()
    os.utime(tmp_path / f"left{build_cache.UNFINISHED}", (1, 1))
    (tmp_path / "of another program").touch()
    assert build_cache.read(tmp_path, "k0") == (b"x", {"key": "k0"})
    build_cache.write(tmp_path, "k4", b"x", {})
    assert {path.name.split(".")[0] for path in tmp_path.iterdir()} == {"k0", "k2", "k3", "k4", "of another program"}
    for number, name in enumerate(("k0", "k2", "k3", "k4")):
        os.utime(tmp_path / f"{name}{build_cache.SUFFIX}", (number + 1.0, number + 1.0))
    room = (tmp_path / f"k4{build_cache.SUFFIX}").stat().st_size * 2 + 1000
    monkeypatch.setattr(build_cache, "MAX_BYTES", room)
    build_cache.write(tmp_path, "k5", b"x" * 1000, {})
    assert [path.name.split(".")[0] for path in entries(tmp_path)] == ["k4", "k5"]


def test_where_the_cache_lies(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FMHA_CACHE", str(tmp_path))
    assert cache_folder("kernels") == tmp_path
    monkeypatch.delenv("FMHA_CACHE")
    if sys.platform.startswith("linux"):
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert cache_folder("kernels") == tmp_path / "fmha-lab" / "kernels"
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(tmp_path))
        assert cache_folder("kernels") == tmp_path / ".cache" / "fmha-lab" / "kernels"


def test_a_mistake_in_the_source_is_told_in_one_sentence(source: Path, compiler: Compiler, tmp_path: Path) -> None:
    with pytest.raises(BuildError) as error:
        compile_(source, tmp_path, compiler, BR="nonsense")
    text = f'{compiler.kind} could not compile fill.cu for sm_90: fill.cu(5): error: identifier "nonsense" is undefined'
    assert str(error.value) == text
    assert "-DBR=nonsense" in error.value.command and "fill.cu" in error.value.command
    assert '1 error detected in the compilation of "' in error.value.output and not entries(tmp_path)


def test_a_mistake_reads_the_same_without_nvcc(source: Path, nvrtc: Compiler, tmp_path: Path) -> None:
    test_a_mistake_in_the_source_is_told_in_one_sentence(source, nvrtc, tmp_path)


def test_a_missing_source_and_a_missing_header(source: Path, compiler: Compiler, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"nothing\.cu cannot be read: No such file"):
        compile_(source.with_name("nothing.cu"), tmp_path, compiler)
    source.with_name("deeper.cuh").unlink()
    with pytest.raises(BuildError, match=r"could not compile fill\.cu for sm_90: .*deeper\.cuh"):
        compile_(source, tmp_path, compiler)


FAILS = {
    "arch": "echo \"nvcc fatal   : Unsupported gpu architecture 'sm_90'\"; exit 1",
    "host": "echo 'gcc: No such file or directory'; echo 'nvcc fatal   : Failed to preprocess host.'; exit 1",
    "crash": "kill -SEGV $$",
}


@posix
@pytest.mark.parametrize("how", FAILS)
def test_where_nvcc_cannot_another_compiler_is_used_and_named(source: Path, tmp_path: Path, how: str) -> None:
    broken = stub(tmp_path, FAILS[how])
    works = stub(tmp_path, f'{TARGET} echo made > "$2"', "other", "12.9")
    arguments = {"defines": {}, "arch": "sm_90", "cache": tmp_path / "cache", "compilers": [broken, works]}
    made = build(source, **arguments)  # type: ignore[arg-type]
    assert made.cubin == b"made\n" and made.compiler == str(works) and len(made.notes) == 1
    assert str(broken) in made.notes[0] and made.notes[0].endswith(f"{works} is used instead.")
    assert build(source, **arguments).cached  # type: ignore[arg-type]
    with pytest.raises(BuildError) as error:
        compile_(source, tmp_path / "cache", broken, BR=7)
    assert str(error.value).startswith("nvcc could not compile fill.cu for sm_90: ")
    assert how == "crash" or "fatal" in error.value.output


@posix
def test_a_mistake_in_the_source_is_not_tried_elsewhere(source: Path, tmp_path: Path) -> None:
    strict = stub(tmp_path, 'echo "fill.cu(3): error: no"; exit 1')
    works = stub(tmp_path, f'{TARGET} echo made > "$2"', "other", "12.9")
    with pytest.raises(BuildError, match=r"fill\.cu\(3\): error: no"):
        build(source, defines={}, arch="sm_90", cache=tmp_path / "cache", compilers=[strict, works])


def test_nvrtc_takes_over_from_a_real_nvcc_that_lacks_the_arch(source: Path, nvrtc: Compiler, tmp_path: Path) -> None:
    old = Compiler("nvcc", "/opt/old/nvcc", "11.5", ("sm_80",))
    made = build(source, defines={}, arch="sm_90", cache=tmp_path, compilers=[old, nvrtc])
    assert made.compiler == str(nvrtc) and made.cubin[:4] == b"\x7fELF"
    assert made.notes == ("nvcc 11.5 (/opt/old/nvcc) is not used: it does not know sm_90.",)


@posix
def test_a_compiler_that_hangs_is_stopped_with_all_below_it(source: Path, tmp_path: Path) -> None:
    seconds = f"62.{os.getpid()}"
    hangs = stub(tmp_path, f"echo started; sleep {seconds}; exit 1")
    begun = time.monotonic()
    with pytest.raises(BuildError, match=r"nvcc took longer than 0\.3 s for fill\.cu and was stopped") as error:
        build(source, defines={}, arch="sm_90", cache=tmp_path, compilers=[hangs], timeout_s=0.3)
    assert time.monotonic() - begun < 30 and error.value.output == "started\n"
    alive = subprocess.run(["ps", "-eo", "stat,args"], capture_output=True, text=True, check=True).stdout
    assert not [line for line in alive.splitlines() if f"sleep {seconds}" in line and line[0] != "Z"]


def test_nothing_to_compile_with(source: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match=r"Neither nvcc nor NVRTC was found.*pip install nvidia-cuda-nvrtc"):
        build(source, defines={}, arch="sm_90", cache=tmp_path, compilers=[])
