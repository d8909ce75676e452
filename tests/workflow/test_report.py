"""The report: one offline file, opened in a browser, with every figure, its caption and category, claims, versions."""

from __future__ import annotations

import csv
import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import yaml
from repository import Workflow

pytestmark = pytest.mark.workflow

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    # No name resolves: what the page wanted from elsewhere would be missing.
    "--host-resolver-rules=MAP * ~NOTFOUND",
)
# Goes through the report as a reader does, and writes down what there is to be seen.
READER = """
<script>
async function read() {
  const pause = () => new Promise(done => setTimeout(done, 100));
  while (!app || !document.querySelector("#app").innerText) await pause();
  const seen = {front: document.querySelector("#app").innerText, categories: {}, figures: {}};
  for (const category of Object.keys(categories)) {
    app.setView({navbarMode: "menu"}); await pause();
    app.showCategory(category); await pause();
    seen.categories[category] = document.querySelector("#app").innerText;
  }
  for (const [path, entry] of Object.entries(results)) {
    app.setView({content: "img", contentPath: entry.data_uri}); await pause();
    app.setView({navbarMode: "menu"}); await pause();
    app.showResultInfo(path); await pause();
    const picture = document.querySelector("#app img[src^='data:image/png']");
    for (let tries = 0; !picture.naturalWidth && tries < 50; tries++) await pause();
    const text = document.querySelector("#app").innerText;
    seen.figures[path] = {width: picture.naturalWidth, height: picture.naturalHeight, text: text};
  }
  return seen;
}
function keep(seen) {
  const kept = document.createElement("pre");
  kept.id = "seen"; kept.textContent = JSON.stringify(seen);
  document.body.appendChild(kept);
}
window.addEventListener("load", () => read().then(keep, error => keep(String(error))));
</script>
"""


def browse(page: Path, profile: Path) -> dict:
    """What READER saw of the page."""
    copy = page.with_name("read.html")
    copy.write_text(page.read_text() + READER)
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={profile}", "--virtual-time-budget=60000", "--dump-dom"]
    done = subprocess.run([*command, copy.as_uri()], capture_output=True, text=True, timeout=300)
    found = re.search('<pre id="seen">(.*?)</pre>', done.stdout, re.S)
    assert found, done.stderr[-4000:]
    return json.loads(html.unescape(found[1]))


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (Debian: apt-get install chromium)")
def test_report_in_a_browser(workflow: Workflow, tmp_path: Path) -> None:
    workflow.run("--report", "report.html")
    page = workflow.folder / "report.html"
    seen = browse(page, tmp_path / "browser")

    config = yaml.safe_load((workflow.folder / "config.yaml").read_text())
    assert set(seen["figures"]) == {f"results/figures/{figure}.png" for figure in config["figures"]}
    for path, figure in seen["figures"].items():
        assert figure["width"] > 300 and figure["height"] > 200
        caption = (workflow.folder / path).with_suffix(".md").read_text()
        assert " ".join(caption.split()) in " ".join(figure["text"].split())
    assert {"Figures of the paper", "Further experiments"} <= set(seen["categories"])
    for category, text in seen["categories"].items():
        assert category in text
    for figure in config["figures"]:
        assert sum(figure in text.split() for text in seen["categories"].values()) == 1

    front = " ".join(seen["front"].split())
    with open(workflow.folder / "results/claims.csv", newline="") as stream:
        claims = list(csv.DictReader(stream))
    assert len(claims) == 9
    for claim in claims:
        assert all(" ".join(claim[name].split()) in front for name in ("statement", "paper", "result"))
    assert f"numpy {np.__version__}" in front


def test_front_page_takes_any_sign(tmp_path: Path) -> None:
    """Signs of markup and of templates stand in a caption as themselves."""
    from docutils.core import publish_parts
    from jinja2 import Environment

    from optnoise.report import caption

    text = "E|x| of *p*_i {{ a }} {% b %} <c> & `d`\\e_"
    rendered = publish_parts(Environment().from_string(caption(text)).render(), writer="html")["body"]
    assert html.unescape(re.sub("<[^>]+>", "", rendered)).strip() == text
