"""Every symbol and every term of FMHA Lab: what it means, its unit, where it comes from.

Plain data and two look-ups. The page *Glossary* lists it, controls take their help from it, and prose marks words with
`[[...]]` (`fmha.ui.words_marks`); tests hold labels and phases against it, so no word on screen stays unexplained.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

FA1, FA2, FA3 = "FlashAttention", "FlashAttention-2", "FlashAttention-3"
HERE = "this app"
CUDA = "CUDA programming guide"


@dataclass(frozen=True)
class Term:
    """One entry.

    names: as written on screen, the one to show first; labels of controls are among them. also: the other names that
    are worth showing. meaning: one or two sentences, plain text. unit: "" where there
    is none. source: the paper or document whose word or letter it is.
    """

    names: tuple[str, ...]
    meaning: str
    unit: str = ""
    source: str = HERE
    also: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name to show."""
        return self.names[0]

    @property
    def sentence(self) -> str:
        """Meaning and unit in one line, for a tip."""
        return self.meaning + (f" Unit: {self.unit}." if self.unit else "")


def _t(names: str, meaning: str, unit: str = "", source: str = HERE) -> Term:
    """names: divided by |; with a ~ before them those that are looked up but not shown."""
    parts = [part.strip() for part in names.split("|")]
    known = tuple(part.removeprefix("~") for part in parts)
    return Term(known, meaning, unit, source, tuple(part for part in parts[1:] if not part.startswith("~")))


