"""What a user would pick instead: other products in turn with this library, in one run, on the same weights and threads.

`points` says what is run, `libraries` who runs it and why somebody does not, `weights` makes the models that all of them read.
Each way to run one has a process of its own (`worker`), which `remote` tells what to do and when; `run` goes through all of
them, `rows` says what the figures come to. One module a product: `ours`, `pytorch`, `onnx_runtime`, `open_vino`,
`c_translate`, `llama`; each has `load` and, where the product wants files of its own, `convert`.
"""
