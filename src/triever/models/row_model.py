"""What is trained where docids have rows: an encoder that reads questions, and the row of every docid."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from triever.models.encoder import Encoder

SCALE = 30.0
"""What the product of a query and a row is multiplied by before it has learned better."""


class RowModel(nn.Module):
    """Scores documents by the rows of their docids; a document weighs as much as all of its docids together."""

    def __init__(self, reader: Encoder, rows: Tensor, owners: Tensor) -> None:
        super().__init__()
        self.reader = reader
        self.rows = nn.Parameter(rows.float())
        self.scale = nn.Parameter(torch.tensor(SCALE))
        self.documents = int(owners[-1]) + 1 if len(owners) else 0
        self.register_buffer("owners", owners)
        self.owners: Tensor

    @property
    def encoder(self) -> Encoder:
        """What reads."""
        return self.reader

    def at_most(self, wanted: int) -> int:
        """How many tokens of a text can be read, up to as many as are wanted."""
        return self.reader.at_most(wanted)

    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        """(texts, documents) the logs of the weights of documents for texts."""
        return self.weights(self.reader(ids, mask))

    def weights(self, vectors: Tensor) -> Tensor:
        """The same for the vectors (texts, d) of texts."""
        with torch.autocast(vectors.device.type, enabled=False):  # half precision would blur near documents
            each = self.scale * (vectors.float() @ self.rows.T)
            if len(self.owners) == self.documents:
                return each
            return log_sums(each, self.owners, self.documents)


def log_sums(values: Tensor, owners: Tensor, count: int) -> Tensor:
    """(n, count) the log-sum-exp of the values (n, m) of each owner (m,); each has at least one."""
    index = owners.expand_as(values)
    top = torch.full((len(values), count), -torch.inf, dtype=values.dtype, device=values.device)
    top = top.scatter_reduce(1, index, values.detach(), "amax")
    sums = torch.zeros_like(top).index_add(1, owners, (values - top[:, owners]).exp())
    return top + sums.log()