GROUPS: dict[str, tuple[Term, ...]] = {
    "The problem": (
        _t("B | batch | ~batch entry", "Batch size: how many independent sequences are computed at once."),
        _t(
            "H | heads | ~head | ~query head | ~first head | ~head shown",
            "Query heads. Each head has its own Q, K and V and is computed on its own; more heads are more workers.",
            "", "Attention Is All You Need, section 3.2.2",
        ),
        _t(
            "Hk | K/V heads | GQA | ~grouped heads",
            "Key/value heads. With fewer of them than H, query heads share: head h reads K/V head h // (H / Hk).",
            "", "GQA, section 2",
        ),
        _t(
            "N | Nq | ~sequence length | ~tokens | ~query length",
            "Sequence length. Nq is the number of queries, Nk of keys; N when they are equal.", "tokens",
        ),
        _t("Nk | key length | ~keys | ~keys in the row", "How many keys, so values, a query can look at.", "tokens"),
        _t("d | ~head dimension | ~head dim", "Head dimension: numbers of one query, key or value.", "elements"),
        _t(
            "dtype | fp32 | fp16 | bf16 | ~data type",
            "How Q, K, V and O are stored: fp32 takes 4 bytes an element, fp16 and bf16 take 2. fp16 has more digits, "
            "bf16 the range of fp32.",
        ),
        _t(
            "token | word | ~tokens N | ~query word",
            "A piece of text, a word or part of one. Each has one row in Q, K, V and O.",
        ),
        _t(
            "[B, H, N, d] | ~layout",
            "The layout of Q, K, V and O in memory, row-major: the d numbers of one token lie side by side, then come "
            "the tokens of a head, then the heads.", "elements",
        ),
        _t("scale", "The factor on the scores, 1/sqrt(d) unless another is given: it keeps them from growing with d.",
           "", "Attention Is All You Need, section 3.2.1"),
        _t("layer", "One of the model's stages, each with its own heads. The recorded sentence has six."),
        _t(
            "seed | ~input",
            "Q, K and V come from a generator; the same seed makes the same numbers again, everywhere.",
        ),
    ),
    "Attention": (
        _t("attention | FMHA | ~multi-head attention",
           "O = softmax(scale Q Kᵀ) V: each query takes the average of the values, weighted by how well their keys "
           "match it. FMHA: fused multi-head attention, one kernel for all of it.",
           "", "Attention Is All You Need, section 3.2"),
        _t("Q | query | ~queries", "Queries, [B, H, Nq, d]: what a token looks for.", "", "Attention Is All You Need"),
        _t("K | key", "Keys, [B, Hk, Nk, d]: what each token offers to be found by.", "", "Attention Is All You Need"),
        _t("V | value | ~values", "Values, [B, Hk, Nk, d]: what each token hands on when it is found.",
           "", "Attention Is All You Need"),
        _t("S | score | ~scores", "Scores, S = scale Q Kᵀ, [B, H, Nq, Nk]: one number for each pair of query and key."),
        _t("P | weight | ~weights",
           "Weights, P = softmax of S row by row: positive, and each row sums to 1. In a tile, P is exp(S - m), not "
           "yet divided by l.", "", FA1),
        _t("O | output", "Output, O = P V, [B, H, Nq, d]: a weighted average of values for each query."),
        _t("softmax", "Exponentials of a row divided by their sum: scores become weights that sum to 1."),
        _t("safe softmax", "Softmax with the row's maximum subtracted first, so that no exponential overflows: three "
           "passes over the row.", "", "Online normalizer calculation for softmax, section 2"),
        _t("online softmax", "Maximum and sum in one pass: when the maximum rises, the sum so far is multiplied by "
           "alpha. This is what lets attention go tile by tile.",
           "", "Online normalizer calculation for softmax, section 3"),
        _t("causal | mask | ~causal mask",
           "Which keys a query may see. Causal: none that come after it. With Nq and Nk different the diagonal is "
           "aligned bottom-right (FlashAttention since 2.1) or top-left (torch's is_causal)."),
        _t("padding | left_pad | lens_k", "Keys that are not real tokens, at the end or at the front; never loaded."),
        _t("naive | standard attention | ~naive attention | ~race naive",
           "Three kernels that write S and P to device memory and read them back.", "", FA1 + ", Algorithm 0"),
        _t("flash | FlashAttention", "Attention in tiles with an online softmax: exact, and S and P never reach device "
           "memory.", "", FA1),
    ),
    "Running values": (
        _t("m | m_new | running max | rowmax", "Running row maximum: the largest score of the row so far. m_new is the "
           "value after the current tile.", "", FA1 + ", section 3.1"),
        _t("l | l_new | running sum | rowsum", "Running row sum: the sum of exp(S - m) over all keys seen so far. It "
           "lies between 1 and their number.", "", FA1 + ", section 3.1"),
        _t("alpha | α | rescale factor", "exp(m_old - m_new), at most 1: what l and O are multiplied with when the "
           "maximum rises. The kernels' second factor, beta, is 1 unless m is old.",
           "", FA2 + ", section 2.3"),
        _t("LSE | log-sum-exp | ~write LSE", "m + ln l, natural logarithm, one number a row; the backward pass makes P "
           "from it again. A row that sees no key has O = 0 and LSE = -inf.", "4 bytes a row", FA2 + ", section 3.1"),
        _t("overflow", "A result too large for its data type: it becomes infinite. fp16 ends at 65,504."),
        _t("normalize", "The division O / l, once, after the last tile (in kv-outer at every visit)."),
        _t("merge | ~merging", "Two parts of a row's keys with their own m, l and O become one by the same rescaling, "
           "in any order, since it is associative and commutative."),
    ),
    "Tiles and order": (
        _t("tile", "A block of rows of a matrix that is handled at once: Br rows of Q and O, Bc rows of K and V, "
           "Br x Bc of S and P. The last may be ragged, that is shorter.", "", FA1),
        _t("Br | ~Q tile | ~Q tile rows", "Rows of a Q tile.", "tokens", FA1 + ", Algorithm 1"),
        _t("Bc | ~K/V tile | ~K/V tile rows", "Rows of a K/V tile: keys that are handled at once.",
           "tokens", FA1 + ", Algorithm 1"),
        _t("Tr", "Number of Q tiles, ceil(Nq / Br).", "", FA1 + ", Algorithm 1"),
        _t("Tc", "Number of K/V tiles, ceil(Nk / Bc).", "", FA1 + ", Algorithm 1"),
        _t("i, j", "Numbers of a Q tile and a K/V tile, counted from 0: Qi, Kj, Vj, Sij, Oi."),
        _t("worker | ~workers", "One thread block: one batch entry, head and Q tile (in kv-outer: one batch entry and "
           "head)."),
        _t("visit", "One worker handling one K/V tile."),
        _t("loop order | ~order", "Which loop is outside: q-outer, kv-outer, or naive."),
        _t("q-outer", "The loop order of FlashAttention-2 and of this app's kernel: a worker keeps its Q tile and "
           "streams K and V past it.", "", FA2 + ", section 3.2"),
        _t("kv-outer", "The loop order of FlashAttention-1: K and V tiles outside; Q is read, O, l and m are read and "
           "written again for each of them.", "", FA1 + ", Algorithm 1"),
        _t("phase", "A step within a visit, named by its maths: S = QKᵀ, m_new, P and l, O. The comments in the .cu "
           "files use the same words."),
        _t("event | event table | ~step", "One row of the table that all pictures are drawn from: what moved or was "
           "computed, when, by whom, how many bytes and FLOPs."),
        _t("design", "A kernel's plan of a tile: threads, shared memory and registers that Br and Bc ask for."),
    ),
    "Memory": (
        _t("HBM | device memory", "The GPU's large memory, beside the chip: all tensors live there. Gigabytes, and the "
           "slowest of the four levels.", "bytes", FA1 + ", section 2.1"),
        _t("L2 | ~L2 cache", "The cache that all SMs share, between them and device memory.", "bytes", CUDA),
        _t("L1 | ~L1 cache", "An SM's own cache; it shares its memory with shared memory.", "bytes", CUDA),
        _t("SMEM | shared memory | SRAM", "Fast memory of one SM, used by the blocks on it as they say: here lie the "
           "tiles. The papers call it SRAM.", "bytes", CUDA),
        _t("REG | registers | ~register", "The fastest memory, a few hundred bytes for each thread.", "bytes", CUDA),
        _t("DRAM", "The memory chips themselves: bytes that L2 could not serve.", "bytes", "Nsight Compute"),
        _t("requested bytes | HBM traffic | ~requested | ~level",
           "Bytes that thread blocks load and store beyond their registers and shared memory, whoever answers: what "
           "the papers call HBM accesses.", "bytes", FA1 + ", section 2.1; Nsight Compute"),
        _t("compulsory bytes | ~compulsory", "Q, K, V read once and O written once: nothing can move less.", "bytes"),
        _t("hit | ~L2 hit | ~hit rate", "A load that a cache answers; the memory below does not see it."),
        _t("sector", "32 bytes: the unit in which caches are asked.", "32 bytes", "Nsight Compute"),
        _t("bank | ~banks", "Shared memory has 32 of them; each delivers one word of 4 bytes in a turn. Word w lies in "
           "bank w mod 32.", "", CUDA),
        _t("bank conflict | ~conflicts", "Lanes of a warp that want different words of one bank: they wait for one "
           "another.", "", CUDA),
        _t("wavefront | ~wavefronts", "One turn of the 32 banks, at most 128 bytes.", "", "Nsight Compute"),
        _t("stride", "Distance from one lane's address to the next lane's.", "floats"),
        _t("pad | padding of rows", "Floats left free after each row of a tile, so that rows begin in different banks.",
           "floats"),
        _t("M", "Size of the SRAM in Theorem 2 and in Algorithm 1's choice of tiles.", "elements, not bytes",
           FA1 + ", Theorem 2"),
        _t("KiB, MiB, GiB", "Sizes: 1 KiB = 1,024 bytes, 1 MiB = 1,024 KiB, 1 GiB = 1,024 MiB.", "bytes"),
    ),
    "The machine": (
        _t("GPU | device | ~on GPU | ~limits of", "The graphics processor whose limits, sizes and speeds a page uses."),
        _t("SM | ~SMs", "Streaming multiprocessor: one of the GPU's cores, with its own shared memory and registers. "
           "Thread blocks are dealt to SMs.", "", CUDA),
        _t("thread block | block | ~blocks", "Threads that run on one SM and share its shared memory.", "", CUDA),
        _t("warp", "32 threads that execute together.", "", CUDA),
        _t("lane", "One thread of a warp, 0 to 31.", "", CUDA),
        _t("kernel", "A function that runs on the GPU.", "", CUDA),
        _t("occupancy", "Warps that an SM holds, of those that it could. Limited by shared memory, registers, threads "
           "or blocks.", "", CUDA),
        _t("wave | ~waves", "Blocks that run at the same time; when they are done, the next wave follows."),
        _t("tail", "The end of a run, when some SMs have no block left and wait for the last ones."),
        _t("stages | ~stage | ~double buffering", "Buffers for K/V tiles in shared memory. With two the next tile is "
           "on its way while this one is worked on.", "", FA3 + ", section 3.1"),
        _t("barrier | __syncthreads()", "A point that all threads of a block must reach before any goes on.", "", CUDA),
        _t("race", "Two threads touch one place, one of them writes, and no barrier lies between."),
        _t("FLOP | TFLOP/s | ~FLOPs", "A multiplication or an addition of floating-point numbers; a multiply-add is "
           "two. The forward pass takes 4 B H Nq Nk d.", "FLOP"),
        _t("tensor cores", "Units that multiply small matrices of 16-bit numbers, many times faster than the fp32 "
           "units.", "", "NVIDIA whitepapers"),
        _t("mma.sync | ldmatrix", "The instruction by which a warp multiplies pieces of two matrices on tensor cores, "
           "and the one that brings the pieces from shared memory into its registers.", "", CUDA),
        _t("swizzle | ~swizzled", "Pieces of a row change places by the row's number, so that pieces of one column lie "
           "in different banks. It costs no memory, as padding does.", "", CUDA),
        _t("cp.async", "A copy from device memory to shared memory that passes no register and for which nobody waits "
           "until it is needed.", "", CUDA),
        _t("spill | ~spills", "What a thread's registers do not hold lies in device memory, and costs loads and "
           "stores.", "bytes", CUDA),
        _t("peak | roof", "The most that a GPU's units can do, by its documents.", "FLOP/s, B/s"),
        _t("arithmetic intensity | ~intensity", "FLOPs for each byte moved at a level of memory.", "FLOP/B",
           "Roofline model"),
        _t("roofline", "A chart of the speed that each memory level and each unit allows at an arithmetic intensity.",
           "", "Roofline model"),
        _t("memory-bound | compute-bound", "Which takes longer, moving the bytes or the arithmetic."),
    ),
    "Checking and showing": (
        _t("reference", "Attention in float64, a dozen lines: the truth that everything is held against."),
        _t("tolerance", "A result may be off by twice what the plain computation in its precision is."),
        _t("recording | ~recorded", "A measurement from a real GPU, kept with device, driver, date and the source's "
           "hash."),
        _t("ladder | rung | ~rungs", "The kernels in order: each changes one thing of the one below."),
        _t("predicted | ~model", "Computed from sizes and limits, not measured; the page says how far it was off."),
        _t("trace | ~traced | ~played by", "A run of the kernel's source on the CPU with each access written down."),
        _t("as run | ~time stamp | ~times", "With the times of a real run: the first thread of each block wrote down "
           "when each phase began, and on which SM."),
        _t("heat strip | ~strip", "The bar beside a line of source: its share of the measure that is chosen for it."),
        _t("broken on purpose | ~take out", "A barrier or a bound is taken out of the source and the rest is run as it "
           "is: what goes wrong shows what it was there for."),
        _t("timeline | Gantt chart", "SMs from top to bottom, time from left to right, a bar for each block or phase."),
        _t("close-up | zoom", "A stretch of time and a few SMs of a timeline, drawn large beside the whole."),
        _t("deck", "The steps of a guided lecture, in one file that anyone can write."),
        _t("median", "The middle of the sorted times: half of the runs were faster."),
    ),
}  # fmt: skip

