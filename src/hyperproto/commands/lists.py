"""What the lists of recipes, methods and data show: a row each."""

from typing import Any

from hyperproto.data import DATASETS, find_dataset, open_pool
from hyperproto.recipes import builtin_recipes, read_rows

Rows = list[dict[str, Any]]


def recipe_rows() -> Rows:
    """The recipes, and the rows of those that have several."""
    rows = []
    for name in builtin_recipes():
        recipes = read_rows(name)
        for row, recipe in recipes.items():
            title = f"{name}:{row}" if len(recipes) > 1 else name
            words = {key: recipe.get(key, "") for key in ("description", "cost")}
            rows.append({"recipe": title, **words})
    return rows


def method_rows() -> Rows:
    """The methods, with their closed forms and what they are."""
    from hyperproto.methods import METHODS

    rows = []
    for name in METHODS.names():
        cls = METHODS.get(name)
        words = (cls.__doc__ or "").strip().partition("\n")[0]
        rows.append({"method": name, "fit": ", ".join(cls.fits), "transform": cls.transform or "any", "what": words})
    return rows


def data_rows() -> Rows:
    """The data sets."""
    return [{"data": name, "what": DATASETS.get(name).SUMMARY} for name in DATASETS.names()]


def split_rows(spec: str) -> Rows:
    """Every split of a data set, opened and counted."""
    dataset, argument = find_dataset(spec)
    rows = []
    for split in dataset.splits(argument):
        pool = open_pool(spec, split)
        row = {"data": spec, "split": split, "classes": pool.n_classes, "items": len(pool), "digest": pool.digest}
        rows.append({**row, "smallest class": int(pool.counts.min()), "largest class": int(pool.counts.max())})
    return rows
