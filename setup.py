import re
from pathlib import Path

from setuptools import find_packages, setup

NAME = "rsd_planner"
HERE = Path(__file__).resolve().parent  # colcon --symlink-install links setup.py
MODEL = Path("rsd_planner/demo/model")
DRAFTS = sorted(path.name for path in (HERE / MODEL).glob("draft*"))


def files(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(HERE)) for path in (HERE / directory).iterdir() if path.is_file())


setup(
    name=NAME,
    version=re.search(r'__version__ = "(.+)"', (HERE / NAME / "__init__.py").read_text())[1],
    description="Lifecycle node and offline evaluator for reasoning driving models",
    license="Apache-2.0",
    maintainer="rsd_planner maintainers",
    maintainer_email="rsd-planner@users.noreply.github.com",
    python_requires=">=3.10",
    install_requires=(HERE / "requirements.txt").read_text().split(),
    extras_require={"engines": (HERE / "requirements-engines.txt").read_text().split()},
    packages=find_packages(include=[NAME, f"{NAME}.*"]),
    package_data={
        NAME: ["py.typed"],
        f"{NAME}.demo": ["bag/*", "node.yaml"],
        f"{NAME}.demo.world": ["*.json", "processor/*"],
    },
    data_files=[
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        (f"share/{NAME}/launch", files(Path("launch"))),
        (f"share/{NAME}/config", files(Path("config"))),
        (f"share/{NAME}/demo_model", [name for name in files(MODEL) if name.endswith((".txt", ".md"))]),
        (f"share/{NAME}/demo_model/checkpoint", files(MODEL / "checkpoint")),
        (f"share/{NAME}/demo_model/processor", files(MODEL / "processor")),
        *(
            (f"share/{NAME}/demo_model/{name}", [file for file in files(MODEL / name) if not file.endswith(".png")])
            for name in DRAFTS
        ),
        (f"lib/{NAME}", ["scripts/rsd_planner_node"]),
    ],
    entry_points={
        "console_scripts": [
            "rsd_planner = rsd_planner.cli:main",
            "rsd_planner_node = rsd_planner.ros.main:main",
            "play_bag = rsd_planner.ros.play_bag:main",
            "echo_plans = rsd_planner.ros.echo_plans:main",
        ],
    },
    zip_safe=False,
)
