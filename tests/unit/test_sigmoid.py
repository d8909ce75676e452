"""The sigmoid model's banded sums, Numba and reference, against the dense sum and its derivatives."""

import mpmath
import numpy as np
import pytest

from optnoise import kernels, kernels_cuda, sigmoid
from optnoise.backend import to_host
from optnoise.baselines import truncated_gaussian
from optnoise.grid import Grid
from optnoise.noise import make_model
from optnoise.spec import TrainSpec

SLOPE = 500.0


def sigma(u):
    e = np.exp(-np.abs(u))
    return np.where(u >= 0, 1.0, e) / (1.0 + e), np.where(u >= 0, e, 1.0) / (1.0 + e)


def dense(params, x, slope):
    """The N x K matrix, for tests alone: (z, function from dz to the gradient)."""
    stacked = (params.shape[1] - 1) // 2
    b, f = params[:, 1 : 1 + stacked], params[:, 1 + stacked :]
    s, rest = sigma(slope * (x[None, :, None] - f[:, None, :]))
    z = params[:, :1] ** 2 + (b[:, None, :] ** 2 * s).sum(axis=-1)

    def pull_back(dz):
        da = 2 * params[:, :1] * dz.sum(axis=-1, keepdims=True)
        db = 2 * b * (dz[:, :, None] * s).sum(axis=1)
        df = -slope * b**2 * (dz[:, :, None] * s * rest).sum(axis=1)
        sizes = (np.abs(dz)[:, :, None] * s).sum(axis=1), (np.abs(dz)[:, :, None] * s * rest).sum(axis=1)
        scale = [2 * np.abs(params[:, :1]) * np.abs(dz).sum(axis=-1, keepdims=True)]
        scale += [2 * np.abs(b) * sizes[0], slope * b**2 * sizes[1]]
        return np.concatenate([da, db, df], axis=-1), np.concatenate(scale, axis=-1)

    return z, pull_back


def half_of(half_width, half_cells):
    grid = Grid(float(half_width), 2 * half_cells, float(half_width) / half_cells)
    return np.ascontiguousarray(grid.centres[:half_cells]), grid.cell_width


