"""The messages between workers and the process that started them: JSON lines, see `processes.child`."""

# to a worker
TEAM = "team"  # its rank, the number of workers, and the device
IMPORT = "import"  # to a prover: its device
JOB = "job"  # what to search; a worker may get several
GATHERED = "gathered"  # what every worker sent, in rank order

# from a worker
START = "start"  # the worker has its device and its team
GATHER = "gather"  # something for all workers; it waits for theirs
PROGRESS = "progress"  # a measurement ended
TUNED = "tuned"  # all workers have decided every bucket of an op
ERROR = "error"  # the search cannot go on
DONE = "done"  # the job is done; with its report
