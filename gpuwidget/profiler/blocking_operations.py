"""Which operations may have kept Python's interpreter until a thread let go of it where it was found.

Since Python 3.11 a thread is made to let go only where a function is entered or has been called, and where a
loop begins anew. What it did since the last such place, nobody could have seen it do.
"""

from __future__ import annotations

import dis
import sys
from types import CodeType, FrameType

_LETS_GO = ("CALL", "JUMP_BACKWARD", "RESUME")
_DOES_NOT = ("INTRINSIC_1", "INTRINSIC_2", "_LEN", "_ISINSTANCE", "_LIST_APPEND", "_TYPE_1")
"""Ends of names of calls that, once they are known to be of these functions, don't look."""
_QUICK = (
    "LOAD_", "STORE_FAST", "STORE_NAME", "STORE_GLOBAL", "STORE_DEREF", "PUSH_", "POP_", "COPY", "SWAP",
    "NOP", "KW_NAMES", "TO_BOOL", "IS_OP", "JUMP_", "BUILD_TUPLE", "BUILD_SLICE", "NOT_TAKEN", "MAKE_",
    "END_", "GET_AWAITABLE", "RETURN_", "SETUP_", "FOR_ITER_RANGE", "FOR_ITER_LIST", "FOR_ITER_TUPLE",
    "PRECALL", "CALL",
)  # fmt: skip
"""Operations, by the beginnings of their names, that keep the interpreter for no time worth a word."""
_MOST = 300
_RESUME = dis.opmap.get("RESUME")
_ONLY_LOOKS = frozenset(
    code
    for name, code in dis.opmap.items()
    if name == "RESUME" or (name.startswith(("JUMP_BACKWARD", "POP_JUMP_BACKWARD")) and "NO_" not in name)
)
"""At which a thread may be made to let go, and at which nothing else makes it; none before Python 3.11."""


def lines_before(code: CodeType, at: int) -> frozenset[int]:
    """Lines of the operations before the one at ``at`` that may have kept the interpreter until then."""
    if sys.version_info < (3, 11):
        return frozenset()  # it may let go after every operation
    before = [
        one
        for one in dis.get_instructions(code, adaptive=True)
        if one.offset < at and one.opname not in ("CACHE", "EXTENDED_ARG")
    ]
    found = set()
    beginning = True
    for number in range(len(before) - 1, max(-1, len(before) - _MOST), -1):
        one = before[number]
        beginning = beginning and one.opname.startswith("PRECALL")  # of the call at hand
        if not beginning and one.opname.startswith(_LETS_GO):
            prepared = before[number - 1].opname if number else ""
            if not one.opname.endswith(_DOES_NOT) and not (
                prepared.startswith("PRECALL") and prepared.endswith(_DOES_NOT)
            ):
                break
        line = one.positions.lineno if one.positions is not None else None
        if line is not None and not one.opname.startswith(_QUICK):
            found.add(line)
    return frozenset(found)


def has_begun_only(frame: FrameType) -> bool:
    """Whether the function has been entered and has done nothing yet: the time was its caller's."""
    at = frame.f_lasti
    return at < 0 or (_RESUME is not None and tuple(frame.f_code.co_code[at : at + 2]) == (_RESUME, 0))


def was_made_to_let_go(frame: FrameType) -> bool:
    """Whether the thread has let go of the interpreter where it does so only if it is made to.

    False also where nobody can say: after a call it may have let go within, to wait.
    """
    at = frame.f_lasti
    return at >= 0 and frame.f_code.co_code[at] in _ONLY_LOOKS
