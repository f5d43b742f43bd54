"""The page in a real Chromium, at a real server with small real retrievers."""

from __future__ import annotations

import gzip
import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.retrievers.contract import DOCUMENTS, QRELS, QUERIES
from tests.serve.browser import AXE, PHONE, ROOT, WIDE, Tab, browser, chromium, tab
from tests.serve.running import KEY, Running, options, running
from triever import BM25, Atomic, Dataset, Dense, DocidTuning, Document, Generative, Retriever, Semantic, Title
from triever.retrievers.answerer import Answerer, ReaderTuning
from triever.retrievers.contextual import Contextual
from triever.serve.front import PAGE

pytestmark = pytest.mark.long

SMALL = "scratch:hidden=32,layers=1,heads=2,vocabulary=1000"
NOTHING = DocidTuning(steps=0)
MOST = 120_000
"""Bytes of the whole page at most, compressed."""
EVIL = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
QUERY = "boiling water for tea leaves"
ASKED = "q=boiling+water+for+tea+leaves"
BM25_, DENSE, SEMANTIC, ATOMIC = "bm25", "dense", "semantic docids", "atomic"


def dataset() -> Dataset:
    more = [
        Document(f"note-{at:03}", f"A note about water number {at}, and about {at * 7} leaves.") for at in range(70)
    ]
    evil = Document("evil", f"{EVIL} boiling water", EVIL, metadata={"name": "evil"})
    return Dataset.of("kitchen", [*DOCUMENTS, *more, evil], QUERIES, {"train": QRELS, "test": QRELS})


def generative(docids: Any) -> Generative:
    return Generative(backbone=SMALL, training=NOTHING, docids=docids)


@pytest.fixture(scope="module")
def retrievers() -> dict[str, Retriever]:
    systems: dict[str, Retriever] = {
        BM25_: BM25(),
        DENSE: Dense(backbone=SMALL),
        SEMANTIC: generative(Semantic(branch=4, leaf=6)),
        ATOMIC: generative(Atomic()),
        "title": generative(Title(vocabulary=200)),
        "contextual": Contextual(backbone=SMALL, training=NOTHING),
        "answerer": Answerer(backbone=SMALL, training=ReaderTuning(steps=0)),
    }
    data = dataset()
    return {name: system.fit(data) for name, system in systems.items()}


@pytest.fixture(scope="module")
def server(retrievers: dict[str, Retriever]) -> Iterator[Running]:
    chromium()
    with running(retrievers, options(results=str(ROOT / "results"))) as server:
        yield server


@pytest.fixture(scope="module")
def own_browser() -> Iterator[Any]:
    chromium()
    with browser() as own:
        yield own


@pytest.fixture
def page(own_browser: Any, server: Running) -> Iterator[Tab]:
    """A tab; at the end nothing was asked of others, and nothing went wrong or against the server's policy."""
    with tab(own_browser, server.url) as opened:
        yield opened
        assert all(url.startswith((server.url, "data:")) for url in opened.requests)
        assert opened.problems == []


# Search


def test_a_search_shows_the_hits_of_the_retriever(page: Tab, retrievers: dict[str, Retriever]) -> None:
    page.open()
    assert "Type a question" in page.page.inner_text(".welcome")
    page.page.keyboard.press("/")
    page.page.keyboard.type(QUERY)
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector(".hit")
    wanted = [hit.document.title or hit.id for hit in retrievers[BM25_].search(QUERY, 10)]
    assert page.texts(".hit-title") == wanted
    assert {mark.lower() for mark in page.texts(".hit:first-child mark")} >= {"boiling", "water", "leaves"}
    assert ASKED in page.page.url


def test_an_address_is_a_search_and_the_back_button_works(page: Tab) -> None:
    page.open(f"?{ASKED}&with={DENSE}")
    first = page.texts(".hit-title")
    assert len(first) == 10
    page.page.locator(".chip", has_text=BM25_).click()
    page.page.locator(".chip", has_text=DENSE).click()
    page.settle()
    assert "by bm25" in page.page.inner_text(".summary")
    page.page.go_back()
    page.page.go_back()
    page.settle()
    assert page.texts(".hit-title") == first


