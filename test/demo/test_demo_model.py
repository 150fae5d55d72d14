"""The bundled demo model: where it is found, and that it is small enough to be bundled."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from small_world import untrained_model

from rsd_planner.demo import model
from rsd_planner.demo.model import MODEL_DIR, demo_model_dir
from rsd_planner.demo.world.cameras import FRONT, HEIGHT, WIDTH
from rsd_planner.errors import CheckpointError
from rsd_planner.planner import Planner, PlannerSettings
from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.target.config import TRAINED_CAMERAS

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = MODEL_DIR / "checkpoint" / "model.safetensors"


def test_it_is_found_and_loads() -> None:
    assert demo_model_dir() == MODEL_DIR
    planner = Planner.load(demo_model_dir())
    assert planner.info.name == "Alpamayo R1"
    assert planner.info.notice
    planner.close()


def test_without_any_it_says_where_it_looked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere = tmp_path / "rsd_planner" / "demo" / "model.py"
    monkeypatch.setattr(model, "__file__", str(elsewhere))
    monkeypatch.setattr(model, "MODEL_DIR", elsewhere.parent / "model")
    with pytest.raises(CheckpointError, match="the demo model is not installed: looked at"):
        demo_model_dir()


def test_it_knows_the_front_camera_alone_and_takes_its_pictures_as_they_are(tmp_path: Path) -> None:
    target = AlpamayoTarget.load(untrained_model(tmp_path), device="cpu", dtype=torch.float32)
    assert target.config.cameras == (FRONT,)
    assert target.typical_image == (HEIGHT, WIDTH)
    assert target.longest_prompt < 300
    planner = Planner.load(tmp_path, PlannerSettings(max_reasoning_tokens=4))
    assert planner.info.camera_ids == (FRONT,)
    planner.warm_up()
    planner.close()


def test_published_checkpoints_know_the_published_cameras() -> None:
    target = AlpamayoTarget.load(ROOT / "test" / "golden" / "alpamayo_r1", device="cpu", dtype=torch.float32)
    assert target.config.cameras == TRAINED_CAMERAS
    assert target.typical_image == (320, 576)


def test_it_is_small_enough_to_be_bundled() -> None:
    assert WEIGHTS.stat().st_size <= 24e6
    assert max(path.stat().st_size for path in MODEL_DIR.rglob("*") if path.is_file()) <= 25e6


def test_its_card_names_its_weights() -> None:
    from rsd_planner.demo.evaluation.run import weights_hash

    assert weights_hash(MODEL_DIR) in (MODEL_DIR / "MODEL_CARD.md").read_text()
    assert (MODEL_DIR / "NOTICE.txt").read_text().strip()


def test_its_draft_is_small_and_proposes() -> None:
    assert (MODEL_DIR / "draft" / "model.safetensors").stat().st_size < 4e6
    planner = Planner.load(demo_model_dir())
    assert "DFlash" in planner.info.draft
    assert "flat" in planner.info.draft
    planner.close()
