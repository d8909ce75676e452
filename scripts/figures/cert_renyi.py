"""Epsilon at equal variance: truncated Gaussian, truncated Laplace, the best noise found, and what no noise beats."""

import matplotlib.pyplot as plt

from optnoise import drawing, style
from optnoise.figures import Inputs, run
from optnoise.storage import load_noise, read_table

PUBLISHED = 2.66  # the best published noise, Renyi-optimal, as the project's specification gives it
NAMES = {"gaussian": "truncated Gaussian", "laplace": "truncated Laplace", "best": "best found"}


def draw(inputs: Inputs) -> tuple[plt.Figure, str]:
    """Left the noises, right their epsilons over the certified floors."""
    table = read_table(inputs.extra("renyi.csv")).set_index("name")
    noise = load_noise(inputs.extra("renyi.npz"))
    spec = noise.meta["spec"]
    figure, (shapes, bars) = plt.subplots(1, 2, figsize=(style.WIDTH, 2.8), width_ratios=[1.1, 1])
    for index, name in enumerate(noise.meta["names"]):
        method = "adp" if name == "best" else name
        look = {"color": style.method_colour(method), "linestyle": style.method_line(method)}
        drawing.draw_density(shapes, noise, index, label=NAMES[name], **look)
        epsilon = table.loc[name, "epsilon_upper"]
        bars.barh(NAMES[name], epsilon, color=look["color"], height=0.55)
        bars.text(epsilon, NAMES[name], f" {epsilon:.3f}", va="center", fontsize="small")
    drawing.log_axes(shapes, "y")
    half = 8 * spec["variance"] ** 0.5
    shapes.set(xlim=(-half, half), ylim=(1e-9, 1), xlabel="noise $x$ (sensitivities)", ylabel="density")
    shapes.legend(loc="lower center")
    floors = {name: table.loc[name, "epsilon_lower"] for name in ("envelope", "tightened")}
    bars.axvspan(0, max(floors.values()), color="#d9d9d9", zorder=0, linewidth=0)
    bars.axvline(PUBLISHED, color="#d55e00", linestyle=":", linewidth=1)
    bars.text(PUBLISHED, 2.45, "published", ha="right", va="bottom", fontsize="small", color="#d55e00")
    most = max(table.loc[name, "epsilon_upper"] for name in noise.meta["names"])
    bars.set(
        xlim=(0, 1.2 * most), xlabel=rf"$\varepsilon$ at $\delta = {spec['delta']:g}$, $n = {spec['compositions']}$"
    )
    bars.invert_yaxis()
    bars.grid(axis="y", visible=False)
    found = table.loc["best", "epsilon_upper"]
    floor = max(floors.values())
    return drawing.finish(figure), (
        f"Noise of E x^2 = {spec['variance']:g} on [-{spec['half_width']:g}, {spec['half_width']:g}] under"
        f" {spec['compositions']} compositions: epsilon at delta = {spec['delta']:g}, upper bounds by the evaluator."
        f" Gaussian {table.loc['gaussian', 'epsilon_upper']:.3f}, Laplace {table.loc['laplace', 'epsilon_upper']:.3f},"
        f" the best published noise {PUBLISHED}, ours {found:.3f}. Shaded: no noise of this variance has an epsilon"
        f" below {floors['envelope']:.3f} by the plain envelope, {floors['tightened']:.3f} with bound tightening."
        f" The best found is within a factor {found / floor:.3f} of the least possible."
        if floor > 0
        else "No bound."
    )


if __name__ == "__main__":
    run(draw)
