"""Backbones that an artifact names instead of holding them: found again by name, and known by a hash of their weights.

A name is never a path, so a stranger's artifact cannot choose which folder is read. What has no name of its own, such
as a folder, is found below `$TRIEVER_WEIGHTS`, or where whoever opens the artifact says.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from triever.config import validate
from triever.errors import ArtifactError, TrieverError
from triever.models import weights
from triever.models.backbones import Backbone, load_backbone

FOLDER_NAME = re.compile(r"[^./\\\0][^/\\\0]*")
"""What may stand for a folder: one name, not hidden, without any path."""


@dataclass(frozen=True)
class NamedBackbone:
    """The weights of a backbone, by their name and a hash."""

    name: str
    found: Literal["package", "hub", "folder"]
    sha256: str

    def __post_init__(self) -> None:
        validate(self)

    @classmethod
    def of(cls, backbone: Backbone, tensors: Mapping[str, Tensor]) -> NamedBackbone | None:
        """The name of a backbone with these tensors; none where it was made from nothing and cannot be found again."""
        if backbone.folder is None:
            return None
        digest = weights_hash(tensors)
        if backbone.name in weights.WEIGHTS:
            return cls(backbone.name, "package", digest)
        if backbone.source.startswith("hub "):
            return cls(backbone.name, "hub", digest)
        return cls(backbone.folder.resolve().name, "folder", digest)

    @property
    def needed(self) -> str:
        """What has to be there to open an artifact that only names this."""
        if self.found == "folder":
            return f"set {weights.VARIABLE} to the folder that holds {self.name}"
        return f"have {self.name} {'installed' if self.found == 'package' else 'from the hub'}"

    def tensors(self, given: str | None, artifact: Path) -> dict[str, Tensor]:
        """The weights, from a folder that is given or from where the name leads; refused if they are others."""
        try:
            backbone = self._found(given)
            tensors = backbone.encoder_module().state_dict() if backbone else None
        except TrieverError as error:
            problem = f"{artifact} was trained over {self.name}, and its weights cannot be used: {error.problem}"
            raise ArtifactError(problem, self._hint(given, artifact, error.hint)) from error
        if tensors is None:
            problem = f"{artifact} was trained over a backbone in a folder {self.name}, which it does not hold"
            raise ArtifactError(problem, self._or_name_it(artifact))
        if weights_hash(tensors) != self.sha256:
            here = given or self.name
            problem = f"{artifact} was trained over other weights than those of {here} on this machine"
            right = "with the right ones" if self.found == "folder" else "of the same version"
            hint = f'{self.needed}, {right}, or in Python name them: triever.load("{artifact}", backbone="FOLDER")'
            raise ArtifactError(problem, hint)
        return tensors

    def _hint(self, given: str | None, artifact: Path, hint: str) -> str:
        """What to do where a backbone cannot be used: nothing fetches one that an artifact is opened with."""
        if given:
            is_here = given in weights.WEIGHTS or os.path.isdir(os.path.expanduser(given))
            return hint if is_here else "name the folder that holds it"
        return self._or_name_it(artifact) if self.found == "hub" else hint

    def _or_name_it(self, artifact: Path) -> str:
        return f'{self.needed}, or in Python name it: triever.load("{artifact}", backbone="FOLDER")'

    def _found(self, given: str | None) -> Backbone | None:
        if given:
            return load_backbone(given)
        if self.found != "folder":
            return load_backbone(self.name, folders=False)
        folder = self._in_variable()
        return load_backbone(str(folder)) if folder else None

    def _in_variable(self) -> Path | None:
        """The folder of this name in the folder for weights, if there are both."""
        root = os.environ.get(weights.VARIABLE)
        if not root or not FOLDER_NAME.fullmatch(self.name):
            return None
        folder = Path(root) / self.name
        return folder if folder.is_dir() else None


def weights_hash(tensors: Mapping[str, Tensor]) -> str:
    """A SHA-256 over the names, types, shapes and numbers of tensors, wherever and however they lie."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        plain = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {plain.dtype} {tuple(plain.shape)}\n".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()
