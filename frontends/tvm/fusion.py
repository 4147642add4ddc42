"""Which nodes share a kernel.

A kernel starts at a node and takes in later ones as long as none of them needs anything that comes after its start, so
kernels in the order of their first nodes never wait for each other. A contraction takes in what is done to each of its
elements (bias, activation, residual), up to a node through which all results leave. Any other kernel takes in what works
on the same rows: a softmax or a norm, with the quantisation after it, is one kernel and one pass over memory.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tvm import te

from xformer.frontends.tvm.array import Array
from xformer.frontends.tvm.contraction import Contract, Pack
from xformer.frontends.tvm.live import Live, lives
from xformer.frontends.tvm.mixing import Mix
from xformer.frontends.tvm.nodes import Elementwise, Node, Reduce, Write
from xformer.frontends.tvm.padding import Scan, Unpad
from xformer.frontends.tvm.target import Machine


@dataclass(frozen=True)
class Kernel:
    """The node that a kernel starts at, all of its nodes in the order of their computation, and those that others read.

    `live` are the rows of all results that anybody reads; None: all.
    """

    seed: Node
    nodes: tuple[Node, ...]
    results: tuple[Node, ...]
    live: Live | None = None

    @property
    def whole(self) -> "Kernel":
        """The kernel that computes all rows."""
        return replace(self, live=None)

    @property
    def reads(self) -> tuple[Node, ...]:
        """The nodes outside that those inside compute from."""
        return tuple(dict.fromkeys(x.node for node in self.nodes for x in node.operands if x.node not in self.nodes))

    @property
    def arguments(self) -> tuple[Node, ...]:
        """The nodes outside whose buffers are read."""
        return tuple(dict.fromkeys((*self.reads, self.live.counts))) if self.live else self.reads

    @property
    def key(self) -> tuple:
        """Equal for kernels that compute the same from arguments of the same shapes."""
        places = {node: place for place, node in enumerate((*self.arguments, *self.nodes))}
        steps = tuple((node.key, *(places[x.node] for x in node.operands)) for node in self.nodes)
        arguments = tuple((node.shape, node.dtype) for node in self.arguments)
        live = self.live and (places[self.live.counts], self.live.first, self.live.inner, self.live.length, self.live.outer)
        return arguments, steps, tuple(places[node] for node in self.results), live

    def unscheduled(self, machine: Machine) -> Any:
        """Its TE computes as one function, of all rows."""
        arguments = [te.placeholder(node.shape, node.dtype, name=f"x{place}") for place, node in enumerate(self.reads)]
        tensors = dict(zip(self.reads, arguments, strict=True))
        for node in self.nodes:
            tensors[node] = node.stage([tensors[x.node] for x in node.operands], machine)
        function = te.create_prim_func([*arguments, *(tensors[node] for node in self.results)])
        return function.with_attr("target", machine.target)


def reachable(outputs: Iterable[Array]) -> list[Node]:
    """All nodes that the outputs depend on, in program order, with one node where several compute the same."""
    found: dict[int, Node] = {}
    pending = [x.node for x in outputs]
    while pending:
        node = pending.pop()
        if node.serial not in found:
            found[node.serial] = node
            pending += [x.node for x in node.operands]
    return [found[serial] for serial in sorted(found)]


def deduplicate(nodes: Sequence[Node]) -> dict[Node, Node]:
    """The node that stands for each: the first of those that compute the same. Operands are replaced in place."""
    first: dict[tuple, Node] = {}
    stand_in: dict[Node, Node] = {}
    for node in nodes:
        for x in node.operands:
            x.node = stand_in.get(x.node, x.node)
        key = (node.key, *(x.node.serial for x in node.operands)) if node.tensor is None else (node.serial,)  # values may differ
        stand_in[node] = node if isinstance(node, Write) else first.setdefault(key, node)
    return stand_in


def kernels(nodes: Sequence[Node], outputs: Iterable[Node]) -> list[Kernel]:
    """The nodes, which are in program order, in kernels, which are in an order that may be run."""
    graph = _Graph(nodes, outputs)
    read = lives(nodes, graph.outputs)
    result = []
    for place, seed in enumerate(nodes):
        if seed in graph.taken or seed.given or (seed in graph.again and seed not in graph.outputs):
            continue
        rest = [node for node in nodes[place + 1 :] if node not in graph.taken and node not in graph.again and not node.given]
        members = graph.epilogue(seed, rest) if isinstance(seed, Contract) else graph.rows(seed, rest)
        graph.taken.update(members)
        results = tuple(node for node in members if graph.leaves(node, set(members)))
        result.append(Kernel(seed, tuple(graph.with_inner(members)), results, _live(seed, {read.get(node) for node in results})))
    return result


def _live(seed: Node, read: set[Live | None]) -> Live | None:
    """The rows that a kernel may leave out by itself: those of all of its results, in a contraction at the end of each group."""
    live = read.pop() if len(read) == 1 else None
    if live is None or not isinstance(seed, Contract):
        return None if isinstance(seed, Pack | Scan | Write) else live
    return live if live.inner == 1 and live.length == seed.shape[-2] else None


class _Graph:
    """The nodes with their readers, and which of them a kernel has taken.

    Each kernel that reads one of the nodes `again` computes it again: those that depend on no argument (positions, ones), and
    ways of reading: padding, and a copy of what is then read token by token.
    """

    def __init__(self, nodes: Sequence[Node], outputs: Iterable[Node]):
        self.outputs = set(outputs)
        self.taken: set[Node] = set()
        self.readers: dict[Node, set[Node]] = {node: set() for node in nodes}
        self.again: set[Node] = set()
        constant: set[Node] = set()
        for node in nodes:
            for x in node.operands:
                self.readers[x.node].add(node)
            if node.again or (node.elementwise and not node.given and all(x.node in constant for x in node.operands)):
                self.again.add(node)
                constant |= {node} if not node.again else set()
        self.again |= {node for node in nodes if node.name == "copy" and self._only_unpadded(node)}

    def _only_unpadded(self, node: Node) -> bool:
        readers = self.readers[node]
        return bool(readers) and node not in self.outputs and all(isinstance(reader, Unpad) for reader in readers)

    def leaves(self, node: Node, inside: set[Node]) -> bool:
        """Whether somebody outside needs the node's result."""
        return node in self.outputs or not self.readers[node] <= inside

    def with_inner(self, members: Sequence[Node]) -> list[Node]:
        """The members, and before them what they read and compute again."""
        found: dict[Node, None] = {}
        pending = list(members)
        while pending:
            node = pending.pop()
            found[node] = None
            pending += [x.node for x in node.operands if x.node in self.again and x.node not in found]
        return sorted(found, key=lambda node: node.serial)

    def available(self, node: Node, seed: Node, inside: set[Node]) -> bool:
        """Whether all operands come from the kernel or from before it, as does what those need that are computed again."""

        def there(x: Array) -> bool:
            if x.node in self.again:
                return x.node in inside or self.available(x.node, seed, set())
            return x.node in inside or x.node.serial < seed.serial

        return all(map(there, node.operands))

    def epilogue(self, seed: Node, rest: Sequence[Node]) -> list[Node]:
        """What follows a contraction element by element; the longest run that leaves through one node."""
        members, inside, best = [seed], {seed}, 1
        reach = set(self.readers[seed])
        for node in rest:
            if node not in reach or not isinstance(node, Elementwise) or node.shape != seed.shape:
                continue
            if self.available(node, seed, inside) and all(x.contiguous for x in node.operands if x.node in inside):
                members.append(node)
                inside.add(node)
                reach |= self.readers[node]
                if sum(self.leaves(member, inside) for member in members) == 1:
                    best = len(members)
        return members[:best]

    def rows(self, seed: Node, rest: Sequence[Node]) -> list[Node]:
        """What works on the same rows as `seed`, and what is done to the same operands for one of those."""
        members, inside = [seed], {seed}
        if isinstance(seed, Write | Pack | Scan):
            return members
        reach = set(self.readers[seed])
        sources = {x.node for x in seed.operands}
        for node in rest:
            beside = not sources.isdisjoint(x.node for x in node.operands) and isinstance(node, Elementwise)
            beside = beside and len(self.readers[node]) == 1 and node not in self.outputs
            if not (node in reach or beside) or not (node.elementwise or isinstance(node, Reduce | Mix)):
                continue
            fits = node.shape[0] == seed.shape[0] and all(node.aligned(x) for x in node.operands if x.node in inside)
            if fits and self.available(node, seed, inside):
                members.append(node)
                inside.add(node)
                reach |= self.readers[node]
        return members
