"""The verbs of the command line."""

import inspect
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import xformer
from xformer import backends, checks
from xformer.checkpoint import WEIGHTS
from xformer.cli import compilation, exchange, terminal, tuning
from xformer.cli import doctor as diagnosis
from xformer.cli import parity as parities
from xformer.cli.exchange import Continuations, Vectors
from xformer.frontends import SAVED
from xformer.model import Model
from xformer.parity import report
from xformer.parity.places import PLACES
from xformer.precision import PRECISIONS

REPORTED = (ValueError, TypeError, OSError, ImportError, FloatingPointError)


class Commands(TyperGroup):
    """Ends as a program does: the library's errors in words and code 2, Ctrl-C with 130, a closed pipe with 1 (as in rich)."""

    def parse_args(self, ctx, args):
        """`--debug` may stand behind the verb as well."""
        end = args.index("--") if "--" in args else len(args)
        debug = ["--debug"] if "--debug" in args[:end] else []
        return super().parse_args(ctx, [*debug, *(argument for argument in args[:end] if argument != "--debug"), *args[end:]])

    def invoke(self, ctx):
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except KeyboardInterrupt:
            ctx.exit(130)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or the interpreter complains when it flushes
            ctx.exit(1)
        except REPORTED as error:
            if ctx.params["debug"]:
                raise
            named = isinstance(error, OSError) and error.filename and error.strerror
            print(f"error: {error.filename}: {error.strerror}" if named else f"error: {error}", file=sys.stderr)
            ctx.exit(2)


