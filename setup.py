"""Packaging of BaseFS; tool settings are in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup

#: The version stands in the package alone.  It is read, not imported: the package's requirements may be missing here.
_INIT = Path(__file__).with_name("basefs") / "__init__.py"
VERSION = re.search(r'^__version__ = "(.+)"$', _INIT.read_text(encoding="utf-8"), re.MULTILINE)
assert VERSION is not None

setup(
    name="basefs",
    version=VERSION[1],
    description="Basically available, soft state, eventually consistent filesystem for cluster configuration",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="MIT",
    # CONTRIBUTING.md says which tests were run on each.
    classifiers=[
        "Environment :: Console",
        "Intended Audience :: System Administrators",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: System :: Clustering",
        "Topic :: System :: Filesystems",
    ],
    python_requires=">=3.10",
    packages=find_packages(include=["basefs", "basefs.*"]),
    package_data={"basefs": ["py.typed"]},
    install_requires=[
        "bsdiff4>=1.3",
        "click>=8.1",
        "cryptography>=41",
        "dnspython>=2.3",
        "msgpack>=1.0",
        "prometheus-client>=0.19",
        "psutil>=5.9",
        "zstandard>=0.21",
    ],
    extras_require={
        # Needs a compiler and libnetfilter-queue-dev.
        "emulator": ["NetfilterQueue>=1.1"],
        # Verifies signatures in half the time.
        "fast": ["pynacl>=1.5"],
        "eval": ["docker>=7", "matplotlib>=3.7", "py-spy>=0.3.14"],
        "test": [
            "hypothesis>=6.80",
            "pynacl>=1.5",
            "pyte>=0.8",
            "pytest>=7.4",
            "pytest-timeout>=2.1",
            "pytest-xdist>=3.3",
        ],
        "lint": ["mypy>=1.8", "ruff>=0.4", "types-psutil"],
    },
    entry_points={
        "console_scripts": [
            "basefs = basefs.management.main:main",
            "mount.fuse.basefs = basefs.management.mounthelper:main",
        ]
    },
)
