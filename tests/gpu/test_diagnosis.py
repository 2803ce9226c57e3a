"""What stands between a machine and a live run (case C04): on invented facts, and on stub libraries."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from fmha.gpu import toolchain
from fmha.gpu.diagnosis import Facts, Finding, GpuFound, best_compiler, collect, diagnose, judge
from fmha.gpu.toolchain import Compiler
from tests.gpu.test_build import stub
from tests.tools import need

ROOT = Path(__file__).resolve().parents[2]
NVCC = Compiler("nvcc", "/usr/local/cuda/bin/nvcc", "13.0", ("sm_75", "sm_90", "sm_120"))
NVRTC12 = Compiler("NVRTC", "/venv/libnvrtc.so.12", "12.8", ("sm_50", "sm_70", "sm_90"))
H200 = GpuFound(0, "NVIDIA H200", "9.0")
FINE = Facts(
    platform="linux",
    libcuda=True,
    driver="580.159.04",
    driver_cuda=(13, 0),
    gpus=(H200,),
    installed=1,
    pycuda="2026.1",
    compilers=(NVCC,),
    cache="/home/me/.cache/fmha-lab/kernels",
)

# Changes to FINE, and each finding that they lead to: what it says, and what it must tell to do.
CASES: dict[str, tuple[dict[str, object], str, str]] = {
    "no driver": (
        {"libcuda": False, "driver": None, "driver_cuda": None, "gpus": (), "pycuda": None},
        "No NVIDIA driver was found: its library libcuda.so.1 is missing.",
        "--gpus all",
    ),
    "macOS": (
        {"libcuda": False, "driver": None, "driver_cuda": None, "gpus": (), "platform": "darwin"},
        "macOS has no NVIDIA driver.",
        "machine with an NVIDIA GPU",
    ),
    "no GPU": (
        {"gpus": (), "installed": 0, "init_code": 100, "init_error": "CUDA_ERROR_NO_DEVICE"},
        "The NVIDIA driver 580.159.04 (CUDA 13.0) is there, but it shows no GPU.",
        "`nvidia-smi -L`",
    ),
    "hidden": (
        {"gpus": (), "installed": 8, "visible": "", "init_code": 100},
        'The NVIDIA driver 580.159.04 (CUDA 13.0) is there, but CUDA_VISIBLE_DEVICES="" hides all 8 GPUs of this '
        "machine.",
        "`unset CUDA_VISIBLE_DEVICES`",
    ),
    "hidden, number unknown": (
        {"gpus": (), "installed": None, "visible": "7", "driver": None},
        'The NVIDIA driver (CUDA 13.0) is there, but CUDA_VISIBLE_DEVICES="7" hides every GPU of this machine.',
        "`unset CUDA_VISIBLE_DEVICES`",
    ),
    "driver broken": (
        {"gpus": (), "init_code": 803, "init_error": "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"},
        "The NVIDIA driver 580.159.04 (CUDA 13.0) does not start: it reports CUDA_ERROR_SYSTEM_DRIVER_MISMATCH.",
        "restart the machine",
    ),
    "driver does not answer": (
        {"gpus": (), "libcuda": False, "probe_error": "it did not answer within 10 s"},
        "This machine's GPU driver could not be asked: it did not answer within 10 s.",
        "`nvidia-smi`",
    ),
    "driver too old": (
        {"driver": "550.54.15", "driver_cuda": (12, 4)},
        "The driver supports CUDA 12.4 and loads nothing that nvcc 13.0 (/usr/local/cuda/bin/nvcc) makes.",
        "`pip install nvidia-cuda-nvrtc-cu12`",
    ),
    "no PyCUDA": (
        {"pycuda": None},
        "PyCUDA is not installed, so no kernel can be launched.",
        "`pip install -r requirements-gpu.txt`",
    ),
    "PyCUDA broken": (
        {"pycuda_error": "ImportError: libcurand.so.12: cannot open object file."},
        "PyCUDA 2026.1 is installed but cannot be imported: ImportError: libcurand.so.12: cannot open object file.",
        "--force-reinstall",
    ),
    "no compiler": (
        {"compilers": ()},
        "Neither nvcc nor NVRTC was found, so no kernel can be compiled.",
        "`pip install 'nvidia-cuda-nvrtc==13.*'`",
    ),
    "compiler without a host compiler": (
        {"compilers": (replace(NVCC, problem="gcc: No such file or directory"),)},
        "nvcc 13.0 (/usr/local/cuda/bin/nvcc) does not work here: gcc: No such file or directory.",
        "needs no host compiler",
    ),
    "GPU too new": (
        {"gpus": (GpuFound(0, "NVIDIA R100", "13.0"),)},
        "No compiler found here knows sm_130 (NVIDIA R100): nvcc 13.0 (/usr/local/cuda/bin/nvcc) knows sm_75 to "
        "sm_120.",
        "`pip install --upgrade nvidia-cuda-nvrtc`",
    ),
    "GPU too old": (
        {"gpus": (GpuFound(0, "Tesla V100", "7.0"),)},
        "No compiler found here knows sm_70 (Tesla V100): nvcc 13.0 (/usr/local/cuda/bin/nvcc) knows sm_75 to sm_120.",
        "earlier major version",
    ),
}


def one_sentence(text: str) -> bool:
    return text.endswith(".") and "\n" not in text and (text[0].isupper() or text.startswith(("macOS", "nvcc")))


def test_a_machine_that_has_everything_is_ready() -> None:
    found = judge(FINE)
    assert found.ready and found.findings == ()
    assert (found.gpus, found.driver, found.cuda, found.pycuda) == ((H200,), "580.159.04", (13, 0), "2026.1")


@pytest.mark.parametrize("case", CASES)
def test_one_finding_for_each_trouble(case: str) -> None:
    changes, what, remedy = CASES[case]
    found = judge(replace(FINE, **changes))  # type: ignore[arg-type]
    assert not found.ready
    assert [finding.what for finding in found.findings] == [what]
    assert remedy in found.findings[0].remedy
    assert one_sentence(what) and one_sentence(found.findings[0].remedy)


def test_several_troubles_are_all_told() -> None:
    found = judge(replace(FINE, pycuda=None, compilers=(), gpus=(), installed=0))
    assert [finding.what.split()[0] for finding in found.findings] == ["The", "PyCUDA", "Neither"]


def test_an_nvrtc_that_fits_the_driver_makes_it_ready() -> None:
    facts = replace(FINE, driver_cuda=(12, 4), compilers=(NVCC, NVRTC12))
    assert judge(facts).ready and best_compiler(facts, "9.0") == NVRTC12
    assert best_compiler(FINE, "9.0") == NVCC and best_compiler(FINE, "7.0") is None
    assert best_compiler(replace(facts, driver_cuda=(13, 0)), "7.0") == NVRTC12


def test_a_second_gpu_that_nothing_compiles_for_is_a_note() -> None:
    found = judge(replace(FINE, gpus=(H200, GpuFound(1, "Tesla V100", "7.0"))))
    assert found.ready and [finding.blocks for finding in found.findings] == [False]
    assert "sm_70 (Tesla V100)" in found.findings[0].what


def test_a_cache_that_cannot_be_written_is_a_note() -> None:
    found = judge(replace(FINE, cache_error="Read-only file system"))
    assert found.ready and found.findings[0] == Finding(
        "The folder /home/me/.cache/fmha-lab/kernels cannot be written (Read-only file system), so kernels are "
        "compiled anew in each session.",
        "Set FMHA_CACHE to a folder that can be written.",
        blocks=False,
    )
    assert len(judge(replace(FINE, cache_error="Read-only file system", pycuda=None)).findings) == 1


# The part that collects, on this machine and on machines made up for it.

LIBCUDA = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
static int env(const char* name) { return getenv(name) ? atoi(getenv(name)) : 0; }
int cuDriverGetVersion(int* v) { *v = 12040; return 0; }
int cuInit(unsigned f) {
    if (env("STUB_CRASH")) abort();
    if (env("STUB_HANG")) sleep(60);
    const char* visible = getenv("CUDA_VISIBLE_DEVICES");
    return visible && !*visible ? 100 : env("STUB_INIT");
}
int cuDeviceGetCount(int* n) { *n = 2; return 0; }
int cuDeviceGet(int* d, int i) { *d = i; return 0; }
int cuDeviceGetName(char* s, int n, int d) { strncpy(s, d ? "Stub B" : "Stub A", n); return 0; }
int cuDeviceGetAttribute(int* v, int a, int d) { *v = a == 75 ? 9 : d; return 0; }
int cuGetErrorName(int e, const char** s) { *s = e == 803 ? "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" : "?"; return 0; }
"""
LIBNVML = """
#include <string.h>
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char* s, unsigned n) { strncpy(s, "550.54.15", n); return 0; }
int nvmlDeviceGetCount_v2(unsigned* n) { *n = 2; return 0; }
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a driver that is none."""
    cc = need("cc", shutil.which("cc") or shutil.which("gcc"))
    if not sys.platform.startswith("linux"):
        pytest.skip("the stub driver is made for Linux")
    folder = tmp_path_factory.mktemp("driver")
    for name, code in (("libcuda.so.1", LIBCUDA), ("libnvidia-ml.so.1", LIBNVML)):
        (folder / "stub.c").write_text(code)
        command = [cc, "-shared", "-fPIC", "-w", "-o", str(folder / name), str(folder / "stub.c")]
        subprocess.run(command, check=True, timeout=60)
    return folder


