"""EAGLE-3: one decoder layer that goes on from the target's hidden states and then from its own, token by token."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from rsd_planner.decoding.logits import Choice
from rsd_planner.decoding.protocols import Proposal
from rsd_planner.draft.feature_draft import FeatureDraft
from rsd_planner.draft.layers import Attention, Mlp, Rotation, Shape
from rsd_planner.draft.rotary import Rotary
from rsd_planner.draft.target_parts import TargetParts
from rsd_planner.target.kv_cache import KeysValues

DEPTH = 7  # tokens per proposal: as many steps as it is trained to feed its own output back


class Eagle3Layer(nn.Module):
    """A Llama layer whose attention reads the embedding of the next token beside the feature."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.input_layernorm = shape.norm()
        self.hidden_norm = shape.norm()
        self.self_attn = Attention(shape, 2 * shape.hidden, head_norms=False)
        self.post_attention_layernorm = shape.norm()
        self.mlp = Mlp(shape)


class Eagle3Network(nn.Module):
    """Parameters under their published names; the embedding is the target's."""

    def __init__(self, shape: Shape, vocabulary: int | None) -> None:
        """
        Args:
            vocabulary: Tokens of its own lm_head; None where the target's serves.
        """
        super().__init__()
        self.fc = nn.Linear(shape.taps * shape.hidden, shape.hidden, bias=False)
        self.midlayer = Eagle3Layer(shape)
        self.norm = shape.norm()
        self.lm_head = None if vocabulary is None else nn.Linear(shape.hidden, vocabulary, bias=False)

    def forward(
        self,
        embedded: Tensor,
        features: Tensor,
        rotation: Rotation,
        store: KeysValues,
        mask: Tensor | None = None,
        *,
        causal: bool = False,
    ) -> Tensor:
        """The layer's output before the final norm, (B, T, hidden): the feature of the next step.

        Args:
            embedded: (B, T, hidden) embedding of the token after each feature.
            features: (B, T, hidden) `fc` of the target's hidden states, or this function's own output.
            mask, causal: As in `Attention.attend`.
        """
        layer = self.midlayer
        inputs = self._inputs(embedded, features)
        keys, values = store.update(*layer.self_attn.keys_values(inputs, rotation), 0)
        queries = layer.self_attn.queries(inputs, rotation)
        hidden = features + layer.self_attn.attend(queries, keys, values, mask, causal=causal)
        out: Tensor = hidden + layer.mlp(layer.post_attention_layernorm(hidden))
        return out

    def read(self, embedded: Tensor, features: Tensor, rotation: Rotation, store: KeysValues) -> None:
        """Put the keys and values of rows into the store, where nobody asks what the layer makes of them."""
        store.update(*self.midlayer.self_attn.keys_values(self._inputs(embedded, features), rotation), 0)

    def _inputs(self, embedded: Tensor, features: Tensor) -> Tensor:
        return torch.cat([self.midlayer.input_layernorm(embedded), self.midlayer.hidden_norm(features)], dim=-1)


class Eagle3Chain(FeatureDraft):
    """Proposes a chain, each token from the layer's own output for the one before."""

    def __init__(self, shape: Shape, rotary: Rotary, target: TargetParts, *, token_ids: Tensor | None) -> None:
        """
        Args:
            token_ids: (draft vocabulary,) what its tokens are to the target; None if the two vocabularies are the same.
        """
        super().__init__(shape, rotary, target, longest=DEPTH)
        self._token_ids = token_ids
        self._newest = (torch.empty(0), torch.empty(0))  # what `step` said of the last committed token

    @abstractmethod
    def fuse(self, features: Tensor) -> Tensor:
        """(1, T, taps * hidden) of the target -> (1, T, hidden)."""

    @abstractmethod
    def step(self, features: Tensor, following: Tensor) -> tuple[Tensor, Tensor]:
        """One causal pass over (1, T, hidden) features and the (T,) tokens after them, behind what the cache holds.

        Returns:
            Of the newest row, its (1, 1, hidden) output and (draft vocabulary,) float32 logits.
        """

    def read(self, features: Tensor, following: Tensor) -> None:
        """See `FeatureDraft.read`."""
        self._newest = self.step(self.fuse(features[None]), following)

    def guess(self, limit: int, choice: Choice) -> Proposal:
        """See `FeatureDraft.guess`."""
        self.cache.reserve(limit)
        context = self.cache.length
        tokens: list[Tensor] = []
        chances: list[Tensor] = []
        hidden, logits = self._newest
        while True:
            if choice.greedy:
                token = self._best(logits, choice)
            else:
                q = choice.distribution(self._whole(logits))
                if not torch.isfinite(q).all():
                    break
                token = torch.tensor(choice.draw(q), device=q.device)
                chances.append(q)
            tokens.append(token)
            if len(tokens) == limit:
                break
            hidden, logits = self.step(hidden, token[None])
            self.cache.commit(1)
        self.cache.rollback(self.cache.length - context)
        said = torch.stack(tokens).tolist() if tokens else []
        return Proposal(self.source, tuple(said), torch.stack(chances) if chances else None)

    def _best(self, logits: Tensor, choice: Choice) -> Tensor:
        if self._token_ids is None:
            return choice.best(logits)[1]
        return self._token_ids.take(logits.argmax())  # a draft vocabulary holds nothing that is forbidden

    def _whole(self, logits: Tensor) -> Tensor:
        """Logits over the target's vocabulary; what the draft has no word for is impossible."""
        if self._token_ids is None:
            return logits
        whole = logits.new_full((self.target.vocab_size,), -torch.inf)
        whole[self._token_ids] = logits
        return whole


class Eagle3Draft(Eagle3Chain):
    """The chain in PyTorch."""

    def __init__(
        self, network: Eagle3Network, shape: Shape, rotary: Rotary, target: TargetParts, *, token_ids: Tensor | None
    ) -> None:
        """See `Eagle3Chain`."""
        super().__init__(shape, rotary, target, token_ids=token_ids)
        self.network = network
        self.lm_head = network.lm_head or target.lm_head

    def fuse(self, features: Tensor) -> Tensor:
        """See `Eagle3Chain.fuse`."""
        fused: Tensor = self.network.fc(features)
        return fused

    def step(self, features: Tensor, following: Tensor) -> tuple[Tensor, Tensor]:
        """See `Eagle3Chain.step`."""
        hidden = self.rows(features, following)[:, -1:]
        return hidden, self.logits(hidden[0, 0])

    def rows(self, features: Tensor, following: Tensor) -> Tensor:
        """The (1, T, hidden) output of `step`'s pass."""
        count, past = len(following), self.cache.length
        mask = None
        if count > 1 and past:
            mask = torch.ones(count, past + count, dtype=torch.bool, device=features.device).tril(diagonal=past)
        embedded = self.target.embedding(following)[None]
        rotation = self.rotary.rows(past, count)
        hidden: Tensor = self.network(embedded, features, rotation, self.cache, mask, causal=count > 1 and not past)
        return hidden

    def logits(self, hidden: Tensor) -> Tensor:
        """(..., hidden) before the final norm -> (..., draft vocabulary) float32."""
        return self.lm_head(self.network.norm(hidden)).float()
