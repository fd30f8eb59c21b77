"""The bench's report: ratios of measurements in pairs, a table, a well-formed plot."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

from vgpud.bench.measure import Report, Row, quartiles
from vgpud.bench.render import as_document, as_markdown, as_svg

MACHINE = {"date": "2026-01-01", "card": "<none> & more"}


def report() -> Report:
    rows = [
        Row("launch", {"native": [4.0, 2.0, 4.0], "shm": [2.0, 1.0, 3.0], "tcp": [8.0, 8.0, 8.0]}),
        Row("only <remoted>", {"shm": [1.0, 2.0, 3.0]}),
    ]
    return Report(["native", "shm", "tcp"], rows, ["torch: native: No module named 'torch'"])


def test_ratios_are_of_pairs():
    row = report().rows[0]
    assert row.ratios("shm") == [0.5, 0.5, 0.75]
    assert row.ratios("absent") == []
    assert report().rows[1].ratios("shm") == []
    assert quartiles([1.0, 2.0, 3.0, 4.0, 9.0]) == (2.0, 3.0, 4.0)


def test_the_table():
    lines = as_markdown(report(), MACHINE).splitlines()
    assert "| work | native ms | shm ms | shm / native | quartiles | tcp ms | tcp / native | quartiles |" in lines
    assert "| launch | 4.0000 | 2.0000 | 0.50 | 0.50-0.75 | 8.0000 | 2.00 | 2.00-4.00 |" in lines
    assert "| only <remoted> |  | 2.0000 |  |  |  |  |  |" in lines
    assert lines[-1] == "- left out: torch: native: No module named 'torch'"
    assert len({line.count("|") for line in lines if line.startswith("|")}) == 1


def test_a_table_without_native_has_no_ratios():
    remoted = Report(["shm"], [Row("launch", {"shm": [1.0]})])
    assert "| launch | 1.0000 |" in as_markdown(remoted, MACHINE).splitlines()


def test_the_plot_is_xml_and_within_its_frame():
    for each in (report(), Report(["shm"], [Row("launch", {"shm": [1e-4, 2e-4, 500.0]})]), Report(["native"])):
        root = ElementTree.fromstring(as_svg(each, MACHINE["card"]))
        width, height = float(root.attrib["width"]), float(root.attrib["height"])
        for element in root.iter():
            for key in ("x", "x1", "x2", "cx"):
                assert 0 <= float(element.attrib.get(key, 0)) <= width
            for key in ("y", "y1", "y2", "cy"):
                assert 0 <= float(element.attrib.get(key, 0)) <= height
    assert len(ElementTree.fromstring(as_svg(report(), "t")).findall(".//{*}circle")) == 2 + 2  # legend, and one row


def test_the_document_is_plain():
    document = as_document(report(), MACHINE)
    assert document["rows"][0]["times_ms"]["shm"] == [2.0, 1.0, 3.0]
    assert document["machine"] == MACHINE
