"""results.json and results.md of a reproduction: rows, and for each claim whether it holds here."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from rsd_planner.evaluation.files import write_whole
from rsd_planner.training.anchor_picture import draw_anchor_sets
from rsd_planner.training.chains import chain_rows
from rsd_planner.training.chains_picture import draw_chains

PAPER = """| paper (Alpamayo R1 10B, off-shelf split) | |
|---|---|
| EAGLE-3: mirrored, FlatRoPE, FlatRoPE + AARL | L 7.35, 7.41, 7.30 |
| theoretical speed-up | 4.36 (EAGLE-3), 4.21 (DFlash) |
| attention on vision, mirrored and FlatRoPE | 84.5%, 70.8% |
| block 16: routine share, speed-up | 78%, 3.5 |
"""
_TITLES = {
    "flat": "FlatRoPE",
    "mirrored": "mirrored",
    "aarl_static": "FlatRoPE + AARL, static anchors",
    "aarl_policy": "FlatRoPE + AARL, policy anchors",
    "token": "FlatRoPE + RL from tokens alone",
    "distill": "FlatRoPE, distillation gone on with",
}
_CLAIMS = (
    ("FlatRoPE raises L over mirrored positions", "flat", "mirrored"),
    ("AARL with static anchors raises L over the distilled draft", "aarl_static", "flat"),
    ("... over as many steps of distillation", "aarl_static", "distill"),
    ("... over as many steps of RL without actions", "aarl_static", "token"),
    ("... over policy anchors", "aarl_static", "aarl_policy"),
)
_AVERAGED = (
    "ceiling",
    "routine_share",
    "action_weighted_acceptance",
    "passes_per_frame",
    "rejected_action_mse",
    "rejected_ade_1s_m",
    "rejected_ade_6s_m",
)
_VARIANCES = ("action_mse_variance_same_noise", "action_mse_variance_independent_noise")
_CLOCKED = ("s_paper", "s_model", "speedup_vs_plain", "tick_speedup_vs_plain")


def write_report(out: Path, rows: Sequence[str], splits: Sequence[str], chains: Sequence[str] = ()) -> dict[str, Any]:
    """Write results.json and results.md of what is measured so far.

    Args:
        chains: Names of the targets of different length.
    """
    found: dict[str, Any] = {"rows": _rows(out, rows, splits), "claims": _claims(out, splits)}
    found["anchor_sets"] = _anchor_sets(out)
    found["noise"] = _noise(out)
    found["attention"] = _attention(out)
    found["chains"] = longer = chain_rows(out / "chains", chains)
    if any(sets["step"] for sets in found["anchor_sets"].values()):
        draw_anchor_sets(found["anchor_sets"], out / "anchor_sets.png")
    if longer:
        draw_chains(longer, out / "chains.png")
    write_whole(out / "results.json", json.dumps(found, indent=1) + "\n")
    write_whole(out / "results.md", _page(found))
    return found


def verdict(differences: Sequence[float]) -> str:
    """Of paired differences, one per seed: whether their mean lies outside their spread."""
    if len(differences) < 2:
        return f"cannot tell from one seed: {differences[0]:+.3f}" if differences else "not measured"
    middle, spread = mean(differences), stdev(differences)
    said = f"{middle:+.3f} ± {spread:.3f} over {len(differences)} seeds"
    if middle - spread > 0:
        return f"holds here: {said}"
    return f"does not hold here: {said}" if middle + spread < 0 else f"cannot tell: {said}"


def _figures(out: Path, kind: str, row: str, split: str) -> dict[int, dict[str, Any]]:
    """Seed -> what was measured."""
    found = {}
    for path in sorted((out / "measured").glob(f"{kind}_{row}_*/{split}.json")):
        found[int(path.parent.name.rpartition("_")[2])] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _rows(out: Path, rows: Sequence[str], splits: Sequence[str]) -> list[dict[str, Any]]:
    clocked = _bench(out)
    found = []
    for kind in ("dflash", "eagle3"):
        for row in rows:
            for split in splits:
                seeds = list(_figures(out, kind, row, split).values())
                if not seeds:
                    continue
                lengths = [one["accepted_length"] for one in seeds]
                line: dict[str, Any] = {"draft": kind, "row": row, "split": split, "seeds": len(seeds)}
                line["accepted_length"] = round(mean(lengths), 4)
                line["spread"] = round(stdev(lengths), 4) if len(lengths) > 1 else None
                for name in _AVERAGED:
                    values = [one[name] for one in seeds if one.get(name) is not None]
                    line[name] = round(mean(values), 5) if values else None
                if split == "off_shelf":
                    line |= clocked.get(f"{kind}_{row}_0", {})
                found.append(line)
    return found


def _bench(out: Path) -> dict[str, dict[str, Any]]:
    """Name of a draft's folder -> its times on independent frames."""
    path = out / "bench" / "bench.json"
    if not path.is_file():
        return {}
    rows = [row for row in json.loads(path.read_text(encoding="utf-8"))["rows"] if row["frames"] == "independent"]
    return {Path(row["draft"]).name: {name: row[name] for name in _CLOCKED} for row in rows if row["draft"]}


