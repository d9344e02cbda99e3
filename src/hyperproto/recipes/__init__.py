"""Recipes: one training run, or one table of the paper, in a TOML file."""

from hyperproto.recipes.files import builtin_recipes, parse_values, read_recipe, read_rows, read_text
from hyperproto.recipes.schema import Optim, Recipe, Training, parse

__all__ = [
    "Optim",
    "Recipe",
    "Training",
    "builtin_recipes",
    "parse",
    "parse_values",
    "read_recipe",
    "read_rows",
    "read_text",
]