def test_lines_join_equal_documents(page: Tab, retrievers: dict[str, Retriever]) -> None:
    names = (BM25_, DENSE, ATOMIC)
    page.open(f"?{ASKED}&with={BM25_}&with={DENSE}&with={ATOMIC}")
    ids = [{hit.id for hit in retrievers[name].search(QUERY, 10)} for name in names]
    assert page.texts(".column h2") == [*names]
    assert page.page.locator(".lines path").count() == len(ids[0] & ids[1]) + len(ids[1] & ids[2])
    shared = next(iter(ids[0] & ids[1]), None)
    assert shared is not None, "the test needs a document that two of them find"
    page.page.locator(".column").first.locator(".row", has=page.page.locator(".elsewhere")).first.hover()
    assert page.page.locator(".lines path.lit").count() >= 1
    rows = page.page.locator(".column").first.locator(".row")
    assert {round(rows.nth(at).bounding_box()["height"]) for at in range(rows.count())} == {92}


def test_a_filter_leaves_what_it_says_and_a_slip_in_it_is_explained(page: Tab) -> None:
    page.open(f"?{ASKED}")
    page.page.fill("#where", "name=tea")
    page.page.keyboard.press("Enter")
    page.page.wait_for_url("**where=**")
    page.settle()
    assert page.texts(".hit-title") == ["How to brew tea"]
    page.page.fill("#where", "tea")
    page.page.keyboard.press("Tab")
    page.page.wait_for_selector(".failure")
    assert "kind=class" in page.page.inner_text(".failure")


def test_a_document_is_shown_whole_and_nothing_of_it_is_html(page: Tab, retrievers: dict[str, Retriever]) -> None:
    page.open(f"?{ASKED}")
    title = page.page.locator(".hit-title a", has_text="onerror").first
    title.click()
    page.page.wait_for_selector("dialog .text")
    assert page.page.inner_text("dialog h1") == EVIL
    assert EVIL in page.page.inner_text("dialog .text")
    assert page.page.locator("main img, dialog img, main script").count() == 0
    assert "broken" not in page.page.title()
    page.page.keyboard.press("Escape")
    page.page.wait_for_selector("dialog", state="detached")
    assert "doc=" not in page.page.url
    page.open(f"?view=why&{ASKED}&hit=evil")
    assert page.page.inner_text(".reasons h1") == EVIL
    assert page.page.locator("main img").count() == 0


def test_nothing_jumps_while_results_come(page: Tab) -> None:
    page.open()
    page.page.evaluate(
        "window.moved = 0; new PerformanceObserver(list => { for (const one of list.getEntries()) "
        "if (!one.hadRecentInput) moved += one.value; }).observe({type: 'layout-shift', buffered: true})"
    )
    for address in (f"?{ASKED}", f"?{ASKED}&with={BM25_}&with={DENSE}"):
        page.open(address)
        assert page.page.evaluate("window.moved ?? 0") < 0.02


# Why


@pytest.mark.parametrize("name", [SEMANTIC, ATOMIC, "title", "contextual"])
def test_the_beam_is_a_tree_with_what_was_pruned(page: Tab, retrievers: dict[str, Retriever], name: str) -> None:
    page.open(f"?view=why&{ASKED}&with={name.replace(' ', '+')}")
    explanation = retrievers[name].explain(QUERY, 10).to_dict()
    (panel,) = [one for one in explanation["panels"] if one["kind"] == "beam"]
    assert page.page.locator(".level-head").count() == len(panel["levels"])
    first = panel["levels"][0]
    if first["pruned"]:
        assert f"{first['pruned']} pruned" in page.texts(".level-head")[0]
    page.page.locator(".segments label", has_text="All").click()
    shown = sum(len(level["prefixes"]) for level in panel["levels"])
    assert page.page.locator(".node").count() == shown
    assert page.page.locator(".node.lit").count() >= 1
    assert explanation["hits"][0]["docid"] in page.page.inner_text(".reasons-head")


