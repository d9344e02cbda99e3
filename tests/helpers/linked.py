"""Sentences with linked entities, and triples, made from a file of FewRel's format: ids are the names of entities."""

import json
from pathlib import Path
from typing import Any


def write_linked(relations: dict[str, list[dict[str, Any]]], folder: Path) -> tuple[Path, Path]:
    """Write sentences.jsonl and triples.tsv: what `data distant` reads, and makes such relations of."""
    sentences, triples = folder / "sentences.jsonl", folder / "triples.tsv"
    named = set()
    with sentences.open("w") as file:
        for relation, instances in relations.items():
            for instance in instances:
                ends = [(name, positions) for name, _, positions in (instance["h"], instance["t"])]
                entities = [{"id": name, "positions": positions} for name, positions in ends]
                file.write(json.dumps({"tokens": instance["tokens"], "entities": entities}) + "\n")
                named.add((ends[0][0], relation, ends[1][0]))
    triples.write_text("".join("\t".join(triple) + "\n" for triple in sorted(named)))
    return sentences, triples
