"""Times for the cost model: built from job files, timed together later."""

from pathlib import Path

import feinsum as fe
from benchmarks.collect import build_all, time_all

JOB = """
devices = ["cpu"]
dtypes = ["float64"]

[[einsum]]
subscripts = "{subscripts}"
shapes = {{A = [{shape}]}}
"""


def test_several_jobs_share_a_folder(tmp_path: Path) -> None:
    """Each einsum is timed with its own kernels, whatever number it has in its job file."""
    device, built = fe.device("cpu"), tmp_path / "built"
    for name, subscripts, shape in (("sums", "ij->i", "60, 70"), ("copies", "ijk->kji", "6, 7, 8")):
        job = tmp_path / f"{name}.toml"
        job.write_text(JOB.format(subscripts=subscripts, shape=shape))
        build_all(job, built, device, 1, (), 0)
    time_all(built, tmp_path / "times.sqlite", device, 60.0)
    with fe.Database(str(tmp_path / "times.sqlite")) as store:
        found = {record.einsum_key.split("|")[1] for record in store.query()}
    assert found == {"ab->a", "cba->abc"}
