"""Pictures of an analysis: what is drawn is what was found, label by label."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from triever.errors import UsageError
from triever.evaluation.picture import Bars, _lines_figure, draw_lines

PANELS = [
    Bars("found", ["0", "1", "whole"], {"semantic": [0.8, 0.7, 0.3], "codebook": [0.7, None, 0.6]}),
    Bars("milliseconds", ["0", "1", "whole"], {"semantic": [6.0, 11.0, 24.0]}),
]


def test_lines_go_through_what_was_found() -> None:
    found, milliseconds = _lines_figure(PANELS).axes
    lines = {str(line.get_label()): [*zip(*line.get_data(), strict=True)] for line in found.lines}
    assert lines == {"semantic": [(0, 0.8), (1, 0.7), (2, 0.3)], "codebook": [(0, 0.7), (2, 0.6)]}
    assert [label.get_text() for label in found.get_xticklabels()] == ["0", "1", "whole"]
    assert found.get_ylim()[0] == 0, "a small loss has to look small"
    [line] = milliseconds.lines
    assert all(earlier < later for earlier, later in pairwise(line.get_ydata()))


def test_a_name_has_one_colour_in_all_panels() -> None:
    alone = Bars("bytes", ["0", "1", "whole"], {"codebook": [3.0, 2.0, 1.0]})
    figure = _lines_figure([*PANELS, alone])
    drawn = {(str(line.get_label()), line.get_color()) for axes in figure.axes for line in axes.lines}
    [legend] = figure.legends
    handles = zip(legend.get_texts(), legend.get_lines(), strict=True)
    assert drawn == {(text.get_text(), line.get_color()) for text, line in handles}


def test_variants_of_a_name_have_its_colour_and_lines_of_their_own() -> None:
    values = [0.8, 0.7, 0.3]
    series = {"semantic, after": values, "codebook, after": values, "semantic, before": values}
    figure = _lines_figure([Bars("found", ["0", "1", "whole"], series)])
    after, codebook, before = figure.axes[0].lines
    assert (after.get_linestyle(), codebook.get_linestyle(), before.get_linestyle()) == ("-", "-", "--")
    assert after.get_color() == before.get_color() != codebook.get_color()
    [legend] = figure.legends
    named = {text.get_text(): line for text, line in zip(legend.get_texts(), legend.get_lines(), strict=True)}
    assert [*named] == ["semantic", "codebook", "after", "before"]
    assert named["semantic"].get_color() == before.get_color()
    assert named["before"].get_linestyle() == "--"


def test_the_same_lines_are_the_same_file(tmp_path: Path) -> None:
    for name in ("one.svg", "other.svg"):
        draw_lines(PANELS, tmp_path / "figures" / name)
    one, other = ((tmp_path / "figures" / name).read_bytes() for name in ("one.svg", "other.svg"))
    assert one == other
    with pytest.raises(UsageError, match=r"no known picture format"):
        draw_lines(PANELS, tmp_path / "dial.xls")


def test_values_by_their_logs_have_one_scale_for_all_panels() -> None:
    found, milliseconds = _lines_figure(PANELS, logarithmic=True).axes
    assert found.get_yscale() == milliseconds.get_yscale() == "log"
    assert found.get_ylim() == milliseconds.get_ylim()


def test_a_legend_stays_inside_the_picture() -> None:
    names = [f"a system whose name is long {number}" for number in range(7)]
    figure = _lines_figure([Bars("found", ["0", "1"], {name: [0.1, 0.2] for name in names})] * 3)
    figure.draw_without_rendering()
    [legend] = figure.legends
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1


def test_numbers_on_a_named_axis_have_a_scale_and_lines_their_spread() -> None:
    labels, means = ["8", "128", "1024"], [0.6, 0.7, 0.75]
    around = [(mean - 0.02, mean + 0.02) for mean in means]
    panel = Bars(
        "found", labels, {"dense": means}, "negatives", {"dense": around}, {"dense": [*around[:1], None, None]}
    )
    figure = _lines_figure([panel])
    [axes] = figure.axes
    assert (axes.get_xlabel(), axes.get_xscale()) == ("negatives", "log")
    assert [label.get_text() for label in axes.get_xticklabels()] == ["8", "128", "1,024"]
    [line] = axes.lines
    assert [*line.get_xdata()] == [8, 128, 1024]
    questions, seeds = ([tuple(bar[:, 1]) for bar in spans.get_segments()] for spans in axes.collections)
    assert (questions, seeds) == (around, around[:1])
    assert figure.get_suptitle().startswith("Thin: 95% interval over questions. Thick: range")


def test_a_named_axis_of_few_numbers_or_of_words_is_even() -> None:
    for labels, at in ((["0.0", "0.5", "1.0"], [0, 0.5, 1]), (["no adapter", "0.17", "0.33"], [0, 1, 2])):
        [axes] = _lines_figure([Bars("found", labels, {"dense": [0.1, 0.2, 0.3]}, "share")]).axes
        assert (axes.get_xscale(), [*axes.get_xticks()]) == ("linear", at)


def test_many_panels_stand_in_rows() -> None:
    figure = _lines_figure([PANELS[0]] * 5)
    assert len(figure.axes) == 5
    assert figure.get_figwidth() == _lines_figure([PANELS[0]] * 3).get_figwidth()
