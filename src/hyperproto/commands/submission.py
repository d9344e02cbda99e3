"""`hyperproto submit`: answers to a hidden test set, in the form that its server takes."""

from pathlib import Path

import torch

from hyperproto.commands.evaluation import Selection
from hyperproto.episodes.fewrel_hidden import predictions_name, read_fewrel_test, write_predictions
from hyperproto.errors import ConfigError
from hyperproto.evaluation import EncodedPool, predict_episodes
from hyperproto.progress import progress_bar


def submit(test_input: Path, selection: Selection, out: Path | None, *, uncased: bool = False) -> tuple[Path, int]:
    """Predict the class of every task of a FewRel test file; return where the answers are, and how many."""
    with progress_bar("submit") as show:
        pool, episodes = read_fewrel_test(test_input, uncased=uncased)
        contenders = selection.contenders(pool)
        if len(contenders) != 1:
            raise ConfigError(f"{len(contenders)} contenders, but one file of answers; name one method, fit and so on")
        [contender] = contenders
        encoded = EncodedPool.encode(contender.encoder, pool, show)
        parts = *contender.on(encoded.units.x.device), encoded, episodes
        labels = torch.cat([predicted[:, 0].cpu() for _, predicted, _ in predict_episodes(*parts, show)])
    path = out or Path(predictions_name(episodes))
    write_predictions(path, labels.numpy())
    return path, len(labels)
