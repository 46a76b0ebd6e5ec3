"""Write what users see into a folder: cards, diagnoses, messages and the outputs of commands.

Run it on two commits, and compare the folders with ``diff -r``. ``tests/golden.txt`` has the checksum of each
accepted output. With ``--accept``, the outputs of this commit become the accepted ones.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import helpers_golden


def main(arguments: list[str] | None = None) -> int:
    """Write the outputs. Return 1 if they differ from the accepted ones."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder for the outputs, which is new")
    parser.add_argument("--accept", action="store_true", help="write the checksums to tests/golden.txt")
    options = parser.parse_args(arguments)
    if options.folder.exists() and any(options.folder.iterdir()):
        parser.error(f"{options.folder} is not empty")
    checksums = helpers_golden.write_outputs(options.folder)
    if options.accept:
        helpers_golden.write_manifest(checksums)
        return 0
    differences = helpers_golden.differences(checksums)
    print("\n".join(differences))
    return 1 if differences else 0


if __name__ == "__main__":
    sys.exit(main())
