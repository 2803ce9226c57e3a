"""What is read from assembly texts of both processors and systems, and what is added to them. No compiler needed."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest

from fmha.errors import BuildError
from fmha.trace.assembly import FLOP_KINDS, RED_ZONE, Assembly, Site, prepare
from fmha.trace.order import program_order, program_structure

X86_ELF = """
	.file	"kernels.cpp"
	.text
	.globl	kernel
	.type	kernel, @function
kernel:
.LFB1:
	.file 1 "work.cu"
	.loc 1 3 5
	.file 2 "/usr/include/header.h"
	.loc 2 99 1
	movq	%rbx, %rdi
	call	__tsan_read4
	movss	(%rbx), %xmm0
	.loc 1 4 9 view .LVU3
	call	__tsan_unaligned_write8@PLT
	.loc 1 0 9
	callq	__tsan_volatile_read1
	call	fmha_thread_idx
	.loc 1 6 2
	movl	$16, %edx
	call	__tsan_memcpy
	movl	$1, %edx
	call	fmha_atomic_cas
	call	__tsan_read_range
	jmp	__tsan_write16
	.size	kernel, .-kernel
	.local	_ZZ6kernelE4tile
	.comm	_ZZ6kernelE4tile,8448,32
	.bss
	.align 16
	.type	_ZL5other, @object
	.size	_ZL5other, 100
_ZL5other:
	.zero	100
	.local	_ZGVZ6kernelE4tile
	.comm	_ZGVZ6kernelE4tile,8,8
	.section	.rodata
.LC0:
	.zero	12
	.ident	"GCC"
"""

ARM_ELF = """
	.text
	.file	"kernels.cpp"
	.globl	kernel
kernel:
	.file	1 "/build" "work.cu"
	.loc	1 7 3 prologue_end // work.cu:7:3
	mov	x0, x19
	bl	__tsan_read16
	.loc	1 8 3 is_stmt 1
	bl	__tsan_memset
	cbz	w8, .LBB0_2
	.loc	1 9 1
	bl	fmha_atomic_add_f32
.LBB0_2:
	.loc	1 10 1
	b	__tsan_write2
.Lfunc_end0:
	.size	kernel, .Lfunc_end0-kernel
	.type	_ZZ6kernelE4word,@object
	.local	_ZZ6kernelE4word
	.comm	_ZZ6kernelE4word,128,4
"""

ARM_MACHO = """
	.section	__TEXT,__text,regular,pure_instructions
	.build_version macos, 14, 0
	.globl	_kernel
	.p2align	2
_kernel:
Lfunc_begin0:
	.file	1 "work.cu"
	.loc	1 2 1
	bl	___tsan_read8
	.loc	1 3 1
	bl	_fmha_atomic_i32
	b	___tsan_unaligned_write4
