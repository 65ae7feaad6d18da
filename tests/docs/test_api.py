"""The page of the API is what the OpenAPI says."""

from pathlib import Path

from docmill.http.reference import build_reference

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "api.md"


def test_the_page_of_the_api_is_the_openapi() -> None:
    assert PAGE.read_text("utf-8") == build_reference(), "run: python -m docmill.http.reference"
