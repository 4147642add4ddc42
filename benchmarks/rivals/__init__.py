"""The same models written by hand in JAX, and those of transformers under torch.compile, measured in turn with ours."""
