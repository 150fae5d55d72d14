"""A target whose next token is a function of what was said, and drafts that propose what a test tells them to."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rsd_planner.decoding.logits import Choice, Sampling
from rsd_planner.decoding.loop import decode
from rsd_planner.decoding.protocols import Prefill, Proposal, Step
from rsd_planner.decoding.reasoning import Closing, Reasoning
from rsd_planner.plan import TokenSource

COT_END, FUTURE, VOCAB = 8, 9, 12
CLOSING = Closing(COT_END, FUTURE, forbidden=range(10, 12))
PROMPT = (3, 1, 4, 1, 5)

Language = Callable[[tuple[int, ...]], Tensor]  # tokens said -> (VOCAB,) raw logits


def saying(script: Sequence[int]) -> Language:
    """Says the script, and token 0 for ever once what was said is not how the script goes."""

    def logits(said: tuple[int, ...]) -> Tensor:
        follows = said == tuple(script[: len(said)]) and len(said) < len(script)
        row = torch.zeros(VOCAB)
        row[11] = 9.0  # a trajectory bin is always what it would like to say most
        row[script[len(said)] if follows else 0] = 5.0
        return row

    return logits


class ScriptedTarget:
    """Knows what is in its cache; the feature of a token is its place in the sequence."""

    vocab_size = VOCAB

    def __init__(self, language: Language) -> None:
        self.language = language
        self.read: list[int] = []  # the cache behind the prompt
        self.passes: list[list[int]] = []  # tokens of each verify call

    def prefill(self, prompt: str, proposal: Sequence[int] = ()) -> Prefill:
        assert prompt == "prompt"
        self.read, self.passes = [], []
        step = self._step([None, *proposal])
        features = torch.arange(len(PROMPT) + len(proposal)).float()[:, None]
        positions = torch.arange(len(PROMPT)).expand(3, -1)
        return Prefill(step.logits, features, torch.tensor(PROMPT), positions)

    def verify(self, tokens: Sequence[int]) -> Step:
        self.passes.append(list(tokens))
        return self._step(tokens)

    def rollback(self, count: int) -> None:
        assert 0 < count <= len(self.read)
        del self.read[-count:]

    def _step(self, tokens: Sequence[int | None]) -> Step:
        rows, start = [], len(PROMPT) + len(self.read)
        for token in tokens:
            if token is not None:
                assert 0 <= token < VOCAB, "an embedding lookup would fail"
                self.read.append(token)
            rows.append(self.language(tuple(self.read)))
        return Step(torch.stack(rows), torch.arange(start, start + len(tokens)).float()[:, None])


class ScriptedDraft:
    """Proposes what `guess` makes of the tokens committed so far, and checks what it is told."""

    longest = 15

    def __init__(
        self,
        guess: Callable[[tuple[int, ...]], Sequence[int]],
        *,
        source: TokenSource = TokenSource.DRAFT,
        early: bool = False,
        probabilities: Callable[[tuple[int, ...], Sequence[int]], Tensor] | None = None,
    ) -> None:
        """
        Args:
            early: Whether it has something to say before the prompt is read, as a memory has.
        """
        self.guess, self.source, self.early, self.probabilities = guess, source, early, probabilities
        self.target: ScriptedTarget | None = None  # when given, its cache is checked after each pass
        self.limits: list[int] = []

    def open(self, choice: Choice) -> None:
        self.said: tuple[int, ...] = ()
        self.features: list[float] = []
        self.begun = False
        self.choice = choice

    def begin(self, features: Tensor | None, token_ids: Tensor, positions: Tensor) -> None:
        assert features is not None
        assert token_ids.tolist() == list(PROMPT)
        assert positions.shape == (3, len(PROMPT))
        self.begun = True
        self.features += features[:, 0].tolist()

    def extend(self, features: Tensor | None, tokens: Sequence[int]) -> None:
        assert self.begun
        assert features is not None
        self.features += features[:, 0].tolist()
        self.said = (*self.said, *tokens)
        # All committed tokens but the last have a feature, each its own, and the cache holds just these.
        assert self.features == list(range(len(PROMPT) + len(self.said) - 1))
        if self.target is not None:
            assert self.target.read == list(self.said[:-1])

    def propose(self, limit: int) -> Proposal:
        self.limits.append(limit)
        if not (self.begun or self.early):
            return Proposal(self.source)
        tokens = tuple(self.guess(self.said))
        q = None if self.probabilities is None else self.probabilities(self.said, tokens)
        return Proposal(self.source, tokens, q)


def run(
    language: Language, *drafts: ScriptedDraft, max_tokens: int = 20, seed: int = 0, **settings
) -> tuple[Reasoning, ScriptedTarget]:
    """Decode with the drafts; their view of the target's cache is checked on the way."""
    target = ScriptedTarget(language)
    for draft in drafts:
        draft.target = target
    reasoning = decode(
        target,
        "prompt",
        CLOSING,
        sampling=settings.pop("sampling", Sampling()),
        max_tokens=max_tokens,
        generator=torch.Generator().manual_seed(seed),
        drafts=drafts,
        **settings,
    )
    assert target.read == list(reasoning.token_ids)  # all there for the action expert, and nothing else
    return reasoning, target
