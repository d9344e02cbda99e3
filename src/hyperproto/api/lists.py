"""Lists of recipes, methods and data sets; data that are checked or made."""

from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from hyperproto.errors import ConfigError, unknown_name
from hyperproto.options import DistantOptions, complete, documented
from hyperproto.progress import Show, noted

if TYPE_CHECKING:
    from hyperproto.data.distant import DistantCorpus


def list_recipes(
    *, data: str | None = None, method: str | None = None, cost: str | int | None = None
) -> list[dict[str, str]]:
    """List the recipes that come with the package: `recipe` (the name for `train`), `description`, `cost`.

    Parameters
    ----------
    data, method : list only recipes with this data set, with this method.
    cost : list only recipes for a `"cpu"`, for a `"gpu"`, or of at most so many minutes of CPU, all stages included.

    Examples
    --------
    >>> [row["recipe"] for row in list_recipes(data="glyphs", method="protonet", cost=5)]
    ['glyphs:protonet']
    """
    from hyperproto.recipes import builtin_recipes, read_rows

    wanted = {"data": data, "method": method}
    known: dict[str, set[str]] = {kind: set() for kind in wanted}
    rows = []
    for name in builtin_recipes():
        recipes = read_rows(name)
        for row, recipe in recipes.items():
            own = {"data": recipe["data"]["spec"].partition(":")[0], "method": recipe["method"]["name"]}
            for kind, value in own.items():
                known[kind].add(value)
            if _costs(recipe.get("cost", ""), cost) and all(wanted[kind] in (None, own[kind]) for kind in wanted):
                words = {key: recipe.get(key, "") for key in ("description", "cost")}
                rows.append({"recipe": f"{name}:{row}" if len(recipes) > 1 else name, **words})
    for kind, value in wanted.items():
        if value is not None and value not in known[kind]:
            raise ConfigError(f"--{kind}: {unknown_name(f'recipe with {kind}', value, known[kind])}")
    if not rows:
        raise ConfigError("no recipe meets all of these conditions; leave out one of --data, --method and --cost")
    return rows


def _costs(words: str, wanted: str | int | None) -> bool:
    """Return whether the cost of a recipe, a text that names a GPU where one is needed, is within what is wanted."""
    from hyperproto.recipes import cost_minutes

    on_gpu = "GPU" in words
    if wanted is None or wanted in ("cpu", "gpu"):
        return wanted is None or on_gpu == (wanted == "gpu")
    if not str(wanted).isdecimal() or len(str(wanted)) > 9:
        raise ConfigError(
            f"--cost {str(wanted)[:40]}: write cpu, gpu, or how many minutes of CPU it may take, such as 30"
        )
    minutes = cost_minutes(words)
    return minutes is not None and minutes <= int(wanted)


def list_methods() -> list[dict[str, str]]:
    """List the few-shot methods: `method`, its closed forms (`fit`) and transforms, and `what` it is."""
    from hyperproto.methods import METHODS

    rows = []
    for name in METHODS.names():
        cls = METHODS.get(name)
        words = (cls.__doc__ or "").strip().partition("\n")[0]
        rows.append(
            {
                "method": name,
                "fit": ", ".join(cls.fits),
                "transform": ", ".join(cls.transforms or ["any"]),
                "what": words,
            }
        )
    return rows


def list_data() -> list[dict[str, str]]:
    """List the data sets: `data`, and `what` it is made from."""
    from hyperproto.data import DATASETS

    return [{"data": name, "what": DATASETS.get(name).SUMMARY} for name in DATASETS.names()]


def check_data(data: str, progress: Show | None = None) -> list[dict[str, Any]]:
    """Open every split of a data set and count its classes and items.

    Examples
    --------
    >>> [(row["split"], row["classes"]) for row in check_data("glyphs")]  # doctest: +SKIP
    """
    from hyperproto.data import open_pool, splits_of

    rows = []
    for split in splits_of(data):
        pool = open_pool(data, split, noted(progress, f"items of {split}"))
        row = {"data": data, "split": split, "classes": pool.n_classes, "items": len(pool), "digest": pool.digest}
        sizes = pool.counts.tolist() or [0]  # a split without labels has no classes
        rows.append({**row, "smallest class": min(sizes), "largest class": max(sizes)})
    return rows


@documented(DistantOptions)
def distant_data(
    sentences: str | PathLike[str],
    triples: str | PathLike[str],
    out: str | PathLike[str],
    *,
    progress: Show | None = None,
    **settings: Unpack[DistantOptions],
) -> "DistantCorpus":
    """Label sentences with linked entities by a file of triples, and write a corpus in FewRel's format to train on.

    Parameters
    ----------
    sentences : a file of JSON lines, `{"tokens": [...], "entities": [{"id": ..., "start": 0, "end": 2}, ...]}`.
    triples : a file of lines `HEAD<tab>RELATION<tab>TAIL`, with the same ids.
    out : the file to write, `{relation: [{tokens, h, t}]}`; data spec `fewrel:FILE`.
    settings : see `DistantOptions`. Relations of FewRel's evaluation files are left out by default: they would be no
        unseen classes any more. `without=None` and `without_relations=None` leave out nothing.

    Returns
    -------
    The corpus: `kept` (instances by relation), `rows()` (counts by reason of leaving out), `to_json()`.

    Examples
    --------
    >>> distant_data("wikipedia.jsonl", "wikidata.tsv", "corpus.json", most=5000).kept  # doctest: +SKIP
    {'P1001': 5000, 'P101': 4312, ...}
    """
    from hyperproto.data.distant import label_by_triples

    options: dict[str, Any] = {**complete(DistantOptions, settings)}
    for name in ("without", "without_relations"):
        options[name] = None if options[name] is None else fspath(options[name])
    paths = (Path(sentences), Path(triples), Path(out))
    return label_by_triples(*paths, progress=noted(progress, "kB of sentences"), **options)