@pytest.fixture
def machine(libraries: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine with two GPUs, a driver for CUDA 12.4, a PyCUDA that can be imported, and nvcc 12.4."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "python"))
    monkeypatch.setenv("FMHA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    package = tmp_path / "python" / "pycuda"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "driver.py").write_text("print('PyCUDA greets')\n")
    info = tmp_path / "python" / "pycuda-2026.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: pycuda\nVersion: 2026.1\n")
    nvcc = stub(
        tmp_path,
        'case "$1" in --version) echo "Cuda compilation tools, release 12.4, V12.4.99";; '
        "--list-gpu-code) printf 'sm_90\\nsm_91\\nsm_100\\n';; esac",
    )
    monkeypatch.setenv("CUDACXX", nvcc.path)
    monkeypatch.setattr(toolchain, "_nvrtc_paths", list)
    return monkeypatch


def test_a_machine_with_everything_is_seen_as_it_is(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    facts = collect()
    assert facts.gpus == (GpuFound(0, "Stub A", "9.0"), GpuFound(1, "Stub B", "9.1"))
    assert (facts.driver, facts.driver_cuda, facts.installed) == ("550.54.15", (12, 4), 2)
    assert (facts.pycuda, facts.pycuda_error, facts.cache_error) == ("2026.1", "", None)
    assert facts.compilers == (Compiler("nvcc", str(tmp_path / "nvcc"), "12.4", ("sm_90", "sm_91", "sm_100")),)
    assert judge(facts).ready and str(facts.compilers[0]) == f"nvcc 12.4 ({tmp_path / 'nvcc'})"


def test_hidden_broken_and_silent_drivers_are_told_apart(machine: pytest.MonkeyPatch) -> None:
    def what() -> str:
        found = diagnose(timeout_s=1)
        assert not found.ready and len(found.findings) == 1
        return found.findings[0].what

    machine.setenv("CUDA_VISIBLE_DEVICES", "")
    assert 'CUDA_VISIBLE_DEVICES="" hides all 2 GPUs' in what()
    machine.delenv("CUDA_VISIBLE_DEVICES")
    machine.setenv("STUB_INIT", "100")
    assert "is there, but it shows no GPU" in what()
    machine.setenv("STUB_INIT", "803")
    assert "(CUDA 12.4) does not start: it reports CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" in what()
    machine.setenv("STUB_CRASH", "1")
    assert "could not be asked: the process that asked it ended by signal 6" in what()
    machine.delenv("STUB_CRASH")
    machine.setenv("STUB_HANG", "1")
    assert "it did not answer within 1 s" in what()


def test_pycuda_missing_or_broken(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "python/pycuda/driver.py").write_text("raise ImportError('first line\\nlibcurand.so.9 is missing')")
    assert [f.what for f in diagnose().findings] == [
        "PyCUDA 2026.1 is installed but cannot be imported: ImportError: libcurand.so.9 is missing."
    ]
    machine.setenv("PYTHONPATH", "")
    if collect().pycuda is None:  # else this machine has one of its own
        assert [f.what for f in diagnose().findings] == ["PyCUDA is not installed, so no kernel can be launched."]


def test_an_nvcc_that_lacks_its_host_compiler(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken").mkdir()
    body = (
        'case "$1" in --version) echo "release 12.4,";; --list-gpu-code) echo sm_90;; '
        "-E) echo gcc: not found; echo 'nvcc fatal   : Failed to preprocess.'; exit 1;; esac"
    )
    machine.setenv("CUDACXX", stub(tmp_path / "broken", body).path)
    machine.setattr(toolchain, "_nvcc_paths", lambda: [os.environ["CUDACXX"]])
    [finding] = diagnose().findings
    assert finding.what.endswith("nvcc) does not work here: gcc: not found; nvcc fatal : Failed to preprocess.")


def test_an_nvcc_that_fails_without_a_word_does_not_pass_for_one_that_works(
    machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "mute").mkdir()
    body = 'case "$1" in --version) echo "release 12.4,";; --list-gpu-code) echo sm_90;; -E) exit 3;; esac'
    machine.setenv("CUDACXX", stub(tmp_path / "mute", body).path)
    machine.setattr(toolchain, "_nvcc_paths", lambda: [os.environ["CUDACXX"]])
    [finding] = diagnose().findings
    assert finding.what.endswith("nvcc) does not work here: it ended with exit code 3 and said nothing.")


def test_a_machine_on_which_nothing_can_be_asked_is_told_in_a_sentence(machine: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise OSError(30, "Read-only file system")

    machine.setattr(toolchain, "compilers", fails)
    [finding] = diagnose().findings
    assert finding.blocks and "Read-only file system" in finding.what


@pytest.mark.parametrize("answer", ["", "[]", "{}", "no JSON"])
def test_an_nvrtc_whose_answer_cannot_be_read_is_of_no_use(answer: str, machine: pytest.MonkeyPatch) -> None:
    machine.setattr(toolchain, "_ask", lambda command, timeout_s: (0, answer))
    assert toolchain._ask_nvrtc("/x/libnvrtc.so", 1.0).problem


def test_what_a_compiler_lacked_is_seen_once_it_is_there(machine: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "waits").mkdir()
    host = tmp_path / "host"
    body = 'case "$1" in --version) echo "release 12.4,";; --list-gpu-code) echo sm_90; echo sm_91;; '
    nvcc = stub(tmp_path / "waits", f"{body}-E) [ -e '{host}' ] || {{ echo gcc: not found; exit 1; }};; esac")
    machine.setattr(toolchain, "_nvcc_paths", lambda: [nvcc.path])
    assert not diagnose().ready
    host.touch()
    assert not diagnose().ready, "a complaint is kept for a minute: builds ask too"
    machine.setattr(toolchain, "ASK_AGAIN_S", 0.0)
    assert diagnose().ready
    host.unlink()
    assert diagnose().ready, "one that works is not asked again"


def test_this_machine_is_diagnosed_without_loading_anything() -> None:
    code = "import sys; from fmha.gpu.diagnosis import diagnose; d = diagnose(); "
    code += "print(d.ready, len(d.findings)); assert not {'pycuda', 'torch', 'streamlit'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = diagnose()
    assert done.stdout.split() == [str(found.ready), str(len(found.findings))]
    assert found.ready or found.findings


def test_the_real_nvcc_of_this_machine_is_described() -> None:
    found = toolchain.find_nvcc()
    need("nvcc", found.path if found and not found.problem else None)
    assert found is not None and found.release >= (11, 0) and found.knows("sm_80") and found.knows("sm_80a")
    assert not found.knows("sm_1")
    said = subprocess.run([found.path, "--version"], capture_output=True, text=True, check=True).stdout
    assert f"release {found.version}" in said
