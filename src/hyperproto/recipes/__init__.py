"""Recipes: one training run, or one table of the paper, in a TOML file."""

from hyperproto.recipes.paper_tables import (
    Column,
    PaperTable,
    Published,
    builtin_tables,
    read_table,
    recipes_of,
    table_name,
)
from hyperproto.recipes.recipe_files import (
    builtin_recipes,
    parse_values,
    read_recipe,
    read_rows,
    read_text,
    run_name,
    toml_value,
)
from hyperproto.recipes.schema import (
    WORDS,
    Augmentation,
    Clipping,
    Optim,
    Paper,
    Recipe,
    Start,
    Training,
    Unlabelled,
    parse,
)

__all__ = [
    "WORDS",
    "Augmentation",
    "Clipping",
    "Column",
    "Optim",
    "Paper",
    "PaperTable",
    "Published",
    "Recipe",
    "Start",
    "Training",
    "Unlabelled",
    "builtin_recipes",
    "builtin_tables",
    "parse",
    "parse_values",
    "read_recipe",
    "read_rows",
    "read_table",
    "read_text",
    "recipes_of",
    "run_name",
    "table_name",
    "toml_value",
]