app = typer.Typer(cls=Commands, add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


def option(panel: str | None, name: str, text: str, default: str | bool = True) -> Any:
    """An option under a heading of the help; `default` is what the help says of an option that is not given."""
    return typer.Option(name, help=text, rich_help_panel=panel, show_default=default)


def defaults(function: Callable) -> dict[str, Any]:
    """The defaults of a function of the library: they stand there alone."""
    return {name: parameter.default for name, parameter in inspect.signature(function).parameters.items()}


def print_version(asked: bool) -> None:
    """Print it and end, whatever else is asked for."""
    if asked:
        print(f"xformer {xformer.__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: Annotated[bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Transformers on every array library: embed texts, continue texts, and see what works on this machine."""


TEXT, PLACE, ENCODERS, DECODERS = "Texts and results", "Where and how to compute", "Encoders", "Decoders"
OF_ENCODERS = ("normalize",)
OF_DECODERS = ("max_new_tokens", "temperature", "top_k", "top_p", "seed", "stop")
EMBED, GENERATE = defaults(Model.embed), defaults(Model.generate)
Folder = Annotated[Path, typer.Argument(help="A Hugging Face folder, or one that `xformer prepare` wrote.", show_default=False)]
Runnable = Annotated[Path, typer.Argument(help="The same, or one that `xformer compile` wrote.", show_default=False)]
Target = Annotated[
    str | None,
    option(None, "--target", "A CPU as LLVM calls it, such as haswell or znver4; for `explain` also a GPU, such as sm_90.", "this one"),
]
Json = Annotated[bool, option(TEXT, "--json", "Print JSON, and nothing else, on standard output.")]


@app.command()
def run(
    context: typer.Context,
    folder: Runnable,
    texts: Annotated[list[str] | None, typer.Argument(help="Texts. Without any: the lines of --file or of standard input.")] = None,
    file: Annotated[Path | None, option(TEXT, "--file", "One text a line; - is standard input.")] = None,
    output: Annotated[Path | None, option(TEXT, "--output", "Write vectors as .npy, .npz or .json, text as .txt or .json.")] = None,
    as_json: Json = False,
    namespace: Annotated[str | None, option(PLACE, "--namespace", ", ".join(backends.NAMESPACES), "numpy")] = None,
    precision: Annotated[str | None, option(PLACE, "--precision", ", ".join(PRECISIONS), "the folder's, or fp32")] = None,
    device: Annotated[str | None, option(PLACE, "--device", "One that `xformer doctor` lists, such as cuda:0.")] = None,
    batch_size: Annotated[int, option(PLACE, "--batch-size", "How many texts to compute at once.")] = EMBED["batch_size"],
    normalize: Annotated[bool, option(ENCODERS, "--normalize", "Give every vector the length 1.")] = EMBED["normalize"],
    max_new_tokens: Annotated[int, option(DECODERS, "--max-new-tokens", "When to end at the latest.")] = GENERATE["max_new_tokens"],
    temperature: Annotated[float, option(DECODERS, "--temperature", "0 takes the likeliest token.")] = GENERATE["temperature"],
    top_k: Annotated[int | None, option(DECODERS, "--top-k", "Draw from this many of the likeliest tokens.")] = GENERATE["top_k"],
    top_p: Annotated[float | None, option(DECODERS, "--top-p", "Draw from the likeliest that reach this probability.")] = GENERATE["top_p"],
    seed: Annotated[int, option(DECODERS, "--seed", "The same seed draws the same text.")] = GENERATE["seed"],
    stop: Annotated[list[str] | None, option(DECODERS, "--stop", "End before this text as well. May be repeated.")] = None,
) -> None:
    """Embed texts with an encoder, or continue them with a decoder."""
    given = exchange.read(texts, file)
    with terminal.progress("loading", None):
        if compilation.frontend_of(folder):
            model = compilation.load(folder, context.params)
        else:
            model = compilation.ready(xformer.load(folder, namespace or "numpy", precision, device))
    decodes = hasattr(model.functions, "decode")
    options = suited(context, model, decodes)
    if output is not None:
        exchange.check(output, Continuations if decodes else Vectors)
    if decodes and len(given) == 1 and output is None and not as_json:
        terminal.stream(given[0], model.stream(given[0], **options))
        return
    size = checks.count(batch_size, "batch_size")
    if decodes and (most := getattr(model, "most_prompts", None)):  # of a compiled model
        size = min(size, most)
    result = proceed(model, given, size, options) if decodes else embed(model, given, size, options)
    if output is not None:
        exchange.write(output, result)
    if as_json:
        print(exchange.to_json(result))
    elif output is None:
        terminal.show(result)


def suited(context: typer.Context, model: Model, decodes: bool) -> dict[str, Any]:
    """The options for this kind of model. Raises ValueError when one for the other kind was given."""
    own, foreign = (OF_DECODERS, OF_ENCODERS) if decodes else (OF_ENCODERS, OF_DECODERS)
    for name in foreign:
        if context.params[name] not in ({**EMBED, **GENERATE}[name], [], ()):
            raise ValueError(
                f"--{name.replace('_', '-')} does not go with {model.config.model_type}, {'a decoder' if decodes else 'an encoder'}"
            )
    options = {name: context.params[name] for name in own}
    if decodes:  # a list of stops would replace the model's own
        ends = [] if model.config.eos_token is None else [model.config.eos_token]
        options["stop"] = [*(options["stop"] or ()), *ends]
    return options


def embed(model: Model, texts: list[str], batch_size: int, options: dict[str, Any]) -> Vectors:
    """A vector for each text."""
    with terminal.progress("embedding", len(texts)) as advance:
        vectors = backends.to_numpy(model.embed(texts, batch_size, progress=advance, **options))
    return Vectors(backends.library_of(model.xp), model.precision.name, texts, vectors)


def proceed(model: Model, prompts: list[str], batch_size: int, options: dict[str, Any]) -> Continuations:
    """What follows each prompt. All prompts are checked before the first is computed."""
    parts = [prompts[start : start + batch_size] for start in range(0, len(prompts), batch_size)]
    streams = [model.stream(part, **options) for part in parts]
    texts: list[str] = []
    with terminal.progress("generating", len(prompts) * options["max_new_tokens"]) as advance:
        for part, steps in zip(parts, streams, strict=True):
            rows, left = [""] * len(part), options["max_new_tokens"]
            for step in steps:
                rows = [row + (piece or "") for row, piece in zip(rows, step, strict=True)]
                advance(len(part) if left else 0)  # held back text may come in a step of its own
                left = max(left - 1, 0)
            advance(left * len(part))
            texts += rows
    return Continuations(backends.library_of(model.xp), model.precision.name, prompts, texts)


@app.command()
def prepare(
    folder: Folder,
    output: Annotated[Path, typer.Argument(help="The folder to write.", show_default=False)],
    precision: Annotated[str, option(None, "--precision", ", ".join(PRECISIONS), False)],
) -> None:
    """Save a model with its weights prepared for a precision: smaller, and quicker to load."""
    if output.resolve() == folder.resolve():
        raise ValueError(f"{output} is the folder to read: the prepared weights would replace the original ones")
    with terminal.progress("preparing", None):
        model = xformer.load(folder, precision=precision)
        model.save(output)
    print(f"{output}: {model.precision.name}, {(output / WEIGHTS).stat().st_size / 1e6:.1f} MB of weights")


@app.command()
def compile(
    folder: Folder,
    output: Annotated[Path, typer.Argument(help="The folder to write; a compiled model there is replaced.", show_default=False)],
    batch: Annotated[list[int] | None, option(None, "--batch", "Rows of a call. May be repeated.", "1")] = None,
    length: Annotated[list[int] | None, option(None, "--length", "Tokens of a row or prompt, at most. May be repeated.", "128")] = None,
    max_new_tokens: Annotated[int, option(None, "--max-new-tokens", "Of a decoder.")] = GENERATE["max_new_tokens"],
    precision: Annotated[str | None, option(None, "--precision", ", ".join(PRECISIONS), "the folder's, or fp32")] = None,
    target: Target = None,
    through: Annotated[str, option(None, "--through", ", ".join(SAVED))] = "tvm",
) -> None:
    """Compile a model and save it, for `xformer run` to run without its files.

    Through TVM: for one processor; no compiler is needed then, and calls of other shapes are padded. Through JAX: for CPU,
    CUDA and TPU, any batch and length.
    """
    if through not in SAVED:
        raise ValueError(f"--through {through}: unknown; known: {', '.join(SAVED)}")
    if through == "jax":
        if batch or length or target:
            raise ValueError("--batch, --length and --target do not go with --through jax: it compiles for any of them")
        print(compilation.exported(folder, output, precision))
        return
    print(compilation.compiled(folder, output, batch or (), length or (), max_new_tokens, precision, target))


@app.command()
def explain(
    model: Annotated[str, typer.Argument(help="A Hugging Face folder, or the name of a preset.", show_default=False)],
    kernel: Annotated[str | None, option(None, "--kernel", "Show this one: its TE, and its TIR as scheduled.", False)] = None,
    layers: Annotated[int | None, option(None, "--layers", "With so many layers.", "the model's")] = None,
    batch: Annotated[int, option(None, "--batch", "Rows of a call.")] = 1,
    length: Annotated[int | None, option(None, "--length", "Tokens of a row or prompt.", "128")] = None,
    precision: Annotated[str, option(None, "--precision", ", ".join(PRECISIONS))] = "fp32",
    target: Target = None,
    as_json: Json = False,
    code: Annotated[bool, option(None, "--code", "With --kernel: show its assembly too, or its CUDA source.")] = False,
    timed: Annotated[bool, option(None, "--time", "Time each kernel on this machine, which should do nothing else.")] = False,
) -> None:
    """Show the distinct kernels that TVM would compile: how often each is called, and which rule scheduled it."""
    if code and kernel is None:
        raise ValueError("--code needs --kernel: the code of one kernel is shown")
    found = compilation.explained(model, layers, batch, length, precision, target)
    if timed:
        compilation.show_times(found, precision)
    else:
        compilation.show(found, kernel, as_json, ("te", "tir", "code") if code else ("te", "tir"))


@app.command()
def tune(
    model: Annotated[str, typer.Argument(help="A Hugging Face folder, or the name of a preset.", show_default=False)],
    batch: Annotated[int, option(None, "--batch", "Rows of a call.")] = 1,
    length: Annotated[int | None, option(None, "--length", "Tokens of a row or prompt.", "128")] = None,
    max_new_tokens: Annotated[int, option(None, "--max-new-tokens", "Of a decoder.")] = GENERATE["max_new_tokens"],
    precision: Annotated[str, option(None, "--precision", ", ".join(PRECISIONS))] = "fp32",
    target: Target = None,
    trials: Annotated[int, option(None, "--trials", "Schedules to try of each kernel, at most.")] = 32,
    minutes: Annotated[float | None, option(None, "--minutes", "End after so many.", "no limit")] = None,
) -> None:
    """Try schedules of a model's kernels on this machine, which should do nothing else; `xformer compile` uses the fastest.

    What was measured is kept at once: a run that is stopped goes on where it was.
    """
    tuning.tuned(model, batch, length, max_new_tokens, precision, target, trials, minutes)


@app.command()
def records(
    take: Annotated[Path | None, option(None, "--import", "Take in the records of this file that count here.", False)] = None,
    give: Annotated[Path | None, option(None, "--export", "Write the best record of each kernel to this file.", False)] = None,
    target: Target = None,
) -> None:
    """Show what `xformer tune` has found, after taking in a file's records; or write it to a file, for others."""
    tuning.shown(take, give, target)


@app.command()
def parity(
    model: Annotated[str, typer.Argument(help="A folder, or the name of a preset, which gets random weights.", show_default=False)],
    namespace: Annotated[list[str] | None, option(None, "--namespace", f"{', '.join(PLACES)}. May be repeated.", "all installed")] = None,
    precision: Annotated[list[str] | None, option(None, "--precision", f"{', '.join(PRECISIONS)}. May be repeated.", "all")] = None,
    text: Annotated[list[str] | None, option(None, "--text", "What the model reads. May be repeated.", "two sentences")] = None,
    output: Annotated[Path | None, option(None, "--output", "A folder for parity.json, parity.md and parity.png.", False)] = None,
) -> None:
    """Compare every operation of a model with NumPy's, in every place and precision. Exit code 1: integers differ."""
    comparisons, missing = parities.compared(model, namespace, precision, text)
    written = [] if output is None else report.write(output, f"Parity: {model}", comparisons)
    terminal.parity(report.summary(comparisons))
    print(*parities.remarks(missing, written), sep="\n")
    if faults := parities.faults(comparisons):
        raise SystemExit(f"integers differ: {', '.join(faults)}")


@app.command()
def doctor(as_json: Json = False) -> None:
    """Say what is installed, and what of it works on this machine or why not. Exit code 1: something is broken."""
    libraries = diagnosis.libraries()
    with terminal.progress("trying", sum(library["installed"] is not None for library in libraries)) as advance:
        facts = diagnosis.facts(libraries, advance)
    if as_json:
        print(json.dumps(facts, indent=2))
    else:
        terminal.diagnose(facts)
    raise typer.Exit(1 if facts["broken"] else 0)
