"""What clang up to 19, and Apple's, says of inlined functions: in `.debug_info`, and not behind each `.loc`."""

from __future__ import annotations

import pytest

from fmha.trace.assembly import Site, prepare
from fmha.trace.inlining import described
from fmha.trace.inlining_clang import inlined

# Lines 6 and 7 of work.cu call a function of line 3, which calls one of a header, twice. The second of line 6
# lies in two pieces. A semicolon stands for what begins a comment.
TEXT = """
_Z1kPKii:
{L}func_begin0:
	.file	0 "/x" "kernels.cpp" md5 0xf7f89ac0fcd41bf9c9e02e4af9a7399a
	.file	1 "." "work.cu" md5 0xf7f89ac0fcd41bf9c9e02e4af9a7399a
	.loc	1 4 0                           ; ./work.cu:4:0
{L}tmp0:
	.loc	1 5 13 prologue_end             ; ./work.cu:5:13
	{call}	{u}__tsan_read8
{L}tmp2:
	.file	2 "." "helper.cuh" md5 0xf7f89ac0fcd41bf9c9e02e4af9a7399a
	.loc	2 2 12                          ; ./helper.cuh:2:12
	{call}	{u}__tsan_read4
{L}tmp3:
	.loc	1 3 37                          ; ./work.cu:3:37
{L}tmp4:
	.loc	2 2 12                          ; ./helper.cuh:2:12
	{call}	{u}__tsan_read1
{L}tmp5:
	.loc	1 3 24                          ; ./work.cu:3:24
	{call}	{u}__tsan_write16
{L}tmp6:
	.loc	2 2 12                          ; ./helper.cuh:2:12
	{call}	{u}__tsan_read4
{L}tmp7:
	.loc	1 7 9                           ; ./work.cu:7:9
	{call}	{u}__tsan_write4
{L}tmp9:
	.loc	2 2 12 is_stmt 1                ; ./helper.cuh:2:12
	{call}	{u}__tsan_read2
{L}tmp10:
	.loc	1 0 14 is_stmt 0                ; ./work.cu:0:14
{L}tmp14:
	.loc	1 9 5 is_stmt 1                 ; ./work.cu:9:5
	{call}	{u}__tsan_write8
{L}func_end0:
	.byte	3                               ; Abbrev [3] 0x2b:0x54 DW_TAG_subprogram
{set}{L}func_end0-{L}func_begin0            ; DW_AT_high_pc
	.byte	10                              ; Abbrev [10] 0x98:0x42 DW_TAG_inlined_subroutine
	.long	65                              ; DW_AT_abstract_origin
	.byte	1                               ; DW_AT_low_pc
{set}{L}tmp7-{L}tmp2                        ; DW_AT_high_pc
	.byte	1                               ; DW_AT_call_file
	.byte	6                               ; DW_AT_call_line
	.byte	10                              ; DW_AT_call_column
	.byte	10                              ; Abbrev [10] 0xac:0x15 DW_TAG_inlined_subroutine
	.byte	1                               ; DW_AT_low_pc
{set}{L}tmp3-{L}tmp2                        ; DW_AT_high_pc
	.byte	1                               ; DW_AT_call_file
	.byte	3                               ; DW_AT_call_line
	.byte	12                              ; Abbrev [12] 0xc1:0x18 DW_TAG_inlined_subroutine
	.byte	{which}                         ; DW_AT_ranges
	.byte	1                               ; DW_AT_call_file
	.byte	3                               ; DW_AT_call_line
	.byte	0                               ; End Of Children Mark
	.byte	10                              ; Abbrev [10] 0xda:0x42 DW_TAG_inlined_subroutine
{set}{L}tmp14-{L}tmp9                       ; DW_AT_high_pc
	.byte	1                               ; DW_AT_call_file
	.short	7                               ; DW_AT_call_line
	.byte	10                              ; Abbrev [10] 0xee:0x15 DW_TAG_inlined_subroutine
{set}{L}tmp10-{L}tmp9                       ; DW_AT_high_pc
	.byte	1                               ; DW_AT_call_file
	.byte	3                               ; DW_AT_call_line
	.byte	0                               ; End Of Children Mark
	.byte	6                               ; Abbrev [6] 0xf0:0x15 DW_TAG_lexical_block
{set}{L}func_end0-{L}func_begin0            ; DW_AT_high_pc
{L}debug_info_end0:
{L}rnglists_table_base0:
{set}{L}debug_ranges1-{L}rnglists_table_base0
{set}{L}debug_ranges0-{L}rnglists_table_base0
{L}debug_ranges1:
	.byte	4                               ; DW_RLE_offset_pair
	.uleb128 {L}tmp9-{L}func_begin0         ;   starting offset
	.uleb128 {L}tmp14-{L}func_begin0        ;   ending offset
	.byte	0                               ; DW_RLE_end_of_list
{L}debug_ranges0:
	.byte	4                               ; DW_RLE_offset_pair
	.uleb128 {L}tmp4-{L}func_begin0         ;   starting offset
	.uleb128 {L}tmp5-{L}func_begin0         ;   ending offset
	.byte	3                               ; DW_RLE_startx_length
	.byte	1                               ;   start index
	.uleb128 {L}tmp7-{L}tmp6                ;   length
	.byte	0                               ; DW_RLE_end_of_list
"""
ELF = {"L": ".L", "u": "", "call": "callq", "set": "\t.long\t"}
MACH_O = {"L": "L", "u": "_", "call": "bl", "set": ".set Lset9, "}


