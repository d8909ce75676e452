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
    figure, (shapes, bars) = plt.subplots(1, 2, figsize=(style.WIDTH, 3.0), width_ratios=[1.1, 1])
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
    bars.axvline(PUBLISHED, color="#d55e00", linestyle=":", linewidth=1.2)
    most = max(table.loc[name, "epsilon_upper"] for name in noise.meta["names"])
    delta, n = drawing.number(spec["delta"]), spec["compositions"]
    bars.set(xlim=(0, 1.2 * most), xlabel=rf"$\varepsilon$ at $\delta$ = {delta}, $n$ = {n}")
    bars.invert_yaxis()
    bars.grid(axis="y", visible=False)
    marks = [
        drawing.entry("no noise of this variance can be here", color="#d9d9d9", linewidth=5),
        drawing.entry(f"best published, {PUBLISHED}", color="#d55e00", linestyle=":"),
    ]
    drawing.legend_below(figure, marks, columns=2)
    found, floor = table.loc["best", "epsilon_upper"], max(floors.values())
    words = [
        f"Noise of E x^2 = {spec['variance']:g} on [-{spec['half_width']:g}, {spec['half_width']:g}] under {n}"
        f" compositions: epsilon at delta = {delta}, upper bounds by the evaluator.",
        f"Gaussian {table.loc['gaussian', 'epsilon_upper']:.4f}, Laplace {table.loc['laplace', 'epsilon_upper']:.4f},"
        f" the best published noise {PUBLISHED} (two decimals are known of it), ours {found:.4f}.",
        f"Shaded: no noise of this variance has an epsilon below {floors['envelope']:.3f} by the plain envelope,"
        f" {floors['tightened']:.3f} with bound tightening.",
    ]
    if floor > 0:
        words.append(f"The best found is within a factor {found / floor:.3f} of the least possible.")
    return drawing.finish(figure), " ".join(words)


if __name__ == "__main__":
    run(draw)