def random_rows(rng, x, h, half_width, batch, stacked, offset):
    """Places inside, outside, on cell centres, on cell edges, twice the same; some heights zero."""
    f = rng.uniform(-1.1 * half_width, 0.1 * half_width, size=(batch, stacked))
    f[:, 0], f[:, 1], f[:, 2] = x[x.size // 2], x[x.size // 3] + h / 2, -half_width
    f[:, 3], f[:, 4], f[:, 5] = 0.0, -3.0 * half_width, 2.0 * half_width
    f[:, 6] = f[:, 7]
    b = rng.uniform(-1, 1, size=(batch, stacked))
    b[:, 8] = 0.0
    return np.concatenate([np.full((batch, 1), offset), b, f], axis=-1)


def numba(params, x, h, slope):
    return kernels.stacked_sigmoids(params, kernels.make_band(x, h, slope))[0]


def numba_pull_back(params, dz, x, h, slope):
    band = kernels.make_band(x, h, slope)
    return kernels.stacked_sigmoids_pull_back(params, kernels.stacked_sigmoids(params, band)[1], dz, band)


def reference(params, x, h, slope):
    return sigmoid.stacked_sigmoids(params, x, slope, h)


def reference_pull_back(params, dz, x, h, slope):
    return sigmoid.stacked_sigmoids_pull_back(params, dz, x, slope, h)


ROUTES = [(numba, numba_pull_back), (reference, reference_pull_back)]
# Cells a side and half-widths: from bands of 888 cells to sigmoids narrower than a cell.
SIZES = [(5, 3000), (5, 300), (20, 2000), (50, 4000), (100, 2000), (400, 30000), (500, 3000), (500, 40), (8, 1)]


@pytest.mark.parametrize(("forward", "pull_back"), ROUTES)
@pytest.mark.parametrize("offset", [10.0, 0.3, 0.0])
@pytest.mark.parametrize(("half_width", "half_cells"), SIZES)
def test_banded_equals_dense(forward, pull_back, half_width, half_cells, offset):
    rng = np.random.default_rng(half_cells)
    x, h = half_of(half_width, half_cells)
    params = random_rows(rng, x, h, half_width, 2, 30, offset)
    z = forward(params, x, h, SLOPE)
    exact, exact_pull_back = dense(params, x, SLOPE)
    assert np.abs(z - exact).max() <= 1e-13 * exact.max()
    assert (np.abs(z - exact) <= 1e-13 * exact + 1e-290).all()
    dz = rng.standard_normal(z.shape)
    gradient, (exact_gradient, scale) = pull_back(params, dz, x, h, SLOPE), exact_pull_back(dz)
    # Plain sums cut e^-u at u = 37.5, where B's gradient is full: F's is 0 to within this.
    cut = 1e-16 * SLOPE * np.abs(dz).max() if forward is reference else 1e-290
    assert (np.abs(gradient - exact_gradient) <= 2e-13 * scale + cut).all()


@pytest.mark.parametrize(("forward", "pull_back"), ROUTES)
def test_a_lone_sigmoid_keeps_its_tails(forward, pull_back):
    """With A = 0 and one sigmoid every cell is a tail, down to the least numbers there are."""
    for half_width, half_cells in [(5, 3000), (50, 30000), (400, 30000)]:
        x, h = half_of(half_width, half_cells)
        params = np.array([[0.0, 0.7, x[half_cells // 2]]])
        z = forward(params, x, h, SLOPE)
        exact, exact_pull_back = dense(params, x, SLOPE)
        normal = exact > 1e-280
        assert np.abs(z / np.where(normal, exact, 1.0) - 1.0)[normal].max() <= 1e-13
        dz = np.where(np.arange(half_cells) < half_cells // 2 - 10, 1.0, 0.0)[None]
        gradient, (exact_gradient, _) = pull_back(params, dz, x, h, SLOPE), exact_pull_back(dz)
        assert gradient == pytest.approx(exact_gradient, rel=2e-13)


@pytest.mark.parametrize(("forward", "pull_back"), ROUTES)
def test_banded_equals_exact_arithmetic(forward, pull_back):
    """Against 40 digits: the sum itself, and its derivatives by the closed form."""
    half_width, half_cells, slope = 5, 40, 31.0
    x, h = half_of(half_width, half_cells)
    rng = np.random.default_rng(0)
    params = np.concatenate([[0.1], rng.uniform(size=3), [-4.0, x[20], -0.3]])[None]
    dz = rng.standard_normal((1, half_cells))
    with mpmath.workdps(40):
        b, f = [mpmath.mpf(v) for v in params[0, 1:4]], [mpmath.mpf(v) for v in params[0, 4:]]

        def s(i, j):
            return 1 / (1 + mpmath.exp(-slope * (mpmath.mpf(x[i]) - f[j])))

        cells = range(half_cells)
        z = [mpmath.mpf(0.1) ** 2 + sum(b[j] ** 2 * s(i, j) for j in range(3)) for i in cells]
        g = [mpmath.mpf(v) for v in dz[0]]
        db = [2 * b[j] * sum(g[i] * s(i, j) for i in cells) for j in range(3)]
        df = [-slope * b[j] ** 2 * sum(g[i] * s(i, j) * (1 - s(i, j)) for i in cells) for j in range(3)]
        expected = [float(v) for v in [2 * mpmath.mpf(0.1) * sum(g), *db, *df]]
        z = [float(v) for v in z]
    assert forward(params, x, h, slope)[0] == pytest.approx(z, rel=1e-14)
    assert pull_back(params, dz, x, h, slope)[0] == pytest.approx(expected, rel=1e-12)


def test_gradient_agrees_with_complex_step():
    """Through the mirror and the normalisation, on the dense complex sum."""
    spec = TrainSpec(half_width=5.0, cells=100, stacked=9, slope=25.0, weights=(0.1,))
    model = make_model(spec)
    rng = np.random.default_rng(8)
    params = model.initial() * rng.uniform(0.2, 1.2, size=(1, 19))
    weight = rng.standard_normal((1, 100))
    _, tape = model.forward(params)
    gradient = model.pull_back(tape, weight)[0]
    x = spec.grid.centres[:50]
    for i in range(19):
        c = params[0] + 1e-30j * (np.arange(19) == i)
        z = c[0] ** 2 + (c[1:10] ** 2 / (1 + np.exp(-25.0 * (x[:, None] - c[10:])))).sum(axis=-1)
        p = np.concatenate([z, z[::-1]]) / (2 * z.sum())
        assert gradient[i] == pytest.approx((p * weight[0]).sum().imag / 1e-30, rel=1e-11, abs=1e-16)


@pytest.mark.parametrize("half_cells", [200, 37])
def test_every_route_agrees_on_every_array_module(xp, half_cells):
    """Numba for host arrays, plain array operations for others, on the same rows."""
    rng = np.random.default_rng(9)
    x, h = half_of(5, half_cells)
    rows = random_rows(rng, x, h, 5.0, 3, 20, 2.0)
    dz = rng.standard_normal((3, half_cells))
    params = xp.asarray(rows)
    z = sigmoid.stacked_sigmoids(params, xp.asarray(x), SLOPE, h)
    gradient = sigmoid.stacked_sigmoids_pull_back(params, xp.asarray(dz), xp.asarray(x), SLOPE, h)
    assert to_host(z) == pytest.approx(numba(rows, x, h, SLOPE), rel=1e-13)
    assert to_host(gradient) == pytest.approx(numba_pull_back(rows, dz, x, h, SLOPE), rel=1e-11, abs=1e-12)


@pytest.mark.parametrize(("half_width", "half_cells"), [(5, 60), (5, 400), (400, 150)])
@pytest.mark.parametrize("offset", [10.0, 0.0])
def test_cuda_kernels_compiled_for_the_host_equal_dense(host_device, half_width, half_cells, offset):
    rng = np.random.default_rng(10)
    x, h = half_of(half_width, half_cells)
    rows = random_rows(rng, x, h, half_width, 2, 25, offset)
    dz = rng.standard_normal((2, half_cells))
    params, centres = host_device.asarray(rows), host_device.asarray(x)
    exact, exact_pull_back = dense(rows, x, SLOPE)
    z = kernels_cuda.stacked_sigmoids(params, centres, SLOPE).get()
    assert (np.abs(z - exact) <= 1e-13 * exact).all()
    gradient = kernels_cuda.stacked_sigmoids_pull_back(params, host_device.asarray(dz), centres, SLOPE, h).get()
    exact_gradient, scale = exact_pull_back(dz)
    cut = 1e-16 * SLOPE * np.abs(dz).max()
    assert (np.abs(gradient - exact_gradient) <= 1e-13 * scale + cut).all()


def test_model_uses_the_kernels_where_there_are_some(host_device):
    spec = TrainSpec(half_width=5.0, cells=120, stacked=12, weights=(0.1, 0.2))
    device, host = make_model(spec, host_device), make_model(spec)
    weight = np.random.default_rng(11).standard_normal((2, 120))
    p, tape = device.forward(device.initial())
    q, host_tape = host.forward(host.initial())
    assert p.get() == pytest.approx(q, rel=1e-13)
    gradient = device.pull_back(tape, host_device.asarray(weight)).get()
    assert gradient == pytest.approx(host.pull_back(host_tape, weight), rel=1e-10, abs=1e-15)


def test_start_is_the_papers():
    spec = TrainSpec(half_width=4.0, cells=16, stacked=8, weights=(0.1, 0.2))
    params = make_model(spec).initial()
    assert params.shape == (2, 17)
    assert (params[:, 0] == 10).all()
    assert ((params[:, 1:9] >= 0) & (params[:, 1:9] < 1)).all()
    assert params[0, 9:] == pytest.approx(np.arange(8) / 2 - 4)


@pytest.mark.parametrize(("cells", "stacked"), [(400, 100), (40, 200), (2, 3)])
def test_warm_start_is_close(cells, stacked, xp):
    spec = TrainSpec(half_width=5.0, cells=cells, sensitivity=5.0, stacked=stacked, slope=500.0, weights=(0.1,))
    target = truncated_gaussian(spec.grid, sigma=1.5)
    model = make_model(spec, xp)
    p, _ = model.forward(model.from_masses(xp.asarray(target)))
    assert np.abs(to_host(p)[0] - target).sum() < 0.03


def test_places_that_are_not_finite_do_not_reach_outside_the_arrays():
    x, h = half_of(5, 50)
    band = kernels.make_band(x, h, SLOPE)
    for place in (np.nan, np.inf, -np.inf, 1e300, -1e300):
        params = np.array([[1.0, 1.0, place]])
        z, places = kernels.stacked_sigmoids(params, band)
        expected = {np.inf: 1.0, 1e300: 1.0, -np.inf: 2.0, -1e300: 2.0}.get(place)
        assert np.isnan(z).any() if expected is None else z == pytest.approx(np.full((1, 50), expected))
        kernels.stacked_sigmoids_pull_back(params, places, np.ones((1, 50)), band)


def test_gradients_stay_finite_for_huge_and_tiny_heights():
    spec = TrainSpec(half_width=5.0, cells=60, stacked=5, weights=(0.1, 0.2, 0.3))
    model = make_model(spec)
    params = model.initial()
    params[0, 1:6], params[1, :6] = 1e100, 1e-100
    params[2, 0] = 0.0
    p, tape = model.forward(params)
    assert np.isfinite(p).all()
    assert np.isfinite(model.pull_back(tape, np.random.default_rng(0).standard_normal(p.shape))).all()
