# From the config to every figure: noise -> evaluation -> frontier -> figure. `snakemake fig3` builds one figure.
import os
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError
from snakemake.utils import min_version
from snakemake.common.configfile import load_configfile

min_version("9.10")


configfile: "config.yaml"


os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

from optnoise import plan
from optnoise.sources import closure

try:
    settings = plan.resolve(config)
    plan.check(settings, load_configfile(workflow.source_path("config.schema.yaml")))
    RUNS = plan.runs(settings)
except plan.ConfigError as error:
    raise WorkflowError(str(error)) from None


wildcard_constraints:
    experiment="|".join(RUNS),
    run=r"[\w.+-]+",


include: "rules/train.smk"
include: "rules/evaluate.smk"
include: "rules/reduce.smk"
include: "rules/figures.smk"


rule all:
    default_target: True
    input:
        [f"results/figures/{figure}.png" for figure in settings["figures"]],