.zerofill __DATA,__bss,__ZZ6kernelE4tile,4224,4 ; @_ZZ6kernelE4tile
.subsections_via_symbols
"""


def made(text: str, machine: str = "x86_64", *, is_macho: bool = False) -> Assembly:
    return prepare(text, ["work.cu"], 20, machine, is_macho=is_macho)


def before_calls(assembly: Assembly) -> list[tuple[str, str]]:
    """Of each numbered call: the instruction that passes the number, and the call itself."""
    rows = [row.strip() for row in assembly.text.splitlines()]
    return [
        (row, re.sub(r"\s+", " ", call))
        for row, call in pairwise(rows)
        if re.match(r"movl\s+\$\d+|movz", row) and re.search(r"tsan|atomic", call)
    ]


def own(line: int, is_write: bool, nbytes: int) -> Site:
    """An access that the kernel makes itself."""
    return Site("work.cu", line, is_write, nbytes, "work.cu", line)


def test_x86_elf() -> None:
    assembly = made(X86_ELF)
    assert assembly.sites[1:] == (
        own(3, False, 4),  # inlined from a header: of the line that it is used on
        own(4, True, 8),
        own(6, False, 1),  # of no line of its own: of the next
        own(6, False, 4),  # a copy reads
        own(6, True, 4),  # and writes
        own(6, True, 4),
        own(6, False, 4),
        own(6, True, 16),
    )
    assert before_calls(assembly) == [
        ("movl\t$1, %esi", "call __tsan_read4"),
        ("movl\t$2, %esi", "call __tsan_unaligned_write8@PLT"),
        ("movl\t$3, %esi", "callq __tsan_volatile_read1"),
        ("movl\t$4, %ecx", "call __tsan_memcpy"),
        ("movl\t$6, %ecx", "call fmha_atomic_cas"),
        ("movl\t$7, %edx", "call __tsan_read_range"),
        ("movl\t$8, %esi", "jmp __tsan_write16"),
    ]
    assert assembly.statics == (("tile", 8448), ("other", 100))
    assert f".comm\t_ZZ6kernelE4tile,{8448 + RED_ZONE},32" in assembly.text
    assert f"_ZL5other:\n\t.zero\t{100 + RED_ZONE}\n" in assembly.text
    assert ".LC0:\n\t.zero\t12\n" in assembly.text  # constants stay as they are
    table = [row.strip() for row in assembly.text[assembly.text.index("fmha_statics:") :].splitlines()[1:7]]
    assert table == [f".quad\t{word}" for word in ("_ZZ6kernelE4tile", 8448, "_ZL5other", 100, 0, 0)]
    assert "fmha_flop_lines:\n\t.quad\t21\n" in assembly.text
    assert f"fmha_flops:\n\t.fill\t{FLOP_KINDS * 21}, 8, 0\n" in assembly.text
    kept = [row for row in X86_ELF.splitlines() if not re.search(r"\.comm|\.zero", row)]
    assert set(kept) <= set(assembly.text.splitlines())


def test_arm_elf() -> None:
    assembly = made(ARM_ELF, "arm64")
    assert assembly.sites[1:] == (
        own(7, False, 16),
        own(8, True, 4),
        own(9, True, 4),
        own(10, True, 2),
    )
    assert before_calls(assembly) == [
        ("movz\tw1, #1", "bl __tsan_read16"),
        ("movz\tw3, #2", "bl __tsan_memset"),
        # The value to add travels in another kind of register.
        ("movz\tw1, #3", "bl fmha_atomic_add_f32"),
        ("movz\tw1, #4", "b __tsan_write2"),
    ]
    assert assembly.statics == (("word", 128),)


def test_arm_macho() -> None:
    assembly = made(ARM_MACHO, "arm64", is_macho=True)
    assert assembly.sites[1:] == (
        own(2, False, 8), own(3, True, 4), own(3, True, 4),
    )  # fmt: skip
    assert before_calls(assembly) == [
        ("movz\tw1, #1", "bl ___tsan_read8"),
        ("movz\tw3, #2", "bl _fmha_atomic_i32"),
        ("movz\tw1, #3", "b ___tsan_unaligned_write4"),
    ]
    assert assembly.statics == (("tile", 4224),)
    assert f".zerofill __DATA,__bss,__ZZ6kernelE4tile,{4224 + RED_ZONE},4" in assembly.text
    for name in ("fmha_statics", "fmha_flops", "fmha_flop_lines"):
        assert f"\t.globl\t_{name}\n" in assembly.text and f"\n_{name}:\n" in assembly.text
    assert "__DATA,__const" in assembly.text and "\t.quad\t__ZZ6kernelE4tile\n\t.quad\t4224\n" in assembly.text


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZZ6kernelE4tile", "tile"),
        ("_ZZ12across_blockILb1EEffE5warps", "warps"),  # of an instance of a template
        ("_ZZ6kernelE4tile_3", "tile"),  # the fifth of that name in the function
        ("_ZZ6kernelE4tile__12_", "tile"),
        ("_ZZN3one3twoEPfE3E4x", "E4x"),
        ("_ZL7scratch", "scratch"),
        ("_ZGVZ6kernelE4tile", None),
        ("_ZTV5Thing", None),
        ("counter", None),
    ],
)
def test_names_of_static_variables(symbol: str, name: str | None) -> None:
    assembly = made(f"\t.local\t{symbol}\n\t.comm\t{symbol},64,4\n")
    assert assembly.statics == (() if name is None else ((name, 64),))


def test_too_many_sites_are_refused_in_a_sentence() -> None:
    with pytest.raises(BuildError, match=r"has 70,001 loads and stores, and tracing tells 65,536 apart: shorten it\."):
        made("kernel:\n" + "\tcall\t__tsan_read4\n" * 70_000)


# An outer loop whose head the compiler put in the middle, with an inner loop behind it; a branch at the very end that
# comes back; and a label that only the debugger needs, behind a jump. Comments give the order of the program.
SHUFFLED = {
    "x86_64": """
