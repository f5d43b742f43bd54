"""The OpenAPI document is true: whatever is sent, the server answers as the document says, and never with a fault."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.serve.running import HEADERS, Running, bm25, options, running
from triever.serve import create_app
from triever.serve.app import router

SCHEMA = create_app({"one": bm25()}).openapi()


def test_every_route_is_in_the_document_with_its_errors() -> None:
    routes = {(route.path.replace(":path", ""), method.lower()) for route in router.routes for method in route.methods}
    assert routes == {(path, method) for path, methods in SCHEMA["paths"].items() for method in methods}
    for path, methods in SCHEMA["paths"].items():
        for method, about in methods.items():
            assert about["summary"], (path, method)
            assert about["description"], (path, method)
            for status, answer in about["responses"].items():
                if status != "200":
                    shown = answer["content"]["application/json"]["schema"]
                    assert shown == {"$ref": "#/components/schemas/ErrorAnswer"}, (path, method, status)


def test_requests_have_examples_that_work() -> None:
    with running({"python": bm25()}) as server:
        for path, methods in SCHEMA["paths"].items():
            if path in ("/v1/documents", "/v1/answer") or "post" not in methods:
                continue
            reference = methods["post"]["requestBody"]["content"]["application/json"]["schema"]["$ref"]
            for example in SCHEMA["components"]["schemas"][reference.rpartition("/")[2]]["examples"]:
                answer = server.client.post(path, content=json.dumps({**example, "where": None}), headers=JSON)
                assert answer.status_code == 200, (example, answer.text)


JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running({"one": bm25(), "two": bm25()}, options(window=0)) as server:
        yield server


EVERY = [(path, method) for path, methods in SCHEMA["paths"].items() for method in methods]


@pytest.mark.long
@pytest.mark.parametrize("mode", ["positive", "negative"])
@pytest.mark.parametrize(("path", "method"), EVERY)
def test_no_request_gets_a_fault_or_an_answer_that_is_not_in_the_document(
    server: Running, path: str, method: str, mode: str
) -> None:
    schemathesis = pytest.importorskip("schemathesis", reason="requests are drawn by schemathesis: pip install it")
    from schemathesis.specs.openapi import checks

    named = (checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance)
    operation = schemathesis.openapi.from_dict(SCHEMA)[path][method]
    about = SCHEMA["paths"][path][method]
    parts = [part for part in about.get("parameters", ()) if part["in"] != "path"]
    if mode == "negative" and not parts and "requestBody" not in about:
        pytest.skip("there is nothing that could be wrong")
    statuses: Counter[int] = Counter()

    @settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
    def ask(case: Any) -> None:
        answer = case.call(base_url=server.url, headers=HEADERS)
        statuses[answer.status_code] += 1
        case.validate_response(answer, checks=named)

    ask()
    assert statuses[500] == 0  # 503 and 504 are in the document, and right where a client has set a tiny timeout
    assert sum(statuses.values()) > 0
