"""Gives every tensor a place: order of axes, halo, pieces instead of copies, in-place concatenation and computation.

This is one forward walk over the nodes. A family's want for an operand is granted if the operand's buffer can still
satisfy it. Otherwise a conversion is inserted: a copy as an explicit node, which all readers with the same want share.
Wants are hard or preferences. Only hard ones (a strict order, density, a halo) cause conversions; preferences decide
the order of a buffer when it is created.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eqsat.codegen.buffers import Buffer, BufferKind, BufferPiece, memory_order
from eqsat.codegen.family_choice import family_of
from eqsat.codegen.halo_values import HaloValues, resolved
from eqsat.codegen.kernel import Family, Halo, Pad, Want, Wants
from eqsat.codegen.placed_program import Layout
from eqsat.codegen.program import IDENTITY, Group, Program, ProgramNode, ProgramOperand, ProgramTensor
from eqsat.codegen.shapes import operand_type
from eqsat.codegen.view_operators import is_piece, pieces
from eqsat.codegen.wants import same_order, satisfies
from eqsat.errors import CodegenError
from eqsat.schema.size_questions import is_free
from eqsat.schema.types import OpKey, Shape

_CONCAT = OpKey("", "Concat")
Order = tuple[int, ...]


def plan_layout(program: Program) -> Layout:
    """Decide the places of all tensors; the program's nodes are rewired to inserted copies."""
    return _Planner(program).run()


