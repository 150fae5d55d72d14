import numpy as np
import torch

from rsd_planner.demo.world.cameras import HEIGHT, WIDTH
from rsd_planner.demo.world.ceiling import CauseNet, evaluate, report
from rsd_planner.demo.world.dataset import CAUSES, Dataset


def test_the_confusion_matrix_counts_every_sample_once() -> None:
    class Blank(Dataset):
        def images(self, index: int) -> np.ndarray:
            return np.full((1, 4, HEIGHT, WIDTH, 3), index, np.uint8)

    causes, distances = np.array([0, 3, 3, 5]), np.array([0.0, 10.0, 20.0, 4.0])
    data = Blank({"cause": causes, "distance": distances}, [], [], np.zeros(4, int), np.arange(4), 1)
    torch.manual_seed(0)
    network = CauseNet()
    network(torch.zeros(1, 6, HEIGHT, WIDTH))
    confusion, errors = evaluate(network.eval(), data)
    assert confusion.sum(axis=1).tolist() == [int((causes == index).sum()) for index in range(len(CAUSES))]
    assert len(errors) == 3


def test_the_report_names_accuracy_overall_and_per_class() -> None:
    confusion = np.zeros((len(CAUSES), len(CAUSES)), np.int64)
    confusion[0, 0], confusion[0, 1], confusion[3, 3] = 3, 1, 4
    text = report("val", confusion, np.array([0.1, -0.2, 0.4]))
    assert "accuracy 0.875 of 8" in text
    assert "median 0.200" in text
    rows = [line.split() for line in text.splitlines()]
    assert [CAUSES[0].value, "0.75"] in [row[:2] for row in rows]