def test_a_beam_goes_step_by_step_and_another_hit_lights_another_path(page: Tab) -> None:
    page.open(f"?view=why&{ASKED}&with={SEMANTIC.replace(' ', '+')}")
    every = page.page.locator(".level-head").count()
    assert every > 1
    page.page.get_by_label("One step back").click()
    assert page.page.locator(".level-head").count() == every - 1
    assert f"step {every - 1} of {every}" in page.page.inner_text(".stepper")
    before = page.texts(".spelled code")
    page.page.locator(".hit-list a").nth(3).click()
    assert page.page.locator(".hit-list a").nth(3).get_attribute("aria-current") == "true"
    assert page.texts(".spelled code") != before


def test_tokens_that_fit_are_a_heat_map_and_parts_are_bars(page: Tab, retrievers: dict[str, Retriever]) -> None:
    for name in (BM25_, DENSE):
        page.open(f"?view=why&{ASKED}&with={name}")
        explanation = retrievers[name].explain(QUERY, 10).to_dict()
        (panel,) = [one for one in explanation["panels"] if one["kind"] == "matches"]
        assert page.page.locator(".matches button.token").count() == len(panel["query"])
        assert page.page.locator(".document-tokens .token").count() == len(panel["hits"][0]["document"])
        assert page.page.locator(".matches .heat-8").count() >= 1
        parts = explanation["hits"][0]["parts"]
        assert page.page.locator(".bars tbody tr").count() == min(len(parts), 13)
    page.page.locator(".matches button.token").nth(1).focus()
    assert page.page.locator(".document-tokens .token.lit").count() <= 1


def test_an_unknown_kind_is_a_plain_table_of_its_data(page: Tab) -> None:
    def answer(route: Any) -> None:
        body = route.fetch().json()
        body["explanation"]["panels"] = [
            {"kind": "tides", "system": "moon", "about": "What the moon did.", "heights": [1, 2], "by": {"sea": EVIL}}
        ]
        route.fulfill(json=body)

    page.page.route("**/v1/explain", answer)
    page.open(f"?view=why&{ASKED}")
    panel = page.page.inner_text("[data-kind=tides]")
    assert "More: tides" in panel
    assert "What the moon did." in panel
    assert "1, 2" in panel
    assert EVIL in panel


# Docids


def test_docids_are_browsed_by_keyboard(page: Tab, retrievers: dict[str, Retriever]) -> None:
    page.open(f"?view=docids&with={SEMANTIC.replace(' ', '+')}")
    root = retrievers[SEMANTIC].browse()
    assert page.texts(".branch .docid") == [branch.text for branch in root.branches]
    assert f"{root.documents} documents" in page.page.inner_text(".tree-side .summary")
    page.page.locator("[role=treeitem]").first.focus()
    page.page.keyboard.press("ArrowRight")
    page.page.wait_for_selector("[aria-level='2']:not(.quiet-row)")
    child = retrievers[SEMANTIC].browse([root.branches[0].symbol])
    assert page.page.locator("[aria-level='2']").count() == len(child.branches)
    page.page.keyboard.press("ArrowDown")
    assert page.page.evaluate("document.activeElement.getAttribute('aria-level')") == "2"
    page.page.keyboard.press("ArrowLeft")
    page.page.keyboard.press("ArrowLeft")
    assert page.page.locator("[aria-level='2']").count() == 0


def test_many_docids_come_in_pages_and_a_path_on_a_later_page_is_shown(
    page: Tab, retrievers: dict[str, Retriever]
) -> None:
    total = retrievers[ATOMIC].browse().total
    page.open(f"?view=docids&with={ATOMIC}")
    assert page.page.locator(".branch:not(.more)").count() == 50
    page.page.locator(".branch.more").click()
    page.page.wait_for_selector(".branch.more", state="detached")
    assert page.page.locator(".branch").count() == total
    explained = retrievers[ATOMIC].explain("note-069 number 69 leaves", 10).to_dict()
    page.open(f"?view=docids&with={ATOMIC}&q=note-069+number+69+leaves")
    page.page.wait_for_selector(".branch.lit")
    assert page.page.locator(".paths li").count() == len(explained["hits"])
    page.page.locator(".paths button").last.click()
    (panel,) = explained["panels"]
    key = panel["paths"][-1]["prefix"][0]
    page.page.wait_for_selector(f".branch.lit[data-key='{key}']")


