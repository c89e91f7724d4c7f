"""The controller of RCL (Xu and Zhu 2018): a recurrent network that chooses how many units each layer gains.

It learns by policy gradient: what was rewarded more than expected becomes likelier.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

HIDDEN, CELLS = 100, 2  # width and number of the LSTM's layers
RATE, VALUE_RATE = 1e-3, 5e-3  # of Adam, for the LSTM and for what is expected


def reward(accuracy: float, units: Sequence[int], price: float) -> float:
    """R: the accuracy on images held out, less a price per unit."""
    return accuracy - price * sum(units)


def policy_loss(logits: Tensor, actions: Tensor, advantage: Tensor | float) -> Tensor:
    """-log p(actions) times the advantage: logits (layers, choices), an action per layer."""
    chosen = logits.log_softmax(1).gather(1, actions[:, None])
    return -chosen.sum() * advantage


class Controller(nn.Module):
    """For every layer a softmax over 0 .. most units. Every layer's probabilities are the LSTM's next input.

    most: the largest number of units for each layer.
    """

    start: Tensor
    beyond: Tensor

    def __init__(self, most: Sequence[int]) -> None:
        super().__init__()
        choices = max(most) + 1
        self.register_buffer("start", torch.randn(choices))
        units = torch.arange(choices)
        self.register_buffer("beyond", torch.stack([units > each for each in most]), persistent=False)
        self.recurrent = nn.LSTM(choices, HIDDEN, CELLS)
        self.read = nn.Linear(HIDDEN, choices)
        self.value = nn.Parameter(torch.zeros(()))  # the reward that is expected
        policy = [*self.recurrent.parameters(), *self.read.parameters()]
        groups = [{"params": policy, "lr": RATE}, {"params": [self.value], "lr": VALUE_RATE}]
        self._optimizer = (torch.optim.Adam(groups),)

    def forward(self) -> Tensor:
        """Logits (layers, choices); -inf beyond what a layer may gain."""
        given, state, found = self.start[None], None, []
        for beyond in self.beyond:
            out, state = self.recurrent(given, state)
            logits = self.read(out).masked_fill(beyond, -torch.inf)  # (1, choices)
            found.append(logits)
            given = logits.softmax(1)
        return torch.cat(found)

    @torch.no_grad()
    def choose(self) -> list[int]:
        """Units for each layer, drawn."""
        return torch.multinomial(self().softmax(1), 1)[:, 0].tolist()

    def learn(self, units: Sequence[int], rewarded: float) -> None:
        """One step of Adam for the policy, and one for what is expected."""
        (optimizer,) = self._optimizer
        optimizer.zero_grad()
        error = rewarded - self.value
        loss = policy_loss(self(), torch.tensor(units), error.detach()) + error.square()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    def tensors(self) -> dict[str, Tensor]:
        """Weights and Adam's state, by name."""
        (optimizer,) = self._optimizer
        adam = {
            f"adam/{name}/{key}": value
            for name, parameter in self.named_parameters()
            for key, value in optimizer.state[parameter].items()
        }
        return {**self.state_dict(), **adam}

    def load_tensors(self, tensors: Mapping[str, Tensor]) -> None:
        """Take back what `tensors` gave."""
        (optimizer,) = self._optimizer
        self.load_state_dict({key: tensor for key, tensor in tensors.items() if not key.startswith("adam/")})
        for name, parameter in self.named_parameters():
            prefix = f"adam/{name}/"
            own = {key.removeprefix(prefix): t.clone() for key, t in tensors.items() if key.startswith(prefix)}
            if own:
                optimizer.state[parameter] = own
