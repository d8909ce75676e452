"""Figure 1b: noise that need not fall from the centre becomes pointy towers, and what smaller shifts then leak."""

import matplotlib.pyplot as plt
import numpy as np

from optnoise import drawing, style
from optnoise.figures import Inputs, run
from optnoise.grid import Grid, utilities
from optnoise.storage import NoiseFile

MOST_SHIFTS = 100


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """One panel for each kind of tower with the staircase behind, and delta by the distance of two query results."""
    towers = inputs.noises("towers")
    models = drawing.trained(towers, "model")
    width = drawing.half_width(next(iter(towers.values())))
    epsilon = drawing.common_epsilon(
        {name: inputs.noises(name) for name in ("towers", "stairs_adp", "stairs_analytic")}
    )
    shown = {"staircase": drawing.by_half_width(inputs.noises("stairs_analytic"))[width][1]}
    shown |= {"adp": drawing.by_half_width(inputs.noises("stairs_adp"))[width][1]}
    shown |= {models[run]: noise for run, noise in towers.items()}

    figure, axes = plt.subplots(1, len(towers) + 1, figsize=(style.WIDTH, 2.9), width_ratios=[1] * len(towers) + [1.1])
    labels, words, shifts = {}, [], {}
    for name, noise in shown.items():
        u1, _ = utilities(noise.p[0], Grid(**noise.meta["grid"]))
        shifts[name] = delta_by_shift(noise, epsilon)
        delta = shifts[name][1][-1]
        labels[name] = f"{style.method_name(name)}\n$E|x|$ = {u1:.4f}, $\\delta$ = {delta:.4f}"
        words.append(f"{style.method_name(name)}: E|x| = {u1:.4f}, delta = {delta:.5f}")
    for panel, (run_name, noise) in zip(axes, towers.items(), strict=False):
        drawing.draw_density(
            panel, shown["staircase"], color=style.method_colour("staircase"), linewidth=2.5, label=labels["staircase"]
        )
        name = models[run_name]
        drawing.draw_density(panel, noise, color=style.method_colour(name), linewidth=0.9, label=labels[name])
        panel.set(xlabel="noise $x$ (sensitivities)", ylabel="density", xlim=(-width, width))
        panel.set_ylim(top=1.45 * panel.get_ylim()[1])
        panel.legend(loc="upper center", fontsize="x-small")
    for name, (distance, delta) in shifts.items():
        look = {"color": style.method_colour(name), "linestyle": style.method_line(name)}
        axes[-1].plot(
            distance, delta, label=style.method_name(name), linewidth=3 if name == "staircase" else 1.2, **look
        )
    axes[-1].set(xlabel="$|q(D) - q(D')|$ (sensitivities)", ylabel=rf"$\delta$ at $\varepsilon = {epsilon:g}$")
    ticks = [tick for tick in axes[-1].get_yticks() if 0 <= tick <= 1]
    axes[-1].set_ylim(top=1.5 * axes[-1].get_ylim()[1])
    axes[-1].set_yticks(ticks)
    axes[-1].legend(loc="upper left", fontsize="x-small", ncols=1)
    for letter, panel in zip("abc", axes, strict=False):
        style.panel_letter(panel, letter)
    return drawing.finish(figure), caption(epsilon, words, shifts, towers, models)


def delta_by_shift(noise: NoiseFile, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
    """(distance, delta) for two results whole numbers of cells apart, up to the sensitivity; one release."""
    grid = Grid(**noise.meta["grid"])
    shifts = np.unique(np.linspace(0, grid.shift, min(grid.shift, MOST_SHIFTS) + 1).round().astype(int))
    return shifts * grid.cell_width, np.array([drawing.single_delta(noise, epsilon, int(k)) for k in shifts])


def caption(epsilon: float, words: list, shifts: dict, towers: dict, models: dict) -> str:
    """What is shown, utilities and deltas, and for which noises a smaller distance leaks more."""
    worse = {name: delta.max() > delta[-1] * (1 + 1e-6) for name, (_, delta) in shifts.items()}
    unsafe = [style.method_name(name) for name, is_worse in worse.items() if is_worse]
    safe = [style.method_name(name) for name, is_worse in worse.items() if not is_worse]
    names = drawing.listing(style.method_name(models[run]) for run in towers)
    return (
        f"Noise for one release at eps = {epsilon:g}, ADP loss, L1, not held to fall from the centre: {names}; with"
        " the truncated staircase behind, and delta when two neighbouring results differ by less than the sensitivity."
        f" {'; '.join(words)}. Largest delta at a distance below the sensitivity, so protecting differences of exactly"
        f" 0 or 1 sensitivity only: {drawing.listing(unsafe)}. Largest at the sensitivity itself:"
        f" {drawing.listing(safe)}."
    )


if __name__ == "__main__":
    run(draw)