def test_a_search_lights_up_its_paths(page: Tab, retrievers: dict[str, Retriever]) -> None:
    page.open(f"?view=docids&with={SEMANTIC.replace(' ', '+')}&{ASKED}")
    (panel,) = [one for one in retrievers[SEMANTIC].explain(QUERY, 10).to_dict()["panels"] if one["kind"] == "beam"]
    path = panel["paths"][0]["prefix"]
    page.page.wait_for_selector(f".branch.lit[data-key='{'.'.join(map(str, path))}']")
    firsts = {one["prefix"][0] for one in panel["paths"]}
    assert page.page.locator(".branch.lit[aria-level='1']").count() == len(firsts)


# Results, answers, changes


def test_results_are_sorted_and_have_intervals(page: Tab) -> None:
    page.open("?view=results&data=python&table=rows/python,+mini+·+test")
    names = page.texts(".results-table tbody th")
    assert {"bm25", "dense", "semantic"} <= {*names}
    means = [float(text) for text in page.texts("td.chosen .mean")]
    assert means == sorted(means, reverse=True)
    assert page.page.locator(".interval-plot .whisker").count() == len(names)
    page.page.locator(".results-table thead button", has_text="system").click()
    assert page.texts(".results-table tbody th") == sorted(names)
    page.page.locator(".results-table thead button", has_text="RR@10").click()
    assert "RR@10" in page.page.locator(".plot-head svg").get_attribute("aria-label")


def test_a_server_without_results_says_how_to_have_some(own_browser: Any, retrievers: dict[str, Retriever]) -> None:
    with running({BM25_: retrievers[BM25_]}, options(key="")) as server, tab(own_browser, server.url) as opened:
        opened.open("?view=results")
        assert "--results" in opened.page.inner_text("main")
        opened.open("?view=docids")
        assert "No retriever here writes docids" in opened.page.inner_text("main")
        opened.open("?view=ask")
        assert "No retriever here answers" in opened.page.inner_text("main")
        opened.open("?view=documents")
        assert "TRIEVER_KEY" in opened.page.inner_text("main")
        assert opened.page.locator("#add-id").is_disabled()


def test_a_question_is_answered_with_sources(page: Tab, retrievers: dict[str, Retriever]) -> None:
    page.open("?view=ask")
    page.page.fill("#query", QUERY)
    page.page.keyboard.press("Enter")
    page.page.wait_for_selector(".answer")
    own = retrievers["answerer"].ask_many([QUERY])[0]  # ty: ignore[unresolved-attribute]
    assert page.texts(".sources .hit-title") == [source.hit.title or source.hit.id for source in own.sources]
    assert (own.text or "It does not know.").strip() in page.page.inner_text(".answer-text")


def test_documents_are_added_found_deleted_and_gone(own_browser: Any) -> None:
    with (
        running({BM25_: BM25().fit(dataset())}) as server,
        tab(own_browser, server.url) as page,
    ):
        page.open("?view=documents")
        page.page.fill("#add-id", "hail")
        page.page.fill("#add-title", "Why it hails")
        page.page.fill("#add-text", "Updraughts lift raindrops until they freeze.")
        page.page.fill("#key", "wrong")
        page.page.locator("form[aria-label='Add a document'] button").click()
        page.page.wait_for_selector(".failure")
        assert "need the key" in page.page.inner_text(".failure")
        page.page.fill("#key", KEY)
        page.page.locator("form[aria-label='Add a document'] button").click()
        page.page.wait_for_selector(".success")
        assert "It is at rank 1" in page.page.inner_text(".success")
        assert server.post("/v1/search", query="updraughts").json()["results"][0]["hits"][0]["id"] == "hail"
        page.page.fill("#delete-id", "hail")
        page.page.locator("form[aria-label='Delete a document'] button").click()
        page.page.wait_for_selector(".success >> text=Deleted")
        assert "no longer among them" in page.page.inner_text(".success")
        assert server.post("/v1/search", query="updraughts").json()["results"][0]["hits"] == []
        stored = page.page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie, location.href])")
        assert KEY not in stored


