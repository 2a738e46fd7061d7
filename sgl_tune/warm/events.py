"""The messages between workers and the process that started them: JSON lines, see `processes.child`."""

from __future__ import annotations

# to a worker
TEAM = "team"  # its rank, how many search together, and on what
IMPORT = "import"  # to a prover: for which device
JOB = "job"  # what to search; it may get several, one after another
GATHERED = "gathered"  # what every worker told, in rank order

# from a worker
START = "start"  # it has its device and its team
GATHER = "gather"  # for all workers; it waits for theirs
PROGRESS = "progress"  # a measurement ended
TUNED = "tuned"  # an op is decided in every bucket, on every worker alike
ERROR = "error"  # the search cannot go on
DONE = "done"  # with its report
