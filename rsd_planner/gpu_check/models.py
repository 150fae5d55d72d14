"""All that is measured, made once: the planner's own target and drafts, and the same weights over static buffers."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rsd_planner.gpu_check.draft_passes import DFlashPasses, Eagle3Passes
from rsd_planner.gpu_check.floors import Accounts
from rsd_planner.gpu_check.scene import Scene, make_scene, planner_target
from rsd_planner.gpu_check.shapes import CheckShape
from rsd_planner.gpu_check.target_passes import TargetPasses
from rsd_planner.gpu_check.weights import Drafts, random_drafts, random_network
from rsd_planner.target.alpamayo import AlpamayoTarget
from rsd_planner.target.network import AlpamayoNetwork


@dataclass(frozen=True)
class TargetModels:
    """The target, twice."""

    network: AlpamayoNetwork
    target: AlpamayoTarget
    scene: Scene
    passes: TargetPasses
    accounts: Accounts


@dataclass(frozen=True)
class DraftModels:
    """The drafts, twice."""

    drafts: Drafts
    dflash: DFlashPasses
    eagle3: Eagle3Passes


def make_target(shape: CheckShape, dtype: torch.dtype, device: torch.device) -> TargetModels:
    network = random_network(shape, dtype, device)
    target = planner_target(shape, network)
    scene = make_scene(shape, target, device, dtype)
    return TargetModels(network, target, scene, TargetPasses(shape, network, scene), Accounts(shape, network))


def make_drafts(shape: CheckShape, models: TargetModels, device: torch.device) -> DraftModels:
    drafts = random_drafts(shape, models.network, device)
    return DraftModels(drafts, DFlashPasses(shape, drafts, models.passes), Eagle3Passes(shape, drafts, models.passes))