# States


def test_errors_of_the_server_are_shown_with_their_hints(own_browser: Any, server: Running) -> None:
    with tab(own_browser, server.url) as page:
        refusal = {"code": "queue_full", "message": "too many queries are waiting", "hint": "try again a little later"}
        page.page.route("**/v1/search", lambda route: route.fulfill(status=429, json=refusal))
        page.open(f"?{ASKED}")
        shown = page.page.inner_text(".failure")
        assert "Too many queries are waiting." in shown
        assert "Try again a little later." in shown
        page.page.unroute("**/v1/search")
        page.page.locator(".failure button").click()
        page.page.wait_for_selector(".hit")
        page.page.route("**/v1/**", lambda route: route.abort())
        page.page.fill("#query", "another one")
        page.page.keyboard.press("Enter")
        page.page.wait_for_selector(".failure")
        assert "does not answer" in page.page.inner_text(".failure")
        page.page.unroute("**/v1/**")
        page.page.fill("#query", "zzzz qqqq")
        page.page.keyboard.press("Enter")
        page.page.wait_for_selector("text=Nothing was found.")


VIEWS = {
    "start": "",
    "search": f"?{ASKED}",
    "compare": f"?{ASKED}&with={BM25_}&with={DENSE}&with={ATOMIC}",
    "document": f"?{ASKED}&doc=tea&of={BM25_}",
    "why, beam": f"?view=why&{ASKED}&with={SEMANTIC.replace(' ', '+')}",
    "why, tokens": f"?view=why&{ASKED}&with={DENSE}",
    "docids": f"?view=docids&{ASKED}&with={SEMANTIC.replace(' ', '+')}",
    "ask": f"?view=ask&{ASKED}",
    "results": "?view=results&data=python",
    "documents": "?view=documents",
    "nothing to explain": "?view=why",
    "a failure": f"?{ASKED}&where=slip",
}


@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing_serious_and_nothing_is_too_wide(own_browser: Any, server: Running, view: str) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not here: make page installs it")
    for size, scheme in ((WIDE, "light"), (WIDE, "dark"), (PHONE, "light"), (PHONE, "dark")):
        with tab(own_browser, server.url, size, scheme) as page:
            page.open(VIEWS[view])
            assert page.findings() == [], (size, scheme)
            assert page.overflow() <= 0, (size, scheme)


# The build


def test_the_page_is_small() -> None:
    files = [path for path in PAGE.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".html", ".js", ".css"}
    assert sum(len(gzip.compress(path.read_bytes())) for path in files) <= MOST


def test_the_committed_build_is_a_fresh_one(tmp_path: Path) -> None:
    if shutil.which("node") is None or not AXE.is_file():
        pytest.skip("the page is built by Node, which is not here or has not installed the page's packages: make page")
    web = ROOT / "web"
    command = [str(web / "node_modules" / ".bin" / "vite"), "build", "--outDir", str(tmp_path / "page")]
    subprocess.run(command, cwd=web, check=True, capture_output=True, timeout=120)
    fresh, committed = (_contents(folder) for folder in (tmp_path / "page", PAGE))
    assert fresh == committed, "make page, and commit what it has built"


def _contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_the_logic_of_the_page() -> None:
    if shutil.which("node") is None or not AXE.is_file():
        pytest.skip("the page's own tests need Node and the page's packages: make page")
    web = ROOT / "web"
    command = [str(web / "node_modules" / ".bin" / "vitest"), "run", "--reporter=json"]
    done = subprocess.run(command, cwd=web, capture_output=True, text=True, timeout=120)
    outcome = json.loads(done.stdout[done.stdout.index("{") :])
    assert outcome["success"], done.stdout[-3000:]
    assert outcome["numPassedTests"] > 30
