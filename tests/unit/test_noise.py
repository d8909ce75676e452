"""Noise models: masses, exact gradients, starts, warm starts, on every array module."""

from fractions import Fraction

import numpy as np
import pytest

from optnoise.backend import to_host
from optnoise.baselines import truncated_gaussian, uniform
from optnoise.noise import half_masses, make_model, mirror, mirror_pull_back
from optnoise.spec import MODELS, TrainSpec

NOT_MONOTONE = {"free"}
SHAPES = [(1, 1.0, 2), (2, 5.0, 20), (3, 4.0, 24), (1, 6.0, 132)]


def spec_for(model, weights=1, half_width=5.0, cells=20, **more):
    more = {"stacked": 7, "slope": 12.0, **more}
    return TrainSpec(
        half_width=half_width, cells=cells, model=model, weights=tuple(0.1 * (w + 1) for w in range(weights)), **more
    )


def moved(model, rng, scale=0.05):
    """Generic parameters near the start: rows differ, bounds are kept."""
    params = to_host(model.initial())
    params = params + scale * rng.standard_normal(params.shape)
    return np.abs(params) if model.bounds() is not None else params


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("weights", "half_width", "cells"), SHAPES)
def test_masses_are_a_symmetric_distribution(name, weights, half_width, cells, xp):
    model = make_model(spec_for(name, weights, half_width, cells), xp)
    params = xp.asarray(moved(model, np.random.default_rng(1)))
    p, _ = model.forward(params)
    assert p.shape == (weights, cells)
    assert p.dtype == np.float64
    p = to_host(p)
    assert (p >= 0).all()
    assert np.array_equal(p, p[:, ::-1])
    assert np.allclose(p.sum(axis=-1), 1.0, rtol=0, atol=1e-14)


@pytest.mark.parametrize("name", MODELS)
def test_monotone_models_rise_to_the_centre(name):
    spec = spec_for(name, 2, 6.0, 60)
    model = make_model(spec)
    p, _ = model.forward(moved(model, np.random.default_rng(2)))
    rises = (np.diff(p[:, :30], axis=-1) >= 0).all()
    assert rises == (name not in NOT_MONOTONE)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("weights", "half_width", "cells"), SHAPES)
def test_gradient_agrees_with_central_differences(name, weights, half_width, cells, xp):
    rng = np.random.default_rng(3)
    model = make_model(spec_for(name, weights, half_width, cells), xp)
    params = moved(model, rng)
    weight = rng.standard_normal((weights, cells))

    def value(row_params):
        p, _ = model.forward(xp.asarray(row_params))
        return (to_host(p) * weight).sum(axis=-1)

    _, tape = model.forward(xp.asarray(params))
    gradient = to_host(model.pull_back(tape, xp.asarray(weight)))
    assert gradient.shape == params.shape
    scale = np.abs(gradient).max() + 1e-3
    for i in rng.choice(params.shape[1], size=min(params.shape[1], 25), replace=False):
        step = np.zeros_like(params)
        step[:, i] = 1e-5
        numeric = (value(params + step) - value(params - step)) / 2e-5
        assert numeric == pytest.approx(gradient[:, i], abs=3e-8 * scale)


@pytest.mark.parametrize("name", MODELS)
def test_rows_of_a_batch_are_the_single_runs(name, xp):
    batch = make_model(spec_for(name, 3), xp)
    single = make_model(spec_for(name, 1), xp)
    rng = np.random.default_rng(4)
    params, weight = moved(batch, rng), rng.standard_normal((3, 20))
    p, tape = batch.forward(xp.asarray(params))
    gradient = batch.pull_back(tape, xp.asarray(weight))
    for row in range(3):
        one_p, one_tape = single.forward(xp.asarray(params[row : row + 1]))
        one = single.pull_back(one_tape, xp.asarray(weight[row : row + 1]))
        assert to_host(p)[row] == pytest.approx(to_host(one_p)[0], rel=1e-13)
        assert to_host(gradient)[row] == pytest.approx(to_host(one)[0], rel=1e-10, abs=1e-14)


@pytest.mark.parametrize("name", MODELS)
def test_the_seed_alone_decides_the_start(name, xp):
    first = to_host(make_model(spec_for(name, 2, seed=5), xp).initial())
    again = to_host(make_model(spec_for(name, 2, seed=5)).initial())
    other = to_host(make_model(spec_for(name, 2, seed=6), xp).initial())
    assert first.tobytes() == again.tobytes()
    assert not np.array_equal(first, other)
    assert np.array_equal(first[0], first[1])