def _claims(out: Path, splits: Sequence[str]) -> list[dict[str, str]]:
    found = []
    for claim, better, worse in _CLAIMS:
        for kind in ("dflash", "eagle3"):
            for split in splits:
                one, other = (_figures(out, kind, row, split) for row in (better, worse))
                pairs = [one[seed]["accepted_length"] - other[seed]["accepted_length"] for seed in one.keys() & other]
                if pairs:
                    found.append({"claim": claim, "draft": kind, "split": split, "verdict": verdict(pairs)})
    return found


def _anchor_sets(out: Path) -> dict[str, dict[str, list[float]]]:
    """Per run with anchors: places counted over the steps, on the same frames each time."""
    found = {}
    for path in sorted((out / "drafts").glob("*_aarl_*/run/log.jsonl")):
        lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        lines = [line for line in lines if "static_set" in line]
        names = ("step", "static_set", "policy_set", "left_set")
        found[path.parents[1].name] = {name: [line[name] for line in lines] for name in names}
    return found


def _noise(out: Path) -> dict[str, Any]:
    """Variances of the reward of rejected guesses over the flow noise, one for both reasonings and one for each."""
    for path in (out / "noise").glob("*.json"):
        figures = json.loads(path.read_text(encoding="utf-8"))
        if _VARIANCES[0] in figures:
            names = (
                "split",
                "rejected_guesses",
                "action_mse_variance_same_noise",
                "action_mse_variance_independent_noise",
            )
            return {name: figures[name] for name in names}
    return {}


def _attention(out: Path) -> dict[str, dict[str, list[float]]]:
    """Name of a draft's folder -> per cluster its mass and its share of the tokens, means over the layers."""
    path = out / "attention" / "attention.json"
    if not path.is_file():
        return {}
    found = {}
    for draft in json.loads(path.read_text(encoding="utf-8"))["drafts"]:
        layers = draft["layers"]
        found[Path(draft["path"]).name] = {
            cluster: [round(mean(layer[cluster][name] for layer in layers), 4) for name in ("mass", "token_share")]
            for cluster in layers[0]
        }
    return found


