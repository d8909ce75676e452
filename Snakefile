# From the config to every figure: noise -> evaluation -> frontier -> figure. `snakemake fig3` builds one figure.
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version
from snakemake.common.configfile import load_configfile

min_version("9.10")


configfile: "config.yaml"


# Jobs run the interpreter that runs Snakemake, on this repository's sources, wherever they land.
SOURCES = str(Path(workflow.basedir) / "src")
sys.path.insert(0, SOURCES)
for variable, first in (("PATH", str(Path(sys.executable).parent)), ("PYTHONPATH", SOURCES)):
    os.environ.update({variable: os.pathsep.join(filter(None, [first, os.environ.get(variable)]))})

from optnoise import plan, resources
from optnoise.sources import closure
from optnoise.spec import canonical_json

try:
    settings = plan.resolve(config)
    plan.check(settings, load_configfile(workflow.source_path("config.schema.yaml")))
    RUNS = plan.runs(settings)
except plan.ConfigError as error:
    raise WorkflowError(str(error)) from None


wildcard_constraints:
    experiment="|".join(RUNS),
    run=r"[\w.+-]+",


include: "rules/runs.smk"
include: "rules/train.smk"
include: "rules/evaluate.smk"
include: "rules/reduce.smk"
include: "rules/certify.smk"
include: "rules/figures.smk"
include: "rules/claims.smk"
include: "rules/benchmark.smk"


rule all:
    default_target: True
    input:
        [f"results/figures/{figure}.png" for figure in settings["figures"]],
        "results/claims.md",
        [f"results/mechanisms/{name}.json" for name in settings["mechanisms"]],
