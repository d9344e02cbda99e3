"""Distant supervision: label sentences with linked entities by a file of triples, and write FewRel's format.

Mintz, Bills, Snow, Jurafsky, "Distant supervision for relation extraction without labeled data", ACL 2009: a sentence
that mentions two entities is assumed to express the relation that a knowledge base has between them. Some labels are
wrong.

Sentences are read one at a time. Memory holds the triples, the sentences to leave out, and a few numbers for each kept
instance. The instances themselves are in an unnamed temporary file beside the result.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from heapq import heappush, heappushpop
from itertools import product
from pathlib import Path
from reprlib import repr as short
from tempfile import TemporaryFile
from typing import IO, Any

from hyperproto.data.fewrel import FILES, official_file, sentences_in
from hyperproto.data.formats.relations import check_positions, check_tokens, sentence_key
from hyperproto.data.pool import Progress
from hyperproto.data.specs import data_folder
from hyperproto.errors import ConfigError, DataError, unknown_name
from hyperproto.files import atomic_write, is_there, is_utf8, open_file, os_problem, parse_json, read_json

AMBIGUOUS = ("drop", "keep")
SENTENCE = '{"tokens": [words], "entities": [{"id": ID, "start": 0, "end": 2}, {"id": ID, "positions": [[3], [7, 8]]}]}'
_LONGEST = 1_000_000  # largest length of a line in bytes
_COLLECTED = 100  # number of problems at which reading stops
_NAMED = 10  # number of problems listed in a message

Triples = dict[str, dict[str, tuple[str, ...]]]  # head: {tail: its relations}


@dataclass
class DistantCorpus:
    """Counts of the sentences and instances that were written, and of those left out by reason."""

    path: Path
    sentences: int = 0  # read
    without_triple: int = 0  # sentences without a pair of entities in a triple
    overlapping: int = 0  # of the others, sentences that occur in the evaluation files
    pairs: int = 0  # ordered pairs of entities in a triple, in the remaining sentences
    nested: int = 0  # of these, pairs whose mentions share words
    ambiguous: int = 0  # of the others, pairs with several relations
    instances: int = 0  # labelled: a pair and a relation each
    of_evaluation: int = 0  # of these, instances of evaluation relations
    relations_of_evaluation: int = 0
    repeated: int = 0  # of the others, repetitions of a pair in the same sentence
    surplus: int = 0  # beyond the maximum for a relation
    rare: int = 0  # of relations with fewer than the minimum
    rare_relations: int = 0
    kept: dict[str, int] = field(default_factory=dict)  # by relation

    def to_json(self) -> dict[str, Any]:
        """Return all counts and the path as plain values."""
        return {**asdict(self), "path": str(self.path), "instances_kept": sum(self.kept.values())}

    def rows(self) -> list[tuple[str, int]]:
        """Return descriptions and counts, in the order of the filters."""
        return [
            ("sentences read", self.sentences),
            ("- without a triple", self.without_triple),
            ("- in the evaluation files", self.overlapping),
            ("pairs of entities that a triple names", self.pairs),
            ("- mentions that share words", self.nested),
            ("- with several relations", self.ambiguous),
            ("instances labelled", self.instances),
            (f"- of {self.relations_of_evaluation:,} evaluation relations", self.of_evaluation),
            ("- repeated", self.repeated),
            ("- beyond the most of a relation", self.surplus),
            (f"- of {self.rare_relations:,} relations with too few", self.rare),
            (f"instances kept, of {len(self.kept):,} relations", sum(self.kept.values())),
        ]


def label_by_triples(
    sentences: Path,
    triples: Path,
    out: Path,
    *,
    without: str | None = "fewrel",
    without_relations: str | None = "fewrel",
    most: int | None = None,
    least: int = 1,
    ambiguous: str = "drop",
    seed: int = 0,
    progress: Progress | None = None,
) -> DistantCorpus:
    """Label every ordered pair of entities of a sentence that is in a triple, and write the instances by relation.

    Sentences of the file or folder `without` are left out (`"fewrel"`: FewRel's folder; None: nothing), and so are the
    relations of the file `without_relations` (`"fewrel"`: those of FewRel's evaluation files). At most `most` instances
    of a relation are selected, by a hash of `seed`, sentence and entities that does not depend on the order of the
    file. Relations with fewer than `least` are left out. A pair with several relations is left out
    (`ambiguous="drop"`), or gives one instance of each (`"keep"`).
    """
    _check_options(sentences, triples, out, most, least, ambiguous)
    unseen = frozenset() if without_relations in (None, "none") else _evaluation_relations(str(without_relations))
    known = frozenset() if without in (None, "none") else _evaluation_sentences(str(without), out)
    by_head = read_triples(triples)
    corpus = DistantCorpus(out)
    chosen: dict[str, _Chosen] = {}
    left_out: set[str] = set()
    with atomic_write(out) as file, TemporaryFile(dir=out.parent) as waiting:
        for sentence in read_sentences(sentences, progress):
            corpus.sentences += 1
            pairs = list(sentence.pairs(by_head))
            if not pairs:
                corpus.without_triple += 1
                continue
            key = sentence_key(sentence.tokens)
            if key in known:
                corpus.overlapping += 1
                continue
            for head, tail, relations in pairs:
                corpus.pairs += 1
                instance = sentence.instance(head, tail)
                if instance is None:
                    corpus.nested += 1
                    continue
                corpus.ambiguous += len(relations) > 1
                for relation in relations if len(relations) == 1 or ambiguous == "keep" else ():
                    corpus.instances += 1
                    if relation in unseen:
                        corpus.of_evaluation += 1
                        left_out.add(relation)
                        continue
                    place = _digest(seed, key, head, tail)
                    chosen.setdefault(relation, _Chosen(most)).offer(place, instance, waiting, corpus)
        corpus.relations_of_evaluation = len(left_out)
        rare = {relation for relation, found in chosen.items() if len(found.places) < least}
        corpus.rare_relations, corpus.rare = len(rare), sum(len(chosen[relation].places) for relation in rare)
        corpus.kept = {relation: len(chosen[relation].places) for relation in sorted(chosen.keys() - rare)}
        if not corpus.kept:
            raise DataError(_nothing_left(sentences, corpus))
        _write(file, {relation: chosen[relation] for relation in corpus.kept}, waiting)
    return corpus


def _check_options(sentences: Path, triples: Path, out: Path, most: int | None, least: int, ambiguous: str) -> None:
    for name, value in (("most", most), ("least", least)):
        if value is not None and (type(value) is not int or value < 1):
            raise ConfigError(
                f"--{name} {short(value)}: how many instances of a relation; write a whole number from 1 on"
            )
    if most is not None and most < least:
        raise ConfigError(f"--least {least} is more than --most {most}: every relation would be left out")
    if ambiguous not in AMBIGUOUS:
        raise ConfigError(f"--ambiguous: {unknown_name('choice', str(ambiguous), AMBIGUOUS)}")
    if out.is_dir():
        raise ConfigError(f"--out {out}: a folder; name the file to write, such as {out / 'corpus.json'}")
    for given in (sentences, triples):
        if is_there(out) and is_there(given) and out.samefile(given):
            raise ConfigError(f"--out {out}: this is a file to read; name another one to write")


# Sentences and relations of the evaluation ----------------------------------------------------------------------------


def _evaluation_sentences(place: str, out: Path) -> set[str]:
    folder = data_folder("fewrel") if place == "fewrel" else Path(place).expanduser()
    if not is_there(folder):
        raise DataError(
            f"--without {place}: there is no {folder}; hyperproto data get fewrel fetches FewRel, and --without none "
            "compares with nothing"
        )
    return sentences_in(folder, besides=out if is_there(out) else None)


def _evaluation_relations(place: str) -> set[str]:
    """Return the relations of a file ({relation: ...}, or a list), or of FewRel's evaluation files."""
    files = [Path(place).expanduser()]
    if place == "fewrel":
        folder = data_folder("fewrel")
        others = (folder / f"{name}.json" for name in FILES if name not in ("train_wiki", "val_wiki"))
        files = [official_file("--without-relations fewrel", folder, "val_wiki"), *filter(Path.exists, others)]
    relations: set[str] = set()
    for file in files:
        content = read_json(file, missing="--without-relations none leaves out no relation")
        if not isinstance(content, dict | list) or not content or not all(isinstance(name, str) for name in content):
            raise DataError(f"{file}: no relations; write {{relation: ...}} or a list of their names")
        relations.update(content)
    return relations


# Reading --------------------------------------------------------------------------------------------------------------


class _Problems:
    """Problems found in a file; reading stops at `_COLLECTED` of them."""

    def __init__(self, path: Path, form: str) -> None:
        self.path, self.form = path, form
        self.found: list[str] = []

    def add(self, number: int, words: str) -> None:
        self.found.append(f"line {number}: {words}")
        if len(self.found) == _COLLECTED:
            self.refuse(" and more")

    def refuse(self, more: str = "") -> None:
        if self.found:
            shown = "\n".join(f"- {problem}" for problem in self.found[:_NAMED])
            rest = len(self.found) - _NAMED
            raise DataError(
                f"{self.path}: {len(self.found)}{more} problem(s); nothing is written; fix or remove the lines named "
                f"here (a line is {self.form})\n{shown}" + (f"\n- and {rest}{more} others" if rest > 0 else "")
            )


def _lines(path: Path, problems: _Problems, progress: Progress | None = None) -> Iterator[tuple[int, str]]:
    """Yield the lines of a UTF-8 file that are not blank, with their numbers from 1; add damaged ones to `problems`."""
    with open_file(path, pipes=True, missing="check its name and folder") as file:
        number = read = 0
        size = os.fstat(file.fileno()).st_size  # 0 for a pipe
        while line := _next_line(file, path):
            number += 1
            read += len(line)
            if progress is not None and number % 1000 == 0:
                progress(read // 1000, max(size, read) // 1000)
            if len(line) > _LONGEST:
                problems.add(number, f"longer than {_LONGEST:,} bytes")
                while not line.endswith(b"\n") and (line := _next_line(file, path)):
                    read += len(line)
                continue
            try:
                text = line.decode("utf-8-sig" if number == 1 else "utf-8")
            except UnicodeDecodeError as error:
                problems.add(number, f"not UTF-8 text ({error.reason} at byte {error.start})")
                continue
            if text.strip():
                yield number, text.rstrip("\r\n")


def _next_line(file: IO[bytes], path: Path) -> bytes:
    try:
        return file.readline(_LONGEST + 1)
    except OSError as error:
        raise DataError(os_problem(error, str(path))) from None


def read_triples(path: Path) -> Triples:
    """Read head, relation and tail, separated by tabs, from each line; relations of a pair are sorted."""
    problems = _Problems(path, "head, relation and tail, separated by tabs")
    triples: Triples = {}
    shared: dict[Any, Any] = {}  # keeps one copy of each name and of each set of relations
    for number, line in _lines(path, problems):
        parts = line.split("\t")
        if len(parts) != 3 or not all(part.strip() for part in parts):
            problems.add(number, f"{short(line)} has {len(parts)} column(s)" + ", one blank" * (len(parts) == 3))
            continue
        if parts[1].strip() == "tokens":
            problems.add(number, "no relation can be called tokens in FewRel's format; give it another name")
            continue
        head, relation, tail = (shared.setdefault(part, part) for part in map(str.strip, parts))
        tails = triples.setdefault(head, {})
        several = tuple(sorted({*tails.get(tail, ()), relation}))
        tails[tail] = shared.setdefault(several, several)
    problems.refuse()
    if not triples:
        raise DataError(f"{path}: no triples in it; write head, relation and tail, separated by tabs, on each line")
    return triples


@dataclass(frozen=True)
class Sentence:
    """Words of a sentence, and the positions of each entity's mentions."""

    tokens: list[str]
    mentions: dict[str, list[list[int]]]  # by the entity's id, in the order of the sentence
    names: dict[str, str]  # names given in the file, by id

    def pairs(self, triples: Triples) -> Iterator[tuple[str, str, tuple[str, ...]]]:
        """Yield the ordered pairs of different entities that are in a triple, with their relations."""
        for head in self.mentions:
            tails = triples.get(head)
            if tails is not None:
                yield from ((head, tail, tails[tail]) for tail in self.mentions if tail in tails and tail != head)

    def instance(self, head: str, tail: str) -> dict[str, Any] | None:
        """Return the instance of a pair, with the first mentions that do not overlap; None if all of them do."""
        for one, other in product(self.mentions[head], self.mentions[tail]):
            if set(one).isdisjoint(other):
                return {"tokens": self.tokens, "h": self._entity(head, one), "t": self._entity(tail, other)}
        return None

    def _entity(self, entity: str, first: list[int]) -> list[Any]:
        others = [mention for mention in self.mentions[entity] if mention != first]
        name = self.names.get(entity) or " ".join(self.tokens[place] for place in first)
        return [name, entity, [first, *others]]


def read_sentences(path: Path, progress: Progress | None = None) -> Iterator[Sentence]:
    """Yield the sentence of each line, a JSON object; raise one DataError for all malformed lines at the end."""
    problems = _Problems(path, SENTENCE)
    for number, line in _lines(path, problems, progress):
        try:
            sentence = _sentence(parse_json(line, "the line", damaged="write one JSON object"))
        except DataError as error:
            problems.add(number, str(error))
            continue
        yield sentence
    problems.refuse()


def _sentence(raw: Any) -> Sentence:
    if not isinstance(raw, dict):
        raise DataError(f"{short(raw)} is no object")
    for key in ("tokens", "entities"):
        if key not in raw:
            raise DataError(f"it has no {key}")
    tokens, entities = raw["tokens"], raw["entities"]
    check_tokens(tokens)
    if not isinstance(entities, list):
        raise DataError(f"entities is {short(entities)}, not a list")
    found: dict[str, dict[tuple[int, ...], None]] = {}  # mentions of an entity, each once
    names: dict[str, str] = {}
    for place, entity in enumerate(entities):
        own = _entity_id(entity, place)
        found.setdefault(own, {}).update(dict.fromkeys(_mentions(entity, len(tokens), f"entity {place}")))
        if isinstance(name := entity.get("name"), str) and name:
            names.setdefault(own, name)
    if not is_utf8("".join([*tokens, *found, *names.values()])):
        raise DataError("half a character (a lone surrogate) in its words, ids or names")
    return Sentence(tokens, {own: [list(each) for each in sorted(mentions)] for own, mentions in found.items()}, names)


def _entity_id(entity: Any, place: int) -> str:
    if not isinstance(entity, dict) or "id" not in entity:
        raise DataError(f"entity {place} is {short(entity)}, not an object with an id")
    own = entity["id"]
    if type(own) not in (str, int) or not str(own).strip():
        raise DataError(f"the id of entity {place} is {short(own)}, not a string or a whole number")
    return str(own).strip()


def _mentions(entity: dict[str, Any], length: int, owner: str) -> Iterator[tuple[int, ...]]:
    if "positions" in entity:
        given = entity["positions"]
        several = isinstance(given, list) and given and all(isinstance(each, list) for each in given)
        for positions in given if several else [given]:
            check_positions(positions, length, owner)
            yield tuple(positions)
    else:
        start, end = entity.get("start"), entity.get("end")
        if type(start) is not int or type(end) is not int or not 0 <= start < end <= length:
            raise DataError(
                f"{owner} has start {short(start)} and end {short(end)}, where 0 <= start < end <= {length} is needed, "
                "or positions"
            )
        yield tuple(range(start, end))


# Choosing and writing -------------------------------------------------------------------------------------------------


def _digest(seed: int, key: str, head: str, tail: str) -> int:
    """Return a hash of an instance, which puts the instances of a relation in a pseudo-random order."""
    text = f"{seed}\0{key}\0{head}\0{tail}"
    return int.from_bytes(blake2b(text.encode(), digest_size=16).digest(), "big")


class _Chosen:
    """Instances of a relation with the smallest digests, stored as (begin, length) in the temporary file."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.places: dict[int, tuple[int, int]] = {}
        self._largest_first: list[int] = []  # heap of negative digests; empty if `most` is None

    def offer(self, digest: int, instance: dict[str, Any], waiting: IO[bytes], corpus: DistantCorpus) -> None:
        """Add an instance, and drop the one with the largest digest if there are too many; count dropped ones."""
        if digest in self.places:
            corpus.repeated += 1
            return
        if self.most is not None:
            if len(self.places) < self.most:
                heappush(self._largest_first, -digest)
            else:
                corpus.surplus += 1
                gone = -heappushpop(self._largest_first, -digest)
                if gone == digest:
                    return
                del self.places[gone]
        content = json.dumps(instance, ensure_ascii=False).encode()
        self.places[digest] = (waiting.tell(), len(content))
        waiting.write(content)


def _write(file: IO[bytes], chosen: dict[str, _Chosen], waiting: IO[bytes]) -> None:
    """Write {relation: [instances]}, one instance a line, in the order of the input."""
    file.write(b"{")
    for number, (relation, found) in enumerate(chosen.items()):
        file.write(b",\n" * (number > 0) + json.dumps(relation, ensure_ascii=False).encode() + b": [")
        for place, (begin, length) in enumerate(sorted(found.places.values())):
            waiting.seek(begin)
            file.write(b",\n" * (place > 0) + waiting.read(length))
        file.write(b"]")
    file.write(b"}\n")


def _nothing_left(sentences: Path, corpus: DistantCorpus) -> str:
    counts = "; ".join(f"{words.removeprefix('- ')}: {count:,}" for words, count in corpus.rows() if count)
    advice = "relax --least, --without or --without-relations, or --ambiguous keep"
    if not corpus.pairs and not corpus.overlapping:
        advice = "check that both files use the same ids for entities"
    return f"{sentences}: no instance is left ({counts or 'it is empty'}); nothing is written; {advice}"
