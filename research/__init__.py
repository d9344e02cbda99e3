"""Our own studies, outside the wheel. Run them from the root of a checkout.

    python -m research.intents                 classifiers on CLINC150, BANKING77 and HWU64, frozen MiniLM
    python -m research.rivals                  other packages beside ours, on the same texts and vectors
    python -m research.tuning                  a low-rank map of frozen vectors, fitted by leave-one-out
    python -m research.leaderboard             methods trained for the same CPU minutes, tuned on validation classes
    python -m research.ablation                parts of the difference between HyperProto and ProtoNet
    python -m research.closed_loss             training through the closed form beside ProtoNet's loss
    python -m research.prior_ratio_choice      accuracy of a trained encoder by `prior_ratio`
    python -m research.multilabel              labels of Few-NERD's sentences, beside logistic regression and SetFit
    python -m research.entity_grid             every method on Few-NERD, settings chosen on dev
    python -m research.intents.suggest         strategies of what to label next
    python -m research.intents.rejection       figure of the rules of rejection, from files of results
    python -m research.entity_names            names of types and scores of spans of the tagger on Few-NERD
    python -m research.long_documents          texts longer than the encoder reads
    python -m research.drift                   size and power of the tests of drift
    python -m research.intents.page            results/intents
    python -m research.rivals.page             results/rivals
    python -m research.entities_page           results/entities
    python -m research.stored_table            tables 1, 2 and 5 from all numbers on file

Each writes a JSON file with the command that made it. `results/README.md` lists the files.
"""

import shlex
import sys
from collections.abc import Sequence


def command_of(module: str, arguments: Sequence[str] | None) -> str:
    """Return the command line that runs a study; `arguments` None: those of this process."""
    given = sys.argv[1:] if arguments is None else arguments
    return shlex.join(["python", "-m", f"research.{module}", *given])