kernel:
	movl	$0, %eax	#order 0
	jmp	.L3	#order 1
.Ltmp1:
.L2:
	addl	$1, %eax	#order 6
	cmpl	%eax, %edi	#order 7
	jle	.L7	#order 8
.L3:
	testl	%esi, %esi	#order 2
	je	.L2	#order 3
.L4:
	subl	$1, %esi	#order 4
	jne	.L4	#order 5
	jmp	.L2
.L7:
	testl	%edx, %edx	#order 9
	js	.L9	#order 10
.L8:
	ret	#order 13
.L9:
	negl	%edx	#order 11
	jmp	.L8	#order 12
""",
    "arm64": """
kernel:
	mov	w0, #0	//order 0
	b	.LBB0_3	//order 1
.Ltmp1:
.LBB0_2:
	add	w0, w0, #1	//order 6
	cmp	w0, w1	//order 7
	b.le	.LBB0_7	//order 8
.LBB0_3:
	nop	//order 2
	cbz	w2, .LBB0_2	//order 3
.LBB0_4:
	subs	w2, w2, #1	//order 4
	b.ne	.LBB0_4	//order 5
	b	.LBB0_2
.LBB0_7:
	nop	//order 9
	tbnz	w3, #31, .LBB0_9	//order 10
.LBB0_8:
	ret	//order 13
.LBB0_9:
	neg	w3, w3	//order 11
	b	.LBB0_8	//order 12
""",
}


@pytest.mark.parametrize("machine", [*SHUFFLED])
def test_the_order_of_the_program_is_found_in_any_layout(machine: str) -> None:
    rows = SHUFFLED[machine].splitlines()
    place = program_order(rows, machine)
    assert sorted(place) == [*range(len(rows))]
    told = {int(found[1]): place[n] for n, row in enumerate(rows) if (found := re.search(r"order (\d+)", row))}
    assert [number for number, _ in sorted(told.items(), key=lambda item: item[1])] == [*range(14)]


def test_straight_code_keeps_its_order_and_functions_follow_one_another() -> None:
    rows = "first:\n\tnop\n\tcall\tsecond\n\tnop\n\tret\nsecond:\n\tnop\n\tret".splitlines()
    assert program_order(rows, "x86_64") == [*range(len(rows))]
    assert program_order([], "x86_64") == []


def test_loops_are_known_from_the_flow_whatever_the_layout_is() -> None:
    """Two loops in one, the second of which is a row that jumps to itself; the first lies behind the function's end."""
    text = """
kernel:
	nop	# before
	jmp	.Lhead
.Lhead:
	nop	# outer
	cmpl	$1, %eax
	je	.Lfar
.Lback:
	nop	# outer too
.Lself:
	nop	# inner two
	jne	.Lself
	nop	# outer again
	jne	.Lhead
	nop	# after
	ret
.Lfar:
	nop	# inner one
	jne	.Lfar
	jmp	.Lback
"""
    rows = text.splitlines()
    _, loops = program_structure(rows, "x86_64")
    told = {found[1]: loops[n] for n, row in enumerate(rows) if (found := re.search(r"# (.+)", row))}
    assert told["before"] == told["after"] == ()
    (outer,) = told["outer"]
    assert told["outer too"] == told["outer again"] == (outer,)
    assert told["inner one"][0] == told["inner two"][0] == outer
    assert len(told["inner one"]) == len(told["inner two"]) == 2
    assert len({outer, told["inner one"][1], told["inner two"][1]}) == 3
