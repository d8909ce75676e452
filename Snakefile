# From the config to every figure: noise -> evaluation -> frontier -> figure. `snakemake fig3` builds one figure.
import hashlib
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

# A job that is killed cannot say so itself.
KILLED = "killed from outside the workflow, often for want of memory; run again to go on"
shell.prefix(f"set -euo pipefail; trap '[ $? -ne 137 ] || echo \"{KILLED}\" >&2' EXIT; ")

from optnoise import plan, resources
from optnoise.backend import device_problem
from optnoise.sources import closure
from optnoise.spec import canonical_json

# A job on a cluster reads the config that the run began with, whatever was edited since: see onstart.
if not workflow.is_main_process and "OPTNOISE_CONFIG" in os.environ:
    config = load_configfile(os.environ.get("OPTNOISE_CONFIG"))

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
include: "rules/report.smk"


onstart:
    if workflow.local_exec and settings["backend"] == "cupy":  # on a cluster only the jobs' nodes can tell
        problem = device_problem()
        if problem:
            raise WorkflowError(f"config: backend: 'cupy' is not allowed here: {problem}; choose auto or numpy")
    text = canonical_json(config)
    kept = Path(".snakemake", f"config-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json").absolute()
    kept.write_text(text)
    os.environ.update(OPTNOISE_CONFIG=str(kept))
    # Snakemake limits the rate of job starts by looking again one second after every look, so that looks add up: after
    # hundreds of jobs they cost half a core. Jobs on this machine need no limit beside its cores.
    if workflow.local_exec and hasattr(workflow.scheduler, "job_rate_limiter"):
        workflow.scheduler.job_rate_limiter = None


onerror:
    print("What is finished is kept: run the same command again to go on.", file=sys.stderr)


rule all:
    default_target: True
    input:
        [f"results/figures/{figure}.png" for figure in settings["figures"]],
        cached_files(),
        "results/claims.md",
        "results/report.rst",
        [f"results/mechanisms/{name}.json" for name in settings["mechanisms"]],
    message:
        "Everything is built: results/figures, results/claims.md, results/mechanisms"
