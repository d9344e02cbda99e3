"""`miniimagenet`: 100 classes of ImageNet, 600 images each, 84 x 84, in the split of Ravi & Larochelle (2017)."""

import csv
from pathlib import Path

from hyperproto.data.formats.images import IMAGE_OPTIONS, Decoding, FileTree, image_names, image_pool
from hyperproto.data.pool import Pool, Progress
from hyperproto.data.specs import data_folder, parse_argument
from hyperproto.errors import DataError
from hyperproto.files import decode_utf8, split_lines

SUMMARY = "100 classes of ImageNet, 84 x 84, split 64/16/20: miniimagenet[:PATH] (train.csv, val.csv, test.csv, images)"
SPLITS = ("train", "val", "test")
_NAMES = """
    n01532829 house finch, n01558993 robin, n01704323 triceratops, n01749939 green mamba, n01770081 harvestman,
    n01843383 toucan, n01910747 jellyfish, n02074367 dugong, n02089867 walker hound, n02091831 saluki,
    n02101006 gordon setter, n02105505 komondor, n02108089 boxer, n02108551 tibetan mastiff, n02108915 french bulldog,
    n02111277 newfoundland, n02113712 miniature poodle, n02120079 arctic fox, n02165456 ladybug,
    n02457408 three-toed sloth, n02606052 rock beauty, n02687172 aircraft carrier, n02747177 ashcan, n02795169 barrel,
    n02823428 beer bottle, n02966193 carousel, n03017168 chime, n03047690 clog, n03062245 cocktail shaker,
    n03207743 dishrag, n03220513 dome, n03337140 file, n03347037 fire screen, n03400231 frying pan,
    n03476684 hair slide, n03527444 holster, n03676483 lipstick, n03838899 oboe, n03854065 organ,
    n03888605 parallel bars, n03908618 pencil box, n03924679 photocopier, n03998194 prayer rug, n04067472 reel,
    n04243546 slot, n04251144 snorkel, n04258138 solar dish, n04275548 spider web, n04296562 stage, n04389033 tank,
    n04435653 tile roof, n04443257 tobacco shop, n04509417 unicycle, n04515003 upright, n04596742 wok,
    n04604644 worm fence, n04612504 yawl, n06794110 street sign, n07584110 consomme, n07697537 hotdog,
    n07747607 orange, n09246464 cliff, n13054560 bolete, n13133613 ear,
    n01855672 goose, n02091244 ibizan hound, n02114548 white wolf, n02138441 meerkat, n02174001 rhinoceros beetle,
    n02950826 cannon, n02971356 carton, n02981792 catamaran, n03075370 combination lock, n03417042 garbage truck,
    n03535780 horizontal bar, n03584254 ipod, n03770439 miniskirt, n03773504 missile, n03980874 poncho,
    n09256479 coral reef,
    n01930112 nematode, n01981276 king crab, n02099601 golden retriever, n02110063 malamute, n02110341 dalmatian,
    n02116738 african hunting dog, n02129165 lion, n02219486 ant, n02443484 black-footed ferret, n02871525 bookshop,
    n03127925 crate, n03146219 cuirass, n03272010 electric guitar, n03544143 hourglass, n03775546 mixing bowl,
    n04146614 school bus, n04149813 scoreboard, n04418357 theater curtain, n04522168 vase, n07613480 trifle
"""
# Class names by WordNet id, the first synonym each, in the order train, val, test.
NAMES: dict[str, str] = dict(entry.strip().split(" ", 1) for entry in _NAMES.split(","))


def splits(argument: str = "") -> tuple[str, ...]:
    """Return the names of the splits."""
    return SPLITS


def load(split: str, argument: str = "", progress: Progress | None = None) -> Pool:
    """Read the images listed in `SPLIT.csv` (columns filename, label) from a folder or a zip archive.

    File names are compared without suffixes, so that lists with .jpg also match .png or .webp files.
    """
    path, options = parse_argument("miniimagenet", argument, IMAGE_OPTIONS)
    spec = f"miniimagenet:{argument}".rstrip(":")
    folder = Path(path).expanduser() if path else data_folder("miniimagenet")
    tree = FileTree(folder, archives=True)
    lists = [name for name in tree.names if name.rpartition("/")[2] == f"{split}.csv"]
    if not lists:
        raise DataError(
            f"{spec}: no {split}.csv in {folder}; put the lists of Ravi & Larochelle (train.csv, val.csv, test.csv: "
            "filename,label) there, and the images beside them, in a folder or a zip"
        )
    lines = split_lines(decode_utf8(tree.read(lists[0]), tree.path(lists[0])))
    try:
        rows = list(csv.reader(lines))
    except csv.Error as error:
        raise DataError(f"{tree.path(lists[0])}: not filename,label on each line ({error}); get it again") from None
    stored = {_stem(name): name for name in image_names(tree)}
    classes: dict[str, list[str]] = {}
    for number, row in enumerate(rows[1:], start=2):
        if len(row) != 2:
            raise DataError(f"{tree.path(lists[0])}, line {number}: {','.join(row)!r} is not filename,label")
        if _stem(row[0]) not in stored:
            raise DataError(f"{tree.path(lists[0])}, line {number}: there is no image {row[0]!r} below {folder}")
        classes.setdefault(row[1], []).append(stored[_stem(row[0])])
    return image_pool(spec, split, tree, classes, Decoding.of("miniimagenet", options), progress)


def _stem(name: str) -> str:
    return name.rpartition("/")[2].rpartition(".")[0]
