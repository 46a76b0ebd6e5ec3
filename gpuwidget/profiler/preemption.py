"""Find where CPython can preempt a thread, and which operations may have held the GIL before that point.

Since Python 3.11, CPython preempts a thread only at a function's entry, after a call, and at a loop's
backward jump. If an operation between two such points holds the GIL, a sample finds the thread at the second
point.
"""

from __future__ import annotations

import dis
import sys
from types import CodeType, FrameType

_PREEMPTION_POINTS = ("CALL", "JUMP_BACKWARD", "RESUME")
_WITHOUT_CHECK = ("INTRINSIC_1", "INTRINSIC_2", "_LEN", "_ISINSTANCE", "_LIST_APPEND", "_TYPE_1")
"""Suffixes of the names of specialized call instructions that do not check whether to release the GIL."""
_FAST_OPERATIONS = (
    "LOAD_", "STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "PUSH_", "POP_", "COPY", "SWAP",
    "NOP", "KW_NAMES", "TO_BOOL", "IS_OP", "JUMP_", "BUILD_TUPLE", "BUILD_SLICE", "NOT_TAKEN", "MAKE_",
    "END_", "GET_AWAITABLE", "RETURN_", "SETUP_", "FOR_ITER_RANGE", "FOR_ITER_LIST", "FOR_ITER_TUPLE",
    "PRECALL", "CALL",
)  # fmt: skip
"""Prefixes of the names of instructions that never hold the GIL for a noticeable time."""
_MAX_INSTRUCTIONS = 300
_RESUME = dis.opmap.get("RESUME")
_PREEMPTION_ONLY = frozenset(
    code
    for name, code in dis.opmap.items()
    if name == "RESUME" or (name.startswith(("JUMP_BACKWARD", "POP_JUMP_BACKWARD")) and "NO_" not in name)
)
"""Opcodes at which a thread releases the GIL only if it is preempted. Empty before Python 3.11."""


def candidate_lines(code: CodeType, offset: int, *, before_call: bool = False) -> frozenset[int]:
    """Return the lines whose operations may have held the GIL until the instruction at ``offset``.

    If ``before_call`` is true and ``offset`` is inside a call, return the lines that may have held it before
    this call.
    """
    if sys.version_info < (3, 11):
        # Any instruction may be a preemption point, so no other line can have held the GIL.
        return frozenset()
    before = [
        instruction
        for instruction in dis.get_instructions(code, adaptive=True)
        if instruction.offset < offset and instruction.opname not in ("CACHE", "EXTENDED_ARG")
    ]
    # While a call runs, the offset is that of the call's last cache entry, and of the call itself otherwise.
    if before_call and before and before[-1].opname.startswith("CALL") and offset not in _starts(code):
        before.pop()
    lines = set()
    in_current_call = True
    for index in range(len(before) - 1, max(-1, len(before) - _MAX_INSTRUCTIONS), -1):
        instruction = before[index]
        in_current_call = in_current_call and instruction.opname.startswith("PRECALL")
        if not in_current_call and instruction.opname.startswith(_PREEMPTION_POINTS):
            previous = before[index - 1].opname if index else ""
            if not instruction.opname.endswith(_WITHOUT_CHECK) and not (
                previous.startswith("PRECALL") and previous.endswith(_WITHOUT_CHECK)
            ):
                break
        line = instruction.positions.lineno if instruction.positions is not None else None
        if line is not None and not instruction.opname.startswith(_FAST_OPERATIONS):
            lines.add(line)
    return frozenset(lines)


def _starts(code: CodeType) -> frozenset[int]:
    return frozenset(instruction.offset for instruction in dis.get_instructions(code))


def is_at_function_entry(frame: FrameType) -> bool:
    """Return whether the frame's function has not executed anything yet.

    If the thread was preempted there, the profiler attributes the time to the function's caller.
    """
    offset = frame.f_lasti
    return offset < 0 or (
        _RESUME is not None and tuple(frame.f_code.co_code[offset : offset + 2]) == (_RESUME, 0)
    )


def is_at_preemption_point(frame: FrameType) -> bool:
    """Return whether only preemption can have made the thread release the GIL at its current instruction.

    Return False if this is uncertain: inside a call, the thread may have released the GIL itself, to wait.
    """
    offset = frame.f_lasti
    return offset >= 0 and frame.f_code.co_code[offset] in _PREEMPTION_ONLY
