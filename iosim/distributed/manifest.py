"""The wing links: attention across GPUs."""

from ..files import ANSWER
from ..wings import Wing

WING = Wing(
    commands={"What is possible": {"links": "Words between GPUs: ring, Ulysses, meshes and others, beside floors."}},
    names={"links": "answer", "Links": "answer", "state_links": "state"},
    pictures={"links": "picture:LINKS"},
    points={"links": "points:QUESTION"},
    forms={"links": {**ANSWER, "html": ("html", "htm")}},
    page="links.md",
)
