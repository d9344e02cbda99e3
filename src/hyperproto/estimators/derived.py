"""Temperatures and summaries of snapshots with unlabelled rows or a refined head, which take long to derive."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hyperproto.estimators.temperature import (
    LEAST_SAMPLE,
    UNLABELLED_STEP,
    evenly_spaced,
    matched_temperature,
    mean_confidence,
    support_temperature,
)
from hyperproto.heads import RefinedForm
from hyperproto.progress import Show, silent
from hyperproto.regions import ClosedForm, Region
from hyperproto.regions.arrays import Floats
from hyperproto.regions.evidence import NO_EVIDENCE, Evidence, inlier_rows
from hyperproto.regions.left_out import Folds, projection

if TYPE_CHECKING:
    from hyperproto.estimators.snapshot import Snapshot


def derive(model: "Snapshot", progress: Show = silent) -> None:
    """Derive region and temperature if that takes long: if the fit reads unlabelled rows or optimises a head."""
    if model.rows is None or (model.unlabelled is None and not isinstance(model.form, RefinedForm)):
        return
    work = {"fitting classes": "region", "linear form": "linear"}
    if model.parameters["temperature"] == "auto":
        work["leave-one-out"] = "temperature"
    for done, (note, name) in enumerate(work.items()):
        progress(done, len(work), note)
        getattr(model, name)
    progress(len(work), len(work), "fitted")


def closed_snapshot(model: "Snapshot", region: Any) -> "Snapshot":
    """Return the snapshot of the closed form that the refined `region` started from."""
    plain, form = (ClosedForm(each.region, each.mode, each.options) for each in (model.plain_form, model.form))
    found = replace(model, plain_form=plain, _casts={})
    vars(found).update(region=region.before, form=form, left_out=model.left_out)  # as cached_property keeps them
    return found


def temperature_of(model: "Snapshot", region: Region) -> float:
    """Return the temperature of `region`, fitted to the examples."""
    prior = model.parameters["prior_ratio"], model.centered or model.unit, model.posterior_centers
    return support_temperature(model.left_out, region, model.form, *prior)


def temperature_with_rows(model: "Snapshot", found: float) -> float:
    """Return the temperature `found` by examples; if none can be left out, moved for the unlabelled rows."""
    if model.unlabelled is None or model.left_out.has_siblings.any() or len(model.classes) == 1:
        return found
    return float(found ** (1 - UNLABELLED_STEP) * unchanged_confidence(model) ** UNLABELLED_STEP)


def unchanged_confidence(model: "Snapshot") -> float:
    """Return the temperature at which unlabelled rows leave the mean confidence on themselves unchanged."""
    form, names = model.plain_form, model.evidence.names
    form = ClosedForm(form.region, form.mode, form.options)
    names_only = NO_EVIDENCE if names is None else Evidence(names, model.evidence.named)
    without = replace(model, evidence=names_only, plain_form=form, _casts={})
    rows = cast(Floats, inliers(model, model.region))
    before, now = (each.measure(rows).astype(np.float64) for each in (without, model))
    return matched_temperature(now, mean_confidence(before, without.fitted_temperature))


def head_sharpness(model: "Snapshot", region: Any) -> float:
    """Return the temperature of a refined head in units of that of the closed form that it started from.

    At these temperatures both are equally confident, on average over unlabelled rows. If these are few, examples take
    their place, each scored by heads fitted without its fold. If none can be left out, each temperature is fitted to
    its own pseudo-examples.
    """
    if len(model.classes) == 1:
        return 1.0
    closed = closed_snapshot(model, region)
    temperature, rows = closed.fitted_temperature, inliers(model, region)
    if rows is not None and len(rows) >= LEAST_SAMPLE:
        now, before = (-each.linear().scores(rows).astype(np.float64) for each in (region, region.before))
    elif model.left_out.has_siblings.any():
        index, stats = np.flatnonzero(model.left_out.has_siblings), model.stats
        now, before = (Folds.fit(stats, form).measures(stats.rows, index) for form in (model.form, closed.form))
    else:
        return temperature_of(closed, region) / temperature_of(closed, region.before)
    return matched_temperature(now, mean_confidence(before, temperature)) / temperature


def inliers(model: "Snapshot", region: Any) -> Floats | None:
    """Return prepared unlabelled rows without outliers, of very many an evenly spaced sample; None without rows."""
    rows = model.unlabelled
    if rows is None:
        return None
    _, weight = inlier_rows(rows, model.stats, region.whiten)
    rows = rows if weight is None else rows[weight > 0]
    every = np.arange(len(rows))
    return rows[evenly_spaced(every, len(model.classes), lambda: np.argsort(projection(rows), kind="stable"))]
