"""The wing links: attention across GPUs."""

from ..wings import Wing

WING = Wing(
    commands={"What is possible": {"links": "Words between GPUs: ring, Ulysses, meshes and others, beside floors."}},
    names={"links": "answer", "Links": "answer"},
    pictures={"links": "picture:LINKS"},
    points={"links": "points:QUESTION"},
    page="links.md",
)
