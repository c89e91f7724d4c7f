"""What the package index and an installer read of a wheel is complete: `python .ci/check_wheel.py X.whl`."""

import re
import sys
import zipfile
from email.parser import HeaderParser

import eftgan

NEEDED = ("Name", "Version", "Summary", "License-Expression", "Keywords", "Requires-Python", "Description-Content-Type")
FILES = ("eftgan/py.typed", "eftgan/configs/gan/shapes.yaml", "data_prep/__main__.py", "LICENSE", "entry_points.txt")


def problems(path: str) -> list[str]:
    wheel = zipfile.ZipFile(path)
    names = wheel.namelist()
    (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    facts = HeaderParser().parsestr(wheel.read(metadata).decode())
    description = facts.get_payload()
    assert isinstance(description, str)
    found = [f"no {each} in the metadata" for each in NEEDED if not facts[each]]
    found += [f"no file {each}" for each in FILES if not any(name.endswith(each) for name in names)]
    found += [f"{name} does not belong there" for name in names if name.startswith(("tests/", "docs/", "benchmarks/"))]
    if facts["Version"] != eftgan.__version__:
        found.append(f"version {facts['Version']}, not {eftgan.__version__}")
    if len(description) < 5000:
        found.append("the README is not the description")
    prose = re.sub(r"^```.*?^```$", "", description, flags=re.DOTALL | re.MULTILINE)
    relative = re.findall(r"\]\((?![a-z]+:|#)[^)]*\)", prose)
    return found + [f"a link that leads nowhere outside the repository: {each}" for each in relative]


if __name__ == "__main__":
    found = problems(sys.argv[1])
    print("\n".join(found) or f"{sys.argv[1].rpartition('/')[2]}: metadata complete, no link that leads nowhere")
    sys.exit(bool(found))
