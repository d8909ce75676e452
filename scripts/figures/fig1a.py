"""Figure 1a: learned noise for L1 utility and one release: ADP finds the truncated staircase; MA and PDP beside it."""

import matplotlib.pyplot as plt

from optnoise import drawing, style
from optnoise.figures import Inputs, run
from optnoise.grid import Grid, utilities

LOOKS = {
    "staircase": {"linewidth": 3.5, "alpha": 0.8},
    "ma": {"linewidth": 1.0},
    "pdp": {"linewidth": 1.0},
    "adp": {"linewidth": 1.2},
}
EXPERIMENTS = {"staircase": "stairs_analytic", "ma": "stairs_ma", "pdp": "stairs_pdp", "adp": "stairs_adp"}


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """Densities, one panel for each half-width; the narrowest on a linear axis, the others logarithmic."""
    epsilon = drawing.common_epsilon({name: inputs.noises(name) for name in EXPERIMENTS.values()})
    noises = {method: drawing.by_half_width(inputs.noises(name)) for method, name in EXPERIMENTS.items()}
    widths = list(noises["adp"])
    wide = [f"r{i}" for i in range(1, len(widths))]
    layout = [["r0"] * max(1, len(wide)), *([wide] if wide else [])]
    figure, panels = plt.subplot_mosaic(layout, figsize=(style.WIDTH, 2.6 * len(layout)))
    for index, width in enumerate(widths):
        axes = panels[f"r{index}"]
        for method, look in LOOKS.items():
            noise = noises[method][width][1]
            u1, _ = utilities(noise.p[0], Grid(**noise.meta["grid"]))
            drawing.draw_density(
                axes,
                noise,
                color=style.method_colour(method),
                linestyle=style.method_line(method),
                label=style.method_name(method) + ("" if index else f": $E|x|$ = {u1:.4f}"),
                **look,
            )
        if index:
            drawing.log_axes(axes, "y")
        axes.set(xlabel="noise $x$ (sensitivities)", ylabel="density", xlim=(-width, width))
        axes.set_title(f"$r = {width:g}$")
    panels["r0"].legend(loc="upper right")
    return drawing.finish(figure), caption(noises, widths, epsilon)


def caption(noises: dict, widths: list, epsilon: float) -> str:
    """What is shown, and how near the ADP noise comes to the staircase in shape and in delta."""
    lines = []
    for width in widths:
        learned, analytic = noises["adp"][width][1], noises["staircase"][width][1]
        distance = drawing.total_variation(learned.p[0], analytic.p[0])
        deltas = [drawing.number(drawing.single_delta(noise, epsilon), 5) for noise in (learned, analytic)]
        lines.append(
            f"r = {width:g}: total variation distance {drawing.number(distance)}, delta {deltas[0]} against the"
            f" staircase's {deltas[1]}"
        )
    return (
        f"Noise for one release at eps = {epsilon:g}, minimal L1 utility loss, on [-r, r]: learned with the ADP, MA and"
        " PDP losses, and Geng's staircase cut at r and normalised. Between ADP noise and staircase, "
        + "; ".join(lines)
        + ". MA minimises a bound that holds for PDP too, so its noise is to be compared with PDP's."
    )


if __name__ == "__main__":
    run(draw)
