"""Command lines over damaged files: run in process here, and as real commands by `processes`."""

import io
import os
import sys
import warnings
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from unittest.mock import patch

from tests.fuzz.files import mutate_file, mutate_files
from tests.fuzz.inputs import Samples
from tests.fuzz.judge import BadEnd, Outcome, Trial, unclear
from tests.fuzz.kinds import case_random, kind, write_files
from tests.fuzz.mutations import extreme_number_text, extreme_string


@dataclass(frozen=True)
class Command:
    """Words behind `hyperproto`, standard input, and what may be written also on an error."""

    words: list[str]
    stdin: bytes = b""
    may_write: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The command itself, without options."""
        return " ".join(self.words[: 2 if self.words[:1] in (["recipes"], ["methods"], ["data"]) else 1])


TRACEBACK = "Traceback (most recent call last)"
UNFORESEEN = "error: unexpected error ("  # the command line's words for an exception of any other kind

Writer = Callable[[Random, Path, Samples], Command]
COMMANDS: dict[str, tuple[Writer, int]] = {}


def command(name: str, share: int) -> Callable[[Writer], Writer]:
    """Register the writer of a command line; `share` is how often it is drawn."""

    def register(write: Writer) -> Writer:
        COMMANDS[name] = write, share
        return write

    return register


def draw(number: int, folder: Path, samples: Samples) -> Command:
    """Command line `number`; its files are written to `folder`, where it is to be run."""
    random = case_random("command", number)
    names = sorted(COMMANDS)
    [name] = random.choices(names, [COMMANDS[name][1] for name in names])
    made = COMMANDS[name][0](random, folder, samples)
    odd = random.random()
    if odd < 0.12 and made.words and name != "demo":  # a wrong word; the demo might then start, which takes minutes
        place = random.randrange(1, len(made.words) + 1)
        word = random.choice(
            ("--nothing", "-", "--", "--json", "--out", extreme_number_text(random), _word(extreme_string(random)))
        )
        made = Command([*made.words[:place], word, *made.words[place:]], made.stdin, made.may_write)
    environment = random.choice(
        ({}, {}, {}, {}, {"PYTHONIOENCODING": "ascii"}, {"COLUMNS": "20"}, {"COLUMNS": "0"}, {"LC_ALL": "C"})
    )
    return Command(made.words, made.stdin, made.may_write, environment)


def _word(text: str) -> str:
    """Return an argument that a shell can pass: no zero byte, no lone surrogate but undecodable bytes, not too long."""
    return text.replace("\0", "").encode("utf-8", "replace").decode()[:2000]


def _table(random: Random, folder: Path, samples: Samples, damage: float = 0.7) -> str:
    name = random.choice(("rows.csv", "rows.tsv", "rows.jsonl", "rows.parquet"))
    content = samples.tables[name]
    (folder / name).write_bytes(mutate_file(random, name, content) if random.random() < damage else content)
    return name


def _model(random: Random, folder: Path, samples: Samples) -> str:
    files = samples.models[random.choice(sorted(samples.models))]
    write_files(folder / "model", mutate_files(random, files) if random.random() < 0.3 else files)
    return "model"


def _number(random: Random, good: str) -> str:
    return good if random.random() < 0.6 else extreme_number_text(random)


@command("fit", 14)
def fit(random: Random, folder: Path, samples: Samples) -> Command:
    words = ["fit", _table(random, folder, samples), "--out", "model", "--encoder", "identity"]
    if random.random() < 0.3:
        words += ["--coverage", _number(random, "0.8")]
    if random.random() < 0.2:
        words += [
            random.choice(
                ("--region", "--fit-mode", "--feature-transform", "--reject-label", "--label", "--text", "--format")
            ),
            random.choice(("none", "csv", "label", "vector", "class 0", "", "paper")),
        ]
    return Command(words)


@command("add", 10)
def add(random: Random, folder: Path, samples: Samples) -> Command:
    words = ["add", _model(random, folder, samples), _table(random, folder, samples)]
    return Command(words + (["--new-classes"] if random.random() < 0.6 else []))


@command("predict", 12)
def predict(random: Random, folder: Path, samples: Samples) -> Command:
    words = ["predict", _model(random, folder, samples)]
    if random.random() < 0.3:
        name = random.choice(("rows.csv", "rows.jsonl", "rows.tsv"))
        content = samples.tables[name]
        stdin = mutate_file(random, name, content) if random.random() < 0.6 else content
        return Command([*words, "-", "--format", name[5:]], stdin)
    words.append(_table(random, folder, samples))
    if random.random() < 0.5:
        (folder / "answers.csv").write_text("old")
        words += ["--out", random.choice(("answers.csv", "answers.csv", "model", "no/such/folder/x.csv"))]
    return Command(words + (["--batch", _number(random, "2")] if random.random() < 0.3 else []))


@command("diagnose", 6)
def diagnose(random: Random, folder: Path, samples: Samples) -> Command:
    return Command(
        [
            "diagnose",
            _model(random, folder, samples),
            *random.choice(
                (
                    *([], [], ["--json", "-"], ["--json", "out.json"], ["--figure", "x.txt"], ["--json", "model"]),
                    *(["--fix", "out.csv"], ["--fix", "out.parquet"], ["--fix", "model"], ["--fix", "no/out.tsv"]),
                )
            ),
        ]
    )


@command("drift", 3)
def drift(random: Random, folder: Path, samples: Samples) -> Command:
    words = ["drift", _model(random, folder, samples), random.choice(("examples.csv", "no.csv", ""))]
    return Command([*words, *random.choice(([], ["--json", "-"], ["--reference", "no.csv"]))])


@command("suggest", 3)
def suggest(random: Random, folder: Path, samples: Samples) -> Command:
    words = ["suggest", _model(random, folder, samples), _table(random, folder, samples)]
    return Command(
        [*words, *random.choice(([], ["-n", _number(random, "2")], ["--out", "out.csv"], ["--out", "model"]))]
    )


@command("export", 3)
def export(random: Random, folder: Path, samples: Samples) -> Command:
    words = ["export", _model(random, folder, samples)]
    places = ["--onnx", random.choice(("m.onnx", "model", ""))], ["--to", random.choice(("out", "model", "no.csv"))]
    return Command([*words, *random.choice((*places, ["--onnx", "m.onnx", "--int8"], []))])


@command("tag", 2)
def tag(random: Random, folder: Path, samples: Samples) -> Command:
    (folder / "text.txt").write_bytes(mutate_file(random, "text.txt", samples.texts["lines.txt"]))
    (folder / "few.conll").write_bytes(
        mutate_file(random, "few.conll", samples.conll) if random.random() < 0.6 else samples.conll
    )
    encoder = random.choice(
        (f"token-transformer:{samples.bert}", f"sentence-transformer:{samples.bert}", "identity", "conv4:random")
    )
    words = [
        "tag",
        "text.txt",
        "--support",
        "few.conll" + random.choice(("", "", ",scheme=io", ",x=1")),
        "--encoder",
        encoder,
    ]
    if random.random() < 0.4:
        write_files(
            folder / "tagger", mutate_files(random, samples.tagger) if random.random() < 0.5 else samples.tagger
        )
        words = ["tag", "text.txt", "--model", "tagger", "--on-error", random.choice(("stop", "skip", "blank", "x"))]
    return Command([*words, *random.choice(([], ["--format", "conll"], ["--out", "tags.jsonl"], ["--format", "x"]))])


@command("fit-tagger", 1)
def fit_tagger(random: Random, folder: Path, samples: Samples) -> Command:
    (folder / "few.conll").write_bytes(
        mutate_file(random, "few.conll", samples.conll) if random.random() < 0.6 else samples.conll
    )
    words = ["fit-tagger", "few.conll", "--encoder", f"token-transformer:{samples.bert}", "--out", "new"]
    number = extreme_number_text(random)
    return Command([*words, *random.choice(([], ["--names"], ["--threshold", number], ["--reject-rate", number]))])


@command("submit", 2)
def submit(random: Random, folder: Path, samples: Samples) -> Command:
    (folder / "test.json").write_bytes(mutate_file(random, "test.json", samples.hidden))
    encoder = random.choice((f"relation-transformer:{samples.bert}", "identity", "conv4:random"))
    return Command(
        ["submit", "test.json", "--encoder", encoder, *random.choice(([], ["--out", "p.json"], ["--uncased"]))]
    )


def _measure(random: Random, folder: Path, samples: Samples, name: str) -> Command:
    content = samples.vectors_file
    (folder / "v.npz").write_bytes(mutate_file(random, "v.npz", content) if random.random() < 0.4 else content)
    words = [
        name,
        "--data",
        random.choice(("vectors:v.npz",) * 6 + ("vectors:", "glyph", "vectors:nowhere.npz")),
        "--encoder",
        random.choice(("identity",) * 6 + ("x", "conv4:random")),
    ]
    values = {"--way": "2", "--shot": "1", "--query": "2", "--episodes": "2"}
    if random.random() < 0.5:
        values |= {
            random.choice(
                ("--way", "--shot", "--query", "--seed", "--na-rate", "--nota-share", "--least-spans")
            ): extreme_number_text(random)
        }
    if random.random() < 0.3:
        values |= {"--method": random.choice(("protonet", "hyperproto", "x", "x.py:Y", "logistic"))}
    if random.random() < 0.3:
        values |= {
            "-o": random.choice(
                ("prior_ratio=", "prior_ratio=x", "temperature=nan", "x", "=", "temperature=1e38", "a.b=1", "path=true")
            )
        }
    if random.random() < 0.3:
        values |= {"--json": random.choice(("-", "out.json", ".", "no/x.json"))}
    return Command(words + [word for pair in values.items() for word in pair])


@command("evaluate", 8)
def evaluate(random: Random, folder: Path, samples: Samples) -> Command:
    return _measure(random, folder, samples, "evaluate")


@command("compare", 6)
def compare(random: Random, folder: Path, samples: Samples) -> Command:
    return _measure(random, folder, samples, "compare")


@command("train", 3)
def train(random: Random, folder: Path, samples: Samples) -> Command:
    (folder / "mine.toml").write_bytes(mutate_file(random, "mine.toml", samples.recipe))
    words = ["train", "mine.toml", "--out", "run", "-o", "training.steps=2", "-o", "validation.episodes=2"]
    if random.random() < 0.4:
        key = random.choice(
            (
                "optim.encoder.lr",
                "encoder.filters",
                "episodes.way",
                "episodes.query",
                "training.seed",
                "training.clip_norm",
                "method.temperature",
            )
        )
        value = random.choice(("1e38", "0", "-1", "nan", "[]", "x", "1e-320", "9223372036854775808"))
        words += ["-o", f"{key}={value}"]
    return Command(words, may_write=("run",))


@command("grid", 2)
def grid(random: Random, folder: Path, samples: Samples) -> Command:
    (folder / "mine.toml").write_bytes(mutate_file(random, "mine.toml", samples.recipe))
    words = ["grid", "mine.toml", "--out", "grid", "--workers", "1", "-o", "training.steps=2"]
    value = random.choice(("0,1", "0,,1", "0,0", "[", "'x", "{}", "1e999", "0,-1", extreme_number_text(random)))
    key = random.choice(("training.seed", "training.seed", "optim.encoder.lr", "nothing", "a.b.c", "", "start"))
    return Command([*words, "-o", f"{key}={value}"], may_write=("grid",))


@command("report", 2)
def report(random: Random, folder: Path, samples: Samples) -> Command:
    (folder / "t.toml").write_bytes(mutate_file(random, "t.toml", b'[table]\ncaption = "small"\n' + samples.recipe))
    return Command(
        [
            "report",
            random.choice(("t.toml", "t.toml", "table9", "glyphs", "t.toml:x")),
            "--runs",
            random.choice((".", "nowhere")),
            "--episodes",
            "2",
        ]
    )


@command("figure", 2)
def figure(random: Random, folder: Path, samples: Samples) -> Command:
    content = b'{"table": "table2", "rows": [{"published": {"method": "ProtoNet", "backbone": "BERT"}, "ours": []}]}'
    (folder / "t.json").write_bytes(mutate_file(random, "t.json", content))
    name = random.choice(("fig1", "fig3", "fig3", "fig4", "fig7", "fig8", "fig9", ""))
    where = random.choice(("t.json", "t.json", "nowhere.json", ".", "\udc00"))
    more = random.choice(([], ["--run", "nowhere"], ["--seed", "-1"], ["--run", "."]))
    return Command(["figure", name, "--out", "figures", "--results", where, *more], may_write=("figures",))


@command("reproduce", 2)
def reproduce(random: Random, folder: Path, samples: Samples) -> Command:
    (folder / "t.toml").write_bytes(mutate_file(random, "t.toml", b'[table]\ncaption = "small"\n' + samples.recipe))
    words = ["reproduce", random.choice(("t.toml", "table4", "table9", "glyphs")), "--out", "out", "--dry-run"]
    words += ["--budget", random.choice(("small", "paper", "x", ""))]
    words += random.choice(([], ["--rows", "all"], ["--rows", ",,"], ["--seeds", _number(random, "2")]))
    return Command([*words, *random.choice(([], ["-o", "training.seed=1"], ["-o", "x"], ["--episodes", "1"]))])


@command("demo", 1)
def demo(random: Random, folder: Path, samples: Samples) -> Command:
    """Options that the demo refuses, or a folder that it cannot write to: it takes minutes where it runs."""
    (folder / "file").write_bytes(b"x")
    words = ["demo", "--out", random.choice(("file", "file/below", "a" * 300))]
    return Command([*words, *random.choice(([], ["--json", "file/x"], ["--nothing"], ["extra"]))], may_write=("file",))


@command("recipes", 5)
def recipes(random: Random, folder: Path, samples: Samples) -> Command:
    (folder / "mine.toml").write_bytes(mutate_file(random, "mine.toml", samples.recipe))
    if random.random() < 0.3:
        return Command(
            [
                "recipes",
                "list",
                random.choice(("--data", "--method", "--cost")),
                random.choice(("glyphs", "x", "", "30", "9" * 400)),
            ]
        )
    return Command(
        [
            "recipes",
            "show",
            random.choice(("mine.toml", "mine.toml", "glyphs", "glyphs:protonet", "x.toml", "", "mine.toml:x")),
            *random.choice(([], ["--json", "-"], ["-o", "x"], ["-o", "training.steps=1e999"])),
        ]
    )


@command("data", 8)
def data(random: Random, folder: Path, samples: Samples) -> Command:
    kind_of = random.choice(("vectors", "conll", "fewrel", "fewnerd", "folder", "omniglot"))
    if kind_of == "vectors":
        (folder / "v.npz").write_bytes(mutate_file(random, "v.npz", samples.vectors_file))
        spec = "vectors:v.npz"
    elif kind_of == "conll":
        (folder / "f.conll").write_bytes(mutate_file(random, "f.conll", samples.conll))
        spec = "conll:f.conll"
    else:
        files = samples.pictures if kind_of == "folder" else getattr(samples, kind_of)
        files = {name: content for name, content in files.items() if not name.startswith("class") or name < "class02"}
        write_files(folder / "d", mutate_files(random, files))
        spec = f"{kind_of}:d" + (",size=8" if kind_of in ("folder", "omniglot") else "")
    if random.random() < 0.1:
        return Command(["data", "get", random.choice(("glyphs", "x", "miniimagenet", "fc100", "vectors"))])
    return Command(["data", "check", spec, *random.choice(([], [], ["--json", "-"], ["--json", "d"]))])


@command("distant", 3)
def distant(random: Random, folder: Path, samples: Samples) -> Command:
    for name, content in samples.linked.items():
        (folder / name).write_bytes(mutate_file(random, name, content) if random.random() < 0.5 else content)
    (folder / "corpus.json").write_text("old")
    words = ["data", "distant", "sentences.jsonl", "triples.tsv"]
    words += ["--out", random.choice(("corpus.json",) * 8 + ("triples.tsv", ".", "no/x.json"))]
    words += ["--without", random.choice(("none",) * 8 + ("triples.tsv", "nowhere", ""))]
    words += ["--without-relations", random.choice(("none",) * 8 + ("nowhere", "sentences.jsonl"))]
    if random.random() < 0.5:
        words += [random.choice(("--most", "--least", "--seed")), _number(random, "2")]
    if random.random() < 0.3:
        words += random.choice((["--ambiguous", "keep"], ["--ambiguous", "x"], ["--json", "-"], ["--json", "."]))
    return Command(words, may_write=("no",))


@command("lists", 1)
def lists(random: Random, folder: Path, samples: Samples) -> Command:
    return Command(
        random.choice(
            (
                ["methods", "list"],
                ["data", "list"],
                ["recipes", "list"],
                ["--version"],
                [],
                ["nothing"],
                ["methods"],
                ["--help"],
                ["fit", "--help"],
                ["methods", "list", "--json", "-"],
            )
        )
    )


def judged(command: Command, code: int, stdout: bytes, stderr: bytes) -> Outcome:
    """Judge exit code and outputs: 0, or 1 with one paragraph, or 2 with the usage of the command."""
    told, printed = (stream.decode("utf-8", "replace") for stream in (stderr, stdout))
    crash = _crash(code, told, printed)
    if crash:
        return Outcome("traceback", f"{command.name}: {crash}", told)
    if code == 1:
        errors = told.split("error: ", 1)[1:]
        problem = unclear(errors[0]) if errors else "exit 1 without an error message"
        if problem:
            return Outcome("unclear", f"{command.name}: {problem}", told[:2000])
    return Outcome("result") if code == 0 else Outcome("refused", detail=told)


def _crash(code: int, told: str, printed: str) -> str:
    """Name what nobody foresaw: a traceback, the words for one, a signal; empty if it is none of these."""
    if TRACEBACK in told or TRACEBACK in printed:
        lines = told.splitlines()
        last = [line for line in lines if line and not line.startswith(" ")][-1:]
        ours = [line for line in lines if "/hyperproto/" in line and line.strip().startswith("File")][-1:]
        place = ours[0].rpartition("/hyperproto/")[2].replace('"', "") if ours else ""
        return f"{last[0].partition(':')[0] if last else ''} {place}"
    if UNFORESEEN in told:
        return told.partition(UNFORESEEN)[2].strip(" (")[:120]
    return "" if code in (0, 1, 2) else f"ended with {code}"


@kind("command", "command line", share=25)
def in_process(random: Random, folder: Path, samples: Samples) -> Trial:
    """Run a command line in this process; judge its exceptions, exit code and output."""
    made = draw(random.getrandbits(40), folder, samples)

    def run() -> None:
        from hyperproto import cli
        from hyperproto.errors import HyperProtoError

        out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
        stdin = io.TextIOWrapper(io.BytesIO(made.stdin), "utf-8")
        here, shown = Path.cwd(), warnings.showwarning
        os.chdir(folder)
        code = 0
        try:
            given = patch.multiple(sys, stdin=stdin, argv=["hyperproto", *made.words])
            with redirect_stdout(out), redirect_stderr(err), given:
                cli.main()
        except SystemExit as end:
            code = int(end.code or 0) if isinstance(end.code, int) or end.code is None else 1
        finally:
            os.chdir(here)
            warnings.showwarning = shown
            for stream in (out, err):
                stream.flush()
        found = [stream.detach() for stream in (out, err)]
        ended = judged(made, code, *(stream.getvalue() for stream in found))
        if not ended.good:
            raise BadEnd(ended)
        if ended.verdict == "refused":
            raise HyperProtoError(ended.detail.strip().replace("\n\n", "\n")[-2000:] or "usage")

    return Trial(run, words=f"hyperproto {made.words}"[:300], may_write=made.may_write)
