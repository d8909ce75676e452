"""The table of mutations: small, realistic faults of the numerics, each with unit tests that must fail on it.

Each replaces one piece of source text, found exactly once, by a faulty one that would make a privacy bound, a
guarantee or a gradient wrong. ``tests`` are the smallest selection of tests (in ``tests/unit``) that must notice.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """``old`` -> ``new`` in src/optnoise/``file``. every_run: whether it belongs to the plain test run."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    every_run: bool = False


RATIONAL = "test_accounting.py::test_exact_rational_arithmetic"
COARSE = "test_composition.py::test_few_buckets_bound_from_both_sides"
WINDOWS = "test_composition.py::test_any_window_and_any_tilt_bound"
EPSILON = "test_composition.py::test_epsilon_on_both_sides_with_few_buckets"
CIRCLE = "test_losses.py::test_losses_that_leave_the_circle_above_are_bounded"
GRADIENT = "test_losses.py::test_gradient_is_that_of_the_value"

MUTATIONS = (
    # --- accounting: bounds of delta and epsilon -----------------------------------------------------------
    Mutation(
        "lower bound read on the wrong side when sums are off",
        "accounting.py",
        "for_lower = np.nextafter(flat + max(0.0, ratio + slack), math.inf)",
        "for_lower = np.nextafter(flat + min(0.0, ratio - slack), -math.inf)",
        ("test_composition.py::test_both_readings_of_sums_that_are_off",),
        every_run=True,
    ),
    Mutation(
        "upper bound ignores sums that are off",
        "accounting.py",
        "for_upper = np.nextafter(flat + min(0.0, ratio - slack), -math.inf)",
        "for_upper = flat",
        ("test_composition.py::test_both_readings_of_sums_that_are_off",),
    ),
    Mutation(
        "distinguishing events are not composed",
        "accounting.py",
        "upper = (-math.expm1(n * math.log1p(-high))",
        "upper = (-math.expm1(math.log1p(-high))",
        ("test_accounting_faults.py::test_distinguishing_mass_counts_once",),
    ),
    Mutation(
        "tiny masses left out of the upper bound",
        "accounting.py",
        "upper = upper + 1.01 * n * pair.tiny",
        "upper = upper + 0.0 * n * pair.tiny",
        ("test_accounting_faults.py::test_masses_of_a_few_least_floats",),
    ),
    Mutation(
        "basic composition forgets the number of rounds",
        "accounting.py",
        "return lower, n * upper * math.exp",
        "return lower, upper * math.exp",
        (COARSE,),
    ),
    Mutation(
        "post-processing bound applied to the tail of the loss",
        "accounting.py",
        '* math.exp(min(0.0, scale) - slack) if kind == "adp" else',
        "* math.exp(min(0.0, scale) - slack) if kind in KINDS else",
        (COARSE,),
    ),
    Mutation(
        "finite part dropped above the loss of one round",
        "accounting.py",
        "np.flatnonzero(for_upper < n * largest * (",
        "np.flatnonzero(for_upper < largest * (",
        (COARSE,),
    ),
    Mutation(
        "losses cut off as too large vanish",
        "accounting.py",
        "infinite = pair.infinite + atoms.masses[removed].sum().item()",
        "infinite = pair.infinite",
        ("test_accounting_faults.py::test_wrap_around_hides_no_edge_mass",),
    ),
    Mutation(
        "summation errors pull both bounds inwards",
        "accounting.py",
        "error = 1 + sign * (60 + atoms.size) * U",
        "error = 1 - sign * (60 + atoms.size) * U",
        (RATIONAL,),
    ),
    Mutation(
        "epsilon bounded from above by delta's lower bound",
        "accounting.py",
        "_narrow(for_upper, points, bounds.upper <= delta)",
        "_narrow(for_upper, points, bounds.lower <= delta)",
        (EPSILON,),
    ),
    Mutation(
        "epsilon read at the wrong end of its bracket",
        "accounting.py",
        "return for_lower[0], for_upper[1]",
        "return for_lower[0], for_upper[0]",
        (EPSILON,),
    ),
    Mutation(
        "two-sum loses a rounding error",
        "accounting.py",
        "((x - (high - from_y)) + (y - from_y))",
        "(y - from_y)",
        ("test_accounting_faults.py::test_sums_are_exact",),
    ),
    # --- composition: the lattice and the convolution ------------------------------------------------------
    Mutation(
        "connect-the-dots splits linearly in the loss",
        "composition.py",
        "return index, xp.exp(-offset) * (xp.expm1(offset - step) / whole), xp.expm1(-offset) / whole",
        "return index, 1 - offset / step, offset / step",
        (COARSE,),
        every_run=True,
    ),
    Mutation(
        "losses rounded up where down is meant",
        "composition.py",
        "return index, xp.ones_like(losses), xp.zeros_like(losses)",
        "return index + 1, xp.ones_like(losses), xp.zeros_like(losses)",
        (COARSE,),
    ),
    Mutation(
        "tilt moved to the lattice with the wrong sign",
        "composition.py",
        "lower = part.weights * lower * xp.exp(-tilt * offset)",
        "lower = part.weights * lower * xp.exp(tilt * offset)",
        (COARSE,),
    ),
    Mutation(
        "window of the circular convolution off by one",
        "composition.py",
        "turn = (start - shift) % length",
        "turn = (start - shift + 1) % length",
        (COARSE,),
    ),
    Mutation(
        "upper share goes to the bucket below",
        "composition.py",
        "minlength=length), 1)",
        "minlength=length), -1)",
        (COARSE,),
    ),
    Mutation(
        "rounds that fill no block are forgotten",
        "composition.py",
        "[(block, n // block), (n % block, 1)]",
        "[(block, n // block)]",
        ("test_accounting.py::test_randomised_response",),
    ),
    Mutation(
        "mass that leaves the window above is not counted",
        "composition.py",
        "above=outside_above,",
        "above=0.0,",
        (WINDOWS,),
    ),
    # --- composed sums: what is added to and subtracted from the sums over the lattice -----------------------
    Mutation(
        "lower bound keeps what the lattice added",
        "composed_sums.py",
        "hockey_stick=True) - table.lattice_gap(for_lower)",
        "hockey_stick=True)",
        (COARSE,),
        every_run=True,
    ),
    Mutation(
        "lower bound keeps what the circle wrapped into the window",
        "composed_sums.py",
        "misplaced = composed.outside + composed.stray",
        "misplaced = composed.stray",
        (WINDOWS,),
        every_run=True,
    ),
    Mutation(
        "upper bound forgets mass below the window",
        "composed_sums.py",
        "np.where(epsilon < self.edge(0), composed.outside",
        "np.where(epsilon < self.edge(0), 0.0 * composed.outside",
        (WINDOWS,),
    ),
    Mutation(
        "tail of lowered losses read at epsilon itself",
        "composed_sums.py",
        "for_upper = for_upper - sum(count * step for step, count in composed.roundings) * (1 + 8 * U)",
        "for_upper = for_upper * (1 - 8 * U)",
        (COARSE,),
    ),
    Mutation(
        "sums start one bucket late",
        "composed_sums.py",
        "np.clip(index + 1 - self.composed.start,",
        "np.clip(index + 2 - self.composed.start,",
        (COARSE,),
    ),
    Mutation(
        "discount of the hockey-stick with the wrong sign",
        "composed_sums.py",
        "self.read(self.discounted, position) * np.exp(epsilon - self.reference)",
        "self.read(self.discounted, position) * np.exp(self.reference - epsilon)",
        (COARSE,),
    ),
    # --- privacy loss distributions --------------------------------------------------------------------------
    Mutation(
        "losses near zero relative to the wrong mass",
        "pld.py",
        "xp.where(near, a - b, 0.0) / b)",
        "xp.where(near, a - b, 0.0) / a)",
        (COARSE,),
    ),
    Mutation(
        "exponents of a quotient the wrong way round",
        "pld.py",
        "(exponent_a - exponent_b) * math.log(2.0)",
        "(exponent_b - exponent_a) * math.log(2.0)",
        (COARSE,),
    ),
    # --- losses that training minimises ------------------------------------------------------------------------
    Mutation(
        "gradient with respect to B with the wrong sign",
        "losses.py",
        "slope[:, :-1] + rise, -plan.ends * rise)",
        "slope[:, :-1] + rise, plan.ends * rise)",
        (GRADIENT,),
    ),
    Mutation(
        "one round too many in the others' convolution",
        "losses.py",
        "_power(xp.fft.rfft(beta, plan.size, axis=-1), plan.compositions - 1)",
        "_power(xp.fft.rfft(beta, plan.size, axis=-1), plan.compositions)",
        (GRADIENT,),
    ),
    Mutation(
        "slope of distinguishing events one power too high",
        "losses.py",
        "compositions * xp.exp((compositions - 1) * kept)",
        "compositions * xp.exp(compositions * kept)",
        (GRADIENT,),
    ),
    Mutation(
        "losses beyond the circle are not bounded",
        "losses.py",
        "delta = delta + xp.where(exponent > 0, 1.0 + exponent, bound)",
        "delta = delta + 0.0 * bound",
        (CIRCLE,),
    ),
    Mutation(
        "bound beyond the circle without a slope",
        "losses.py",
        "values = values + (bound / moment)[:, None] * powers",
        "values = values + 0.0 * powers",
        (CIRCLE,),
        every_run=True,
    ),
    Mutation(
        "smoothed hockey-stick below the sharp one",
        "losses.py",
        "xp.maximum(gap, 0.0) + smoothing *",
        "xp.maximum(gap, 0.0) - smoothing *",
        ("test_losses.py::test_smoothed_payoff",),
    ),
    Mutation(
        "a loss at epsilon itself counts",
        "losses.py",
        "(loss > epsilon * (1 + 1e-12) + 1e-15)",
        "(loss >= epsilon * (1 - 1e-12) - 1e-15)",
        ("test_losses.py::test_pdp_counts_losses_above_epsilon",),
    ),
    Mutation(
        "moments accountant charges epsilon per round",
        "losses.py",
        "exponent = n * (shift + xp.log(total)) - order * epsilon",
        "exponent = n * (shift + xp.log(total) - order * epsilon)",
        ("test_losses.py::test_moments_accountant_minimises_over_the_order",),
    ),
    # --- compiled kernels of the losses --------------------------------------------------------------------------
    Mutation(
        "an outcome that enters the support enters at the bottom",
        "bucketing.py",
        "while steps < 8 and j < last and x >= ends[w, j + 1] * y:",
        "while steps < 8 and j < last and x > ends[w, j + 1] * y:",
        ("test_losses.py::test_one_sided_gradient_where_mass_enters_beside_the_support",),
    ),
    Mutation(
        "gradient of moments with the order for 1 + order",
        "bucketing.py",
        "scale[w] * (1.0 + order[w]), -scale[w] * order[w]",
        "scale[w] * order[w], -scale[w] * order[w]",
        ("test_losses.py::test_moments_gradient_by_complex_step",),
    ),
    # --- pairs, noise --------------------------------------------------------------------------------------------
    Mutation(
        "sampling rate and its complement exchanged in the pair",
        "pairs.py",
        "return a, (1.0 - q) * a + q * shifted",
        "return a, q * a + (1.0 - q) * shifted",
        ("test_pairs.py",),
    ),
    Mutation(
        "sampling rate and its complement exchanged in the gradient",
        "pairs.py",
        "(1.0 - q) * db[..., :cells] + q * db[..., grid.shift :]",
        "q * db[..., :cells] + (1.0 - q) * db[..., grid.shift :]",
        ("test_pairs.py",),
        every_run=True,
    ),
    Mutation(
        "gradient of the shifted distribution read unshifted",
        "pairs.py",
        "return da[..., :cells] + db[..., grid.shift :]",
        "return da[..., :cells] + db[..., :cells]",
        ("test_pairs.py",),
    ),
    Mutation(
        "gradient through the normalisation halved",
        "noise.py",
        "return (folded - 2.0 * mean) / (2.0 * total)",
        "return (folded - mean) / (2.0 * total)",
        ("test_noise.py::test_mirror_gradient_is_orthogonal_to_scaling",),
    ),
    # --- proven lower bounds ---------------------------------------------------------------------------------------
    Mutation(
        "dual bound forgets what the constraint pays",
        "certificates.py",
        "lower = float(total.min()) - paid",
        "lower = float(total.min())",
        ("test_certificates.py::test_optimum_agrees_with_the_reference_values",),
        every_run=True,
    ),
    Mutation(
        "uniform noise on one cell too few",
        "certificates.py",
        "np.cumsum(half) / np.arange(1, n + 1) if monotone",
        "np.cumsum(half) / np.arange(n + 0.0).clip(1) if monotone",
        ("test_certificates.py::test_values_at_the_vertices_are_those_of_the_vertices",),
    ),
    Mutation(
        "halves of the envelope meet above the convex corner",
        "envelope.py",
        "v = min(top, float(v))",
        "v = top",
        ("test_certificates_envelope.py::test_the_exact_curve_of_a_pair_is_nowhere_above_the_bounds",),
    ),
    Mutation(
        "the lesser order of the envelope not compared with its own bounds",
        "envelope.py",
        "for half in (ab,) if ab is ba else (ab, ba):",
        "for half in (ab, ab):",
        ("test_certificates_envelope.py::test_the_exact_curve_of_a_pair_is_nowhere_above_the_bounds",),
    ),
    Mutation(
        "the envelope's pair not scaled below its bounds",
        "envelope.py",
        "fits *= (1 - slack) * (1 - 2 * slack / gap[1])",
        "fits = 1.0",
        ("test_certificates_envelope.py::test_the_exact_curve_of_a_pair_is_nowhere_above_the_bounds",),
    ),
    Mutation(
        "the second distribution of a bound rounded down",
        "envelope.py",
        "low = self.gamma * low * (1 + 4 * U)",
        "low = self.gamma * low * (1 - 4 * U)",
        ("test_certificates_envelope.py::test_the_exact_curve_of_a_pair_is_nowhere_above_the_bounds",),
    ),
    Mutation(
        "hull above the points",
        "envelope.py",
        "if (y[m] - y[p]) * (x[i] - x[p]) < (y[i] - y[p]) * (x[m] - x[p]):",
        "if (y[m] - y[p]) * (x[i] - x[p]) > (y[i] - y[p]) * (x[m] - x[p]):",
        ("test_certificates_envelope.py::test_lower_hull_is_convex_and_below",),
    ),
    Mutation(
        "smaller differences not looked at",
        "shifts.py",
        "return [shift] if (np.diff(rises) <= 0).all()",
        "return [shift] if (np.diff(rises) <= 2).all()",
        ("test_mechanism.py::test_the_guarantee_holds_for_every_smaller_difference",),
    ),
    # --- the mechanism that is drawn from --------------------------------------------------------------------------
    Mutation(
        "draws on the edge of a cell go to the cell before",
        "mechanism.py",
        "cells = (bisect_right(",
        "cells = (__import__('bisect').bisect_left(",
        ("test_mechanism.py::test_draws_are_bits_of_secrets",),
    ),
    Mutation(
        "guarantee states the better order",
        "mechanism.py",
        '"delta": max(order["delta_upper"]',
        '"delta": min(order["delta_upper"]',
        ("test_mechanism.py::test_guarantee_is_that_of_the_worse_order_and_of_all_rounds",),
    ),
    Mutation(
        "guarantee is that of one round",
        "mechanism.py",
        "epsilon, compositions=compositions)",
        "epsilon, compositions=1)",
        ("test_mechanism.py::test_guarantee_is_that_of_the_worse_order_and_of_all_rounds",),
    ),
    Mutation(
        "noise in cells where half cells are meant",
        "mechanism.py",
        "return Fraction(self.grid.sensitivity) / (2 * self.grid.shift)",
        "return Fraction(self.grid.sensitivity) / self.grid.shift",
        ("test_mechanism.py::test_noise_is_a_whole_number_of_steps",),
    ),
    # --- frontiers ---------------------------------------------------------------------------------------------------
    Mutation(
        "the better order of a noise counts",
        "frontier.py",
        "].max()",
        "].min()",
        ("test_frontier.py::test_the_larger_order_counts_for_both_bounds",),
        every_run=True,
    ),
    Mutation(
        "collapsed noise dominates",
        "frontier.py",
        "competing = np.where(left_out, np.inf, delta)",
        "competing = delta",
        ("test_frontier.py::test_a_collapsed_noise_dominates_nobody",),
    ),
)
