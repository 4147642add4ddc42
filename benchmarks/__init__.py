"""What this machine does with the models: time, throughput and error for each library and precision, in one run.

`workloads` says what is run, `cells` makes calls of it, `measure` times calls, `run` goes through them all, `report` shows
and stores the rows, `facts` says of what machine they are.
"""