@pytest.mark.parametrize("name", ["increments", "free"])
def test_warm_start_gives_the_masses_back(name, xp):
    spec = spec_for(name, 2, 5.0, 40)
    model = make_model(spec, xp)
    for p in (truncated_gaussian(spec.grid, sigma=1.3), uniform(spec.grid)):
        back, _ = model.forward(model.from_masses(xp.asarray(p)))
        assert to_host(back)[1] == pytest.approx(p, rel=1e-12)
        both, _ = model.forward(model.from_masses(xp.asarray(np.stack([p, p[::-1]]))))
        assert to_host(both)[0] == pytest.approx(p, rel=1e-12)


@pytest.mark.parametrize("name", ["increments", "free"])
def test_warm_start_keeps_exact_zeros_or_nearly(name):
    p = np.array([0, 0, 1, 3, 3, 1, 0, 0]) / 8.0
    model = make_model(spec_for(name, 1, 4.0, 8))
    back, _ = model.forward(model.from_masses(p))
    assert back[0] == pytest.approx(p, rel=1e-14, abs=1e-300)
    if name == "increments":
        assert np.array_equal(back[0] == 0, p == 0)


@pytest.mark.parametrize(
    ("p", "message"),
    [
        (np.full(6, 1 / 6), r"p: shape \(6,\) is not allowed"),
        (np.array([-0.1, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2, -0.1]), "p: negative or non-finite"),
        (np.array([np.nan] + [0.1] * 7), "p: negative or non-finite"),
        (np.array([3, 2, 1, 2, 2, 1, 2, 3]) / 16, "p: the masses fall towards the centre"),
    ],
)
def test_warm_start_names_what_is_wrong(p, message):
    with pytest.raises(ValueError, match=message):
        make_model(spec_for("increments", 1, 4.0, 8)).from_masses(p)


def test_increments_that_are_all_zero_are_refused():
    model = make_model(spec_for("increments", 2))
    params = model.initial()
    params[1] = 0.0
    with pytest.raises(ValueError, match="row 1 has total mass 0"):
        model.forward(params)


def test_increments_may_leave_exact_zeros_at_the_edge():
    model = make_model(spec_for("increments", 1))
    params = model.initial()
    params[0, :4] = 0.0
    p, tape = model.forward(params)
    assert (p[0, :4] == 0).all()
    assert (p[0, 4:10] > 0).all()
    gradient = model.pull_back(tape, np.random.default_rng(0).standard_normal(p.shape))
    assert np.isfinite(gradient).all()
    assert np.abs(gradient[0, :4]).min() > 0


def test_increments_gradient_is_exact_in_rational_arithmetic():
    """d p / d v in fractions: p_i = z_i / 2S, dz_i/dv_j = 1 for i >= j, dS/dv_j = N - j."""
    v = [Fraction(n) for n in (0, 0, 3, 1, 4)]
    weight = [Fraction(n) for n in (2, -1, 5, 7, -3, 4, 0, 6, -2, 1)]
    z = [sum(v[: i + 1]) for i in range(5)]
    total = sum(z)
    folded = [weight[i] + weight[9 - i] for i in range(5)]
    exact = [
        sum(folded[j:]) / (2 * total) - (5 - j) * sum(f * s for f, s in zip(folded, z, strict=True)) / (2 * total**2)
        for j in range(5)
    ]
    model = make_model(spec_for("increments", 1, 5.0, 10))
    _, tape = model.forward(np.array([[float(n) for n in v]]))
    gradient = model.pull_back(tape, np.array([[float(n) for n in weight]]))
    assert gradient[0] == pytest.approx([float(e) for e in exact], rel=1e-14)


def test_free_gradient_agrees_with_complex_step():
    rng = np.random.default_rng(6)
    theta, weight = rng.standard_normal(15), rng.standard_normal(30)
    model = make_model(spec_for("free", 1, 5.0, 30))
    _, tape = model.forward(theta[None])
    gradient = model.pull_back(tape, weight[None])[0]
    for i in range(15):
        z = np.exp(theta + 1e-30j * (np.arange(15) == i))
        p = np.concatenate([z, z[::-1]]) / (2 * z.sum())
        assert gradient[i] == pytest.approx((p * weight).sum().imag / 1e-30, rel=1e-12, abs=1e-15)


def test_mirror_gradient_is_orthogonal_to_scaling():
    rng = np.random.default_rng(7)
    z = rng.uniform(size=(2, 9))
    p, total = mirror(z)
    dz = mirror_pull_back(p, total, rng.standard_normal((2, 18)))
    assert (dz * z).sum(axis=-1) == pytest.approx([0, 0], abs=1e-15)


def test_half_masses_average_the_two_sides():
    assert half_masses(np.array([0.1, 0.2, 0.4, 0.3]), 2, 2) == pytest.approx(np.array([[0.2, 0.3]] * 2))


def test_free_does_not_overflow():
    model = make_model(spec_for("free", 1))
    p, tape = model.forward(np.array([[1e4, 0, 0, 0, 0, 0, 0, 0, 0, -1e4]]))
    assert p[0, 0] == 0.5
    assert np.isfinite(model.pull_back(tape, np.ones_like(p))).all()