def _page(found: Mapping[str, Any]) -> str:
    return "\n".join(
        [
            "# Reproduction",
            "",
            _table(found["rows"]),
            "L is stated beside the ceiling of a perfect draft of the same depth; `±` is the standard deviation over",
            "seeds; times are of the first seed on off_shelf, single frames without memory.",
            "",
            PAPER,
            "## Claims",
            "",
            "One holds if the mean of the differences, seed by seed, lies more than a standard deviation above zero,",
            "and does not hold if it lies more than one below.",
            "",
            *(f"- {c['claim']} ({c['draft']}, {c['split']}): {c['verdict']}." for c in found["claims"]),
            "",
            "## Anchor sets",
            "",
            *(_anchor_line(name, sets) for name, sets in found["anchor_sets"].items() if sets["step"]),
            "",
            "![sizes of the anchor sets over the steps](anchor_sets.png)",
            "",
            *_noise_line(found["noise"]),
            "## Attention",
            "",
            *(_attention_line(name, clusters) for name, clusters in found["attention"].items()),
            "",
            *(_chains(found["chains"]) if found["chains"] else []),
        ]
    )


def _table(rows: Sequence[Mapping[str, Any]]) -> str:
    columns = {"routine_share": "routine", "action_weighted_acceptance": "weighted", "rejected_action_mse": "MSE"}
    columns |= {"rejected_ade_1s_m": "ADE 1 s, m", "rejected_ade_6s_m": "ADE 6.4 s, m"}
    columns |= {"s_paper": "S paper", "s_model": "S model", "speedup_vs_plain": "S wall clock"}
    lines = [
        "| draft | | split | L | ceiling | " + " | ".join(columns.values()) + " |",
        "|---" * (5 + len(columns)) + "|",
    ]
    for row in rows:
        spread = "" if row["spread"] is None else f" ± {row['spread']:.3f} ({row['seeds']})"
        values = ["" if row.get(name) is None else f"{row[name]:.3g}" for name in columns]
        words = [row["draft"], _TITLES[row["row"]], row["split"], f"{row['accepted_length']:.3f}{spread}"]
        lines.append("| " + " | ".join([*words, f"{row['ceiling']:.2f}", *values]) + " |")
    return "\n".join(lines) + "\n"


def _chains(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    columns = {"tokens_per_frame": "tokens", "accepted_length": "L", "ceiling": "ceiling", "passes_per_frame": "passes"}
    columns |= {"reasoning_ms": "ms", "speedup_vs_plain": "S wall clock"}
    columns |= {"target_cache_mb": "target's cache, MB", "draft_cache_mb": "draft's cache, MB"}
    lines = [
        "## Longer chains",
        "",
        f"| target | | {' | '.join(columns.values())} |",
        "|---" * (2 + len(columns)) + "|",
    ]
    for row in rows:
        values = ["" if row.get(name) is None else f"{row[name]:.3g}" for name in columns]
        lines.append(f"| {row['target']} | {row['name']} | {' | '.join(values)} |")
    return [*lines, "", "![reasoning time and caches over the length of the reasoning](chains.png)", ""]


def _anchor_line(name: str, sets: Mapping[str, Sequence[float]]) -> str:
    static, policy = sets["static_set"], sets["policy_set"]
    return (
        f"- {name}, steps {sets['step'][0]} to {sets['step'][-1]}: static {static[0]:.0f} to {static[-1]:.0f} places, "
        f"policy {policy[0]:.0f} to {policy[-1]:.0f} (least {min(policy):.0f}); "
        f"{sets['left_set'][-1]:.0f} places where the frozen draft agreed were lost."
    )


def _noise_line(noise: Mapping[str, Any]) -> list[str]:
    if not noise:
        return []
    same, independent = (noise[name] for name in _VARIANCES)
    ratio = f"{independent / same:.0f} times that" if same else "that is 0"
    return [
        "## Noise",
        "",
        f"Variance over the flow noise of the action's MSE, mean of {noise['rejected_guesses']} rejected guesses on "
        f"{noise['split']}: {same:.3g} under the same noise, {independent:.3g} under independent noise, {ratio}.",
        "",
    ]


def _attention_line(name: str, clusters: Mapping[str, Sequence[float]]) -> str:
    said = ", ".join(f"{cluster} {mass:.1%} of {share:.1%}" for cluster, (mass, share) in clusters.items())
    return f"- {name}: {said} (mass, of the share that even attention would give)."
