"""Compiled kernels: determinism, threads, constants, and CUDA source that compiles without a device."""

import os
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numba
import numpy as np
import pytest

from optnoise import kernels, kernels_cpu, kernels_cuda
from optnoise.grid import Grid


def band_and_rows(batch=5, half_cells=500, stacked=60):
    grid = Grid(5.0, 2 * half_cells)
    rng = np.random.default_rng(1)
    b, f = rng.uniform(size=(batch, stacked)), rng.uniform(-5, 0, size=(batch, stacked))
    rows = np.concatenate([np.full((batch, 1), 3.0), b, f], axis=-1)
    return kernels.make_band(grid.centres[:half_cells], grid.cell_width, 500.0), rows, rng


def test_bytes_do_not_depend_on_the_number_of_threads(monkeypatch):
    band, rows, rng = band_and_rows()
    dz = rng.standard_normal((5, 500))
    results = []
    for count in (1, 2, 3, 8):
        monkeypatch.setattr(kernels, "threads", lambda count=count: count)
        z, places = kernels.stacked_sigmoids(rows, band)
        results.append((z.tobytes(), kernels.stacked_sigmoids_pull_back(rows, places, dz, band).tobytes()))
    assert len(set(results)) == 1


def test_map_rows_covers_every_row_once(monkeypatch):
    for rows in (1, 2, 5, 16):
        for count in (1, 2, 4):
            monkeypatch.setattr(kernels, "threads", lambda count=count: count)
            seen = np.zeros(rows, dtype=int)

            def work(start, stop, seen=seen):
                seen[start:stop] += 1

            kernels.map_rows(work, rows)
            assert (seen == 1).all()


def test_map_rows_passes_errors_on(monkeypatch):
    monkeypatch.setattr(kernels, "threads", lambda: 2)

    def work(start, stop):
        if start:
            raise ArithmeticError("row")

    with pytest.raises(ArithmeticError, match="row"):
        kernels.map_rows(work, 4)


def test_worker_threads_are_not_split_again(monkeypatch):
    monkeypatch.setattr(kernels, "threads", lambda: 4)
    ranges = []
    with ThreadPoolExecutor(1) as pool:
        pool.submit(kernels.map_rows, lambda start, stop: ranges.append((start, stop)), 8).result()
    assert ranges == [(0, 8)]


def test_threads_obey_the_usual_limit(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert kernels.threads() == 1
    monkeypatch.setenv("OMP_NUM_THREADS", "nonsense")
    assert kernels.threads() >= 1


@pytest.mark.parametrize(("half_width", "modes"), [(5.0, 4), (400.0, 1)])
def test_modes_follow_the_width_of_the_band(half_width, modes):
    grid = Grid(half_width, 60000, half_width)
    band = kernels.make_band(grid.centres[:30000], grid.cell_width, 500.0)
    assert len(band.powers) == modes
    assert np.abs(band.drift).max() < 1e-10
    assert band.half == 30000
    assert band.window % kernels.LANES == 0


def test_equal_rows_give_equal_bytes():
    band, rows, _ = band_and_rows()
    first, _ = kernels.stacked_sigmoids(rows, band)
    turned, _ = kernels.stacked_sigmoids(rows[::-1].copy(), band)
    assert turned[::-1].tobytes() == first.tobytes()


def test_kernels_compile_where_nothing_can_be_cached(monkeypatch):
    """Numba refuses ``cache=True`` when no folder is writable; the kernels then compile in memory."""
    njit = numba.njit

    def refusing(**options):
        if options.pop("cache", False):
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    monkeypatch.setattr(numba, "njit", refusing)
    function = kernels_cpu._compiled(lambda a: a + 1)
    assert function(2) == 3


def test_another_process_finds_what_was_compiled(tmp_path):
    """It must take what the first process left on disk, not compile again."""
    program = (
        "import numpy as np; from optnoise.kernels_cpu import gather; ones = np.ones(8);"
        "gather(ones, 1.0, ones, ones); print(sum(gather.stats.cache_hits.values()))"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    outputs = [
        subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [one.stdout.strip() for one in outputs] == ["0", "1"]


def test_cuda_source_compiles_without_a_device(tmp_path):
    """With nvcc, or with NVRTC's own binding where CuPy and its library are installed."""
    nvcc = shutil.which("nvcc")
    if nvcc is not None:
        source = tmp_path / "kernel.cu"
        source.write_text(kernels_cuda.SOURCE)
        command = [nvcc, "-cubin", "-arch=sm_90", "--Werror", "all-warnings", str(source), "-o"]
        done = subprocess.run([*command, str(tmp_path / "kernel.cubin")], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "kernel.cubin").stat().st_size > 0
        return
    try:
        from cupy_backends.cuda.libs import nvrtc

        nvrtc.getVersion()
    except (ImportError, RuntimeError, OSError) as error:
        pytest.skip(f"neither nvcc nor NVRTC can be used ({error})")
    program = nvrtc.createProgram(kernels_cuda.SOURCE, "kernel.cu", [], [])
    try:
        nvrtc.compileProgram(program, ("--gpu-architecture=sm_90", "--std=c++17"))
        assert len(nvrtc.getPTX(program)) > 0
    finally:
        nvrtc.destroyProgram(program)