TERMS: tuple[Term, ...] = tuple(term for terms in GROUPS.values() for term in terms)

# URL names of controls whose entry has another name.
_CONTROLS = {
    "mBr": "Br", "mBc": "Bc", "sms": "SMs", "gpu": "GPU", "order": "loop order", "lse": "LSE", "dot": "overflow",
    "l2": "L2", "l2kib": "L2", "batch": "batch entry", "by": "traced", "keys": "keys", "turn": "wavefront",
    "sram": "SRAM", "orders": "block", "zoom": "close-up", "at": "close-up", "heat": "heat strip", "part": "kernel",
    "each": "broken on purpose", "clock": "as run", "gpurun": "recording", "against": "predicted",
}  # fmt: skip


@cache
def _index() -> dict[str, Term]:
    found: dict[str, Term] = {}
    for term in TERMS:
        for name in term.names:
            found.setdefault(name, term)  # exact letters first: m is the maximum, M the memory
    for term in TERMS:
        for name in term.names:
            found.setdefault(name.casefold(), term)
    return found


def lookup(word: str) -> Term | None:
    """The entry of a word or symbol, case counted where two differ by it (m, M); plural s and "the" do not matter."""
    word = " ".join(word.split())
    tries = (word, word.casefold(), word.casefold().removesuffix("s"), word.removesuffix("s"))
    return next((term for text in tries if (term := _index().get(text)) is not None), None)