class _Planner:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.layout = Layout()
        self.places = self.layout.places
        self.consumers = program.consumers()
        self.position = {node: i for i, node in enumerate(program.nodes)}
        self.now = 0
        self.group: int | None = None
        self.halo_values = HaloValues(program.inputs)
        self.conversions: dict[tuple[ProgramTensor, int | None], list[ProgramTensor]] = {}
        self.wants: dict[ProgramNode, Wants] = {}
        self.outputs: dict[ProgramTensor, int] = {}
        self.joins: dict[ProgramTensor, tuple[ProgramNode, int]] = {}
        for i, (_, tensor) in enumerate(program.outputs):
            self.outputs.setdefault(tensor, i)

    def run(self) -> Layout:
        program = self.program
        for i, tensor in enumerate(program.inputs):
            self._make(tensor, tuple(range(len(tensor.shape))), "input", i)
        for node in program.nodes:
            if not is_piece(node):
                self._family(node)
        for node in program.nodes:
            if node.operator == _CONCAT and not node.steps:
                self._plan_join(node)
        for number, node in enumerate(program.nodes):
            self.now = number
            if node.group is not None and node.group != self.group:
                self._enter(program.groups[node.group], node)
            self.group = node.group
            if is_piece(node):
                self._piece(node)
            elif node.operator == _CONCAT and not node.steps:
                self._join(node)
            else:
                self._compute(node)
            # A piece lives as long as the buffer that it is part of.
            self.halo_values.compute(node.writes(), len(self.layout.nodes) - 1)
        self.group = None
        for i, (_, tensor) in enumerate(program.outputs):
            place = self.places[tensor]
            if not (place.buffer.kind == "output" and place.buffer.index == i):
                self._copy_to_output(tensor, i)
        return self.layout

    # ---- wants -----------------------------------------------------------------------------------------

    def _family(self, node: ProgramNode) -> Family:
        families = self.layout.families
        if node not in families:
            found = family_of(node)
            assert found is not None, node.describe()
            families[node] = found
            wants = found.wants(node.provisional_task())
            if node.boundary:
                wants = replace(wants, outputs=(Want(strict=True, dense=True),))
            self.wants[node] = wants
        return families[node]

    def _enter(self, group: Group, node: ProgramNode) -> None:
        """Operands of a backend's run: dense, row-major, and alive until it is executed."""
        self.group = None
        for number, operand in enumerate(group.operands):
            self.consumers.setdefault(operand, []).append(node)
            group.operands[number] = self._granted(operand, Want(strict=True, dense=True))

    def _wanted(self, node: ProgramNode, tensor: ProgramTensor) -> list[Want]:
        """The want of a node for a tensor that it reads."""
        if node not in self.wants:
            return []
        wants = self.wants[node]
        found = [resolved(wants.input(i), node) for i, x in enumerate(node.inputs) if x is tensor]
        if any(x is tensor for x in node.operands) and tensor.shape == node.output.shape:
            found.append(replace(wants.output(0), halo=(), pad=0))
        return found

    def _order(self, tensor: ProgramTensor, node: ProgramNode) -> Order:
        """Order of axes for a buffer that the node makes for one of its outputs."""
        rank = len(tensor.shape)
        rows = tuple(range(rank))
        known = node in self.wants and tensor in node.outputs
        want = self.wants[node].output(node.outputs.index(tensor)) if known else Want()
        if want.strict:
            return want.order or rows
        if tensor.order is not None:
            return tensor.order
        votes: dict[Order, int] = {}
        for reader in self.consumers.get(tensor, ()):
            for wish in self._wanted(reader, tensor):
                if wish.strict:
                    order = wish.order or rows
                    votes[order] = votes.get(order, 0) + 1
        if votes:
            return max(votes.items(), key=lambda vote: vote[1])[0]
        if want.order is not None:
            return want.order
        for reader in self.consumers.get(tensor, ()):
            for wish in self._wanted(reader, tensor):
                if wish.order is not None:
                    return wish.order
        sources: list[ProgramOperand | None] = [*node.inputs, *node.operands] if node.is_chain else []
        if want.follows is not None and want.follows < len(node.inputs):
            sources.insert(0, node.inputs[want.follows])
        for source in sources:
            if isinstance(source, ProgramTensor) and source.shape == tensor.shape:
                return memory_order(self.layout.view(source))
        return rows

    # ---- buffers ---------------------------------------------------------------------------------------

    def _make(self, tensor: ProgramTensor, order: Order, kind: BufferKind = "arena", index: int = 0) -> BufferPiece:
        buffer = Buffer(tensor, order)
        if kind != "arena":
            buffer.kind, buffer.index, buffer.rigid = kind, index, True
        self.layout.buffers.append(buffer)
        self.halo_values.make(buffer, len(self.layout.nodes), self.group)
        place = BufferPiece.whole(buffer)
        self._put(tensor, place)
        return place

    def _put(self, tensor: ProgramTensor, place: BufferPiece) -> None:
        self.places[tensor] = place
        place.buffer.tensors.append(tensor)

    def _place_output(self, tensor: ProgramTensor, node: ProgramNode) -> None:
        """A place for a result of a node: the caller's memory, within a concatenation, or a new buffer."""
        if tensor in self.places:
            return
        rank = len(tensor.shape)
        want = self.wants[node].output(node.outputs.index(tensor)) if tensor in node.outputs else Want()
        order = self._order(tensor, node)
        if tensor in self.outputs:
            rows = tuple(range(rank))
            if not want.strict or (want.order or rows) == rows:
                self._make(tensor, rows, "output", self.outputs[tensor])
                return
        if tensor in self.joins:
            join, start = self.joins[tensor]
            if join.output not in self.places:
                self._place_joined(join, order)
            axis = join.attributes["axis"] % rank
            place = self.places[join.output].sliced(axis, start)
            if not want.dense and satisfies(place.view(tensor), want):
                self._put(tensor, place)
                return
        self._make(tensor, order)

    def _in_place(self, node: ProgramNode) -> bool:
        """Put output 0 at the place of an operand whose last reader this is, if the family allows it."""
        tensor = node.outputs[0]
        if tensor is None or tensor in self.places or tensor in self.outputs or tensor in self.joins:
            return False
        if node.group is not None and self.program.groups[node.group].backend is not None:
            return False  # The backend may not be able to.
        for source, output in self.wants[node].in_place:
            if output != 0:
                continue
            x = node.inputs[source] if source >= 0 else node.operands[-1 - source]
            if not isinstance(x, ProgramTensor) or x.shape != tensor.shape or x.dtype != tensor.dtype:
                continue
            place = self.places[x]
            if place.buffer.kind != "arena" or not self._dies(place.buffer, node) or place.strides is not None:
                continue
            if node.group is not None and self.halo_values.made_in(place.buffer) != node.group:
                continue  # It would be an operand and a result of the same function.
            if any(step == 0 or is_free(step) for (_, step), n in zip(place.axes, x.shape, strict=True) if n != 1):
                continue
            if not same_order(self._order(tensor, node), memory_order(place.view(tensor)), tensor.shape):
                continue
            # The kernel may still need other elements that it reads there; only a chain reads each element once.
            others = [y for i, y in enumerate(node.inputs) if i != source] + [
                y for k, y in enumerate(node.operands) if -1 - k != source
            ]
            shared = [y for y in others if isinstance(y, ProgramTensor) and self.places[y].buffer is place.buffer]
            if any(y is not x or not node.is_chain for y in shared):
                continue
            want = self.wants[node].output(0)
            if not satisfies(place.view(tensor), want) or not self._pads_agree(tensor, place.buffer):
                continue
            self._put(tensor, place)
            self.layout.in_place.add(node)
            return True
        return False

    def _pads_agree(self, tensor: ProgramTensor, buffer: Buffer) -> bool:
        """Whether readers that want a halo around the tensor can have it in the buffer."""
        for reader in self.consumers.get(tensor, ()):
            for want in self._wanted(reader, tensor):
                other = buffer.pad is not None and buffer.pad != want.pad
                known = self.halo_values.is_known(want.pad, buffer, self.group)
                if want.halo and (buffer.rigid or other or not known):
                    return False
        return True

    def _dies(self, buffer: Buffer, node: ProgramNode) -> bool:
        """Whether the buffer has no readers after a node."""
        for tensor in buffer.tensors:
            if tensor in self.outputs:
                return False
            for reader in self.consumers.get(tensor, ()):
                if reader is not node and self.position.get(reader, -1) >= self.now:
                    return False
            join = self.joins.get(tensor)
            if join is not None and self.position[join[0]] >= self.now:
                return False
        return True

    # ---- nodes -----------------------------------------------------------------------------------------

    def _compute(self, node: ProgramNode) -> None:
        self._family(node)
        wants = self.wants[node]
        for i, x in enumerate(node.inputs):
            if isinstance(x, ProgramTensor):
                node.inputs[i] = self._granted(x, resolved(wants.input(i), node))
        for k, x in enumerate(node.operands):
            if isinstance(x, ProgramTensor) and x.shape == node.output.shape:
                node.operands[k] = self._granted(x, replace(wants.output(0), halo=(), pad=0))
        if not self._in_place(node):
            for tensor in node.writes():
                self._place_output(tensor, node)
        self.layout.nodes.append(node)
        for i, tensor in enumerate(node.outputs):
            if tensor is None or tensor not in self.places:
                continue
            if wants.output(i).dense:
                self.places[tensor].buffer.rigid = True

    def _granted(self, tensor: ProgramTensor, want: Want) -> ProgramTensor:
        """The tensor itself if its layout is as wanted, otherwise a converted copy."""
        place = self.places[tensor]
        view = place.view(tensor)
        halo = want.halo if any(lo or hi for lo, hi in want.halo) else ()
        fits = satisfies(view, want) and not (want.dense and self._grows(place.buffer))
        if fits and (not halo or self._grown(place, tensor.shape, halo, want.pad)):
            if want.dense:
                place.buffer.rigid = True
            return tensor
        shared = self.conversions.get((tensor, None), [])
        own = self.conversions.get((tensor, self.group), []) if self.group is not None else []
        for copy in (*shared, *own):
            placed = self.places[copy]
            fits = satisfies(placed.view(copy), want) and not (want.dense and placed.buffer.has_halo)
            if fits and (not halo or self._grown(placed, copy.shape, halo, want.pad)):
                return copy
        copy = self._converted(tensor, want)
        # A conversion inside a group is not made where a backend executes the group.
        self.conversions.setdefault((tensor, self.group), []).append(copy)
        # Readers of the original may read the copy instead later.
        self.consumers[copy] = self.consumers.get(tensor, [])
        return copy

    def _grown(self, place: BufferPiece, shape: Shape, halo: Halo, pad: Pad) -> bool:
        """Extends the halo around a piece; False if that is impossible."""
        return self.halo_values.is_known(pad, place.buffer, self.group) and place.grow_halo(shape, halo, pad)

    def _grows(self, buffer: Buffer) -> bool:
        """Whether a later reader wants a halo in the buffer, which density would rule out."""
        if buffer.rigid or buffer.kind != "arena":
            return False
        return buffer.has_halo or any(
            want.halo and any(lo or hi for lo, hi in want.halo)
            for tensor in buffer.tensors
            for reader in self.consumers.get(tensor, ())
            for want in self._wanted(reader, tensor)
        )

    def _converted(self, tensor: ProgramTensor, want: Want) -> ProgramTensor:
        """A copy that satisfies the want."""
        view = self.layout.view(tensor)
        order = want.order or (tuple(range(view.rank)) if want.strict or want.dense else memory_order(view))
        copy = ProgramTensor(f"{tensor.name}_converted", tensor.dtype, tensor.shape)
        place = self._make(copy, order)
        if want.halo:
            grown = self._grown(place, copy.shape, want.halo, want.pad)
            assert grown
        if want.dense:
            place.buffer.rigid = True
        self._insert_copy(tensor, copy)
        return copy

    def _insert_copy(self, source: ProgramOperand, copy: ProgramTensor) -> ProgramNode:
        node = ProgramNode(copy.name, IDENTITY, {}, [source], [copy], copy.dtype, group=self.group)
        self._family(node)
        self.layout.nodes.append(node)
        return node

    def _piece(self, node: ProgramNode) -> None:
        x = node.inputs[0]
        assert isinstance(x, ProgramTensor)
        place = self.places[x]
        moves = any(t in self.outputs for t in node.writes())
        found = pieces(node, place)
        if any(f is not None and f.strides is not None for f in found) and self._grows(place.buffer):
            found = [None]
        if found == [None]:
            self._reshape_copied(node, x)
            return
        for tensor, piece in zip(node.outputs, found, strict=False):
            if tensor is None or piece is None:
                continue
            if piece.strides is not None:
                piece.buffer.rigid = True
            if moves and tensor in self.outputs:
                source = ProgramTensor(f"{tensor.name}_piece", tensor.dtype, tensor.shape)
                self._put(source, piece)
                self._make(tensor, tuple(range(len(tensor.shape))), "output", self.outputs[tensor])
                self._insert_copy(source, tensor)
            else:
                self._put(tensor, piece)

    def _reshape_copied(self, node: ProgramNode, x: ProgramTensor) -> None:
        """A reshape that needs a copy: directly into its result, viewed with the operand's dimensions if possible."""
        out = node.output
        rows = tuple(range(len(out.shape)))
        if out in self.outputs:
            place = self._make(out, rows, "output", self.outputs[out])
        else:
            place = self._make(out, self._order(out, node))
            if place.split(out.shape, x.shape) is None and place.reshaped(out.shape, x.shape) is None:
                place.buffer.order = rows
        seen = ProgramTensor(f"{out.name}_before", x.dtype, x.shape)
        piece = place.without_ones(out.shape, x.shape) or place.split(out.shape, x.shape)
        if piece is None:
            piece = place.reshaped(out.shape, x.shape)
            place.buffer.rigid = True
        if piece is None:
            raise CodegenError(
                "a Reshape must keep the number of elements for all sizes",
                place=f"model {self.program.name!r}, {node.name!r}",
                actual=f"from {operand_type(x)} to {operand_type(out)}",
                hint="set the sizes in it with --dim",
            )
        self._put(seen, piece)
        self._insert_copy(x, seen)

    # ---- concatenation ---------------------------------------------------------------------------------

    def _plan_join(self, node: ProgramNode) -> None:
        """The operands of a concatenation that may be computed directly into its result."""
        producers = self.program.producers()
        if not self._is_placeable(node, producers):
            return
        axis = node.attributes["axis"] % len(node.output.shape)
        start = 0
        for x in node.inputs:
            assert x is not None
            if isinstance(x, ProgramTensor):
                producer = producers.get(x)
                once = sum(y is x for y in node.inputs) == 1
                if producer is not None and once and not is_piece(producer) and x not in self.outputs:
                    self.joins.setdefault(x, (node, start))
            start += x.shape[axis]

    def _is_placeable(self, node: ProgramNode, producers: Mapping[ProgramTensor, ProgramNode]) -> bool:
        """Whether data decides no size of a concatenation after its first operand is computed."""
        sizes = set(node.depends_on())
        found = [i for i, other in enumerate(self.program.nodes) if not sizes.isdisjoint(other.found)]
        made = [producers[x] for x in node.inputs if isinstance(x, ProgramTensor) and x in producers]
        return not found or not any(self.position[n] < found[-1] or n.operator == _CONCAT for n in made)

    def _place_joined(self, node: ProgramNode, order: Order) -> None:
        """A place for the result of a concatenation, asked for by the first operand that is computed."""
        out = node.output
        if out in self.outputs:
            self._make(out, tuple(range(len(out.shape))), "output", self.outputs[out])
            return
        if out in self.joins:
            outer, start = self.joins[out]
            if outer.output not in self.places:
                self._place_joined(outer, order)
            axis = outer.attributes["axis"] % len(out.shape)
            self._put(out, self.places[outer.output].sliced(axis, start))
            return
        votes: dict[Order, int] = {}
        rows = tuple(range(len(out.shape)))
        for reader in self.consumers.get(out, ()):
            for want in self._wanted(reader, out):
                if want.strict:
                    votes[want.order or rows] = votes.get(want.order or rows, 0) + 1
        self._make(out, max(votes.items(), key=lambda vote: vote[1])[0] if votes else order)

    def _join(self, node: ProgramNode) -> None:
        """Copy the operands of a concatenation that are not in place yet."""
        out = node.output
        if out not in self.places:
            first = next((x for x in node.inputs if isinstance(x, ProgramTensor) and x.shape), None)
            order = memory_order(self.layout.view(first)) if first is not None else tuple(range(len(out.shape)))
            self._place_joined(node, order)
        axis = node.attributes["axis"] % len(out.shape)
        start = 0
        for x in node.inputs:
            assert x is not None
            piece = self.places[out].sliced(axis, start)
            start += x.shape[axis]
            if isinstance(x, ProgramTensor) and x in self.places:
                placed = self.places[x]
                if x in self.joins and self.joins[x][0] is node and placed.buffer is piece.buffer and placed == piece:
                    continue
            if 0 in x.shape:
                continue
            target = ProgramTensor(f"{out.name}_part", out.dtype, x.shape)
            self._put(target, piece)
            self._insert_copy(x, target)

    # ---- outputs ---------------------------------------------------------------------------------------

    def _copy_to_output(self, tensor: ProgramTensor, index: int) -> None:
        """Copies results to their outputs at the end if they lie elsewhere or are returned twice."""
        copy = ProgramTensor(self.program.outputs[index][0], tensor.dtype, tensor.shape)
        self._make(copy, tuple(range(len(tensor.shape))), "output", index)
        self._insert_copy(tensor, copy)
