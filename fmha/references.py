"""What FMHA Lab rests on: papers, manuals and data, each with the places that are used and what for. Plain data.

Claims that are checked (`fmha.papers`) add their own places; tests hold that no paper named anywhere is missing here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """where: section, figure or table. what: what this app takes from it, in our words. page: title of our page."""

    where: str
    what: str
    page: str = ""


@dataclass(frozen=True)
class Reference:
    """key: as the app names it. full: title. who: authors or publisher. found: number of a preprint, venue, or URL."""

    key: str
    full: str
    who: str
    year: str
    found: str
    places: tuple[Place, ...]
    link: str = ""


def _p(where: str, what: str, page: str = "") -> Place:
    return Place(where, what, page)


GROUPS: dict[str, tuple[Reference, ...]] = {
    "Papers": (
        Reference(
            "FlashAttention", "FlashAttention: Fast and Memory-Efficient Exact Attention with IO-Awareness",
            "Dao, Fu, Ermon, Rudra, Ré", "2022", "arXiv 2205.14135",
            (
                _p("section 2.1", "two levels of memory, and what counts as an HBM access", "The memory wall"),
                _p("Algorithm 0", "standard attention in three kernels", "The memory wall"),
                _p("section 3.1, Algorithm 1", "the loop order kv-outer, m and l, Bc = ceil(M / 4d)", "Paper check"),
                _p("section 3.2, Theorem 2", "accesses grow with N² d² / M", "HBM traffic"),
                _p("Fig. 2", "bytes, FLOPs and time of one training step", "Paper check"),
                _p("appendix B, Algorithms 3 and 4", "accesses of the backward pass", "Paper check"),
                _p("appendix E.6, Table 21", "memory against length", "Paper check"),
            ),
            "https://arxiv.org/abs/2205.14135",
        ),
        Reference(
            "FlashAttention-2", "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning",
            "Dao", "2023", "arXiv 2307.08691",
            (
                _p("section 2.3", "the rescaling rule; the first version prints an inverse", "Online softmax"),
                _p("section 3.1", "O divided by l once, and LSE in place of m and l", "Worked example"),
                _p("section 3.2", "the loop order q-outer: one worker for each Q tile", "Tiles in motion"),
                _p("section 4.1", "speed against other kernels; FLOPs of a pass", "Paper check"),
            ),
            "https://arxiv.org/abs/2307.08691",
        ),
        Reference(
            "FlashAttention-3", "FlashAttention-3: Fast and Accurate Attention with Asynchrony and Low-precision",
            "Shah, Bikshandi, Zhang, Thakkar, Ramani, Dao", "2024", "arXiv 2407.08608",
            (
                _p("section 3", "copies beside arithmetic, softmax beside matrix products", "Tile map"),
                _p("section 4.1", "speed on a GPU of compute capability 9.0", "Paper check"),
            ),
            "https://arxiv.org/abs/2407.08608",
        ),
        Reference(
            "Online normalizer calculation for softmax", "Online normalizer calculation for softmax",
            "Milakov, Gimelshein", "2018", "arXiv 1805.02867",
            (
                _p("section 2", "naive and safe softmax, and their accesses", "Online softmax"),
                _p("section 3", "maximum and sum in one pass, and that parts can be merged", "Online softmax"),
            ),
            "https://arxiv.org/abs/1805.02867",
        ),
        Reference(
            "Attention Is All You Need", "Attention Is All You Need",
            "Vaswani, Shazeer, Parmar, Uszkoreit, Jones, Gomez, Kaiser, Polosukhin", "2017", "arXiv 1706.03762",
            (
                _p("section 3.2.1", "scaled dot-product attention, and why the scale is 1/sqrt(d)", "Attention"),
                _p("section 3.2.2", "heads", "Attention"),
            ),
            "https://arxiv.org/abs/1706.03762",
        ),
        Reference(
            "GQA", "GQA: Training Generalized Multi-Query Transformer Models from Multi-Head Checkpoints",
            "Ainslie, Lee-Thorp, de Jong, Zemlyanskiy, Lebrón, Sanghai", "2023", "arXiv 2305.13245",
            (_p("section 2", "query heads that share a key/value head", "Kernel lab"),),
            "https://arxiv.org/abs/2305.13245",
        ),
        Reference(
            "Roofline model", "Roofline: An Insightful Visual Performance Model for Multicore Architectures",
            "Williams, Waterman, Patterson", "2009", "Communications of the ACM 52(4), 65-76",
            (_p("the model", "speed against arithmetic intensity, under slopes and peaks", "Roofline"),),
            "https://doi.org/10.1145/1498765.1498785",
        ),
        Reference(
            "Colour-vision simulation",
            "A Physiologically-based Model for Simulation of Color Vision Deficiency",
            "Machado, Oliveira, Fernandes", "2009", "IEEE Transactions on Visualization and Computer Graphics 15(6)",
            (_p("the matrices of full severity", "colours that meet in a picture differ for all eyes (in the tests)"),),
            "https://doi.org/10.1109/TVCG.2009.113",
        ),
    ),
    "Manuals and data": (
        Reference(
            "CUDA programming guide", "CUDA C++ Programming Guide", "NVIDIA", "", "docs.nvidia.com",
            (
                _p("compute capabilities", "threads, blocks, registers and shared memory of an SM", "Tile map"),
                _p("shared memory", "32 banks of 4 bytes, and when lanes wait", "Under the hood of HBM"),
            ),
            "https://docs.nvidia.com/cuda/cuda-c-programming-guide/",
        ),
        Reference(
            "Nsight Compute", "Nsight Compute, Kernel Profiling Guide", "NVIDIA", "", "docs.nvidia.com",
            (
                _p("l1tex__t_sectors_pipe_lsu_mem_global_op_{ld,st}.sum", "sectors that global loads and stores ask "
                   "for: 32 bytes each are the requested bytes", "Kernel lab"),
                _p("lts__t_sectors_srcunit_tex.sum", "sectors that reach L2 from the SMs", "Under the hood of HBM"),
                _p("dram__bytes_{read,write}.sum", "bytes of the memory chips", "Under the hood of HBM"),
                _p("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum", "turns of shared memory's banks",
                   "Under the hood of HBM"),
            ),
            "https://docs.nvidia.com/nsight-compute/ProfilingGuide/",
        ),
        Reference(
            "NVIDIA whitepapers", "Architecture whitepapers and datasheets: Volta to Blackwell", "NVIDIA", "",
            "each GPU's own is listed below",
            (_p("tables of figures", "sizes, speeds and peaks of GPUs", "The memory wall"),),
        ),
        Reference(
            "flash-attention", "The source of FlashAttention-2 and -3", "Dao and others", "2022 to 2026",
            "github.com/Dao-AILab/flash-attention",
            (_p("tables of tile sizes", "which Br x Bc they choose for a head dimension", "Tile map"),),
            "https://github.com/Dao-AILab/flash-attention",
        ),
    ),
}  # fmt: skip

REFERENCES: tuple[Reference, ...] = tuple(reference for group in GROUPS.values() for reference in group)


def named(text: str) -> Reference | None:
    """The reference that a source such as "FlashAttention-2, section 3.1" or "FlashAttention (2022)" names."""
    fitting = [reference for reference in REFERENCES if text.strip().startswith(reference.key)]
    return max(fitting, key=lambda reference: len(reference.key), default=None)