def text(style: dict[str, str], comment: str, which: int = 1) -> str:
    return TEXT.format(**style, which=which).replace("; ", f"{comment} ")


@pytest.mark.parametrize(
    ("style", "comment", "machine"), [(ELF, "#", "x86_64"), (MACH_O, ";", "arm64"), (ELF, "//", "arm64")]
)
def test_the_line_that_calls_has_what_is_described(style: dict[str, str], comment: str, machine: str) -> None:
    call = "callq" if machine == "x86_64" else "bl"
    written = text(style | {"call": call}, comment)
    made = prepare(written, ["work.cu", "helper.cuh"], 30, machine, is_macho=style is MACH_O)
    assert made.sites[1:] == (
        Site("work.cu", 5, False, 8, "work.cu", 5),
        Site("work.cu", 6, False, 4, "helper.cuh", 2),
        Site("work.cu", 6, False, 1, "helper.cuh", 2),  # the first of two pieces
        Site("work.cu", 6, True, 16, "work.cu", 3),
        Site("work.cu", 6, False, 4, "helper.cuh", 2),
        Site("work.cu", 7, True, 4, "work.cu", 7),  # of the kernel itself
        Site("work.cu", 7, False, 2, "helper.cuh", 2),
        Site("work.cu", 9, True, 8, "work.cu", 9),
    )


def test_pieces_and_calls() -> None:
    rows = text(ELF, "#").splitlines()
    found = [(one.line, one.pieces) for one in inlined(rows)]
    assert found == [
        (6, [(".Ltmp2", ".Ltmp7")]),
        (3, [(".Ltmp2", ".Ltmp3")]),
        (3, [(".Ltmp4", ".Ltmp5"), (".Ltmp6", ".Ltmp7")]),  # the second list of the table
        (7, [(".Ltmp9", ".Ltmp14")]),
        (3, [(".Ltmp9", ".Ltmp10")]),
    ]
    at = described(rows)
    assert at[rows.index(".Ltmp4:")] == (("work.cu", 3), ("work.cu", 6))
    assert at[rows.index(".Ltmp5:")] == (("work.cu", 6),) and at[rows.index(".Ltmp7:")] == ()


def test_a_list_or_a_label_that_is_not_there_is_left_out() -> None:
    rows = [row for row in text(ELF, "#", which=9).splitlines() if row != ".Ltmp14:"]
    assert [one.pieces for one in inlined(rows)][2] == []
    assert rows.index(".Ltmp4:") not in described(rows)
    assert described(rows)[rows.index(".Ltmp9:")] == (("work.cu", 3),)


def test_where_each_line_says_it_nothing_is_looked_up() -> None:
    rows = text(ELF, "#").replace("./helper.cuh:2:12", "./helper.cuh:2:12 @[ ./work.cu:3:1 ]").splitlines()
    assert described(rows) == {}
