"""Pictures of one request: lanes in a row, sectors of device memory, touched elements."""

from __future__ import annotations

import re

from fmha.figures.lanes import Lane, lanes
from fmha.figures.sector_picture import Sector, sector_picture, sectors
from fmha.figures.touched import MOST_ROWS, touched


def test_every_lane_has_a_place_and_says_what_it_asks_for() -> None:
    row = [Lane(96 + k, (f"{k}, 0", "<7>"), k == 0) for k in range(20)]
    row += [Lane(96 + k, None) for k in range(20, 30)] + [Lane(None, None)] * 2
    html = lanes(row, ("row, column", "bank"), "K", 'all of "Kj"')
    assert html.count("<li") == 33, "32 lanes and the names in front"
    assert html.count('class="out"') == 10 and html.count('class="none"') == 2
    assert "thread 97: row, column 1, 0, bank &lt;7&gt;" in html and "<7>" not in html
    assert 'aria-label="all of &quot;Kj&quot;"' in html
    strong, weak = (set(re.findall(r"--lane:([^\"]+)", part)) for part in html.split('title="thread 97')[:2])
    assert len(strong) == 2 and len(weak) == 1 and weak < strong


def test_sectors_of_a_row_and_of_a_ragged_one() -> None:
    whole = sectors([4 * k for k in range(32)], 4)
    assert whole == [Sector(n, tuple(range(8 * n, 8 * n + 8)), 32) for n in range(4)]
    shifted = sectors([128 + 4 + 4 * k for k in range(32)], 4)
    assert [s.number for s in shifted] == [4, 5, 6, 7, 8] and [s.used for s in shifted] == [28, 32, 32, 32, 4]
    assert sectors([None, 0, 0, None], 4) == [Sector(0, (1, 2), 4)]
    assert sectors([24], 16) == [Sector(0, (0,), 8), Sector(1, (0,), 8)], "an access across a border is in both"
    assert sectors([], 4) == []


def test_the_picture_has_a_cell_for_each_sector() -> None:
    moved = sectors([132 + 4 * k for k in range(32)], 4)
    fig = sector_picture(moved, "Q")
    grid, text = fig.data[0].z, fig.data[1].text
    assert sum(cell > 0 for row in grid for cell in row) == 5
    assert list(text) == ["lanes 0-6", "lanes 7-14", "lanes 15-22", "lanes 23-30", "lane 31"]
    assert list(fig.layout.yaxis.ticktext) == ["0", "1", "2", "3"], "a line more above and below"
    scattered = sector_picture(sectors([4096 * k for k in range(32)], 4))
    assert len(scattered.data[0].z) == 32 and set(scattered.data[1].y) == set(range(32))
    assert not sector_picture([]).data[1].x


def test_touched_elements_and_the_window_around_them() -> None:
    column = touched([(r, 3) for r in range(32)], 32, 64, "K")
    assert sum(map(sum, column.data[0].z)) == 32 and all(row[3] for row in column.data[0].z)
    fig = touched([(200, 0), (201, 1)], 512, 4)
    assert len(fig.data[0].z) == MOST_ROWS and fig.data[0].z[200 - fig.data[0].y0][0] == 1
    end = touched([(511, 0)], 512, 4)
    assert end.data[0].y0 == 512 - MOST_ROWS and end.data[0].z[-1][0] == 1
    far = touched([(0, 0), (300, 0)], 512, 1)
    assert len(far.data[0].z) == 301 and list(far.data[0].z[300]) == [1]
