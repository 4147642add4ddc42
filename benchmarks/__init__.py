"""What this machine does with the models: time, throughput and error for each library and precision, in one run.

`workloads` says what is run, `cells` makes a callable of it, `measure` times callables, `report` shows and stores.
"""
