"""Paths of the repository, its test data, pages and measurements, for tests in any folder."""

from pathlib import Path

ROOT = next(folder for folder in Path(__file__).parents if (folder / "pyproject.toml").exists())
TESTS = ROOT / "tests"
DATA = TESTS / "data"
DOCS = ROOT / "docs"
VALIDATION = ROOT / "validation"
