"""What the programs become on hardware that is not here: compiled for it, read, and set against its published peak.

`chips` is what the makers publish, `count` the arithmetic and the traffic of a workload, `worker` compiles one cell,
`pool` gives cells to workers and watches the time, `rows` is what the report shows, `__main__` the command.
Only a worker imports JAX: a compiler that hangs or crashes takes one cell with it.
"""