def of_control(name: str, label: str) -> Term | None:
    """The entry that explains a control: by its URL name, else by the words of its label."""
    return lookup(_CONTROLS.get(name, name)) or next(iter(in_text(label)), None)


def in_text(text: str) -> list[Term]:
    """The entries that a text names, in its order, each once. Letters count only as words of their own."""
    found: dict[str, Term] = {}
    for hit in _pattern().finditer(text):
        term = lookup(hit[0])
        if term is not None:
            found.setdefault(term.name, term)
    return list(found.values())


@cache
def _pattern() -> re.Pattern[str]:
    names = sorted({name for term in TERMS for name in term.names}, key=len, reverse=True)
    # A name of one or two letters is matched as it is written, a longer one in any case.
    parts = [re.escape(name) if len(name) < 3 else f"(?i:{re.escape(name)})" for name in names]
    return re.compile(rf"(?<!\w)(?:{'|'.join(parts)})(?!\w)")


def search(text: str, group: str | None = None) -> dict[str, list[Term]]:
    """Entries by group that hold all words of `text` in a name, or else in the meaning; everything for an empty text.

    Entries that are called exactly so come alone: "m" finds the maximum, not all words with an m.
    """
    groups = {name: terms for name, terms in GROUPS.items() if group in (None, name)}
    text = text.strip()
    exact = lookup(text) if text else None
    if exact is not None and len(text) < 3:
        return {name: [exact] for name, terms in groups.items() if exact in terms}
    words = text.casefold().split()

    def hits(term: Term) -> bool:
        whole = " ".join((*term.names, term.meaning, term.source)).casefold()
        return all(word in whole for word in words)

    found = {name: [term for term in terms if hits(term)] for name, terms in groups.items()}
    return {name: terms for name, terms in found.items() if terms}
