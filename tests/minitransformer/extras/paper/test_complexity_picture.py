"""Table 1 as a picture."""

from __future__ import annotations

import numpy as np

from minitransformer.extras.paper.complexity.picture import complexity_picture
from minitransformer.extras.paper.complexity.table import LAYER_TYPES, Growth, Row, Sizes


def test_every_measured_point_is_drawn_and_the_claim_goes_through_the_last() -> None:
    growths = (
        Growth("n", (8, 16, 32), Sizes(1, 8, 8, 0), (1.0, 3.0, 10.0), (1, 4, 16)),
        Growth("d", (4, 8), Sizes(1, 8, 8, 0), (1.0, 2.0), (1, 2)),
    )
    time_by_n, time_by_d, chains, paths = complexity_picture([Row(LAYER_TYPES[0], growths, {8: 3}, {8: 1})]).axes
    measured, claimed = time_by_n.lines
    assert list(zip(*measured.get_data(), strict=True)) == [(8, 1.0), (16, 3.0), (32, 10.0)]
    np.testing.assert_allclose(claimed.get_ydata(), [10 / 16, 10 / 4, 10])
    assert len(time_by_d.lines) == 2
    assert [list(axes.lines[0].get_ydata()) for axes in (chains, paths)] == [[3], [1]]  # type: ignore[arg-type]
